#include "net/security/sealed_stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/planted.h"
#include "base/text.h"

namespace jccl::net {
namespace {

// A view of so many bytes begins a record of its own: by the time it arrives, the reader knows from
// what came before where it belongs.
constexpr std::size_t kLargeBytes = 4 * 1024;
constexpr std::size_t kOutBytes = kSealedBytesMax + kLargeBytes;  // and small records before it
constexpr std::size_t kReadAheadBytes = 16 * 1024;  // beyond a record: small ones come together
constexpr std::size_t kInBytes = kSealedBytesMax + kSealOverhead + kReadAheadBytes;

// Bytes in several places, gone through in order.
template <typename View>
class Walk {
 public:
  explicit Walk(std::span<const View> parts) : parts_(parts) {
    for (const View& part : parts) left_ += part.size();
  }
  std::size_t left() const { return left_; }
  // The next of them in one place, at most `most`. Some are left.
  View take(std::size_t most) {
    while (at_ == parts_.front().size()) {
      parts_ = parts_.subspan(1);
      at_ = 0;
    }
    const View out = parts_.front().subspan(at_, std::min(most, parts_.front().size() - at_));
    at_ += out.size();
    left_ -= out.size();
    return out;
  }
  // How many the next record takes.
  std::size_t record() const {
    std::size_t size = 0;
    std::size_t before = kLargeBytes;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const std::size_t more = parts_[i].size() - (i == 0 ? at_ : 0);
      if (more == 0) continue;
      if (more >= kLargeBytes && before < kLargeBytes) break;
      size += more;
      before = more;
      if (size >= kSealedBytesMax) return kSealedBytesMax;
    }
    return size;
  }

 private:
  std::span<const View> parts_;
  std::size_t at_ = 0;
  std::size_t left_ = 0;
};

class SealedStream final : public ByteStream {
 public:
  SealedStream(std::unique_ptr<ByteStream> lower, const SealSecrets& secrets,
               std::uint64_t records_per_key)
      : lower_(std::move(lower)),
        sealing_(Seal::Way::kSealing, secrets.writing, records_per_key),
        opening_(Seal::Way::kOpening, secrets.reading, records_per_key) {
    if (!lower_->flush_ahead()) arm_flush();
  }

  void when_readable(std::function<void()> fn) override { lower_->when_readable(std::move(fn)); }
  void when_writable(std::function<void()> fn) override {
    on_writable_ = std::move(fn);
    arm_flush();
  }
  void shut_write() override {
    if (std::exchange(ended_, true)) return;
    flush();
    if (out_.size() - out_end_ < kSealOverhead) out_.resize(out_end_ + kSealOverhead);
    std::uint8_t* const at = out_.data() + out_end_;
    Seal::put_size(0, at);
    sealing_.begin(at);
    sealing_.end_sealing(at + kSealHeadBytes);
    out_end_ += kSealOverhead;
    flush();
    if (waits_to_leave()) arm_flush();
  }
  const Status& failure() const override { return failure_; }
  StreamStats stats() const override { return lower_->stats(); }
  void pace(std::uint64_t bytes_per_second) override { lower_->pace(bytes_per_second); }
  void probe() override { lower_->probe(); }
  Time last_received() const override { return lower_->last_received(); }
  std::string remote_text() const override { return lower_->remote_text(); }
  bool remote_is_loopback() const override { return lower_->remote_is_loopback(); }
  std::size_t held_bytes() const override { return in_.capacity() + out_.capacity(); }
  bool is_tls() const override { return true; }

 protected:
  std::size_t read_some(std::span<const MutableView> parts) override {
    const std::size_t n = read_apart(parts);
    end_read_apart();
    return n;
  }

