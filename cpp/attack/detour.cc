#include "attack/detour.h"

#include <poll.h>
#include <unistd.h>

#include "attack/loopback.h"
#include "base/text.h"

namespace jccl::attack {
namespace {

constexpr int kLookMs = 100;

// What has come on one goes to the other. False: nothing more comes, or goes.
bool pass(int from, int to) {
  char bytes[16384];
  const ssize_t got = ::recv(from, bytes, sizeof bytes, 0);
  for (ssize_t sent = 0; sent < got;) {
    const ssize_t more =
        ::send(to, bytes + sent, static_cast<std::size_t>(got - sent), MSG_NOSIGNAL);
    if (more <= 0) return false;
    sent += more;
  }
  return got > 0;
}

}  // namespace

Detour::Detour(const std::string& master)
    : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const auto port = static_cast<std::uint16_t>(std::stoul(master.substr(master.rfind(':') + 1)));
  if (!bind_to(listener_, loopback(1, 0)) || ::listen(listener_, 16) != 0) return;
  address_ = base::cat("127.0.0.1:", port_of(listener_));
  thread_ = std::thread([this, port] { serve(port); });
}

Detour::~Detour() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
  ::close(listener_);
}

void Detour::serve(std::uint16_t port) const {
  pollfd waits{listener_, POLLIN, 0};
  while (!stop_) {
    if (::poll(&waits, 1, kLookMs) != 1) continue;
    const int near = ::accept(listener_, nullptr, nullptr);
    const int far = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (near >= 0 && bind_to(far, loopback(2, 0)) && connect_fd(far, loopback(1, port))) {
      carry(near, far);
    }
    ::close(near), ::close(far);
  }
}

void Detour::carry(int near, int far) const {
  pollfd both[] = {{near, POLLIN, 0}, {far, POLLIN, 0}};
  while (!stop_) {
    if (::poll(both, 2, kLookMs) <= 0) continue;
    if (both[0].revents != 0 && !pass(near, far)) return;
    if (both[1].revents != 0 && !pass(far, near)) return;
  }
}

}  // namespace jccl::attack
