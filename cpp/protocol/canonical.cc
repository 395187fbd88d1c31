// The machines as values: copied, and hashed over everything that decides what they do next. What
// only words say (texts for people, counters for views) is left out, so that states that differ in
// nothing else are one. Not used by the drivers. Pure.
#include <algorithm>
#include <concepts>

#include "base/hash64.h"
#include "protocol/master_state.h"
#include "protocol/peer_state.h"
#include "wire/codec.h"

namespace jccl::protocol {
namespace {

class Canon {
 public:
  template <typename T>
    requires std::integral<T> || std::is_enum_v<T>
  void put(T value) {
    out_.u64(static_cast<std::uint64_t>(value));
  }
  void put(double value) { put(static_cast<std::int64_t>(value * 1024)); }
  void put(const std::string& text) {
    put(text.size());
    out_.raw(text.data(), text.size());
  }
  void put(const base::Digest& digest) { put(digest.low), put(digest.high); }
  void put(const wire::Attempt& attempt) { put(attempt.epoch), put(attempt.counter); }
  void put(const wire::RoundName& round) { put(round.tag), put(round.n); }
  void put(const wire::Held& held) { put(held.tag), put(held.revision), put(held.digest); }
  void put(const wire::Message& message) {
    const base::Bytes bytes = wire::encode(message);
    put(bytes.size());
    out_.raw(bytes.data(), bytes.size());
  }
  template <typename A, typename B>
  void put(const std::pair<A, B>& pair) {
    put(pair.first), put(pair.second);
  }
  template <typename T>
  void put(const std::optional<T>& value) {
    put(value.has_value());
    if (value.has_value()) put(*value);
  }
  template <typename... T>
  void put(const std::map<T...>& values) {
    put(values.size());
    for (const auto& [key, value] : values) put(key), put(value);
  }
  template <typename T>
  void put(const std::set<T>& values) {
    put(values.size());
    for (const T& value : values) put(value);
  }

  // Without the words in them.
  void put(wire::Outcome outcome) {
    outcome.text.clear();
    put(wire::Message(std::move(outcome)));
  }
  void put(const wire::Sync& sync) { put(wire::Message(sync)); }
  void put(const AskedSync& asked) {
    put(asked.sync), put(asked.deadline), put(asked.fetching), put(asked.matches);
  }
  void put(const OpenReady& open) { put(wire::Message(open.ready)), put(open.deadline); }
  void put(const Cut& cut) { put(cut.until), put(cut.times); }
  void put(const Part& part) {
    put(part.incarnation), put(part.weight), put(part.call);
    put(part.evicted), put(part.failed), put(part.done);
  }
  void put(const RunningAttempt& running) {
    put(running.attempt()), put(running.round()), put(running.parts()), put(running.phase());
    put(running.deadline), put(running.askers), put(running.judged_at), put(running.silent.size());
    for (const auto& [named, reporters] : running.silent) {
      put(named), put(reporters.size());
      for (const auto& [reporter, words] : reporters) put(reporter);
    }
  }
  void put(const Round& round) {
    put(round.ready), put(round.running);
    const RoundMemory& memory = round.memory;
    put(memory.link_failures), put(memory.cut), put(memory.named), put(memory.corrupt);
    put(round.skipped), put(round.quorum_since);
    put(memory.guarded.empty()), put(memory.aborted);
    put(round.descriptors.size()), put(round.lost_since), put(round.asking);
  }
  void put(const Call& call) {
    put(call.descriptor), put(call.weight), put(call.is_state), put(call.deadline);
  }
  void put(const OpenCall& open) {
    put(open.call), put(open.number), put(open.n), put(open.phase), put(open.weight);
    put(open.left_out), put(open.receiver), put(open.orphan), put(open.attempt), put(open.own);
    put(open.failed.has_value()), put(open.outcome);
    if (open.failed.has_value()) put(open.failed->cause), put(open.failed->peer);
  }
  void put(const Doubt& doubt) {
    put(doubt.about.attempt), put(doubt.about.round), put(doubt.is_state), put(doubt.kept);
    put(doubt.report.has_value());
  }
  void put(const OpenSync& open) {
    put(open.call.source), put(open.call.revision), put(open.call.digest);
    put(open.call.deadline), put(open.fetching), put(open.current), put(open.again);
  }

