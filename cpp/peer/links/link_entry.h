// What a LinkTable holds of each link, and of each connection that has not said whose it is. For
// link_table.cc and link_admission.cc alone; confined to the data thread.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>

#include "exchange/redial.h"
#include "exchange/stripe_tuner.h"
#include "net/link/pacing.h"
#include "peer/links/link_table.h"

namespace jccl::peer {

class LinkTable::Sink : public net::DataSink {
 public:
  Sink(LinkOwner* owner, base::Incarnation from) : owner_(owner), from_(from) {}
  exchange::Placement place(base::ByteView header) override { return owner_->place(from_, header); }
  base::Status arrived(base::ByteView header, std::uint64_t token) override {
    return owner_->arrived(from_, header, token);
  }
  void lost(base::ByteView header, std::uint64_t token) override {
    owner_->lost(from_, header, token);
  }

 private:
  LinkOwner* owner_;
  base::Incarnation from_;
};

struct LinkTable::Entry {
  wire::Member member;
  std::unique_ptr<Sink> sink;
  std::unique_ptr<net::Link> link;
  std::map<std::uint64_t, std::unique_ptr<net::Dial>> dials;  // under way
  std::deque<std::uint64_t> queue;                            // keys of frames not yet made
  exchange::StripeTuner tuner;
  net::RateMeter meter;
  net::Pacing pacing;
  exchange::Redial redial;
  bool of_attempts = false;  // frames of attempts went over it
  base::Time down_since = 0;
  base::Time used = 0;      // when a stripe was taken in last
  std::string network;      // it came from
  std::uint64_t moved = 0;  // bytes delivered
  base::Time probed_at = 0;
  base::Time moved_at = 0;  // when there were more of them last
  base::Status last_error;
};

struct LinkTable::Pending {
  std::unique_ptr<net::FramedStream> stream;
  std::shared_ptr<void> slot;  // of the listener's bound
};

}  // namespace jccl::peer
