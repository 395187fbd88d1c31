// The frames of a member that lies: each that leaves for another member is passed on or
// bent, as its row says; or all are right, and what it owns is added up wrong.
// Thread-safe: communicators that follow one another share it.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "attack/member.h"
#include "attack/rows.h"
#include "peer/frame_hook.h"
#include "wire/serialize.h"

namespace jccl::attack {

class FrameLiar : public peer::FrameHook, public Borrower {
 public:
  using Clock = std::chrono::steady_clock;
  // `checked`: links are not sealed, so that frames have a check of their own.
  FrameLiar(const std::vector<Row>& rows, bool checked, Clock::time_point (*now)() = Clock::now);

  void arm() { armed_ = true; }  // honest until then
  std::uint64_t told() const { return told_; }

  peer::Sends sends(base::Incarnation to, exchange::OutFrame* frame) override;
  bool takes(base::Incarnation from, const wire::FrameHeader& header) override;
  void lends(const std::string& tag, float* values, std::size_t count) override;

 private:
  // The input of a tag's call. What is sent to nobody is the share that the member owns.
  struct Input {
    float* values = nullptr;
    std::size_t count = 0;
    wire::Attempt attempt;                // the newest that it was sent in
    std::vector<bool> sent, sent_before;  // by value, in that attempt and in the one before
    std::optional<std::size_t> changed;
    float was = 0;
    void restore();
  };
  bool is_victim(base::Incarnation to);
  bool is_to_one() const;
  bool is_time_for(base::Incarnation to);
  void add_wrong(const wire::FrameHeader& header, const exchange::OutFrame& frame);
  void sent(Input& input, const wire::Attempt& attempt, base::ByteView view);

  Row row_ = Row::kNone;
  const bool checked_;
  Clock::time_point (*const now_)();
  std::atomic<bool> armed_{false};
  std::atomic<std::uint64_t> told_{0};
  std::mutex mutex_;
  base::Incarnation victim_ = 0;                            // of a row that lies to one alone
  std::map<base::Incarnation, Clock::time_point> dripped_;  // when last
  bool again_ = false;                                      // the last frame was asked for twice
  std::map<std::string, Input> inputs_;
};

}  // namespace jccl::attack
