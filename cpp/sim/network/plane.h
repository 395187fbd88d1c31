// A peer's data plane: the real attempts over simulated links, each with a queue of frames to be
// made, stripes that take them, notes of what arrived, and redialling; and its user's state,
// fetched as a whole. It does what a real driver does with the effects of a PeerMachine. Pure; one
// thread per world.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "exchange/attempts.h"
#include "exchange/dialling.h"
#include "exchange/flight.h"
#include "exchange/redial.h"
#include "protocol/peer/peer_machine.h"
#include "sim/network/network.h"
#include "sim/network/pipes.h"
#include "sim/network/plan.h"
#include "sim/values.h"

namespace jccl::sim {

class World;
struct AttemptInfo;
struct History;
struct SimPeer;

enum class FrameLie : std::uint8_t {
  kValues,
  kNotANumber,
  kNoChunk,
  kOtherChunk,
  kLength,
  kKind,
  kResult,
  kEarly,
  kOver,
  kDoubled,
  kFlood,
  kWithheld
};

inline constexpr Duration kEnginePause = 200 * kMillisecond;

struct Own {  // what this peer knows of an attempt, also when it is over
  wire::Attempt attempt;
  wire::RoundName round;
  AttemptInfo* info = nullptr;  // as an observer writes it down
  BuffersRef call;              // until it is over
  bool done = false, failed = false, committed = false;
  bool told = false;                    // a liar: that it is done, before it was
  std::optional<std::size_t> tampered;  // a liar: this element of its own share, while it adds up
  Array result{};                       // once committed
  std::uint64_t left = 0;
  HeldMax held;
  Time begun = 0;
  Time moved = 0;  // when there was another number of bytes left
};

class DataPlane final : private exchange::AttemptsHost {
 public:
  DataPlane(World& world, SimPeer& peer);
  ~DataPlane() override;

  void set_roster(const wire::Roster& roster);
  void new_life();  // the links of the one before are worth nothing
  void run(const protocol::RunAttempt& run);
  void compared(const BuffersRef& call);  // its state differs from what this peer holds
  bool tell_early(const wire::Attempt& attempt, const wire::Digest& digest);  // a liar
  void discard(const wire::Attempt& attempt);
  void commit(const wire::Attempt& attempt);
  void audit(const wire::AuditAsk& ask);
  void release(const BuffersRef& call);
  void fetch(const protocol::FetchSnapshot& fetch);
  void stop_fetch(const wire::Tag& tag) { fetches_.erase(tag); }
  void tick();
  void clear(bool vanish);  // the process died, perhaps with its machine, or its communicator did
  const Own* find(const wire::Attempt& attempt) const;
  bool runs(const BuffersRef& call) const { return attempts_.runs(call); }
  Duration slowest_link() const;  // from taking a frame to hearing of it, usually
  bool sends_in_vain() const;     // by a stripe whose other end is gone, and has not said so
  bool idle() const { return attempts_.size() == 0 && fetches_.empty(); }
  protocol::Progress progress() const;
  // Bytes of an attempt: those still to come from that peer, and those not handed to a link yet.
  std::uint64_t awaits(const wire::Attempt& attempt, wire::PeerId peer) const;
  std::uint64_t unsent(const wire::Attempt& attempt) const;
  bool loads(const wire::Tag& tag) const;  // fetched it all, and has not said so yet

  // Of the network. A pipe has two ends, 0 and 1.
  void on_snapshot(const DataMessage& message);
  void on_reset(std::uint32_t other, wire::Incarnation life);  // of what snapshots come by
  bool knows(wire::Incarnation from) const { return members_.count(from) > 0; }
  bool takes(wire::Incarnation from) const;  // another stripe of that link
  void add_stripe(Pipe& pipe, std::size_t end);
  bool dialled(wire::Incarnation to);  // false: no connection is wanted any more
  void dial_failed(wire::Incarnation to);
  void dial_refused(wire::Incarnation to);
  // The first of what came: false if it stays, for now or because the stripe is lost.
  bool receive(Pipe& pipe, std::size_t end);
  void lose_stripe(Pipe& pipe, std::size_t end, const char* why);
  void has_room(Pipe& pipe, std::size_t end);
  void settle();  // gives links what they have room for

 private:
  static constexpr std::uint32_t kWriting = 3;  // frames that a stripe has room for
  struct Stripe {
    std::size_t end = 0;
    std::uint64_t arrived = 0, noted = 0;
    Time acked_at = 0, given_at = 0;
    std::uint32_t writing = 0;          // frames that are not there yet
    Time starves_since = base::kNever;  // has room, and frames wait
    // What Flight should know: keys that are not told to have arrived; so many are.
    std::vector<std::uint64_t> taken;
    std::uint64_t told = 0;
  };
  struct Link {
    std::deque<std::uint64_t> queue;  // keys of frames not yet made
    explicit Link(std::size_t remembered) : flight(remembered) {}
    exchange::Flight flight;
    std::map<exchange::StripeId, Stripe> stripes;
    exchange::Redial redial;
    std::uint32_t dials = 0;  // under way
    Time down_since = 0, received = 0, taken_in = 0;
  };
  struct Other {  // a member, as the master named it
    wire::PeerId id = 0;
    bool listens = false;
  };
  struct Fetch {
    wire::Held want;
    std::vector<wire::Member> holders;
    std::size_t at = 0;
    Time asked = 0;
    Time whole = base::kNever;  // all of it is here; checked and loaded by then
  };

