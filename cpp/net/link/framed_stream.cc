#include <algorithm>
#include <cstring>
#include <utility>

#include "base/crc32c.h"
#include "base/planted.h"
#include "base/text.h"
#include "net/link/frames.h"
#include "net/socket/linger.h"

namespace jccl::net {
namespace {

constexpr std::size_t kSizeBytes = 4;
constexpr std::size_t kHeadBytes = 8;            // and the checksum
constexpr std::size_t kReadBudget = 256 * 1024;  // per turn; others want the loop too
constexpr std::size_t kReadCost = 64;
constexpr std::size_t kRoomBytes = 4 * 1024;   // to read into, unless a frame is longer
constexpr std::size_t kKeptBytes = 64 * 1024;  // a queue that was longer gives memory back
constexpr std::size_t kLastWordsMax = 256 * 1024;

std::uint32_t u32_at(const Bytes& bytes, std::size_t at) {
  std::uint32_t value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

}  // namespace

struct FramedStream::Impl : std::enable_shared_from_this<Impl> {
  explicit Impl(Loop& l) : loop(l) {}
  ~Impl() { count(0); }

  std::size_t held() const {
    return in.capacity() + out.capacity() + (stream ? stream->held_bytes() : 0);
  }

  void count(std::size_t now) {
    if (!options.memory) return;
    HeldMemory& memory = *options.memory;
    memory.bytes += now - counted;
    const bool more = now > std::exchange(counted, now);
    if (more && memory.bytes > memory.max && memory.over) memory.over();
  }
  void count_held() { count(held()); }

  // Handlers hold it weakly: they may outlast the owner's interest.
  template <void (Impl::*step)()>
  auto later() {
    return [weak = weak_from_this()] {
      const auto self = weak.lock();
      if (self && self->stream) (*self.*step)();
    };
  }

  std::uint32_t frame_max() const {
    return authenticated || JCCL_PLANTED("long-hello-taken") ? options.frame_bytes_max
                                                             : options.hello_bytes_max;
  }

  void read() {
    for (std::size_t budget = kReadBudget; stream && !paused && budget > 0;) {
      make_room();
      const std::size_t n = stream->read_now(MutableView(in).subspan(in_end));
      if (n == 0) {
        if (!stream->failure().ok()) return read_failed();
        if (!JCCL_PLANTED("arrived-not-counted")) count_held();
        stream->when_readable(later<&Impl::read>());
        return;
      }
      in_end += n;
      // By reads, too: a record of TLS may hold one byte.
      budget -= std::min(budget, std::max(n, kReadCost));
      parse();
    }
    if (!stream) return;
    if (!JCCL_PLANTED("arrived-not-counted")) count_held();
    if (!paused) loop.post(later<&Impl::read>());
  }

  void go_on() {
    parse();
    if (stream) read();
  }

  // A write may have failed with the other side's last words still to be read; only when reading
  // ends too, nothing more can come.
  void read_failed() {
    const Status refused = refusal();
    end(refused.ok() ? stream->failure() : refused);
  }

  // What a listener with a token says to a plain stream, in place of a first frame: with the limit
  // of an authenticated stream it looks like the head of a long one.
  Status refusal() const {
    const Bytes alert = alert_record();
    const ByteView rest = ByteView(in).subspan(in_at, in_end - in_at);
    if (heard || !std::ranges::equal(rest, alert)) return {};
    return explain_tls_record(rest, stream->remote_text());
  }

  // Room for a few small frames, or for twice of what has arrived of a long one, whose announced
  // size parse() has checked. A connection holds no more, for a master has a thousand.
  void make_room() {
    std::size_t wanted = std::min<std::size_t>(kHeadBytes + frame_max(), kRoomBytes);
    if (const std::size_t held = in_end - in_at; held >= kSizeBytes) {
      wanted = std::max(wanted, std::min(kHeadBytes + u32_at(in, in_at), 2 * held));
    }
    if (in_at == in_end) {
      in_at = in_end = 0;
      if (in.size() > kKeptBytes) in = Bytes();  // `= {}` would keep the memory
    }
    if (in_at > 0 && in_at + wanted > in.size()) {
      std::memmove(in.data(), in.data() + in_at, in_end - in_at);
      in_end -= in_at;
      in_at = 0;
    }
    if (in.size() < wanted) in.resize(wanted);
  }

