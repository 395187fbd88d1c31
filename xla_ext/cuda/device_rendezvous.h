// The calls that the local devices of one execution make of one op, joined into one round. Two
// clocks: the devices must all have come within kRendezvousMax of the first, since one that waits
// here keeps the others waiting in local collectives, which XLA ends by aborting the process after
// 40 s; only then does the last one run the round, with the round's own deadline, and all return
// together. Runs on XLA's threads, one per device.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "base/time.h"
#include "peer/buffers.h"
#include "peer/communicator.h"

namespace jccl::xla_ext {

inline constexpr base::Duration kRendezvousMax = 15 * base::kSecond;

struct RendezvousOutcome {
  base::Status status;
  std::uint64_t words[3] = {0, 0, 0};  // of the status result, after the code
  bool has_result = false;             // the out half of the memory is to be handed out
};

class DeviceRendezvous : public std::enable_shared_from_this<DeviceRendezvous> {
 public:
  DeviceRendezvous(std::uint32_t devices, std::size_t bytes, std::size_t out_bytes,
                   peer::BufferPool& pool);

  // Host memory of the whole call: what goes into the round, and what comes out of it.
  std::uint8_t* in() const { return in_->data(); }
  std::uint8_t* out() const { return out_->data(); }

  // Called once by each device after its values are in place, or with what is wrong with them.
  // `scalars` must be alike on all, else kInvalid for all. The last one calls `work`, whose outcome
  // everybody returns.
  RendezvousOutcome arrive(const base::Status& own, const std::vector<double>& scalars,
                           base::Duration wait_max,
                           const std::function<RendezvousOutcome(DeviceRendezvous&)>& work);
  void abort();  // kAborted for all, unless the work has begun

  // Marks of the tag's state by part, from each device before it arrives. What replicas on two
  // devices don't agree in is marked as nothing that the peer ever shared.
  void add_state(const std::vector<peer::StateMarks>& parts);
  const std::vector<peer::StateMarks>& state() const { return state_; }  // for the work

  // Set by the work of a call that ends a round: the memory of the call that began it.
  std::shared_ptr<const DeviceRendezvous> begun;

 private:
  friend class RendezvousTable;
  const std::uint32_t devices_;
  const peer::BufferRef in_, out_;
  std::set<std::int32_t> entered_;  // guarded by the table
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint32_t arrived_ = 0;
  std::vector<double> scalars_;
  std::vector<peer::StateMarks> state_;
  bool running_ = false, done_ = false;
  RendezvousOutcome outcome_;
};

// A round between the call that began it and the one that ends it, which must be of like leaves.
// The round works on that call's memory.
struct OpenRound {
  base::Tag tag;
  base::Duration deadline = 0;  // 0: the communicator's
  std::vector<std::uint64_t> layout;
  std::shared_ptr<DeviceRendezvous> memory;
  std::vector<base::Result<peer::Handle>> handles;  // by part
};

// Which local device calls, and with how many others.
struct Caller {
  std::int64_t execution = 0;
  std::int32_t device = 0;
  std::uint32_t devices = 1;
};

// The open rendezvous of one communicator. A device joins the oldest open one of its tag and
// execution that it is not part of yet: in a scan one execution makes many calls one after another.
class RendezvousTable {
 public:
  std::shared_ptr<DeviceRendezvous> enter(const base::Tag& tag, const Caller& caller,
                                          std::size_t bytes, std::size_t out_bytes);
  void abort();  // ends the wait for devices that have not come

  void keep(peer::Handle handle, std::shared_ptr<const OpenRound> round);  // in place of the tag's
  std::shared_ptr<const OpenRound> take(peer::Handle handle);              // null: none
  base::Duration deadline_of(peer::Handle handle);                         // 0: also where none is

 private:
  static constexpr std::size_t kOpenMax = 64;  // rendezvous to which some device never came
  struct Open {
    base::Tag tag;
    std::int64_t execution = 0;
    std::shared_ptr<DeviceRendezvous> met;
  };
  std::mutex mutex_;
  std::list<Open> open_;
  std::map<peer::Handle, std::shared_ptr<const OpenRound>> rounds_;
  peer::BufferPool pool_;
};

}  // namespace jccl::xla_ext
