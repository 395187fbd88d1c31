// The data thread of a communicator: runs attempts over links, serves snapshots to joiners and
// fetches them. Everything is confined to its loop; the control thread posts to it.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>

#include "exchange/attempts.h"
#include "exchange/survey.h"
#include "net/socket/loop.h"
#include "peer/call.h"
#include "peer/links/link_table.h"
#include "peer/snapshots/snapshots.h"
#include "protocol/peer/peer_machine.h"

namespace jccl::peer {

struct DataPlaneOptions {
  net::Credentials credentials;
  std::uint32_t stripes = 0;
  double max_rate = 0;             // bytes a second; 0: no bound
  double day_bytes = 0;            // … and in any day
  std::optional<bool> io_threads;  // empty: where there are cores for them
  std::size_t chunk_bytes = 256 * 1024;
  base::Duration silence = 3 * base::kSecond;  // until set_silence()
};

struct DataPlaneEvents {  // called on the data thread
  std::function<void(const wire::Attempt&, const base::Digest&, std::vector<wire::Share>,
                     wire::AuditRoots)>
      attempt_done;
  std::function<void(const wire::Attempt&, std::vector<wire::AuditPart>)> audited;
  std::function<void(const wire::Attempt&, base::Code, base::PeerId, std::string)> attempt_failed;
  std::function<void(const wire::Held&)> fetched;
  std::function<void(const wire::Tag&, base::Status)> fetch_failed;
  std::function<void(const wire::Outvoted&)> outvoted;
  std::function<void(const wire::Violation&)> violation;
  std::function<void(const wire::Measured&)> measured;
};

// Three for each peer of this machine, whose data thread takes one as well. Where peers share cores
// already, more threads only cost.
bool has_cores_for_io(const std::vector<wire::Member>& members, base::Incarnation self,
                      std::size_t cores);
// Thousandths of a core that the data thread of each peer of this machine has, 1000 at most.
std::uint32_t core_of_each(const std::vector<wire::Member>& members, base::Incarnation self,
                           std::size_t cores);

class DataPlane : private LinkOwner, private exchange::AttemptsHost, private SnapshotLinks {
 public:
  DataPlane(net::Loop& loop, DataPlaneOptions options, SnapshotStore* store,
            DataPlaneEvents events);
  ~DataPlane() override;

  base::Status listen(const net::Address& bind) { return links_.listen(bind); }
  std::uint16_t port() const { return links_.port(); }
  void set_self(const base::RunId& run, base::Incarnation incarnation, bool can_be_dialled);
  void set_roster(const wire::Roster& roster);
  // Where the master was reached: what others advertise is dialled accordingly.
  void set_policy(net::DialPolicy policy) { links_.set_policy(std::move(policy)); }
  // Of the run: a peer we wait for that sends nothing for so long is cut off or hangs.
  void set_silence(base::Duration silence);
  void set_max_rate(std::uint64_t bytes_per_second);  // 0: no bound

  void run(const protocol::RunAttempt& order, CallRef call);
  void hang_up() { links_.hang_up(); }

  // As exchange::Attempts says.
  void discard(const wire::Attempt& attempt);
  void fed(const CallRef& call) { attempts_.fed(call); }
  void commit(const wire::Attempt& attempt);
  void release(const CallRef& call) { attempts_.release(call); }
  void audit(const wire::AuditAsk& ask) {
    events_.audited(ask.attempt, attempts_.audit_parts(ask));
  }

  void fetch(const protocol::FetchSnapshot& order, const snapshot::Layout& layout);
  void stop_fetch(const wire::Tag& tag);

  std::size_t attempts() const { return attempts_.size(); }  // under way, or still served
  std::uint64_t progress() const { return progress_.load(std::memory_order_relaxed); }
  std::vector<wire::Moving> moving() const;  // any thread; as of the last tick
  std::uint64_t sent() const { return sent_.load(std::memory_order_relaxed); }
  std::uint64_t received() const { return received_.load(std::memory_order_relaxed); }

 private:
  // LinkOwner
  exchange::Placement place(base::Incarnation from, base::ByteView header) override;
  base::Status arrived(base::Incarnation from, base::ByteView header, std::uint64_t token) override;
  void lost(base::Incarnation from, base::ByteView header, std::uint64_t token) override;
  std::optional<exchange::OutFrame> produce(base::Incarnation to, std::uint64_t key) override;
  void stripe_lost(base::Incarnation peer) override;
  void link_failed(base::Incarnation peer, const base::Status& why) override;
  bool wanted(base::Incarnation peer) const override;
  void peer_left(base::Incarnation peer) override;
  void link_gone(base::Incarnation peer) override { snapshots_.forget(peer); }
  void acknowledged_too_much(base::Incarnation peer) override;
  // AttemptsHost, SnapshotLinks
  bool checks_frames() const override { return !options_.credentials.tls; }
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
                 wire::ViolationKind kind) override {
    events_.violation({attempt, from, kind});
  }
  // SnapshotLinks
  void enqueue_snapshot(base::Incarnation to, std::uint32_t item, bool first) override;
  void own_snapshot_frames() override;
  void use_link(const wire::Member& holder) override { links_.use(holder); }
  base::Result<net::MacKey> draw_key() override { return net::draw_mac_key(); }
  void holder_outvoted(const wire::Held& want, base::Incarnation holder,
                       std::uint32_t part) override {
    events_.outvoted({want, holder, part});
  }
  void fetch_ended(const wire::Tag& tag, const base::Status& status,
                   const wire::Held& held) override;

  void tick();
  base::Duration tick_interval() const;
  void survey(base::Time now);

  net::Loop& loop_;
  DataPlaneOptions options_;
  DataPlaneEvents events_;
  BufferPool pool_;
  net::IoThreads io_;
  LinkTable links_;
  SnapshotTraffic snapshots_;
  exchange::Survey survey_;
  std::uint32_t core_ = 0;  // as told to the master
  wire::Roster roster_;
  base::Incarnation self_ = 0;
  base::PeerId self_id_ = 0;
  exchange::Attempts attempts_;
  net::TimerId timer_ = 0;
  base::Time ticked_ = 0;
  base::Time awake_since_ = 0;  // this thread was not running before: nobody's silence counts
  mutable std::mutex moving_guard_;
  std::vector<wire::Moving> moving_;
  std::atomic<std::uint64_t> progress_{0};
  std::atomic<std::uint64_t> sent_{0};
  std::atomic<std::uint64_t> received_{0};
};

}  // namespace jccl::peer
