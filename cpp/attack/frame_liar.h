// The frames of a member that lies: each that leaves for another member is passed on or
// bent, as its row says. Thread-safe: communicators that follow one another share it.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "attack/rows.h"
#include "peer/frame_hook.h"

namespace jccl::attack {

class FrameLiar : public peer::FrameHook {
 public:
  // `checked`: links are not sealed, so that frames have a check of their own.
  FrameLiar(const std::vector<Row>& rows, bool checked);

  void arm() { armed_ = true; }  // honest until then
  std::uint64_t told() const { return told_; }

  bool sends(base::Incarnation to, exchange::OutFrame* frame) override;

 private:
  bool is_victim(base::Incarnation to);

  Row row_ = Row::kNone;
  const bool checked_;
  std::atomic<bool> armed_{false};
  std::atomic<std::uint64_t> told_{0};
  std::mutex mutex_;
  base::Incarnation victim_ = 0;  // of a row that lies to one alone
};

}  // namespace jccl::attack
