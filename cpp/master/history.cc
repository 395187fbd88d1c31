// Appends history lines to a file, flushed line by line, and turns files over.
#include "master/history.h"

#include <fcntl.h>

#include <boost/json.hpp>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "base/planted.h"
#include "base/text.h"
#include "base/utf8.h"
#include "master/private_file.h"

namespace jccl::master {

using base::Code;
using base::Status;

namespace {

constexpr int kHistoryFiles = 4;

}  // namespace

std::string history_json(const protocol::HistoryLine& line, double seconds) {
  boost::json::object out;
  out["t"] = std::round(seconds * 1e6) / 1e6;
  out["kind"] = line.kind;
  for (const auto& [name, value] : line.fields) out[name] = value;
  return base::printable(base::to_utf8(boost::json::serialize(out)));
}

std::vector<protocol::HistoryLine> HistoryValve::pass(
    const std::vector<protocol::HistoryLine>& lines, base::Time now) {
  std::vector<protocol::HistoryLine> out;
  for (auto it = seconds_.begin(); it != seconds_.end();) {
    if (now < it->second.end) {
      ++it;
      continue;
    }
    if (it->second.left_out > 0 && !JCCL_PLANTED("left-out-not-told")) {
      out.push_back(
          {it->first.first,
           {{"site", it->first.second}, {"left_out", std::to_string(it->second.left_out)}}});
    }
    it = seconds_.erase(it);
  }
  for (const auto& line : lines) {
    if (line.kind != "reject" && line.kind != "refuse") {
      out.push_back(line);
      continue;
    }
    std::string site;
    for (const auto& [name, value] : line.fields) {
      if (name == "site") site = value;
    }
    Second& second = seconds_[{line.kind, site}];
    if (second.passed == 0) second.end = now + base::kSecond;
    if (second.passed < kBurst || JCCL_PLANTED("burst-never-ends")) {
      ++second.passed;
      out.push_back(line);
    } else {
      ++second.left_out;
    }
  }
  return out;
}

base::Result<std::unique_ptr<History>> History::open(
    const std::string& path, std::uint64_t bytes_max, base::Time origin,
    const std::function<void(const std::string&)>& log) {
  std::unique_ptr<History> out(new History(path, bytes_max, origin));
  for (int age = 0; age < kHistoryFiles && !path.empty(); ++age) {
    const Status kept = make_private("history", out->older(age), log);
    if (!kept.ok()) return kept;
  }
  if (!path.empty() && !out->open_file()) {
    return Status{Code::kIo,
                  base::cat("history file ", path, " can't be written: ", std::strerror(errno))};
  }
  return out;
}

History::~History() {
  if (file_ != nullptr) std::fclose(file_);
}

bool History::open_file() {
  const int fd = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC,
                        JCCL_PLANTED("history-for-all") ? 0644 : 0600);
  file_ = fd < 0 ? nullptr : ::fdopen(fd, "a");
  if (file_ == nullptr) return false;
  const long at = std::fseek(file_, 0, SEEK_END) == 0 ? std::ftell(file_) : 0;
  bytes_ = at > 0 && !JCCL_PLANTED("history-begins-at-zero") ? static_cast<std::uint64_t>(at)
                                                             : 0;  // a pipe has no length
  return true;
}

std::string History::older(int age) const { return age == 0 ? path_ : base::cat(path_, ".", age); }

bool History::turn_over() {
  std::fclose(file_);
  file_ = nullptr;
  for (int age = kHistoryFiles - 1; age > 0; --age) {
    if (std::rename(older(age - 1).c_str(), older(age).c_str()) != 0 && errno != ENOENT) {
      return false;
    }
  }
  return open_file();
}

bool History::append(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), file_) != text.size()) return false;
  if (std::fflush(file_) != 0) return false;
  bytes_ += text.size();
  return bytes_ < bytes_max_ || JCCL_PLANTED("history-never-turned-over") || turn_over();
}

Status History::write(const std::vector<protocol::HistoryLine>& lines, base::Time now) {
  if (file_ == nullptr) return {};
  const double seconds = static_cast<double>(now - origin_) / 1e9;
  for (const auto& line : valve_.pass(lines, now)) {
    if (append(history_json(line, seconds) + "\n")) continue;
    const Status status{Code::kIo, base::cat("history ends here: ", std::strerror(errno))};
    if (file_ != nullptr) std::fclose(file_);
    file_ = nullptr;
    return status;
  }
  return {};
}

}  // namespace jccl::master
