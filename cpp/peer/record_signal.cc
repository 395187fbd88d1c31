#include "peer/record_signal.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <map>
#include <mutex>
#include <thread>

#include "base/planted.h"
#include "base/text.h"

namespace jccl::peer {
namespace {

using base::Code;
using base::Status;

int wish_fd = -1;       // both written before the handler is there
pid_t wish_owner = -1;  // a child that was forked has no thread that would read

void on_wish(int) {
  const int kept = errno;
  const std::uint64_t one = 1;
  if (::getpid() == wish_owner) (void)!::write(wish_fd, &one, sizeof one);
  errno = kept;
}

struct Wishes {
  std::mutex mutex;
  std::map<const void*, std::function<void(const std::string&)>> all;
};

// Never destroyed: its thread ends with the process.
Wishes& wishes() {
  static auto* const made = new Wishes;
  return *made;
}

void wait_for_wishes() {
  for (std::uint64_t count = 0;;) {
    if (::read(wish_fd, &count, sizeof count) != sizeof count) continue;  // EINTR
    const std::lock_guard lock(wishes().mutex);
    for (const auto& [key, leave] : wishes().all) leave("SIGUSR1");
  }
}

// Under the mutex.
Status install() {
  struct ::sigaction found{};
  if (::sigaction(SIGUSR1, nullptr, &found) != 0) return {Code::kInternal, "no signal SIGUSR1"};
  const bool ours = (found.sa_flags & SA_SIGINFO) == 0 && found.sa_handler == on_wish;
  if (ours && wish_owner == ::getpid()) return {};
  const bool free = (found.sa_flags & SA_SIGINFO) == 0 && (ours || found.sa_handler == SIG_DFL);
  if (!free && !JCCL_PLANTED("takes-over-a-handler")) {
    return {Code::kInvalid,
            "record_on_signal: this program handles or ignores SIGUSR1 itself; have its handler "
            "call record() of the communicator instead"};
  }
  if (wish_fd < 0 || wish_owner != ::getpid()) wish_fd = ::eventfd(0, EFD_CLOEXEC);
  if (wish_fd < 0) return {Code::kIo, "no descriptors left"};
  wish_owner = ::getpid();
  std::thread(wait_for_wishes).detach();
  struct ::sigaction action{};
  action.sa_handler = on_wish;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGUSR1, &action, nullptr);
  return {};
}

}  // namespace

Status record_at_signal(const void* key, std::function<void(const std::string& why)> leave) {
  const std::lock_guard lock(wishes().mutex);
  if (const Status ours = install(); !ours.ok()) return ours;
  wishes().all[key] = std::move(leave);
  return {};
}

void forget_signal(const void* key) {
  const std::lock_guard lock(wishes().mutex);
  wishes().all.erase(key);
}

}  // namespace jccl::peer
