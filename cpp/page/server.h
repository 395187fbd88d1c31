// The page over HTTP, on a thread of its own: what it shows are snapshots that the master hands
// over when asked, at most a few times per second. Slow, greedy and hostile clients are bounded in
// number, bytes and time, and cost the master's loop nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/time.h"
#include "page/limits.h"
#include "page/request.h"
#include "page/story.h"

namespace jccl::page {

struct Snapshot {
  std::shared_ptr<const std::string> status;  // the status object as JSON
  base::Time at = 0;                          // when it was made, steady clock
  bool failed = false;                        // the master has stopped by itself
  std::set<std::string> asked = {},
                        revoked = {};  // names of tokens: of which it was asked; which are
  std::uint64_t changes = 0;           // that had been noted by then; the server counts them
};

// What is known when the master serves.
struct Birth {
  std::string run;                   // its id
  base::Time started = 0;            // t = 0 of events, steady clock
  std::int64_t started_unix_ms = 0;  // the same in the world's time
};

struct ServerOptions {
  Gate gate;
  Limits limits = {};
  // Asks the master for a snapshot, and which of these tokens are revoked. On the server's thread;
  // not again before publish().
  std::function<void(std::set<std::string> tokens)> want;
};

class Server {
 public:
  // The port is taken, and whoever dials it refused until listen(). kIo if it can't be had.
  static base::Result<std::unique_ptr<Server>> open(ServerOptions options);
  ~Server();  // stop()
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  std::uint16_t port() const;
  base::Status listen();  // whoever dials waits for start(). kIo: another one was faster
  void start(Birth birth);
  void stop();  // joins; not from its own thread

  // From any thread; neither waits for the server's.
  void publish(Snapshot snapshot);
  void note(std::vector<Event> events);

  struct Impl;

 private:
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace jccl::page
