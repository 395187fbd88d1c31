// A disk that loses its power, for tests: what the process does to the files of one folder is
// recorded at the C library's calls, SQLite's and our own alike, and from the record follow the
// folders that a power cut may leave. What was synced is there. Of what was only written any part
// is: whole writes, sectors of 512 bytes, parts of one, in any order, or garbage in their place. A
// name that came or went since its folder was synced may be as before. Kept are what SQLite
// assumes of a disk (sqlite.org/atomiccommit.html, 2) under `powersafe overwrite`, which its unix
// VFS promises by default: a write spoils no byte beside its own. The recorder is the process's,
// and takes calls of all threads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/rng.h"

namespace jccl::master::power_cut {

struct Op {
  enum class Kind : std::uint8_t { kWrite, kTruncate, kSync, kCreate, kUnlink, kSyncFolder };
  Kind kind = Kind::kWrite;
  std::uint64_t file = 0;    // not its name: a name may mean another file later
  std::string name;          // kCreate, kUnlink
  std::uint64_t offset = 0;  // kTruncate: the new size
  std::string bytes;
};

using Image = std::map<std::string, std::string>;  // a folder: names and bytes

struct Lies {  // planted mistakes: the record leaves out
  bool folder_syncs = false;
};

// Records from now on what is done in `folder`, which holds `before`, all of it durable.
void record(const std::filesystem::path& folder, const Image& before, Lies lies = {});
std::size_t recorded();                       // operations so far
std::vector<Op> stop_recording();             // and forget the folder
void slow_syncs(std::uint32_t microseconds);  // each takes so much longer

// The files of a run as the operations pass by.
class Disk {
 public:
  explicit Disk(const Image& before);
  void apply(const Op& op);
  Image whole() const;  // what the process itself would read
  Image after_cut(base::Rng& rng) const;

 private:
  struct File {
    std::string durable;
    std::vector<Op> pending;
  };
  std::map<std::uint64_t, File> files_;
  std::map<std::string, std::vector<std::uint64_t>> names_;  // since the last sync; 0: none
};

void write_folder(const std::filesystem::path& folder, const Image& image);
Image read_folder(const std::filesystem::path& folder);

}  // namespace jccl::master::power_cut
