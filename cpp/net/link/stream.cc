#include "net/link/stream.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/text.h"
#include "net/socket/tune.h"
#include "net/socket/watch.h"

namespace jccl::net {

std::size_t ByteStream::read_now(std::span<const MutableView> parts) {
  if (!has_unread()) return read_some(parts);
  std::size_t total = 0;
  for (const MutableView& part : parts) {
    const std::size_t n = std::min(part.size(), unread_.size() - unread_at_);
    if (n > 0) std::memcpy(part.data(), unread_.data() + unread_at_, n);
    unread_at_ += n;
    total += n;
  }
  if (unread_at_ == unread_.size()) {
    unread_ = Bytes();
    unread_at_ = 0;
  }
  return total;
}

std::size_t ByteStream::write_now(std::span<const ByteView> parts) {
  return flush_ahead() ? write_some(parts) : 0;
}

Result<std::unique_ptr<ByteStream>> ByteStream::sealed() {
  JCCL_CHECK(!"only TLS has keys to seal with");
  return Status{Code::kInvalid, ""};
}

void ByteStream::unread(Bytes bytes) {
  Bytes all;
  all.reserve(bytes.size() + unread_.size() - unread_at_);
  const ByteView rest = ByteView(unread_).subspan(unread_at_);
  all.insert(all.end(), bytes.begin(), bytes.end());
  all.insert(all.end(), rest.begin(), rest.end());
  unread_ = std::move(all);
  unread_at_ = 0;
}

void ByteStream::write_ahead(Bytes bytes) {
  ahead_.insert(ahead_.end(), bytes.begin(), bytes.end());
}

bool ByteStream::flush_ahead() {
  while (ahead_at_ < ahead_.size()) {
    const ByteView rest = ByteView(ahead_).subspan(ahead_at_);
    const std::size_t n = write_some(std::span<const ByteView>(&rest, 1));
    if (n == 0) return false;
    ahead_at_ += n;
  }
  ahead_ = Bytes();
  ahead_at_ = 0;
  return true;
}

namespace {

constexpr std::size_t kIoMax = 64;

std::size_t gather(std::span<const ByteView> parts, std::array<iovec, kIoMax>* out,
                   std::size_t* total) {
  std::size_t count = 0;
  for (const ByteView& part : parts) {
    if (count == kIoMax) break;
    if (part.empty()) continue;
    (*out)[count++] = {const_cast<std::uint8_t*>(part.data()), part.size()};
    *total += part.size();
  }
  return count;
}

class PlainStream final : public ByteStream {
 public:
  PlainStream(Loop& loop, int fd) : loop_(loop), watch_(loop, fd) {
    tune(fd);
    const Endpoint remote = remote_endpoint(fd);
    remote_ = to_text(remote);
    loopback_ = net::is_loopback(remote);
    sent_at_ = received_at_ = loop.now();
  }

  void when_readable(std::function<void()> fn) override { watch_.readable(std::move(fn)); }
  void when_writable(std::function<void()> fn) override { watch_.writable(std::move(fn)); }
  void shut_write() override { (void)::shutdown(watch_.fd(), SHUT_WR); }
  const Status& failure() const override { return failure_; }
  std::string remote_text() const override { return remote_; }
  bool remote_is_loopback() const override { return loopback_; }
  bool is_tls() const override { return false; }

  void pace(std::uint64_t bytes_per_second) override {
    if (!loopback_) net::pace(watch_.fd(), bytes_per_second);
  }
  void probe() override {
    if (!loopback_) net::probe(watch_.fd());
  }
  Time last_received() const override { return received_at_; }

  StreamStats stats() const override {
    StreamStats out;
    // The kernel's counts first: what it has was written before.
    const KernelCounts counts = kernel_counts(watch_.fd());
    out.bytes_sent = bytes_sent_;
    out.sent_at = sent_at_;
    out.bytes_received = bytes_received_;
    out.received_at = received_at_;
    out.bytes_acked = std::min(counts.bytes_acked, out.bytes_sent);
    out.bytes_delivered = std::min(counts.bytes_delivered, out.bytes_sent);
    out.bytes_unacked = counts.bytes_unacked;
    out.rtt_ns = counts.rtt_ns;
    return out;
  }

