// The end of a stripe that is one too many, agreed by both sides, so that nothing is lost or sent
// again by it. Either side begins: it takes no more frames, writes out those that it has, and then
// says its last word, an ack. The other does the same in answer. Who began tells of what
// came with the answer and closes; who answered hears of that and closes too. Pure.
#pragma once

#include "base/planted.h"
#include "base/time.h"

namespace jccl::net {

class Retirement {
 public:
  // This side begins.
  void begin(base::Time now) {
    if (begun()) return;
    since_ = now;
    ours_ = true;
  }
  // The other side's last word has come: no frame follows it.
  void came(base::Time now) {
    if (!begun()) since_ = now;
    came_ = true;
  }
  bool begun() const { return since_ != base::kNever; }
  bool has_come() const { return came_; }
  base::Time since() const { return since_; }

  // All frames are written: an ack is due.
  bool word_due() const { return begun() && (!said_ || (came_ && !answered_)); }
  void said() {
    said_ = begun();
    answered_ = came_;
  }
  // Nothing more is to be written; true once.
  bool shuts() {
    const bool all = ours_ && said_ && answered_;
    if (!all || shut_) return false;
    shut_ = true;
    return true;
  }
  bool shut() const { return shut_; }
  // The other side's end now is no loss, if it is known to have all of ours.
  bool over(bool all_arrived) const {
    return said_ && came_ && (all_arrived || JCCL_PLANTED("retired-with-frames-under-way"));
  }

 private:
  base::Time since_ = base::kNever;
  bool ours_ = false;
  bool said_ = false;
  bool came_ = false;
  bool answered_ = false;  // said after the other's last word had come
  bool shut_ = false;
};

}  // namespace jccl::net
