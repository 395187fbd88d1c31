// Beside a journal file: which record was acknowledged last, so that a journal which lost its end
// is known for that. SQLite drops whatever follows the first damaged frame of its write-ahead log
// without a word; a commit that was told must not vanish so. Two slots are written in turn, so
// that a torn write spoils neither the other nor the answer. Not synced with each record: it may
// be behind after a loss of power, never ahead of what is durable. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace jccl::master {

class LastRecord {
 public:
  LastRecord() = default;
  ~LastRecord();
  LastRecord(const LastRecord&) = delete;
  LastRecord& operator=(const LastRecord&) = delete;

  // A file that is missing, or of which no slot is whole, knows of no record. kIo.
  base::Status open(const std::string& path);
  base::Status note(std::uint64_t sequence, std::uint32_t crc);

  std::uint64_t sequence() const { return sequence_; }  // 0: none is known
  std::uint32_t crc() const { return crc_; }            // of its row
  const std::string& path() const { return path_; }

 private:
  base::Status failed(const char* what) const;

  std::string path_;
  int fd_ = -1;
  std::uint64_t sequence_ = 0;
  std::uint32_t crc_ = 0;
};

}  // namespace jccl::master