  void parse() {
    while (stream && !paused && in_end - in_at >= kSizeBytes) {
      const std::uint32_t size = u32_at(in, in_at);
      if (size > frame_max()) return end(too_large(size));
      if (in_end - in_at < kHeadBytes + size) return;
      const std::uint32_t crc = u32_at(in, in_at + kSizeBytes);
      const ByteView payload = ByteView(in).subspan(in_at + kHeadBytes, size);
      if (base::crc32c(payload) != crc && !JCCL_PLANTED("frame-crc-not-compared")) {
        return end(Status{Code::kCorrupt, base::cat("checksum of a frame from ",
                                                    stream->remote_text(), " does not match")});
      }
      in_at += kHeadBytes + size;
      heard = true;
      const auto callback = on_frame;  // it may replace or end everything here
      callback(payload);
    }
  }

  Status too_large(std::uint32_t size) const {
    const std::string remote = stream->remote_text();
    const Status tls = explain_tls_record(ByteView(in).subspan(in_at, kSizeBytes), remote);
    if (!heard && !tls.ok()) return tls;
    return Status{Code::kLimit,
                  base::cat("frame of ", size, " bytes from ", remote, ", allowed ", frame_max(),
                            heard ? "" : "; its first bytes are those of another program")};
  }

  void write() {
    write_asked = false;
    while (out_at < out.size()) {
      const ByteView rest = ByteView(out).subspan(out_at);
      const std::size_t n = stream->write_now(std::span<const ByteView>(&rest, 1));
      if (n == 0) {
        if (stream->failure().ok()) {
          write_asked = true;
          stream->when_writable(later<&Impl::write>());
        } else {
          out.clear();  // reading will tell the owner
          out_at = 0;
          write_broken = true;
        }
        return count_held();
      }
      out_at += n;
    }
    if (out.capacity() > kKeptBytes && !JCCL_PLANTED("queue-memory-kept")) out = Bytes();
    out.clear();
    out_at = 0;
    count_held();
  }

  void ask_write() {
    if (write_asked || write_broken) return;
    write_asked = true;
    loop.post(later<&Impl::write>());
  }

  // The stream is gone, callbacks too; what was left is returned for a last use.
  std::unique_ptr<ByteStream> stop() {
    if (!stream) return nullptr;
    last_stats = stream->stats();
    loop.cancel(std::exchange(hello_timer, 0));
    options.pending.reset();
    on_frame = nullptr;
    count(0);  // the owner is about to let go
    return std::move(stream);
  }

  void end(Status status) {
    const auto keep = shared_from_this();
    stop();
    const auto callback = std::exchange(on_closed, nullptr);
    if (callback) callback(std::move(status));
  }

  Bytes unsent() const { return {out.begin() + static_cast<std::ptrdiff_t>(out_at), out.end()}; }

