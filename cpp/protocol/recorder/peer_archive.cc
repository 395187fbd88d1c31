// The peer's side of recorded_sides.h. Pure; any one thread.
#include "protocol/event_words.h"
#include "protocol/recorder/archive_peer.h"
#include "protocol/recorder/recorded_sides.h"

namespace jccl::protocol {
namespace {

enum class PeerEffect : std::uint8_t {
  kDiscard = 1,
  kRoster,
  kRun,
  kCommit,
  kAudit,
  kComplete,
  kFetch,
  kSynced,
  kSend,
  kOrders,
  kEvicted,
  kDrain,
  kNotice,
  kBroken,
  kWake,
  kCount
};

// What the machine orders beside, all in one.
struct Orders {
  bool connect = false, disconnect = false, rejoin = false, renumber = false, departed = false;
};
JCCL_ARCHIVED(Orders, connect, disconnect, rejoin, renumber, departed)

template <typename F>
void each_peer_effect(const PeerEffects& fx, F&& f) {
  for (const auto& one : fx.discard) f(PeerEffect::kDiscard, one);
  if (fx.roster.has_value()) f(PeerEffect::kRoster, *fx.roster);
  for (const auto& one : fx.run) f(PeerEffect::kRun, one);
  for (const auto& one : fx.commit) f(PeerEffect::kCommit, one);
  for (const auto& one : fx.audit) f(PeerEffect::kAudit, one);
  for (const auto& one : fx.complete) f(PeerEffect::kComplete, one);
  for (const auto& one : fx.fetch) f(PeerEffect::kFetch, one);
  for (const auto& one : fx.synced) f(PeerEffect::kSynced, one);
  for (const auto& one : fx.send) f(PeerEffect::kSend, one);
  const Orders orders{fx.connect, fx.disconnect, fx.rejoin, fx.renumber, fx.departed};
  if (fx.connect || fx.disconnect || fx.rejoin || fx.departed) f(PeerEffect::kOrders, orders);
  if (!fx.evicted.empty()) f(PeerEffect::kEvicted, fx.evicted);
  if (!fx.drain.empty()) f(PeerEffect::kDrain, fx.drain);
  for (const auto& one : fx.notices) f(PeerEffect::kNotice, one);
  if (fx.broken.has_value()) f(PeerEffect::kBroken, *fx.broken);
  f(PeerEffect::kWake, fx.wake);
}

using base::cat;

struct PeerEventWords {
  std::string operator()(const Connected&) const { return "connected"; }
  std::string operator()(const Disconnected& e) const {
    return cat("disconnected: ", words_of(e.cause));
  }
  std::string operator()(const FromMaster& e) const { return cat("master: ", words_of(e.message)); }
  std::string operator()(const Call& e) const {
    return cat("call ", e.tag, ", weight ", e.weight, e.is_state ? ", of a state" : "");
  }
  std::string operator()(const CancelCall& e) const { return cat("cancel ", e.tag); }
  std::string operator()(const AttemptDone& e) const {
    return cat("attempt ", base::to_text(e.attempt), " done, result ", brief_digest(e.result));
  }
  std::string operator()(const AuditAnswer& e) const {
    return cat("attempt ", base::to_text(e.attempt), " shows ", e.parts.size(), " cells");
  }
  std::string operator()(const AttemptFailed& e) const {
    return cat("attempt ", base::to_text(e.attempt), " failed, ", base::name_of(e.cause),
               e.peer == 0 ? "" : cat(" names ", e.peer), " (", e.text, ")");
  }
  std::string operator()(const SyncCall& e) const {
    return cat("sync ", e.tag, ", has ", e.revision, " ", brief_digest(e.digest));
  }
  std::string operator()(const FetchDone& e) const { return cat("fetched ", words_of(e.held)); }
  std::string operator()(const FetchFailed& e) const {
    return cat("fetch of ", e.tag, " failed", e.disputed ? ", disputed" : "", " (", e.text, ")");
  }
  std::string operator()(const HolderOutvoted& e) const {
    return cat("holder outvoted: ", words_of(wire::Message(e.said)));
  }
  std::string operator()(const WorkRepeated& e) const {
    return cat("repeated: ", words_of(wire::Message(e.said)));
  }
  std::string operator()(const FrameViolation& e) const {
    return cat("frame: ", words_of(wire::Message(e.said)));
  }
  std::string operator()(const PublishState& e) const { return cat("publish ", words_of(e.held)); }
  std::string operator()(const StateChanged& e) const {
    return cat("state of ", e.tag, " changed (", e.why, ")");
  }
  std::string operator()(const Depart&) const { return "leave"; }
  std::string operator()(const NewLife& e) const {
    return cat("new life ", base::to_hex(e.incarnation));
  }
  std::string operator()(const Progress& e) const {
    return cat("progress ", e.bytes, " bytes, ", e.moving.size(), " attempts move");
  }
  std::string operator()(const NewMeasures& e) const { return words_of(wire::Message(e.measured)); }
  std::string operator()(const PeerTick&) const { return "tick"; }
};

struct PeerEffectWords {
  std::string operator()(PeerEffect kind, const base::Attempt& one) const {
    return cat(kind == PeerEffect::kDiscard ? "discards " : "keeps ", base::to_text(one));
  }
  std::string operator()(PeerEffect, const wire::Roster& one) const {
    return words_of(wire::Message(one));
  }
  std::string operator()(PeerEffect, const RunAttempt& one) const {
    return cat("runs ", base::to_text(one.start.attempt), one.receiver ? ", only receives" : "");
  }
  std::string operator()(PeerEffect, const wire::AuditAsk& one) const {
    return cat("shows cells: ", words_of(wire::Message(one)));
  }
  std::string operator()(PeerEffect, const CompleteCall& one) const {
    return cat(one.tag, " ", one.n, " ", words_of(one.status),
               one.world > 0 ? cat(", world ", one.world, ", attempts ", one.attempts) : "");
  }
  std::string operator()(PeerEffect, const FetchSnapshot& one) const {
    std::string text = cat("fetches ", one.want.tag, " ", one.want.revision, " from");
    for (const wire::Member& holder : one.holders) text += cat(" ", holder.site);
    return text;
  }
  std::string operator()(PeerEffect, const CompleteSync& one) const {
    return cat("sync ", one.tag, " ", words_of(one.status),
               one.status.ok() ? cat(", revision ", one.held.revision) : "");
  }
  std::string operator()(PeerEffect, const wire::Message& one) const {
    return cat("to the master: ", words_of(one));
  }
  std::string operator()(PeerEffect, const Orders& one) const {
    return cat("orders:", one.connect ? " connect" : "", one.disconnect ? " disconnect" : "",
               one.rejoin ? " take a new life" : "", one.departed ? " departed" : "");
  }
  std::string operator()(PeerEffect kind, const std::string& one) const {
    return cat(PeerSide::kind_name(static_cast<std::uint8_t>(kind)), ": ", one);
  }
  std::string operator()(PeerEffect, const base::Status& one) const {
    return cat("broken, ", words_of(one));
  }
  std::string operator()(PeerEffect, base::Time wake) const {
    return wake == base::kNever ? "wake: never" : cat("wake at ", wake);
  }
};

}  // namespace

base::Bytes PeerSide::state_of(const Machine& machine) { return saved(machine.state()); }

std::optional<PeerMachine> PeerSide::machine_of(base::ByteView state, Advisors) {
  PeerMachine machine({}, 1, 0);
  if (!load(state, *machine.state_)) return std::nullopt;
  return machine;
}

void PeerSide::put(const Event& event, Saver& to) { value(to, event); }

std::optional<PeerEvent> PeerSide::event_of(base::ByteView bytes) {
  PeerEvent event;
  if (!load(bytes, event)) return std::nullopt;
  return event;
}

std::vector<EffectNote> PeerSide::notes_of(const Effects& effects, Saver& scratch) {
  std::vector<EffectNote> notes;
  each_peer_effect(effects, [&](PeerEffect kind, const auto& one) {
    notes.push_back({static_cast<std::uint8_t>(kind), short_digest(one, scratch)});
  });
  return notes;
}

std::string PeerSide::words(const Event& event) { return std::visit(PeerEventWords{}, event); }

std::vector<std::string> PeerSide::words(const Effects& effects) {
  std::vector<std::string> all;
  each_peer_effect(effects, [&](PeerEffect kind, const auto& one) {
    all.push_back(PeerEffectWords{}(kind, one));
  });
  return all;
}

std::string_view PeerSide::kind_name(std::uint8_t kind) {
  constexpr std::string_view kNames[] = {"?",     "discard", "roster", "run",  "commit", "audit",
                                         "call",  "fetch",   "sync",   "send", "orders", "evicted",
                                         "drain", "notice",  "broken", "wake"};
  return kNames[kind < static_cast<std::uint8_t>(PeerEffect::kCount) ? kind : 0];
}

std::uint64_t PeerSide::layout() {
  Layout layout;
  const PeerMachine machine({}, 1, 0);
  value(layout, machine.state());
  const PeerEvent event;
  value(layout, event);
  return layout.number();
}

}  // namespace jccl::protocol
