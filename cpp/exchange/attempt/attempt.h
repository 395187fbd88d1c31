// One attempt of a round on one peer: walks the plan's routes, adds what arrives in the plan's
// order, finishes and forwards results. Holds every buffer of the attempt; writes no user-visible
// memory before commit(), except outputs that the call declared private. Runs on the data thread;
// knows no socket: frames leave through AttemptHost and are asked back by produce().
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "collective/kernels/aggregate.h"
#include "collective/layout.h"
#include "collective/plan.h"
#include "exchange/audit_book.h"
#include "exchange/call.h"
#include "exchange/frame.h"
#include "exchange/memory.h"
#include "wire/messages.h"
#include "wire/serialize.h"

namespace jccl::exchange {

// A frame to be made when a link has room for it.
struct WorkItem {
  wire::FrameKind kind = wire::FrameKind::kContribution;
  std::uint32_t chunk = 0;
};

class AttemptHost {
 public:
  virtual ~AttemptHost() = default;
  virtual void enqueue(const wire::Attempt& attempt, base::PeerId to, WorkItem item) = 0;
  // Other copies of the frame that are still under way from that peer are drained from here on.
  virtual void drop_copies(const wire::Attempt& attempt, base::PeerId from, WorkItem item) = 0;
  virtual void attempt_done(const wire::Attempt& attempt, const base::Digest& result) = 0;
  virtual void attempt_failed(const wire::Attempt& attempt, base::Code cause, base::PeerId peer,
                              std::string text) = 0;
  // A frame that no peer sends which follows the plan; once per sender. It is dropped.
  virtual void violation(const wire::Attempt& attempt, base::PeerId from,
                         wire::ViolationKind kind) = 0;
  // Not where the links are sealed: what arrives there is what was sent.
  virtual bool checks_frames() const { return true; }
};

// Whether START and its plan fit the call as this peer made it. Not ok: the attempt can't run here.
base::Status check_start(const wire::Start& start, const collective::Plan& plan, base::PeerId self,
                         const Terms& terms);

class Attempt {
 public:
  Attempt(wire::Start start, base::PeerId self, CallRef call, Memory* memory,
          std::size_t chunk_bytes, AttemptHost* host);

  // Decodes the plan and lays out the chunks. Not ok: the attempt can't run here.
  base::Status prepare();
  void begin();
  // More of the call's feed is here, or the rest of it won't come; or its state was compared.
  void fed();

  // A frame may be under way in several copies, each with its placement's token: a sender that
  // lost a stripe, or thinks it slow, sends again. The first that arrives whole counts.
  Placement place(base::PeerId from, const wire::FrameHeader& header);
  base::Status arrived(base::PeerId from, const wire::FrameHeader& header, std::uint64_t token);
  void lost(std::uint64_t token) { arriving_.erase(token); }
  // Says so to the host, if it is the first of that sender.
  void violated(base::PeerId from, wire::ViolationKind kind);
  // What it held goes again over others: those copies don't count with the ones before.
  void stripe_lost(base::PeerId from);
  bool has_violated(base::PeerId from) const { return violators_.count(from) > 0; }
  // nullopt: the frame is no longer wanted, or the attempt just failed (guard).
  std::optional<OutFrame> produce(const WorkItem& item);

  // The results become visible in the outputs of the call.
  void commit();

  const wire::Start& start() const { return start_; }
  const CallRef& call() const { return call_; }
  bool done() const { return done_; }
  // Of one that is done: what the result is made of, by who made it.
  std::vector<wire::Share> shares();
  // Of one that is done and audited: the roots that it commits itself to, once. Then the cells that
  // the master asks for: its own parts and the results that it made. None after the commit.
  wire::AuditRoots audit_roots();
  std::vector<wire::AuditPart> audit_parts(const std::vector<std::uint32_t>& cells) const;
  bool committed() const { return committed_; }
  bool contributes() const { return position_ >= 0; }
  // The results are kept in buffers of this object, to be served to receivers after the commit.
  bool serves() const { return serves_; }
  const std::vector<base::PeerId>& others() const { return others_; }  // exchange frames with us
  // Peers whose data this one cannot go on without.
  struct Awaited {
    base::PeerId peer = 0;
    std::uint64_t bytes = 0;
  };
  std::vector<Awaited> awaited() const;
  wire::Moving moving() const;  // how far it is, for people and for the master

