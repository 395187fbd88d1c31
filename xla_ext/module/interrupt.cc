#include "module/interrupt.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <thread>

#include "registry.h"

namespace jccl::xla_ext {

namespace {

std::atomic<int> chained{-1};

void pass_on(unsigned char byte) {
  const int to = chained.load();
  if (to < 0) return;
  // asyncio gives a socket, others may give a pipe. If it is full or gone, so is its reader's need.
  if (send(to, &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno == ENOTSOCK) {
    [[maybe_unused]] const auto written = write(to, &byte, 1);
  }
}

std::atomic<bool (*)()> ask_first{nullptr};

// A handler that came after ours may want to go on in the run.
void leave_on_term() {
  const auto is_ours = ask_first.load();
  if (is_ours != nullptr && is_ours()) Registry::get().leave_all();
}

void watch(int from) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);  // signals are for the program's own threads
  unsigned char byte = 0;
  for (;;) {
    const auto size = read(from, &byte, 1);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return;
    pass_on(byte);
    if (byte == SIGINT) Registry::get().abort_all();
    if (byte == SIGTERM) leave_on_term();
  }
}

int open_descriptor() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return -1;
  fcntl(ends[1], F_SETFL, fcntl(ends[1], F_GETFL) | O_NONBLOCK);
  std::thread(watch, ends[0]).detach();
  return ends[1];
}

}  // namespace

int wakeup_descriptor() {
  static pid_t owner = getpid();
  static int descriptor = open_descriptor();
  if (owner != getpid()) {  // a fork has no such thread, and the socket is its parent's
    owner = getpid();
    descriptor = open_descriptor();
  }
  return descriptor;
}

void ask_before_leaving(bool (*is_ours)()) { ask_first.store(is_ours); }

void chain_wakeup(int descriptor) { chained.store(descriptor); }
int chained_wakeup() { return chained.load(); }

}  // namespace jccl::xla_ext