  Loop& loop;
  std::unique_ptr<ByteStream> stream;
  FramedOptions options;
  std::function<void(ByteView)> on_frame;
  std::function<void(Status)> on_closed;
  bool authenticated = false;
  bool heard = false;  // a frame, ever
  bool paused = false;
  bool write_asked = false;
  bool write_broken = false;
  TimerId hello_timer = 0;
  Bytes in;
  std::size_t in_at = 0;
  std::size_t in_end = 0;
  std::size_t counted = 0;  // of in and out, by the owner of many
  Bytes out;
  std::size_t out_at = 0;
  StreamStats last_stats;
};

FramedStream::FramedStream(Loop& loop, std::unique_ptr<ByteStream> stream, FramedOptions options)
    : impl_(std::make_shared<Impl>(loop)) {
  JCCL_CHECK(loop.confined());
  impl_->stream = std::move(stream);
  impl_->options = std::move(options);
  if (impl_->options.pending) {
    impl_->options.pending->give_way = [weak = impl_->weak_from_this()] {
      const auto self = weak.lock();
      if (!self || !self->stream) return;
      self->end(
          Status{Code::kLimit, base::cat(self->stream->remote_text(),
                                         " was closed to make room for others, before its hello")});
    };
  }
  if (impl_->options.hello_by == base::kNever) return;
  impl_->hello_timer =
      loop.run_after(impl_->options.hello_by - loop.now(), [weak = impl_->weak_from_this()] {
        const auto self = weak.lock();
        if (!self || !self->stream) return;
        self->hello_timer = 0;
        self->end(Status{Code::kDeadline,
                         base::cat("no hello from ", self->stream->remote_text(), " in time")});
      });
}

FramedStream::~FramedStream() { close(); }

void FramedStream::start(std::function<void(ByteView)> on_frame,
                         std::function<void(Status)> on_closed) {
  if (!impl_->stream) return;
  impl_->on_frame = std::move(on_frame);
  impl_->on_closed = std::move(on_closed);
  impl_->loop.post(impl_->later<&Impl::read>());
}

void FramedStream::authenticated() {
  impl_->authenticated = true;
  impl_->loop.cancel(std::exchange(impl_->hello_timer, 0));
  impl_->options.pending.reset();
}

void FramedStream::pause() { impl_->paused = !JCCL_PLANTED("pause-forgotten"); }

void FramedStream::resume() {
  if (!std::exchange(impl_->paused, false) || !impl_->stream) return;
  impl_->loop.post(impl_->later<&Impl::go_on>());
}

Status FramedStream::send(ByteView payload) {
  if (!impl_->stream) return Status{Code::kClosed, "the connection is closed"};
  if (payload.size() > impl_->options.sent_bytes_max) {
    return Status{Code::kLimit, base::cat("a frame of ", payload.size(), " bytes, allowed ",
                                          impl_->options.sent_bytes_max)};
  }
  if (queued_bytes() + payload.size() > impl_->options.queue_bytes_max &&
      !JCCL_PLANTED("queue-unbounded")) {
    return Status{Code::kLimit, base::cat(impl_->stream->remote_text(), " does not read: ",
                                          queued_bytes(), " bytes wait for it")};
  }
  if (impl_->write_broken) return {};  // on_closed is on its way
  const std::uint32_t head[2] = {static_cast<std::uint32_t>(payload.size()), base::crc32c(payload)};
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(head);
  impl_->out.insert(impl_->out.end(), bytes, bytes + sizeof(head));
  impl_->out.insert(impl_->out.end(), payload.begin(), payload.end());
  impl_->count_held();
  impl_->ask_write();
  return {};
}

void FramedStream::close() {
  impl_->stop();
  impl_->on_closed = nullptr;
}

void FramedStream::finish() {
  if (!impl_->stream) return;
  Bytes rest = impl_->unsent();
  auto pending = impl_->options.pending;
  std::unique_ptr<ByteStream> stream = impl_->stop();
  impl_->on_closed = nullptr;
  impl_->out = Bytes();
  impl_->out_at = 0;
  if (rest.size() > kLastWordsMax && !JCCL_PLANTED("last-words-of-any-length")) return;
  if (!rest.empty()) stream->write_ahead(std::move(rest));
  linger(impl_->loop, std::move(stream), std::move(pending));
}

std::unique_ptr<ByteStream> FramedStream::take() {
  if (!impl_->stream) return nullptr;
  Bytes rest = impl_->unsent();
  std::unique_ptr<ByteStream> stream = impl_->stop();
  impl_->on_closed = nullptr;
  stream->when_readable(nullptr);
  stream->when_writable(nullptr);
  if (!rest.empty()) stream->write_ahead(std::move(rest));
  if (impl_->in_at < impl_->in_end && !JCCL_PLANTED("unread-bytes-lost")) {
    const ByteView over = ByteView(impl_->in).subspan(impl_->in_at, impl_->in_end - impl_->in_at);
    stream->unread({over.begin(), over.end()});
  }
  return stream;
}

const ByteStream* FramedStream::stream() const { return impl_->stream.get(); }

std::size_t FramedStream::queued_bytes() const { return impl_->out.size() - impl_->out_at; }

std::size_t FramedStream::held_bytes() const { return impl_->held(); }

StreamStats FramedStream::stats() const {
  return impl_->stream ? impl_->stream->stats() : impl_->last_stats;
}

}  // namespace jccl::net