 private:
  struct ChunkState {
    collective::Chunk chunk;
    collective::Route route;
    std::uint32_t slot = 0;   // in a gather: whose copy of the leaves
    std::uint32_t added = 0;  // of route.add_order
    BufferRef accumulator;    // null: there is none, or it is the output
    // Contributions by position, not yet added; of an all_to_all also what is written, as null.
    std::map<std::uint32_t, BufferRef> early;
    BufferRef encoded;  // own contribution, while it has uses left
    std::uint32_t encoded_uses = 0;
    BufferRef result;  // encoded; null: not known, or it lies in the output
    base::Digest digest;
    std::optional<std::pair<BufferRef, base::Digest>> ahead;  // a result before the own part left
    std::vector<base::Digest> heard;  // kExchange: of the contributions, by position
    std::uint64_t needs = 0;          // bytes of the call's feed, for the own contribution
    bool last_own = false;  // a whole result needs it: kept back while the state is compared
    bool guarded = false;   // own values were looked at
    bool sent_own = false;  // … and handed on, or the sum with them
    bool finished = false;  // result known here
    bool written = false;   // already in the (private) output
  };
  struct Arriving {
    base::PeerId from = 0;
    wire::FrameKind kind = wire::FrameKind::kContribution;
    std::uint32_t chunk = 0;
    BufferRef buffer;  // null: straight into the output
    bool is_of(base::PeerId peer, const wire::FrameHeader& header) const {
      return from == peer && kind == header.kind && chunk == header.chunk;
    }
  };

  static base::Digest digest_of(const std::vector<base::ByteView>& views);