  base::Digest digest() {
    const base::Bytes bytes = out_.take();
    return {base::hash64(bytes, 1), base::hash64(bytes, 2)};
  }

 private:
  base::Writer out_;
};

void put_life(Canon& canon, const Life& life, std::size_t order) {
  canon.put(life.site), canon.put(life.shard), canon.put(life.id), canon.put(life.conn);
  canon.put(life.resumed), canon.put(life.roster_epoch), canon.put(life.seen), canon.put(order);
  canon.put(life.connected() ? life.heard : life.gone);
  canon.put(life.syncs), canon.put(life.held), canon.put(life.fetched), canon.put(life.behind);
  canon.put(life.missed), canon.put(wire::Message(wire::Heartbeat{0, 0, life.moving}));
}

}  // namespace

MasterMachine::MasterMachine(std::unique_ptr<State> state) : state_(std::move(state)) {}

MasterMachine MasterMachine::clone() const {
  return MasterMachine(std::make_unique<State>(*state_));
}

// What the journal says is not in it: whoever holds the journal adds that.
base::Digest MasterMachine::digest() const {
  const State& at = *state_;
  Canon canon;
  canon.put(at.ledger_.epoch()), canon.put(at.ledger_.fenced());
  canon.put(at.wake_), canon.put(at.last_), canon.put(at.started_at_), canon.put(at.next_tick_);
  canon.put(at.begun_), canon.put(at.counter_), canon.put(at.conns_), canon.put(at.doomed_);
  std::vector<std::uint64_t> orders;  // only who came before whom matters
  for (const auto& [incarnation, life] : at.lives_) orders.push_back(life.order);
  std::sort(orders.begin(), orders.end());
  canon.put(at.lives_.size());
  for (const auto& [incarnation, life] : at.lives_) {
    const auto place = std::lower_bound(orders.begin(), orders.end(), life.order);
    canon.put(incarnation);
    put_life(canon, life, static_cast<std::size_t>(place - orders.begin()));
  }
  canon.put(at.lives_due_), canon.put(at.rounds_), canon.put(at.holds_), canon.put(at.cuts_);
  canon.put(at.probed_last_);
  canon.put(at.start_peers_asked_), canon.put(at.roster_dirty_);
  canon.put(wire::Message(at.told_));
  return canon.digest();
}

PeerMachine::PeerMachine(std::unique_ptr<State> state) : state_(std::move(state)) {}

PeerMachine PeerMachine::clone() const { return PeerMachine(std::make_unique<State>(*state_)); }

base::Digest PeerMachine::digest() const {
  const State& at = *state_;
  Canon canon;
  canon.put(at.incarnation_), canon.put(at.run_ == wire::RunId{}), canon.put(at.last_);
  canon.put(at.wake_), canon.put(at.link_), canon.put(at.up() ? at.heard_ : at.lost_at_);
  canon.put(at.dial_at_), canon.put(at.pause_), canon.put(at.life_pause_);
  canon.put(at.next_beat_), canon.put(at.next_ask_), canon.put(at.id_), canon.put(at.epoch_);
  canon.put(at.departing_), canon.put(at.departed_by_), canon.put(at.broken_.has_value());
  canon.put(wire::Message(at.roster_));
  canon.put(at.calls_), canon.put(at.calls_made_), canon.put(at.doubts_), canon.put(at.syncs_);
  canon.put(at.committed_), canon.put(at.held_), canon.put(at.resync_);
  return canon.digest();
}

}  // namespace jccl::protocol
