// Appends history lines to a file, flushed line by line.
#include "master/history.h"

#include <boost/json.hpp>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "base/text.h"
#include "base/utf8.h"

namespace jccl::master {

using base::Code;
using base::Status;

std::string history_json(const protocol::HistoryLine& line, double seconds) {
  boost::json::object out;
  out["t"] = std::round(seconds * 1e6) / 1e6;
  out["kind"] = line.kind;
  for (const auto& [name, value] : line.fields) out[name] = value;
  return base::to_utf8(boost::json::serialize(out));
}

base::Result<std::unique_ptr<History>> History::open(const std::string& path, base::Time origin) {
  std::FILE* file = nullptr;
  if (!path.empty()) {
    file = std::fopen(path.c_str(), "ae");
    if (file == nullptr) {
      return Status{Code::kIo,
                    base::cat("history file ", path, " can't be written: ", std::strerror(errno))};
    }
  }
  return std::unique_ptr<History>(new History(file, origin));
}

History::~History() {
  if (file_ != nullptr) std::fclose(file_);
}

Status History::write(const std::vector<protocol::HistoryLine>& lines, base::Time now) {
  if (file_ == nullptr) return {};
  const double seconds = static_cast<double>(now - origin_) / 1e9;
  for (const auto& line : lines) {
    const std::string text = history_json(line, seconds) + "\n";
    if (std::fwrite(text.data(), 1, text.size(), file_) == text.size() && std::fflush(file_) == 0) {
      continue;
    }
    const Status status{Code::kIo, base::cat("history ends here: ", std::strerror(errno))};
    std::fclose(file_);
    file_ = nullptr;
    return status;
  }
  return {};
}

}  // namespace jccl::master