 public:
  std::size_t read_apart(std::span<const MutableView> parts) override {
    Walk<MutableView> into(parts);
    const std::size_t wanted = into.left();
    // Of one record alone: callers bound their turns by reads, and a record may hold one byte.
    if (wanted > 0 && opened_at_ == opened_end_ && record_is_here()) (void)open(&into);
    const auto more = [&] {
      return opened_at_ < opened_end_ ||
             (JCCL_PLANTED("records-without-end") && record_is_here() && open(&into));
    };
    while (into.left() > 0 && more()) {
      const MutableView to = into.take(opened_end_ - opened_at_);
      std::memcpy(to.data(), in_.data() + opened_at_, to.size());
      opened_at_ += to.size();
    }
    return wanted - into.left();
  }
  bool read_apart_failed() const override { return read_ended_ || lower_->read_apart_failed(); }
  void end_read_apart() override {
    lower_->end_read_apart();
    if (!why_read_ended_.ok()) lose(why_read_ended_);
    // A write that failed below must not hide what can still be read.
    if (const Status& below = lower_->failure(); dry_ && !below.ok()) {
      lose({below.code, base::cat(below.text, ", without a last word")});
    }
  }

 protected:
  // False while something is left of what is below, or of a last word.
  bool prepare_apart() override {
    if (ended_ || !failure_.ok() || !lower_->begin_apart()) return false;
    if (out_.empty()) out_.resize(kOutBytes);
    return apart_ = true;
  }

  std::size_t write_some(std::span<const ByteView> parts) override {
    if (prepare_apart()) {
      const std::size_t n = write_apart(parts);
      end_apart();
      return n;
    }
    flush();
    if (waits_to_leave()) arm_flush();
    return 0;
  }

 public:
  std::size_t write_apart(std::span<const ByteView> parts) override {
    push();
    Walk<ByteView> from(parts);
    const std::size_t given = from.left();
    // What the kernel did not take stays alone.
    while (from.left() > 0 && out_at_ == 0 && !stuck_) {
      const std::size_t size = from.record();
      if (out_end_ + size + kSealOverhead > out_.size()) {
        push();
        continue;
      }
      seal(&from, size);
    }
    if (!stuck_) push();
    return given - from.left();
  }

  bool write_apart_failed() const override { return lower_->write_apart_failed(); }
  int descriptor() const override { return lower_->descriptor(); }
  void end_apart() override {
    apart_ = false;
    lower_->end_apart();
    pushed();
    if (waits_to_leave()) arm_flush();
  }

 private:
  // ---- writing ----

  bool waits_to_leave() const { return out_at_ < out_end_; }

  void seal(Walk<ByteView>* from, std::size_t size) {
    std::uint8_t* at = out_.data() + out_end_;
    out_end_ += size + kSealOverhead;
    Seal::put_size(size, at);
    sealing_.begin(at);
    at += kSealHeadBytes;
    while (size > 0) {
      const ByteView view = from->take(size);
      sealing_.add(view, at);
      at += view.size();
      size -= view.size();
    }
    sealing_.end_sealing(at);
  }

  void flush() {
    stuck_ = waits_to_leave() && !lower_->begin_apart();
    if (waits_to_leave() && !stuck_) {
      push();
      lower_->end_apart();
    }
    pushed();
  }

  // Between begin_apart() and end_apart() of what is below.
  void push() {
    while (waits_to_leave()) {
      const ByteView rest = ByteView(out_).subspan(out_at_, out_end_ - out_at_);
      const std::size_t n = lower_->write_apart(std::span<const ByteView>(&rest, 1));
      stuck_ = n == 0;
      if (stuck_) return;
      out_at_ += n;
    }
    stuck_ = false;
    out_at_ = out_end_ = 0;
  }

  void pushed() {
    if (stuck_ && !lower_->failure().ok()) lose(lower_->failure());
    if (!waits_to_leave() && ended_ && !std::exchange(shut_, true)) lower_->shut_write();
  }

  // What is sealed must leave even if nobody writes again.
  void arm_flush() {
    lower_->when_writable([this] {
      if (apart_ && !JCCL_PLANTED("flushes-beside-the-writer")) return;  // end_apart() asks again
      if (!lower_->flush_ahead() && lower_->failure().ok()) return arm_flush();
      flush();
      if (waits_to_leave() && failure_.ok()) return arm_flush();
      const std::function<void()> fn = std::exchange(on_writable_, nullptr);
      if (fn) fn();  // may destroy this stream
    });
  }

  // ---- reading ----

  void lose(const Status& status) {
    if (failure_.ok()) failure_ = status;
  }

