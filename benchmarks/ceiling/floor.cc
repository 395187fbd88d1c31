// bench-floor: what a round costs at least on this machine. A line "iterations=N" on standard input
// is answered with N round trips of 128 bytes to another process over loopback, and N commits of
// one small row to SQLite as durable as the master's journal (WAL, synchronous=FULL).
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sqlite3.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "base/text.h"
#include "options.h"
#include "usage.h"

namespace jccl::bench {
namespace {

constexpr std::size_t kMessage = 128, kRow = 300;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "bench-floor: %s failed\n", what);
  std::exit(1);
}

bool all(ssize_t (*move)(int, void*, std::size_t), int socket, void* data) {
  std::size_t done = 0;
  while (done < kMessage) {
    const ssize_t moved = move(socket, static_cast<char*>(data) + done, kMessage - done);
    if (moved <= 0) return false;
    done += static_cast<std::size_t>(moved);
  }
  return true;
}
ssize_t send_some(int socket, void* data, std::size_t bytes) {
  return ::send(socket, data, bytes, MSG_NOSIGNAL);
}
ssize_t receive_some(int socket, void* data, std::size_t bytes) {
  return ::recv(socket, data, bytes, 0);
}

// A socket whose other end is echoed by a child process, which ends with it.
int echo() {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(listener, generic, length) != 0 || ::listen(listener, 1) != 0 ||
      ::getsockname(listener, generic, &length) != 0) {
    fail("listen");
  }
  const int on = 1;
  if (::fork() == 0) {
    const int socket = ::accept(listener, nullptr, nullptr);
    ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ::close(listener);
    char message[kMessage];
    while (all(receive_some, socket, message) && all(send_some, socket, message)) {
    }
    ::_exit(0);
  }
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  if (::connect(socket, generic, length) != 0) fail("connect");
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::close(listener);
  return socket;
}

sqlite3_stmt* open_table(const char* path) {
  sqlite3* database = nullptr;
  sqlite3_stmt* insert = nullptr;
  if (sqlite3_open(path, &database) != SQLITE_OK) fail("opening the database");
  const char* setup =
      "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; "
      "CREATE TABLE IF NOT EXISTS "
      "record(sequence INTEGER PRIMARY KEY, bytes BLOB)";
  if (sqlite3_exec(database, setup, nullptr, nullptr, nullptr) != SQLITE_OK ||
      sqlite3_prepare_v2(database, "INSERT INTO record(bytes) VALUES(zeroblob(?))", -1, &insert,
                         nullptr) != SQLITE_OK ||
      sqlite3_bind_int(insert, 1, kRow) != SQLITE_OK) {
    fail("making the table");
  }
  return insert;
}

std::string list_of(const std::vector<std::int64_t>& values) {
  std::string text;
  for (const std::int64_t v : values) text += base::cat(text.empty() ? "" : ",", v);
  return "[" + text + "]";
}

int run(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: bench-floor DATABASE <lines\n", stderr);
    return 2;
  }
  const int socket = echo();
  sqlite3_stmt* insert = open_table(argv[1]);
  for (std::string line; std::getline(std::cin, line);) {
    const auto batch = read_batch(line, {});
    if (!batch.ok()) fail("reading the line");
    std::vector<std::int64_t> trips, commits;
    char message[kMessage] = {};
    for (std::uint32_t i = 0; i < batch.value().iterations; ++i) {
      const std::int64_t begun = clock_ns();
      if (!all(send_some, socket, message) || !all(receive_some, socket, message)) fail("echo");
      const std::int64_t between = clock_ns();
      if (sqlite3_step(insert) != SQLITE_DONE) fail("commit");
      commits.push_back(clock_ns() - between);
      trips.push_back(between - begun);
      sqlite3_reset(insert);
    }
    std::printf("{\"trips_ns\":%s,\"commits_ns\":%s,\"load\":%f}\n", list_of(trips).c_str(),
                list_of(commits).c_str(), load_average());
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace jccl::bench

int main(int argc, char** argv) { return jccl::bench::run(argc, argv); }
