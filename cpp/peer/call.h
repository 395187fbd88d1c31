// One user call from its start to its end: leaves, options, result. Shared by the user's thread
// (which waits), the control thread (which decides) and the data thread (which moves bytes).
// Only `result`, `done`, `taken` and `aborted` change after the start; the first two under
// control's mutex, the others under the communicator's. `compared` and `differs` are written by
// the thread that starts the call.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "exchange/call.h"
#include "peer/buffers.h"
#include "peer/communicator.h"

namespace jccl::peer {

using exchange::Comparison;
using exchange::input_bytes;
using exchange::leaf_text;
using exchange::name_of;

struct CallRecord : exchange::Call {
  const exchange::Terms& terms() const override { return options; }
  const exchange::Incoming* incoming() const override { return options.feed.get(); }
  Comparison comparison() const override { return compared; }
  std::string difference() const override { return differs; }
  void note_sent(std::uint64_t bytes) override { sent_bytes += bytes; }
  void note_received(std::uint64_t bytes) override { received_bytes += bytes; }

  Handle handle = 0;
  RoundOptions options;
  // If the user asked for it: copies of the inputs, and where results wait to be taken.
  std::vector<BufferRef> staged_in, staged_out;
  std::uint64_t payload_bytes = 0;
  base::Time begun = 0;
  std::atomic<std::uint64_t> sent_bytes{0};
  std::atomic<std::uint64_t> received_bytes{0};
  std::atomic<Comparison> compared{Comparison::kEqual};
  std::string differs;      // kDiffers: what, in words; written before
  base::Time ended_at = 0;  // see RoundTimes

  RoundResult result;
  std::condition_variable ended;  // of this call alone: many may be waited for at once
  bool done = false;
  bool taken = false;    // a thread waits on it
  bool blocks = false;   // … or will, without the user's doing
  bool aborted = false;  // abort() came while it was open; see forget_lost
};
using CallRef = std::shared_ptr<CallRecord>;

base::Status check_tag(const base::Tag& tag);  // kInvalid for one that has no place in a message
// Checks everything that needs no other peer; kInvalid / kLimit name the leaf.
base::Status check_call(const std::vector<Leaf>& leaves, const RoundOptions& options);

// Whether a call of this form may have a feed. kInvalid names the leaf.
base::Status check_feed(const std::vector<Leaf>& leaves, const std::shared_ptr<StreamedInput>& feed,
                        bool stage);

// Whether outputs have not the form of the inputs: all_gather has `slots` times their bytes.
bool has_output_of_its_own(const RoundOptions& options);
// Bytes of the leaf's output.
std::size_t output_bytes(const RoundOptions& options, const Leaf& leaf);

// What the codec of the options makes of the leaf, in its `out`: decode(encode(in)) or, `residual`,
// what that leaves out. kInvalid for what a round would refuse.
base::Status roundtrip(const Leaf& leaf, const RoundOptions& options, bool residual);

// What a failed call leaves in a private output, which may hold parts of a result: its input. Other
// outputs are left alone, as they have not been written. (all_gather has no output of the input's
// form, and inputs of a feed may not be here.)
void keep_input(const RoundOptions& options, const Leaf& leaf);

// What all peers of a round must agree on, and the same in words.
struct Descriptor {
  base::Digest digest;
  std::string summary;
  base::Bytes hint;
  std::uint32_t contributors_max = 0;  // see wire::Ready
  bool unit_weights = false;
  base::Quorum quorum = {};
};
Descriptor describe_call(const CallRecord& call, std::size_t chunk_bytes);
Descriptor describe_state(const std::vector<Leaf>& leaves);

}  // namespace jccl::peer
