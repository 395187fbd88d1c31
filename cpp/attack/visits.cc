#include "attack/visits.h"

#include <array>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "net/link/frames.h"
#include "net/socket/dial.h"
#include "net/socket/loop.h"
#include "wire/serialize.h"

namespace jccl::attack {
namespace {

constexpr base::Duration kAgainEvery = 20 * base::kMillisecond;  // sheer bandwidth is no lie
constexpr base::Duration kBeatEvery = 200 * base::kMillisecond;

// Confined to the loop's thread.
class Visitor {
 public:
  Visitor(net::Loop& loop, Visit visit, const Pool& pool, std::atomic<std::uint64_t>& count)
      : loop_(loop), visit_(std::move(visit)), pool_(pool), count_(count) {
    net::DialOptions options;
    options.purpose = visit_.purpose;
    dial_ = net::dial(loop_, {visit_.to}, visit_.credentials, options,
                      [this](base::Result<std::unique_ptr<net::ByteStream>> stream) {
                        over_ = !stream.ok();
                        if (stream.ok()) greet(std::move(stream.value()));
                      });
  }
  ~Visitor() { loop_.cancel(beat_); }
  bool over() const { return over_ || (stream_ && !stream_->failure().ok()); }

 private:
  void greet(std::unique_ptr<net::ByteStream> stream) {
    ++count_;
    framed_ = std::make_unique<net::FramedStream>(loop_, std::move(stream));
    framed_->authenticated();
    if (visit_.purpose == net::Purpose::kLink) {
      (void)framed_->send(visit_.hello);
      stream_ = framed_->take();
      if (!stream_) return void(over_ = true);
      stream_->write_ahead(visit_.behind);
      write();
      if (visit_.reads) read();
      return;
    }
    framed_->start([this](base::ByteView) { answered(); },
                   [this](const base::Status&) { over_ = true; });
    (void)framed_->send(visit_.hello);
  }
  // Welcomed, or refused and closed in a moment.
  void answered() {
    if (beat_ != 0) return;
    (void)framed_->send(wire::encode(wire::Resume{}));
    for (const base::Bytes& word : visit_.words) (void)framed_->send(word);
    beat();
  }
  void beat() {
    (void)framed_->send(wire::encode(wire::Heartbeat{++sequence_}));
    beat_ = loop_.run_after(kBeatEvery, [this] { beat(); });
  }
  void write() {
    const bool all = stream_->flush_ahead();
    if (!stream_->failure().ok() || (all && !visit_.again)) return;
    if (!all) return stream_->when_writable([this] { write(); });
    beat_ = loop_.run_after(kAgainEvery, [this] {
      stream_->write_ahead(visit_.again());
      write();
    });
  }
  void read() {
    std::array<std::uint8_t, 16384> ignored;
    while (stream_->read_now(base::MutableView(ignored)) > 0) {
      if (!answered_ && visit_.refused && pool_.answered != nullptr) ++*pool_.answered;
      answered_ = true;
    }
    if (stream_->failure().ok()) stream_->when_readable([this] { read(); });
  }

  net::Loop& loop_;
  const Visit visit_;
  const Pool& pool_;
  std::atomic<std::uint64_t>& count_;
  std::unique_ptr<net::Dial> dial_;
  std::unique_ptr<net::FramedStream> framed_;
  std::unique_ptr<net::ByteStream> stream_;
  net::TimerId beat_ = 0;  // of either kind
  std::uint64_t sequence_ = 0;
  bool over_ = false, answered_ = false;
};

}  // namespace

net::Credentials fresh_credentials(const std::string& secret) {
  if (secret.empty()) return net::Credentials::plain({});
  return net::Credentials::from(net::parse_token(secret).value());
}

base::Incarnation fresh_life() {
  const auto life = net::random_u64();
  return life.ok() ? life.value() : 1;
}

void keep_visiting(const Pool& pool, const std::atomic<bool>& stop,
                   std::atomic<std::uint64_t>& count) {
  net::Loop loop;
  std::vector<std::unique_ptr<Visitor>> all(pool.places);
  loop.start();
  while (!stop) {
    for (std::size_t place = 0; place < pool.places && !stop; ++place) {
      bool begun = false;
      loop.call([&] {
        if (all[place] && !all[place]->over()) return;
        auto visit = pool.next(place);
        begun = visit.has_value();
        if (begun) all[place] = std::make_unique<Visitor>(loop, std::move(*visit), pool, count);
      });
      if (begun) std::this_thread::sleep_for(std::chrono::nanoseconds(pool.breath));
    }
    std::this_thread::sleep_for(std::chrono::nanoseconds(pool.breath));
  }
  loop.call([&] { all.clear(); });
  loop.stop();
}

}  // namespace jccl::attack