  void end_reading(std::string_view why) {
    read_ended_ = true;
    why_read_ended_ = {Code::kLinkLost, base::cat(remote_text(), why)};
  }

  std::size_t held() const { return in_end_ - in_at_; }

  // Reads until a whole record waits at in_at_. False: there is none now, or none any more.
  bool record_is_here() {
    while (!read_ended_) {
      std::size_t needed = kSealHeadBytes;
      if (held() >= needed) {
        const std::uint32_t size = Seal::size_in(in_.data() + in_at_);
        if (size > kSealedBytesMax) {
          end_reading(" sent a record that is too long");
          return false;
        }
        needed = kSealOverhead + size;
      }
      if (held() >= needed) return true;
      if (!refill(needed)) return false;
    }
    return false;
  }

  // Of a long record little more than it is read, so that little is moved to the front.
  bool refill(std::size_t needed) {
    if (in_.empty()) in_.resize(kInBytes);
    if (in_at_ == in_end_) in_at_ = in_end_ = 0;
    const std::size_t wanted = std::max(needed + kSealHeadBytes, kReadAheadBytes);
    if (in_at_ + wanted > in_.size()) {
      std::memmove(in_.data(), in_.data() + in_at_, held());
      in_end_ -= std::exchange(in_at_, 0);
    }
    const MutableView room = MutableView(in_).subspan(in_end_, in_at_ + wanted - in_end_);
    // What an earlier owner had read comes first.
    const std::size_t n =
        lower_->begin_read_apart() ? lower_->read_apart({&room, 1}) : lower_->read_now(room);
    in_end_ += n;
    dry_ = n == 0;
    return n > 0;
  }

  // Where it belongs if that has room for all of it, else where it lies. False: reading has ended.
  bool open(Walk<MutableView>* into) {
    std::uint8_t* const head = in_.data() + in_at_;
    std::uint8_t* at = head + kSealHeadBytes;
    const std::size_t size = Seal::size_in(head);
    const bool straight = size <= into->left();
    Walk<MutableView> ahead = *into;
    opening_.begin(head);
    for (std::size_t left = straight ? size : 0; left > 0;) {
      const MutableView to = ahead.take(left);
      opening_.add({at, to.size()}, to.data());
      at += to.size();
      left -= to.size();
    }
    if (!straight) opening_.add({at, size}, at);
    const bool good = opening_.end_opening(head + kSealHeadBytes + size);
    if (straight && JCCL_PLANTED("seal-told-before-its-tag")) *into = ahead;
    if (!good && !(size == 0 && JCCL_PLANTED("seal-end-not-authenticated"))) {
      end_reading(" sent a record whose seal is broken");
      return false;
    }
    if (size == 0) {
      end_reading(" closed the connection");
      return false;
    }
    if (straight) *into = ahead;
    opened_at_ = in_at_ + kSealHeadBytes;
    opened_end_ = opened_at_ + (straight ? 0 : size);
    in_at_ += size + kSealOverhead;
    return true;
  }

  std::unique_ptr<ByteStream> lower_;
  Seal sealing_, opening_;
  Status failure_;
  // [out_at_, out_end_) is sealed and not sent.
  Bytes out_;
  std::size_t out_at_ = 0;
  std::size_t out_end_ = 0;
  bool stuck_ = false;  // the last push left something
  bool apart_ = false;  // all of writing is another thread's
  bool ended_ = false;
  bool shut_ = false;
  std::function<void()> on_writable_;
  // [in_at_, in_end_) is sealed; [opened_at_, opened_end_), before it, is not, and was not asked
  // for.
  Bytes in_;
  std::size_t in_at_ = 0;
  std::size_t in_end_ = 0;
  std::size_t opened_at_ = 0;
  std::size_t opened_end_ = 0;
  bool read_ended_ = false;
  Status why_read_ended_;
  bool dry_ = false;  // the last read below gave nothing
};

}  // namespace

std::unique_ptr<ByteStream> sealed_stream(std::unique_ptr<ByteStream> lower,
                                          const SealSecrets& secrets,
                                          std::uint64_t records_per_key) {
  return std::make_unique<SealedStream>(std::move(lower), secrets, records_per_key);
}

}  // namespace jccl::net