 protected:
  // Reading goes on after a failed write: what came before a reset is still in the kernel.
  std::size_t read_some(std::span<const MutableView> parts) override {
    const std::size_t n = read_apart(parts);
    end_read_apart();
    return n;
  }

  std::size_t write_some(std::span<const ByteView> parts) override {
    if (!failure_.ok()) return 0;
    const std::size_t n = write_apart(parts);
    end_apart();
    return n;
  }

 public:
  std::size_t read_apart(std::span<const MutableView> parts) override {
    if (read_ended_) return 0;
    // The last read came back short, so the kernel has nothing: save a call. Not after a failed
    // write: then the last bytes must be found now, as no more readiness may come.
    if (drained_ && !failed_) {
      drained_ = false;
      return 0;
    }
    std::array<iovec, kIoMax> io;
    std::size_t count = 0;
    std::size_t wanted = 0;
    for (const MutableView& part : parts) {
      if (count == kIoMax) break;
      if (part.empty()) continue;
      io[count++] = {part.data(), part.size()};
      wanted += part.size();
    }
    JCCL_CHECK(wanted > 0);
    msghdr message{};
    message.msg_iov = io.data();
    message.msg_iovlen = count;
    ssize_t n;
    do {
      n = ::recvmsg(watch_.fd(), &message, MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    if (n > 0) {
      bytes_received_ += static_cast<std::size_t>(n);
      received_at_ = loop_.now();
      drained_ = static_cast<std::size_t>(n) < wanted;
      return static_cast<std::size_t>(n);
    }
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return 0;
    read_ended_ = true;
    read_error_ = n == 0 ? 0 : errno;
    return 0;
  }
  bool read_apart_failed() const override { return read_ended_; }
  void end_read_apart() override {
    if (read_ended_) fail(read_error_);
  }

  std::size_t write_apart(std::span<const ByteView> parts) override {
    if (write_error_ != 0) return 0;
    std::array<iovec, kIoMax> io;
    std::size_t wanted = 0;
    msghdr message{};
    message.msg_iov = io.data();
    message.msg_iovlen = gather(parts, &io, &wanted);
    JCCL_CHECK(wanted > 0);
    ssize_t n;
    do {
      n = ::sendmsg(watch_.fd(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    if (n > 0) {
      bytes_sent_ += static_cast<std::size_t>(n);
      sent_at_ = loop_.now();
      return static_cast<std::size_t>(n);
    }
    if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOBUFS) write_error_ = errno;
    return 0;
  }
  bool write_apart_failed() const override { return write_error_ != 0; }
  int descriptor() const override { return watch_.fd(); }
  void end_apart() override {
    if (write_error_ != 0) fail(write_error_);
  }

 private:
  void fail(int error) {
    if (!failure_.ok()) return;
    failed_ = true;
    if (error == 0) {
      failure_ = Status{Code::kLinkLost, base::cat(remote_, " closed the connection")};
    } else {
      failure_ =
          Status{Code::kLinkLost, base::cat("connection to ", remote_, ": ", std::strerror(error))};
    }
  }

  Loop& loop_;
  Watch watch_;
  std::string remote_;
  bool loopback_ = false;
  Status failure_;
  std::atomic<bool> failed_{false};
  // Of reading, and of writing: each may be on a thread of its own.
  bool drained_ = false;
  bool read_ended_ = false;
  int read_error_ = 0;
  std::atomic<std::uint64_t> bytes_received_{0};
  std::atomic<Time> received_at_{0};
  int write_error_ = 0;
  std::atomic<std::uint64_t> bytes_sent_{0};
  std::atomic<Time> sent_at_{0};
};

}  // namespace

std::unique_ptr<ByteStream> plain_stream(Loop& loop, int fd) {
  JCCL_CHECK(loop.confined());
  return std::make_unique<PlainStream>(loop, fd);
}

}  // namespace jccl::net
