// The run's history as JSON lines, for people and tools: every decision of the master with the
// seconds since it started. Each line is whole in the file before the next begins. A file that
// fails ends the history, never the run. Runs on the master's thread.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/time.h"
#include "protocol/master_machine.h"

namespace jccl::master {

// {"t":1.25,"kind":"commit","tag":"grads",…}, without the line end. Field values are strings.
std::string history_json(const protocol::HistoryLine& line, double seconds);

class History {
 public:
  // An empty path writes nothing.
  static base::Result<std::unique_ptr<History>> open(const std::string& path, base::Time origin);
  ~History();
  History(const History&) = delete;
  History& operator=(const History&) = delete;

  // kIo the first time a write fails; silent after that.
  base::Status write(const std::vector<protocol::HistoryLine>& lines, base::Time now);

 private:
  History(std::FILE* file, base::Time origin) : file_(file), origin_(origin) {}
  std::FILE* file_;
  base::Time origin_;
};

}  // namespace jccl::master