  base::Status lay_out();
  base::Status begin_audit();
  std::vector<base::ByteView> own_part(const ChunkState& chunk, BufferRef* held) const;
  void note_others(const ChunkState& chunk);
  std::ptrdiff_t copies(base::PeerId from, const wire::FrameHeader& header) const;  // under way
  bool wants_result(const ChunkState& chunk) const;
  base::PeerId source_of(const ChunkState& chunk) const;
  bool plans(const ChunkState& chunk, base::PeerId from, wire::FrameKind kind) const;
  bool expects(const ChunkState& chunk, base::PeerId from, wire::FrameKind kind) const;
  bool comes_before_its_parts(const ChunkState& chunk, wire::FrameKind kind) const;
  void count_repeat(base::PeerId from);
  void note_heard(ChunkState& chunk, base::PeerId from, const base::Digest& digest);
  const base::Digest& own_digest(ChunkState& chunk, const std::vector<base::ByteView>& payload);
  const base::Digest& own_digest(ChunkState& chunk);
  std::size_t payload_bytes(const ChunkState& chunk, wire::FrameKind kind) const;
  std::size_t own_bytes(const ChunkState& chunk) const;  // of an encoded contribution
  std::uint64_t frames_bytes(const ChunkState& chunk) const;
  void for_missing(
      const std::function<void(base::PeerId, std::uint64_t bytes, bool alone)>& each) const;
  void advance(ChunkState& chunk);
  struct Term {  // of a sum: what arrived; or else the own value, or the sum so far
    BufferRef arrived;
    bool own = false;
    double weight = 1;
  };
  bool keeps_apart() const { return plan_.kind == collective::PlanKind::kAllToAll; }
  std::uint32_t slot_for(const ChunkState& chunk, base::PeerId from) const;
  void keep_apart(ChunkState& chunk);
  void write_part(const ChunkState& chunk, std::uint32_t position, const BufferRef& data) const;
  void write_parts(const ChunkState& chunk) const;
  void clear_empty_slots() const;
  bool is_robust() const { return collective::is_robust(call_->terms().aggregator); }
  void aggregate_if_all_here(ChunkState& chunk);
  void aggregate(ChunkState& chunk);
  bool sums_f32(const ChunkState& chunk) const;
  bool add_first_two(ChunkState& chunk);
  void add_two(ChunkState& chunk, const Term& a, const Term& b);
  bool add_own(ChunkState& chunk);
  void add_other(ChunkState& chunk, const BufferRef& data);
  bool sums_in_output(const ChunkState& chunk) const;
  std::uint8_t* accumulator_of(const ChunkState& chunk, const collective::Segment& segment,
                               std::size_t at) const;
  void finish(ChunkState& chunk);
  void note_result(ChunkState& chunk);
  bool comes_ahead(const ChunkState& chunk) const;
  void take_result(ChunkState& chunk, const BufferRef& buffer, const base::Digest& digest);
  void hand_on(ChunkState& chunk);
  void settle(ChunkState& chunk);
  std::vector<base::ByteView> result_views(const ChunkState& chunk) const;
  void lay_out_feed();
  bool is_here(const ChunkState& chunk) const;
  bool is_kept_back(const ChunkState& chunk) const;
  void choose_kept_back();
  void set_going(ChunkState& chunk);
  bool pass_guard(ChunkState& chunk);
  std::optional<std::string> guard(const ChunkState& chunk) const;
  std::optional<std::string> malformed(const ChunkState& chunk) const;
  std::optional<std::string> wrong_payload(const ChunkState& chunk, wire::FrameKind kind,
                                           const std::vector<base::ByteView>& views) const;
  void decode_own();
  BufferRef encode_own(const ChunkState& chunk, bool* finite) const;
  const std::uint8_t* own_bytes_of(const collective::Segment& segment) const;
  BufferRef own_encoded(ChunkState& chunk);
  codec::Noise noise(base::PeerId peer, const collective::Segment& segment) const;
  const std::uint8_t* own_values(const collective::Segment& segment) const;
  void decode_result(const ChunkState& chunk);
  std::vector<base::ByteView> input_views(const ChunkState& chunk) const;
  std::vector<base::MutableView> output_views(const ChunkState& chunk, std::uint32_t slot) const;
  std::vector<base::MutableView> output_views(const ChunkState& chunk) const {
    return output_views(chunk, chunk.slot);
  }
  std::uint8_t* output_of(const ChunkState& chunk, const collective::Segment& segment,
                          std::uint32_t slot) const;
  std::uint8_t* output_of(const ChunkState& chunk, const collective::Segment& segment) const {
    return output_of(chunk, segment, chunk.slot);
  }
  void report_if_complete();
  void fail(base::Code cause, base::PeerId peer, std::string text);

  wire::Start start_;
  base::PeerId self_;
  CallRef call_;
  Memory* memory_;
  std::size_t chunk_bytes_;
  AttemptHost* host_;
  collective::Plan plan_;
  std::int32_t position_ = -1;   // in plan_.order; -1: receiver
  std::vector<double> weights_;  // by position
  double weight_sum_ = 0;
  codec::Codec contribution_codec_, result_codec_;
  bool eager_ = false;      // outputs are private and apart from the inputs
  bool in_output_ = false;  // and results travel as they lie there: no buffers for them
  bool serves_ = false;
  collective::AggregateScratch scratch_;
  std::vector<BufferRef> decoded_;  // by leaf; of contributions that came encoded, where plans add
                                    // them as values
  bool undecoded_ = false;          // that is still to be done: they have not come
  std::vector<std::uint32_t> coming_;  // chunks whose own contribution is not here, the first last
  std::vector<ChunkState> chunks_;
  std::vector<base::PeerId> others_;            // ascending
  std::map<std::uint64_t, Arriving> arriving_;  // by token
  std::uint64_t next_token_ = 1;
  std::unique_ptr<AuditBook> audit_;               // null: it has none
  bool sealed_ = false;                            // its roots were told
  std::map<base::PeerId, std::uint64_t> repeats_;  // frames that were here already
  std::set<base::PeerId> violators_;
  std::size_t unfinished_ = 0;
  std::size_t unguarded_ = 0;  // contributions that no own result waits for: to others' parts
  std::uint64_t all_bytes_ = 0, moved_bytes_ = 0;  // both ways; frames sent again count again
  bool done_ = false;
  bool failed_ = false;
  bool committed_ = false;
};

}  // namespace jccl::exchange
