#include "net/socket/linger.h"

#include <array>

#include "base/planted.h"
#include "base/text.h"

namespace jccl::net {
namespace {

constexpr int kLingeringMax = 64;
constexpr std::size_t kIgnoredBytesMax = 256 * 1024;  // what a stranger may still send meanwhile
thread_local int lingering = 0;                       // all loops of a thread: one

struct Linger : std::enable_shared_from_this<Linger> {
  Linger() { ++lingering; }
  ~Linger() { --lingering; }

  // Handlers hold it weakly, the timer alone keeps it: so nothing is left when the loop goes.
  template <void (Linger::*step)()>
  auto later() {
    return [weak = weak_from_this()] {
      if (const auto self = weak.lock()) (*self.*step)();
    };
  }

  void write() {
    if (!stream->flush_ahead() && stream->failure().ok()) {
      stream->when_writable(later<&Linger::write>());
      return;
    }
    stream->shut_write();
    read();
  }

  void read() {
    std::array<std::uint8_t, 4096> ignored;
    while (const std::size_t n = stream->read_now(ignored)) {
      ignored_bytes += n;
      if (ignored_bytes > kIgnoredBytesMax && !JCCL_PLANTED("linger-for-ever")) return end();
    }
    if (!stream->failure().ok()) return end();
    stream->when_readable(later<&Linger::read>());
  }

  void end() {
    const auto keep = shared_from_this();
    held.reset();
    loop->cancel(timer);
  }

  Loop* loop = nullptr;
  std::unique_ptr<ByteStream> stream;
  std::shared_ptr<PendingPlace> held;
  std::size_t ignored_bytes = 0;
  TimerId timer = 0;
};

}  // namespace

void linger(Loop& loop, std::unique_ptr<ByteStream> stream, std::shared_ptr<PendingPlace> held) {
  if (lingering >= kLingeringMax && !JCCL_PLANTED("strangers-linger-in-any-number")) {
    (void)stream->flush_ahead();
    return;
  }
  const auto self = std::make_shared<Linger>();
  self->loop = &loop;
  self->stream = std::move(stream);
  self->held = std::move(held);
  if (self->held) self->held->give_way = self->later<&Linger::end>();
  self->timer = loop.run_after(base::kSecond, [self] {});
  self->write();
}

Bytes alert_record() { return {0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 0x28}; }

Status explain_tls_record(ByteView first, const std::string& remote) {
  if (first.size() < 3 || first[1] != 0x03 || first[2] == 0) return {};
  if (first[0] == 0x15 && !JCCL_PLANTED("plain-peer-not-told")) {
    return Status{Code::kAuth, base::cat(remote,
                                         " requires a token of its run and this side "
                                         "has none: set JCCL_TOKEN or pass --token-file")};
  }
  if (first[0] == 0x16) {
    return Status{Code::kAuth, base::cat(remote,
                                         " uses a token and this side has none: start "
                                         "both sides with the same token, or neither")};
  }
  return {};
}

}  // namespace jccl::net
