// Files of a communicator's flight recorder. What a fault leaves is written on a thread of its own:
// the control thread, whose heartbeats keep this peer in the run, never waits for a disk. Whoever
// asks for a file waits for it himself. Any thread.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "net/recordings.h"

namespace jccl::peer {

class RecordingWriter {
 public:
  using Bytes = base::Bytes;
  using Told = std::function<void(const base::Result<std::string>& path)>;

  explicit RecordingWriter(net::Recordings folder) : folder_(std::move(folder)) {}
  ~RecordingWriter();  // waits for the file that is being written
  RecordingWriter(const RecordingWriter&) = delete;
  RecordingWriter& operator=(const RecordingWriter&) = delete;

  // Whether a fault now may leave a file: not while the last is being written.
  bool is_due(base::Time now);
  // Writes `bytes`; `told` is called by the thread that does, at its end.
  void write_behind(Bytes bytes, base::Time now, Told told);
  // In the caller's thread. `bytes` is called if one may be written.
  base::Result<std::string> write(const std::function<Bytes()>& bytes, base::Time now);

 private:
  std::mutex mutex_;  // of all below, but for the thread
  net::Recordings folder_;
  bool writes_ = false;
  std::thread thread_;  // confined to who calls write_behind
};

}  // namespace jccl::peer
