// wanlink: the program behind wan.py that carries the packets.
//
//   wanlink CONTROL_SOCKET SEED GSO(0|1) NETNS...
//
// Host i lives in network namespace NETNS[i], where wanlink opens the TUN device "wan0"; the host's
// address must end in .(i+1). Every IPv4 packet a host sends is read here, walks through the
// emulator, and is written to its destination's device. One thread at real-time priority; ends with
// the namespaces or at SIGTERM.
#include <fcntl.h>
#include <linux/if_tun.h>
#include <malloc.h>
#include <net/if.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "emulator.h"

namespace {

using wan::Nanoseconds;
using wan::now_ns;

constexpr Nanoseconds kTick = 250'000;       // shortest time between loop turns
constexpr std::size_t kKeepBuffer = 16'384;  // bigger packets keep the read buffer
constexpr std::size_t kBufferBytes = sizeof(wan::VnetHeader) + 65'536;
constexpr int kReadBatch = 64;                              // packets per device and loop turn
constexpr std::uint32_t kListener = ~0U, kAsker = ~0U - 1;  // tags beside host numbers

timespec to_timespec(Nanoseconds t) { return {t / 1'000'000'000, t % 1'000'000'000}; }

[[noreturn]] void die(const std::string& what) {
  std::perror(("wanlink: " + what).c_str());
  std::exit(1);
}

int open_device(const std::string& netns, bool gso) {
  const int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
  const int ns = open(("/run/netns/" + netns).c_str(), O_RDONLY | O_CLOEXEC);
  if (home < 0 || ns < 0 || setns(ns, CLONE_NEWNET)) die("enter netns " + netns);
  const int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  ifreq request{};
  request.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR;
  std::strcpy(request.ifr_name, "wan0");
  unsigned long offloads = TUN_F_CSUM;
  if (gso) offloads |= TUN_F_TSO4 | TUN_F_TSO_ECN;
  if (fd < 0 || ioctl(fd, TUNSETIFF, &request) || ioctl(fd, TUNSETOFFLOAD, offloads))
    die("open wan0 in " + netns);
  if (setns(home, CLONE_NEWNET)) die("leave netns");
  close(ns);
  close(home);
  return fd;
}

int listen_control(const char* file) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (std::strlen(file) >= sizeof address.sun_path) die("control socket name too long");
  std::strcpy(address.sun_path, file);
  unlink(file);
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0 || bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) || listen(fd, 16))
    die(file);
  return fd;
}

void watch(int epoll, int fd, std::uint32_t tag) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = std::uint64_t(tag) << 32 | std::uint32_t(fd);
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event)) die("watch");
}

// Returns false when the device is gone.
bool read_device(wan::Emulator& network, std::size_t host) {
  static std::shared_ptr<std::uint8_t[]> big(new std::uint8_t[kBufferBytes]);
  for (int k = 0; k < kReadBatch; ++k) {
    const ssize_t n = read(network.device(host), big.get(), kBufferBytes);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    if (std::size_t(n) < kKeepBuffer) {
      std::shared_ptr<std::uint8_t[]> small(new std::uint8_t[std::size_t(n)]);
      std::memcpy(small.get(), big.get(), std::size_t(n));
      network.ingest(host, small, std::size_t(n));
    } else {
      network.ingest(host, big, std::size_t(n));
      if (big.use_count() > 1) big.reset(new std::uint8_t[kBufferBytes]);
    }
  }
  return true;
}

void answer(wan::Emulator& network, int fd) {
  char line[512];
  const ssize_t n = recv(fd, line, sizeof line, 0);
  if (n > 0) {
    const std::string reply = network.control({line, std::size_t(n)});
    (void)send(fd, reply.data(), reply.size(), MSG_NOSIGNAL);
  } else {
    close(fd);
  }
}

// Returns false when a namespace was deleted.
bool handle(wan::Emulator& network, int epoll, const epoll_event& event) {
  const int fd = int(event.data.u64 & 0xffffffff);
  const auto tag = std::uint32_t(event.data.u64 >> 32);
  if (tag == kListener) {
    const int asker = accept4(fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (asker >= 0) watch(epoll, asker, kAsker);
  } else if (tag == kAsker) {
    answer(network, fd);
  } else {
    return read_device(network, tag);
  }
  return true;
}

// Wake-ups are what costs most, on virtual machines above all, so under load the loop turns once
// per kTick; when idle it reacts at once. Events are handled up to half a tick early, which makes
// up for those that wait.
void serve(wan::Emulator& network, int epoll) {
  Nanoseconds last = 0;
  for (;;) {
    network.run_until(now_ns() + kTick / 2);
    timespec wait = to_timespec(last + kTick);
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &wait, nullptr);
    last = now_ns();
    timespec* timeout = nullptr;
    if (const Nanoseconds due = network.next_due(); due >= 0) {
      wait = to_timespec(std::max<Nanoseconds>(0, due - kTick / 2 - last));
      timeout = &wait;
    }
    epoll_event ready[16];
    const int n = epoll_pwait2(epoll, ready, 16, timeout, nullptr);
    for (int i = 0; i < n; ++i)
      if (!handle(network, epoll, ready[i])) return;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: %s CONTROL_SOCKET SEED GSO NETNS...\n", argv[0]);
    return 2;
  }
  mallopt(M_MMAP_THRESHOLD, 1 << 24);  // recycle the read buffers in the heap
  mallopt(M_TRIM_THRESHOLD, 1 << 28);
  std::vector<wan::Host> hosts(std::size_t(argc - 4));
  for (std::size_t i = 0; i < hosts.size(); ++i)
    hosts[i].fd = open_device(argv[i + 4], std::atoi(argv[3]) != 0);
  wan::Emulator network(std::move(hosts), std::strtoull(argv[2], nullptr, 0));

  const int epoll = epoll_create1(EPOLL_CLOEXEC);
  for (std::size_t i = 0; i < network.host_count(); ++i)
    watch(epoll, network.device(i), std::uint32_t(i));
  watch(epoll, listen_control(argv[1]), kListener);

  // Be on time even when the hosts' programs use every core.
  prctl(PR_SET_TIMERSLACK, 1);
  sched_param priority{};
  priority.sched_priority = 1;
  if (sched_setscheduler(0, SCHED_FIFO, &priority))
    std::perror("wanlink: SCHED_FIFO (continuing without)");
  serve(network, epoll);
}
