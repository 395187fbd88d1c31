// One attempt of a round on one peer: walks the plan's routes, adds what arrives in the plan's
// order, finishes and forwards results. Holds every buffer of the attempt; writes no user-visible
// memory before commit(), except outputs that the call declared private. Runs on the data thread;
// knows no socket: frames leave through AttemptHost and are asked back by produce().
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "collective/layout.h"
#include "collective/plan.h"
#include "net/frames.h"
#include "net/link.h"
#include "peer/call.h"
#include "wire/codec.h"
#include "wire/messages.h"

namespace jccl::peer {

// A frame to be made when a link has room for it.
struct WorkItem {
  wire::FrameKind kind = wire::FrameKind::kContribution;
  std::uint32_t chunk = 0;
};

class AttemptHost {
 public:
  virtual ~AttemptHost() = default;
  virtual void enqueue(const wire::Attempt& attempt, base::PeerId to, WorkItem item) = 0;
  virtual void attempt_done(const wire::Attempt& attempt, const base::Digest& result) = 0;
  virtual void attempt_failed(const wire::Attempt& attempt, base::Code cause, base::PeerId peer,
                              std::string text) = 0;
};

class AttemptRun {
 public:
  AttemptRun(wire::Start start, base::PeerId self, CallRef call, BufferPool* pool,
             std::size_t chunk_bytes, AttemptHost* host);

  // Decodes the plan and lays out the chunks. Not ok: the attempt can't run here.
  base::Status prepare();
  void begin();

  net::Placement place(base::PeerId from, const wire::FrameHeader& header);
  base::Status arrived(base::PeerId from, const wire::FrameHeader& header);
  void lost(base::PeerId from, const wire::FrameHeader& header);
  // A frame was paused by place() and is to be asked about again. Ask after arrived() and lost().
  bool take_paused() { return std::exchange(paused_, false); }
  // nullopt: the frame is no longer wanted, or the attempt just failed (guard).
  std::optional<net::OutFrame> produce(const WorkItem& item);

  // The results become visible in the outputs of the call.
  void commit();

  const wire::Start& start() const { return start_; }
  const CallRef& call() const { return call_; }
  bool done() const { return done_; }
  bool committed() const { return committed_; }
  bool contributes() const { return position_ >= 0; }
  std::vector<base::PeerId> others() const;  // everyone this peer may exchange frames with
  // Peers whose data this one cannot go on without; a contribution weighs more than a result,
  // because its sender depends on nobody.
  struct Awaited {
    base::PeerId peer = 0;
    bool result = false;
  };
  std::vector<Awaited> awaited() const;

 private:
  struct ChunkState {
    collective::Chunk chunk;
    collective::Route route;
    std::uint32_t slot = 0;   // all_gather: whose copy of the leaves
    std::uint32_t added = 0;  // of route.add_order
    BufferRef accumulator;
    std::map<std::uint32_t, BufferRef> early;  // contributions by position, not yet added
    BufferRef result;                          // encoded
    std::uint32_t result_crc = 0;
    base::Digest digest;
    bool finished = false;  // result known here
    bool written = false;   // already in the (private) output
  };
  using FrameName = std::pair<base::PeerId, std::pair<std::uint8_t, std::uint32_t>>;

  base::Status lay_out();
  bool wants_result(const ChunkState& chunk) const;
  bool expects(const ChunkState& chunk, base::PeerId from, wire::FrameKind kind) const;
  std::size_t payload_bytes(const ChunkState& chunk, wire::FrameKind kind) const;
  std::size_t own_bytes(const ChunkState& chunk) const;  // of an encoded contribution
  void advance(ChunkState& chunk);
  bool add_own(ChunkState& chunk);
  void add_other(ChunkState& chunk, const BufferRef& data);
  void finish(ChunkState& chunk);
  void hand_on(ChunkState& chunk);
  void settle(ChunkState& chunk);
  std::optional<std::string> guard(const ChunkState& chunk) const;
  void encode_own(const ChunkState& chunk, std::uint8_t* out) const;
  void decode_result(const ChunkState& chunk);
  std::vector<base::ByteView> input_views(const ChunkState& chunk) const;
  std::vector<net::MutableView> output_views(const ChunkState& chunk) const;
  std::uint8_t* output_of(const ChunkState& chunk, const collective::Segment& segment) const;
  void report_if_complete();
  void fail(base::Code cause, base::PeerId peer, std::string text);

  wire::Start start_;
  base::PeerId self_;
  CallRef call_;
  BufferPool* pool_;
  std::size_t chunk_bytes_;
  AttemptHost* host_;
  collective::Plan plan_;
  std::int32_t position_ = -1;   // in plan_.order; -1: receiver
  std::vector<double> weights_;  // by position
  double weight_sum_ = 0;
  codec::CodecId contribution_codec_ = codec::CodecId::kNone;
  bool eager_ = false;  // outputs are private and apart from the inputs
  std::vector<ChunkState> chunks_;
  std::map<FrameName, BufferRef> arriving_;  // null: straight into the output
  std::size_t unfinished_ = 0;
  bool done_ = false;
  bool failed_ = false;
  bool committed_ = false;
  bool paused_ = false;
};

}  // namespace jccl::peer
