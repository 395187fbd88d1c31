#include "net/socket/tune.h"

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "net/socket/address.h"

namespace jccl::net {
namespace {

constexpr std::uint32_t kNearRttUs = 1000;
// A frame a slow stripe has taken but not sent is lost to the others; on fast paths this much is
// gone within milliseconds.
constexpr int kUnsentBytesMax = 512 * 1024;
constexpr std::uint32_t kMssMax = 16 * 1024;
constexpr int kUserTimeoutMs = 20'000;

void set(int fd, int level, int name, int value) {
  // Each is an improvement, none a need: an old kernel may refuse.
  (void)setsockopt(fd, level, name, &value, sizeof(value));
}

// Bytes to ask for as send buffer, 0 = leave it to the kernel. Asking switches autotuning off and
// is capped by wmem_max, so on stock systems it would cost 5-10 times the throughput.
int send_buffer_bytes() {
  static const int bytes = [] {
    long cap = 0, low = 0, middle = 0, high = 0;
    if (std::FILE* file = std::fopen("/proc/sys/net/core/wmem_max", "re")) {
      if (std::fscanf(file, "%ld", &cap) != 1) cap = 0;
      std::fclose(file);
    }
    if (std::FILE* file = std::fopen("/proc/sys/net/ipv4/tcp_wmem", "re")) {
      if (std::fscanf(file, "%ld %ld %ld", &low, &middle, &high) != 3) high = 0;
      std::fclose(file);
    }
    return high > 0 && cap > high / 2 && cap < 1L << 30 ? static_cast<int>(cap) : 0;
  }();
  return bytes;
}

bool read_info(int fd, tcp_info* info) {
  std::memset(info, 0, sizeof(*info));
  socklen_t size = sizeof(*info);
  return getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &size) == 0;
}

}  // namespace

void tune(int fd) {
  set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set(fd, IPPROTO_TCP, TCP_KEEPINTVL, 3);
  set(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMs);
  tcp_info info;
  const bool measured = read_info(fd, &info) && info.tcpi_rtt > 0;
  const bool near = is_loopback(remote_endpoint(fd)) || (measured && info.tcpi_rtt < kNearRttUs);
  const char* control = near ? "cubic" : "bbr";
  (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, control,
                   static_cast<socklen_t>(std::strlen(control)));
  if (near) return;
  set(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, kUnsentBytesMax);
  if (const int bytes = send_buffer_bytes(); bytes > 0) set(fd, SOL_SOCKET, SO_SNDBUF, bytes);
}

void pace(int fd, std::uint64_t bytes_per_second) {
  const unsigned long rate = bytes_per_second > 0 ? bytes_per_second : ~0UL;
  (void)setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof(rate));
}

void probe(int fd) {
  char name[16] = {};
  socklen_t size = sizeof(name) - 1;
  if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &size) != 0) return;
  if (std::strcmp(name, "bbr") != 0) return;
  // To choose what is chosen already changes nothing.
  if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4) != 0) return;
  (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name,
                   static_cast<socklen_t>(std::strlen(name)));
}

KernelCounts kernel_counts(int fd) {
  KernelCounts out;
  tcp_info info;
  if (read_info(fd, &info)) {
    out.bytes_acked = info.tcpi_bytes_acked;
    out.bytes_delivered = info.tcpi_bytes_acked;
    // In segments, each taken as full; with those of 64 KiB on loopback that says nothing.
    if (info.tcpi_snd_mss < kMssMax) {
      const std::uint64_t bytes = std::uint64_t{info.tcpi_delivered} * info.tcpi_snd_mss;
      out.bytes_delivered = std::max(out.bytes_delivered, bytes);
    }
    out.rtt_ns = static_cast<base::Duration>(info.tcpi_rtt) * 1000;
  }
  int queued = 0;
  if (ioctl(fd, SIOCOUTQ, &queued) == 0 && queued > 0) {
    out.bytes_unacked = static_cast<std::uint64_t>(queued);
  }
  return out;
}

}  // namespace jccl::net
