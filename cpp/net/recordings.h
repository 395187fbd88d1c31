// The folder in which a process leaves recordings of its flight recorder, for people to fetch: each
// whole or not at all, its owner's alone (0600), and few. A storm of faults fills no disk: so many
// files for faults by one process, one more for each hour, with a pause between two, and none where
// the folder is full.
// What is in a file is not known here. Blocks on the disk; any one thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/status.h"
#include "base/time.h"

namespace jccl::net {

struct RecordingLimits {
  int faults_max = 8;  // files by one process that nobody asked for; the first tell most
  base::Duration one_more = 3600 * base::kSecond;  // after each of these, of them
  base::Duration fault_pause = 30 * base::kSecond;
  base::Duration order_pause = base::kSecond;
  // Of a folder, whichever processes wrote them; then somebody has to take some away.
  std::size_t files_max = 64;
  std::uint64_t bytes_max = std::uint64_t{512} << 20;
};

enum class RecordingCause : std::uint8_t {
  kFault,  // by itself
  kOrder,  // somebody asked
};

class Recordings {
 public:
  // Makes the folder (0700) where it is missing, and takes away what writers that were killed left
  // unfinished. kIo: it can't be made, or not written to. Empty:
  // no folder, and whoever asks for a file is told so.
  static base::Result<Recordings> open(const std::string& folder, const std::string& name,
                                       const RecordingLimits& limits = {});

  bool any() const { return !folder_.empty(); }
  // Whether one may be written now, asked before its bytes are put together. kLimit: too many, too
  // soon. due() does not look at the disk.
  base::Status due(RecordingCause cause, base::Time now) const;
  base::Status may_write(RecordingCause cause, base::Time now) const;
  // Its path. After a write that failed the next is tried like the first.
  base::Result<std::string> write(base::ByteView bytes, RecordingCause cause, base::Time now);
  // True once, when faults have used up their files: somebody ought to hear of it.
  bool ends_here();

 private:
  std::int64_t used(base::Time now) const;
  void earn(base::Time now);

  std::string folder_, name_;
  RecordingLimits limits_;
  std::int64_t faults_ = 0;   // files, less those that were given back
  base::Time earned_at_ = 0;  // up to when they were; 0: there were none
  bool said_ = false;         // that there are no more
  std::uint64_t files_ = 0;
  base::Time fault_at_ = -base::kNever, order_at_ = -base::kNever;  // the last
};

}  // namespace jccl::net
