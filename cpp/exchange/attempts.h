// The attempts of one peer, from START to the last result that is served. Decides which attempt a
// frame belongs to, which attempts are over or have not begun, which peers an attempt needs, and
// whose silence is too long. Knows lives of peers and frames. The driver has the links, and reports
// their events. Pure; confined to its driver's thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "exchange/attempt/attempt.h"

namespace jccl::exchange {

class AttemptsHost {
 public:
  virtual ~AttemptsHost() = default;
  // A frame for that life: produce(key) makes it when its link has room. `ahead`: before what waits
  // already, because its bytes are in the cache now and others wait for it.
  virtual void enqueue(base::Incarnation to, std::uint64_t key, bool ahead) = 0;
  // Nothing of the keys (of the frames) is sent (received) any more, and nothing points at the
  // memory behind them on return.
  virtual void abandon(const std::function<bool(std::uint64_t key)>& keys,
                       const std::function<bool(const wire::FrameHeader&)>& frames) = 0;
  // Frames under way from that life are drained from here on.
  virtual void abandon_receiving(base::Incarnation from,
                                 const std::function<bool(const wire::FrameHeader&)>& frames) = 0;
  virtual base::Time last_received(base::Incarnation peer) const = 0;  // 0: never
  // Its connections carry nothing: new ones may.
  virtual void renew(base::Incarnation peer, const base::Status& why) = 0;
  // Not where links are sealed: what arrives there is what was sent.
  virtual bool checks_frames() const { return true; }
  virtual void attempt_done(const wire::Attempt& attempt, const base::Digest& result) = 0;
  virtual void attempt_failed(const wire::Attempt& attempt, base::Code cause, base::PeerId peer,
                              std::string text) = 0;
  // A frame of that peer, which the attempt's plan does not allow: evidence against its sender.
  virtual void violation(const wire::Attempt& attempt, base::PeerId from,
                         wire::ViolationKind kind) = 0;
};

// Keys of frames: an attempt's number here, what the frame is, and of which chunk. Keys below 2^32
// are the driver's own.
std::uint32_t slot_of(std::uint64_t key);
WorkItem item_of(std::uint64_t key);

class Attempts final : private AttemptHost {
 public:
  Attempts(Memory* memory, std::size_t chunk_bytes, AttemptsHost* host)
      : memory_(memory), chunk_bytes_(chunk_bytes), host_(host) {}
  ~Attempts() override = default;
  Attempts(const Attempts&) = delete;
  Attempts& operator=(const Attempts&) = delete;

  void set_members(const std::vector<wire::Member>& members, base::Incarnation self);
  std::string name(base::PeerId peer) const;  // also of who has left just now

  void run(const wire::Start& start, CallRef call, base::Time now);
  // More of the call's inputs is here, or its state was compared.
  void fed(const CallRef& call);
  // Aborted, superseded, or not begun here: on return nothing refers to the call's memory.
  void discard(const wire::Attempt& attempt);
  // Outputs become visible; results are served on until swept. False: no attempt that is done.
  bool commit(const wire::Attempt& attempt);
  // The call is over, however it ended: nothing refers to its memory on return.
  void release(const CallRef& call);
  void clear();  // as if all were discarded, for an owner that ends
  // Lets go of committed attempts, and returns their slots, but those that `serving` holds for.
  std::vector<std::uint32_t> sweep(const std::function<bool(std::uint32_t slot)>& serving);

  Placement place(base::Incarnation from, const wire::FrameHeader& header);
  base::Status arrived(base::Incarnation from, const wire::FrameHeader& header,
                       std::uint64_t token);
  void lost(const wire::FrameHeader& header, std::uint64_t token);
  void stripe_lost(base::Incarnation peer);
  std::optional<OutFrame> produce(std::uint64_t key);  // nullopt: no longer wanted

  // No connection to that life is left, and none comes about.
  void link_failed(base::Incarnation peer, const std::string& why);
  // It left the run: what it sent has been read, or won't be.
  void peer_left(base::Incarnation peer);
  bool wanted(
      base::Incarnation peer) const;  // an attempt that is not over exchanges frames with it
  // Reports peers that are awaited and silent for longer than `limit`, once per attempt and limit.
  // Silence from before `awake_since` does not count.
  void check_stalls(base::Time now, base::Duration limit, base::Time awake_since);
  std::vector<wire::Moving> moving() const;  // how far all are that still move something

  const Attempt* find(const wire::Attempt& attempt) const;
  std::vector<wire::Share> shares(const wire::Attempt& attempt);  // of one that is done
  wire::AuditRoots audit_roots(const wire::Attempt& attempt);     // likewise; once
  // None once the outcome is known.
  std::vector<wire::AuditPart> audit_parts(const wire::AuditAsk& ask) const;
  const wire::Attempt* attempt_of(std::uint64_t key) const;  // null: over
  bool runs(const CallRef& call) const;                      // an attempt that may still fail
  std::size_t size() const { return running_.size(); }

 private:
  struct Running {
    std::uint32_t slot = 0;  // upper half of the keys of its frames
    std::unique_ptr<Attempt> run;
    base::Time begun = 0;  // or told of a silence last
    std::map<base::PeerId, base::Incarnation> lives;
    // Of members that violated the plan: when their last frame that counted came.
    std::map<base::PeerId, base::Time> brought;
  };

  // AttemptHost
  bool checks_frames() const override { return host_->checks_frames(); }
  void enqueue(const wire::Attempt& attempt, base::PeerId to, WorkItem item) override;
  void drop_copies(const wire::Attempt& attempt, base::PeerId from, WorkItem item) override;
  void attempt_done(const wire::Attempt& attempt, const base::Digest& result) override;
  void attempt_failed(const wire::Attempt& attempt, base::Code cause, base::PeerId peer,
                      std::string text) override;
  void violation(const wire::Attempt& attempt, base::PeerId from,
                 wire::ViolationKind kind) override;

  static base::PeerId id_of(const Running& running, base::Incarnation life);
  base::Time heard_from(const Running& running, base::PeerId peer) const;
  std::map<wire::Attempt, Running>::iterator running_of(const wire::Attempt& attempt);
  void drop_frames(const Running& running);
  void bound_served(const wire::Tag& tag);
  // Of the attempts that are not done and for which `needs` holds, with the peer's id there.
  std::vector<std::pair<wire::Attempt, base::PeerId>> that_need(
      base::Incarnation peer, const std::function<bool(const Attempt&, base::PeerId)>& needs) const;

  Memory* memory_;
  std::size_t chunk_bytes_;
  AttemptsHost* host_;
  base::PeerId self_id_ = 0;
  std::vector<wire::Member> members_, before_;  // of the roster before: they have names, too
  std::map<wire::Attempt, Running> running_;    // also committed ones that still serve results
  std::map<std::uint32_t, wire::Attempt> by_slot_;
  std::uint32_t next_slot_ = 1;
  wire::Attempt newest_;  // STARTs come in order: an older unknown attempt is over
  base::Time now_ = 0;    // as it was told last
};

}  // namespace jccl::exchange
