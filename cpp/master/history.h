// The run's history as JSON lines, for people and tools: every decision of the master with the
// seconds since it started. Each line is whole in the file before the next begins. A file that
// fails ends the history, never the run. What one site can cause at will (its own refusals) is
// written a few times a second and counted beyond that, and a file that is full makes room: PATH.1
// is the one before it, up to PATH.3; the oldest is deleted. Runs on the master's thread.
#pragma once

#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/time.h"
#include "protocol/master/master_machine.h"

namespace jccl::master {

// {"t":1.25,"kind":"commit","tag":"grads",…}, without the line end. Field values are strings.
std::string history_json(const protocol::HistoryLine& line, double seconds);

// Lets the lines of one kind and site through, kBurst within a second, and counts the rest. Pure.
class HistoryValve {
 public:
  static constexpr std::size_t kBurst = 8;
  // The lines to write now: without those beyond the burst, with one that counts them
  // ("left_out") once their second is over.
  std::vector<protocol::HistoryLine> pass(const std::vector<protocol::HistoryLine>& lines,
                                          base::Time now);

 private:
  struct Second {
    base::Time end = 0;
    std::size_t passed = 0, left_out = 0;
  };
  std::map<std::pair<std::string, std::string>, Second> seconds_;  // by kind and site
};

class History {
 public:
  // An empty path writes nothing. Files that are there are made private, which `log` says.
  static base::Result<std::unique_ptr<History>> open(
      const std::string& path, std::uint64_t bytes_max, base::Time origin,
      const std::function<void(const std::string&)>& log = nullptr);
  ~History();
  History(const History&) = delete;
  History& operator=(const History&) = delete;

  // kIo the first time a write fails; silent after that.
  base::Status write(const std::vector<protocol::HistoryLine>& lines, base::Time now);

 private:
  History(std::string path, std::uint64_t bytes_max, base::Time origin)
      : path_(std::move(path)), bytes_max_(bytes_max), origin_(origin) {}
  bool append(const std::string& text);
  bool open_file();
  bool turn_over();
  std::string older(int age) const;  // the path of a file; 0: the newest

  const std::string path_;
  const std::uint64_t bytes_max_;
  const base::Time origin_;
  std::FILE* file_ = nullptr;
  std::uint64_t bytes_ = 0;
  HistoryValve valve_;
};

}  // namespace jccl::master
