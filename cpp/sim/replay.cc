// See replay.h. The file may be a stranger's: its texts are printed as one line each, whatever is
// in them. Where its state is one that no events lead to, a check of the machine may end the
// process.
#include "sim/replay.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>

#include "base/text.h"
#include "protocol/recorder/replay.h"

namespace jccl::sim {

using base::cat;

namespace {

constexpr int kDiffers = 1, kUnreadable = 2;
constexpr std::string_view kEverywhere[] = {"tick", "progress "};  // events without a story
constexpr std::string_view kHeartbeat = ": Heartbeat ", kAck = ": HeartbeatAck ", kWake = "wake";

void print(const std::string& line) { std::puts(base::printable(line).c_str()); }

std::string date(std::int64_t unix_ms) {
  const std::time_t seconds = unix_ms / 1000;
  std::tm parts{};
  char text[32] = "?";
  if (::gmtime_r(&seconds, &parts) != nullptr) {
    std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", &parts);
  }
  return text;
}

void print_head(const protocol::About& about, const char* commit) {
  const bool master = about.role == protocol::Role::kMaster;
  print(
      cat(master ? "master" : cat("peer ", about.site, ", life ", base::to_hex(about.incarnation)),
          " of run ", base::to_hex(about.run), ", ", date(about.unix_ms)));
  print(cat("written: ", about.why));
  print(cat("build: ", about.build, "; replayed by commit ", commit));
}

// "-12.345678": seconds before the file was written.
std::string when(base::Time at, base::Time written) {
  char text[32];
  std::snprintf(text, sizeof(text), "%+.6f",
                (static_cast<double>(at) - static_cast<double>(written)) / base::kSecond);
  return text;
}

bool is_story(const protocol::Replayed& one) {
  if (!one.differences.empty()) return true;
  bool quiet =
      one.event.find(kHeartbeat) != std::string::npos || one.event.find(kAck) != std::string::npos;
  for (const std::string_view name : kEverywhere) quiet = quiet || one.event.starts_with(name);
  for (const std::string& effect : one.effects) {
    const bool usual = effect.starts_with(kWake) || effect.find(kAck) != std::string::npos ||
                       effect.find(kHeartbeat) != std::string::npos;
    quiet = quiet && usual;
  }
  return !quiet;
}

thread_local std::string replayed_last;  // for who hears that a check failed

void on_check(int signal) {
  std::fprintf(stderr, "jccl-sim: a check of the machine failed in the event after '%s'\n",
               base::printable(replayed_last).c_str());
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

}  // namespace

int replay_recording(const std::string& path, bool all, const char* commit) {
  // A device has no end, and a folder no bytes.
  std::error_code unknown;
  const bool regular = std::filesystem::is_regular_file(path, unknown);
  std::ifstream file(regular ? path : "", std::ios::binary);
  base::Bytes bytes(regular ? std::min<std::uintmax_t>(std::filesystem::file_size(path, unknown),
                                                       protocol::kRecordingBytesMax + 1)
                            : 0);
  if (file) file.read(reinterpret_cast<char*>(bytes.data()), static_cast<long>(bytes.size()));
  const auto recording = protocol::read_recording(bytes);
  if (!file || !recording.ok()) {
    std::fprintf(stderr, "jccl-sim: %s: %s\n", path.c_str(),
                 file ? base::printable(recording.status().text).c_str() : "can't be read");
    return kUnreadable;
  }
  const protocol::About& about = recording.value().about;
  print_head(about, commit);
  std::signal(SIGABRT, on_check);
  const auto tell = [&](const protocol::Replayed& one) {
    replayed_last = one.event;
    if (!all && !is_story(one)) return;
    print(cat(when(one.at, about.at), " ", one.event));
    for (const std::string& effect : one.effects) {
      if (all || !effect.starts_with(kWake)) print(cat("    ", effect));
    }
    for (const std::string& difference : one.differences) print(cat("  ≠ ", difference));
  };
  const auto counts = protocol::replay(recording.value(), tell);
  if (!counts.ok()) {
    std::fprintf(stderr, "jccl-sim: %s: %s\n", path.c_str(),
                 base::printable(counts.status().text).c_str());
    return kUnreadable;
  }
  const protocol::ReplayCounts& n = counts.value();
  print(cat(n.events, " events, ", n.effects, " effects, ", n.states, " states: ",
            n.differing == 0 ? "all as they were recorded"
                             : cat(n.differing, " differ from what was recorded")));
  return n.differing == 0 ? 0 : kDiffers;
}

}  // namespace jccl::sim
