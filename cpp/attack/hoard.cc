// Connections that make a master hold as much as it lets them: each is welcomed, sends all of the
// longest frame but its last byte, and reads nothing more.
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "attack/crowd.h"
#include "base/crc32c.h"
#include "base/text.h"
#include "net/link/frames.h"
#include "net/socket/dial.h"
#include "net/socket/loop.h"
#include "wire/serialize.h"

namespace jccl::attack {
namespace {

constexpr std::size_t kConnections = 1200;  // of 64 KiB each: 75 MiB
constexpr auto kHoardBreath = std::chrono::milliseconds(20);

base::Bytes nearly_whole() {
  const base::Bytes payload(base::kControlBytesMax);
  base::Writer frame;
  frame.u32(base::kControlBytesMax);
  frame.u32(base::crc32c(payload));
  frame.raw(payload.data(), payload.size() - 1);
  return frame.take();
}

// Confined to the loop's thread.
class Hoarder {
 public:
  Hoarder(net::Loop& loop, net::Credentials credentials, std::string site,
          std::atomic<std::uint64_t>& count)
      : loop_(loop), credentials_(std::move(credentials)), site_(std::move(site)), count_(count) {}

  void begin(const net::Address& master) {
    dial_ = net::dial(loop_, {master}, credentials_, {},
                      [this](base::Result<std::unique_ptr<net::ByteStream>> stream) {
                        over_ = !stream.ok();
                        if (stream.ok()) greet(std::move(stream.value()));
                      });
  }
  bool over() const { return over_ || (stream_ && !stream_->failure().ok()); }

 private:
  void greet(std::unique_ptr<net::ByteStream> stream) {
    framed_ = std::make_unique<net::FramedStream>(loop_, std::move(stream));
    framed_->authenticated();
    framed_->start([this](base::ByteView) { hold(); },
                   [this](const base::Status&) { over_ = true; });
    const auto life = net::random_u64();
    wire::Hello hello;
    hello.run = credentials_.run;
    hello.incarnation = life.ok() ? life.value() : 1;
    hello.site = site_;
    (void)framed_->send(wire::encode(hello));
  }
  // It is answered: welcomed, or refused and closed.
  void hold() {
    (void)framed_->send(wire::encode(wire::Resume{}));
    stream_ = framed_->take();
    stream_->write_ahead(nearly_whole());
    ++count_;
    write();
  }
  void write() {
    if (!stream_->flush_ahead() && stream_->failure().ok()) {
      stream_->when_writable([this] { write(); });
    }
  }

  net::Loop& loop_;
  const net::Credentials credentials_;
  const std::string site_;
  std::atomic<std::uint64_t>& count_;
  std::unique_ptr<net::Dial> dial_;
  std::unique_ptr<net::FramedStream> framed_;
  std::unique_ptr<net::ByteStream> stream_;
  bool over_ = false;
};

}  // namespace

void hoard(const CrowdOptions& options, const std::atomic<bool>& stop,
           std::atomic<std::uint64_t>& count) {
  const auto master = net::parse_address(options.master).value();
  const auto fresh = [&] {
    if (options.secret.empty()) return net::Credentials::plain({});
    return net::Credentials::from(net::parse_token(options.secret).value());
  };
  const net::Credentials one = fresh();
  net::Loop loop;
  std::vector<std::unique_ptr<Hoarder>> all(kConnections);
  loop.start();
  for (std::size_t i = 0; !stop; i = (i + 1) % kConnections) {
    loop.call([&] {  // half of them by one key
      if (all[i] && !all[i]->over()) return;
      all[i] = std::make_unique<Hoarder>(loop, i % 2 == 0 ? one : fresh(), base::cat("hoard-", i),
                                         count);
      all[i]->begin(master);
    });
    if (i % 20 == 0) std::this_thread::sleep_for(kHoardBreath);
  }
  loop.call([&] { all.clear(); });
  loop.stop();
}

}  // namespace jccl::attack