  // AttemptsHost
  void enqueue(base::Incarnation to, std::uint64_t key, bool ahead) override;
  void abandon(const std::function<bool(std::uint64_t)>& keys,
               const std::function<bool(const wire::FrameHeader&)>& frames) override;
  void abandon_receiving(base::Incarnation from,
                         const std::function<bool(const wire::FrameHeader&)>& frames) override;
  base::Time last_received(base::Incarnation peer) const override;
  void renew(base::Incarnation peer, const base::Status& why) override;
  void attempt_done(const wire::Attempt& attempt, const base::Digest& result) override;
  void attempt_failed(const wire::Attempt& attempt, base::Code cause, base::PeerId peer,
                      std::string text) override;
  void violation(const wire::Attempt& attempt, base::PeerId from,
                 wire::ViolationKind kind) override;

  Link& link_to(wire::Incarnation life);
  Own* find_own(const wire::Attempt& attempt);
  void pump(wire::Incarnation to, Link& link);
  Stripe* room(Link& link, exchange::StripeId* id);
  void dial_if_needed(wire::Incarnation to, Link& link);
  exchange::Dialling dialling(const Other& other, wire::Incarnation life, const Link& link) const;
  Duration repair_max() const;
  void tick_link(wire::Incarnation to, Link& link);
  void send_again(Link& link, const std::vector<std::uint64_t>& keys);
  void close(wire::Incarnation to);
  bool place(Pipe& pipe, std::size_t end);
  static void read(const Transit& transit, const exchange::Placement& place);
  bool finish(Pipe& pipe, std::size_t end, const Transit& transit);
  void overcounted(Pipe& pipe, std::size_t end);
  void consumed(Pipe& pipe, std::size_t end, bool counts);
  void resume();
  void tick_fetches();
  void forget(Link& link, const std::function<bool(std::uint64_t)>& keys);
  void check_progress();
  void check_memory();
  void check_held() const;
  void check_stripes();
  void check_rest(const Stripe& stripe, const exchange::Flight::Rest& rest);
  Duration silent_after() const;
  void ask_next(Fetch& fetch);
  void fetched(const wire::Held& held);
  // audit_liar.cc
  void tamper(const wire::Start& start, Own& own);
  void mend(Own& own);
  void lie_in_roots(const Own& own, wire::AuditRoots* roots);
  bool lie_in_audit(const wire::AuditAsk& ask, std::vector<wire::AuditPart>* parts);
  // frame_liar.cc
  std::vector<Transit> lie_in_frame(wire::Incarnation to, Transit transit);
  void bend(FrameLie lie, const Own& own, Transit* transit);
  std::optional<Transit> early_result(const Own& own);
  bool drops_what_it_acknowledges();
  std::uint64_t overcount();
  bool gave(const wire::Attempt& attempt, std::uint32_t chunk) const;
  void check_violation(const Pipe& pipe, std::size_t end, const Transit& transit,
                       const wire::FrameHeader& header, bool taken);
  void check_values(const Transit& transit, const wire::FrameHeader& header);

  // Memory that is given back is overwritten, and looked at again some time later: who still reads
  // or writes there is seen.
  class Heap final : public exchange::Memory {
   public:
    Heap(const DataPlane& plane, History* history) : plane_(plane) { dead_.history = history; }
    exchange::BufferRef take(std::size_t size) override;
    std::size_t taken() const { return dead_.taken; }
    std::size_t bytes() const { return dead_.bytes; }

   private:
    struct Dead {
      std::size_t taken = 0, bytes = 0;  // of buffers that are not given back
      std::deque<std::unique_ptr<exchange::Buffer>> buffers;
      History* history = nullptr;
      void add(exchange::Buffer* buffer);
    };
    const DataPlane& plane_;
    Dead dead_;
  };

  World& world_;
  SimPeer& peer_;
  Heap memory_;  // before all that takes of it; what the world carries goes first
  exchange::Attempts attempts_;
  std::map<wire::Incarnation, Link> links_;
  std::map<wire::Incarnation, Other> members_;
  wire::PeerId self_id_ = 0;
  std::deque<Own> own_;
  std::map<wire::Tag, Fetch> fetches_;
  std::set<std::pair<wire::Attempt, std::uint32_t>> gave_;    // beside a liar: own parts that left
  std::set<std::pair<wire::Attempt, wire::PeerId>> accused_;  // whose frames it spoke of
  std::uint64_t moved_ = 0;
  Time ticked_ = 0, awake_since_ = 0;
  bool settling_ = false, news_ = false;
  std::size_t queued_ = 0;   // keys in all queues
  std::size_t reading_ = 0;  // frames of which a part is here
  bool silent_ = false;      // its machine is gone: nobody hears of an end
};

}  // namespace jccl::sim
