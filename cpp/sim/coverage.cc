#include "sim/coverage.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "protocol/master/master_state.h"
#include "protocol/peer/peer_state.h"
#include "wire/serialize.h"

namespace jccl::sim {
namespace {

using base::cat;
using protocol::CallPhase;
using protocol::MasterMachine;
using protocol::PeerMachine;

constexpr std::array<std::string_view, kMasterPhases> kMasterColumns = {
    "stranger",     "greeted",     "observer/idle",  "observer/forming",
    "observer/run", "member/idle", "member/forming", "member/run"};
constexpr std::array<std::string_view, 5> kMasterEvents = {"closed", "refused", "answered",
                                                           "evict-site", "tick"};
constexpr std::array<std::string_view, kPeerPhases> kPeerColumns = {
    "paused", "dialing",  "greeting", "no-life", "ended", "idle",    "waiting",
    "moving", "reported", "closing",  "doubt",   "sync",  "fetching"};
constexpr std::array<std::string_view, std::variant_size_v<protocol::PeerEvent>> kPeerEvents = {
    "connected",     "disconnected", "",        "call",        "cancel",   "attempt-done",
    "attempt-fails", "sync-call",    "fetched", "fetch-fails", "outvoted", "repeated",
    "violation",     "publish",      "edited",  "depart",      "new-life", "progress",
    "measures",      "tick",         "audited"};

enum StragglerInput : std::size_t { kLate, kSlow, kReadyAgain, kSyncsAgain };

template <typename T>
concept HasRound = requires(const T& m) { m.round.tag; };
template <typename T>
concept HasTag = requires(const T& m) { m.tag; };

const wire::Tag* tag_of(const wire::Message& message) {
  return std::visit(
      [](const auto& m) -> const wire::Tag* {
        using T = std::decay_t<decltype(m)>;
        if constexpr (HasRound<T>) return &m.round.tag;
        if constexpr (HasTag<T>) return &m.tag;
        if constexpr (std::is_same_v<T, wire::Query>) return &m.about.round.tag;
        if constexpr (std::is_same_v<T, wire::Published>) return &m.held.tag;
        return nullptr;
      },
      message);
}

const wire::Attempt* attempt_of(const wire::Message& message) {
  if (const auto* done = std::get_if<wire::Done>(&message)) return &done->attempt;
  if (const auto* fail = std::get_if<wire::Fail>(&message)) return &fail->attempt;
  return nullptr;
}

std::size_t round_phase(const protocol::Round& round) {
  return round.running.has_value() ? 2 : round.ready.empty() ? 0 : 1;
}

std::size_t round_phase(const MasterMachine::State& state, const wire::Tag* tag) {
  if (tag != nullptr) {
    const auto found = state.rounds_.find(*tag);
    return found == state.rounds_.end() ? 0 : round_phase(found->second);
  }
  std::size_t phase = 0;
  for (const auto& [name, round] : state.rounds_) phase = std::max(phase, round_phase(round));
  return phase;
}

// Column of a life, and of what it speaks about.
std::size_t column(const MasterMachine::State& state, const protocol::ProcessRecord* life,
                   const wire::Tag* tag) {
  if (life == nullptr) return 0;
  if (life->connected() && !life->resumed) return 1;
  return (life->id == 0 ? 2 : 5) + round_phase(state, tag);
}

std::size_t column(const MasterMachine::State& state, protocol::ConnId conn,
                   const wire::Message* message) {
  const auto found = state.conns_.find(conn);
  if (found == state.conns_.end() || found->second == 0) return 0;
  const wire::Tag* tag = message == nullptr ? nullptr : tag_of(*message);
  if (const wire::Attempt* attempt = message == nullptr ? nullptr : attempt_of(*message)) {
    const auto running = state.running_.find(*attempt);
    static const wire::Tag kNone = "-";
    tag = running == state.running_.end() ? &kNone : &running->second;
  }
  return column(state, state.record_of(found->second), tag);
}

const wire::Tag* tag_of(const protocol::PeerEvent& event) {
  return std::visit(
      [](const auto& e) -> const wire::Tag* {
        using T = std::decay_t<decltype(e)>;
        if constexpr (std::is_same_v<T, protocol::FromMaster>) return tag_of(e.message);
        if constexpr (HasTag<T>) return &e.tag;
        if constexpr (requires { e.held.tag; }) return &e.held.tag;
        return nullptr;
      },
      event);
}

const wire::Attempt* attempt_of(const protocol::PeerEvent& event) {
  if (const auto* done = std::get_if<protocol::AttemptDone>(&event)) return &done->attempt;
  if (const auto* failed = std::get_if<protocol::AttemptFailed>(&event)) return &failed->attempt;
  return nullptr;
}

std::size_t call_column(const protocol::OpenCall& open) {
  return 6 + static_cast<std::size_t>(open.phase);
}

std::size_t column(const PeerMachine::State& state, const protocol::PeerEvent& event) {
  using protocol::MasterConnection;
  switch (state.link_) {
    case MasterConnection::kPaused:
      return 0;
    case MasterConnection::kDialing:
      return 1;
    case MasterConnection::kGreeting:
      return 2;
    case MasterConnection::kNoLife:
      return 3;
    case MasterConnection::kEnded:
      return 4;
    case MasterConnection::kUp:
      break;
  }
  const wire::Tag* tag = tag_of(event);
  const wire::Attempt* attempt = attempt_of(event);
  std::size_t widest = 5;
  for (const auto& [name, open] : state.calls_) {
    const bool fits = tag != nullptr       ? name == *tag
                      : attempt != nullptr ? open.attempt == *attempt
                                           : true;
    if (fits) widest = std::max(widest, call_column(open));
  }
  for (const auto& [name, doubt] : state.doubts_) {
    if (tag == nullptr || name == *tag) widest = std::max<std::size_t>(widest, 10);
  }
  for (const auto& [name, sync] : state.syncs_) {
    if (tag == nullptr || name == *tag) {
      widest = std::max<std::size_t>(widest, sync.fetching.has_value() ? 12 : 11);
    }
  }
  return widest;
}

template <std::size_t N>
std::string name_of_message() {
  return std::string(wire::name_of(wire::Message(std::in_place_index<N>)));
}

template <std::size_t... N>
std::vector<std::string> message_names(std::index_sequence<N...>) {
  return {name_of_message<N>()...};
}

}  // namespace

void Coverage::see(const MasterMachine& machine, const protocol::MasterEvent& event) {
  const MasterMachine::State& state = machine.state();
  if (const auto* said = std::get_if<protocol::ConnMessage>(&event)) {
    see_return(machine, said->conn, said->message);
    ++master[said->message.index()][column(state, said->conn, &said->message)];
  } else if (const auto* closed = std::get_if<protocol::ConnClosed>(&event)) {
    ++master[kMessageKinds][column(state, closed->conn, nullptr)];
  } else if (const auto* probe = std::get_if<protocol::ProbeAnswer>(&event)) {
    const auto* life = state.record_of(probe->incarnation);
    ++master[kMessageKinds + (probe->refused ? 1 : 2)][column(state, life, nullptr)];
  } else if (const auto* wish = std::get_if<protocol::EvictSite>(&event)) {
    const auto site = state.sites_.find(wish->site);
    const bool known = site != state.sites_.end() && !site->second.empty();
    const auto* life = known ? state.record_of(*site->second.begin()) : nullptr;
    ++master[kMessageKinds + 3][column(state, life, nullptr)];
  } else {
    see_stragglers(machine);
    const bool members = !state.ledger_.members().empty();
    ++master[kMessageKinds + 4][(members ? 5 : 2) + round_phase(state, nullptr)];
  }
}

// Under `wait` nothing is done about them, so nothing is told: looked for.
void Coverage::see_stragglers(const MasterMachine& machine) {
  const MasterMachine::State& state = machine.state();
  if (state.options_.straggler != protocol::Straggler::kWait) return;
  const base::Duration patience = state.options_.straggler_after;
  for (const auto& [tag, round] : state.rounds_) {
    if (round.running.has_value()) {
      std::string why;
      const bool old = state.now_ >= round.running->since + patience;
      straggler[kSlow][0] += old && !state.straggling(*round.running, patience, &why).empty();
      continue;
    }
    std::size_t patient = 0;  // READY for so long
    for (const auto& [incarnation, open] : round.ready) {
      patient += state.now_ >= open.since + patience;
    }
    const std::size_t members = state.ledger_.members().size();
    straggler[kLate][0] += 2 * patient >= members && round.ready.size() < members;
  }
}

void Coverage::see(const protocol::MasterEffects& effects) {
  for (const protocol::HistoryLine& line : effects.history) {
    if (line.kind != "skip" && line.kind != "evict") continue;
    const std::size_t policy = line.kind == "skip" ? 1 : 2;
    const std::string& reason = line.fields.back().second;
    straggler[kSlow][policy] += reason.find(" is slow: ") != std::string::npos;
    straggler[kLate][policy] += reason.find(" was not READY for ") != std::string::npos;
  }
}

// Of a site that was skipped.
void Coverage::see_return(const MasterMachine& machine, protocol::ConnId conn,
                          const wire::Message& message) {
  const auto* ready = std::get_if<wire::Ready>(&message);
  const auto* sync = std::get_if<wire::Sync>(&message);
  if (ready == nullptr && sync == nullptr) return;
  const MasterMachine::State& state = machine.state();
  const auto found = state.conns_.find(conn);
  const auto round = state.rounds_.find(ready != nullptr ? ready->round.tag : sync->tag);
  if (found == state.conns_.end() || round == state.rounds_.end()) return;
  const protocol::ProcessRecord* life = state.record_of(found->second);
  if (life == nullptr || round->second.skipped.count(life->site) == 0) return;
  ++straggler[ready != nullptr ? kReadyAgain : kSyncsAgain][1];
}

void Coverage::see(const PeerMachine& machine, const protocol::PeerEvent& event) {
  const auto* from = std::get_if<protocol::FromMaster>(&event);
  const std::size_t row = from != nullptr ? from->message.index() : kMessageKinds + event.index();
  ++peer[row][column(machine.state(), event)];
}

void Coverage::see_attempts(std::uint32_t edges) {
  for (std::size_t edge = 0; edge < kAttemptEdges; ++edge) attempt[edge] += edges >> edge & 1;
}

void Coverage::add(const Coverage& other) {
  const auto sum = [](auto& to, const auto& from) {
    for (std::size_t i = 0; i < to.size(); ++i) {
      for (std::size_t j = 0; j < to[i].size(); ++j) to[i][j] += from[i][j];
    }
  };
  sum(master, other.master), sum(peer, other.peer), sum(straggler, other.straggler);
  for (std::size_t i = 0; i < kAttemptEdges; ++i) attempt[i] += other.attempt[i];
}

namespace {

// ---- what cannot happen ------------------------------------------------------------------------

struct Excuse {
  std::string_view input;   // "*": every one
  std::string_view phases;  // blank-separated; "*": every one
  std::string_view why;
};

constexpr std::string_view kMastersOwn =
    "Welcome Refuse Roster Start Outcome Reject Moved Waiting Evicted HeartbeatAck SyncReply "
    "StatusReply OrderReply Drain Notice AuditAsk";
constexpr std::string_view kPeersOwn =
    "Hello Resume Ready Done Fail Withdraw Query Heartbeat Leave Sync Published StatusAsk "
    "StatusReply Measured Order Outvoted Violation AuditPart Finding";
constexpr std::string_view kObservers = "observer/idle observer/forming observer/run";
constexpr std::string_view kMembers = "member/idle member/forming member/run";
constexpr std::string_view kUp = "idle waiting moving reported closing doubt sync fetching";

constexpr std::array kMasterExcuses = {
    Excuse{"StatusAsk", "*", "the driver answers it"},
    Excuse{"Outvoted", "*", "nobody forges parts but a hostile member: with --hostile"},
    Excuse{"Violation", "*", "nobody lies in frames but a hostile member: with --hostile"},
    Excuse{"Finding", "*", "of audits by programs, and there are none here: findings_test.cc"},
    Excuse{"AuditPart", "*", "asked for by an audit alone: of an attempt that runs, or is over"},
    Excuse{"Order", "observer/forming observer/run member/idle member/forming member/run",
           "refused for what it is, whoever says it and whatever runs"},
    Excuse{kMastersOwn, "observer/forming observer/run member/idle member/forming member/run",
           "refused for what it is, whoever says it and whatever runs"},
    Excuse{"Hello", kObservers, "a second one is refused for what it is: met after the Welcome"},
    Excuse{"Hello Resume", kMembers, "a second one is refused for what it is"},
    Excuse{"Resume", "observer/forming observer/run", "a second one is refused for what it is"},
    Excuse{"Done Fail", "observer/forming member/forming", "an attempt runs, or is not known"},
    Excuse{"Fail", "observer/run", "a receiver that gives up: once in 20,000 seeds"},
    Excuse{"refused answered", kObservers, "only members are looked for"},
    Excuse{"tick", "stranger greeted", "it is of no life"},
    Excuse{"tick", "observer/run", "a round runs between members"},
};

constexpr std::array kPeerExcuses = {
    Excuse{kPeersOwn, "*", "no master says it"},
    Excuse{"OrderReply", "*", "no peer gives orders"},
    Excuse{"Drain Notice", "*", "an operator's word, which the machine hands on"},
    Excuse{"AuditAsk audited", "*", "of an audited attempt whose call has ended, or is closing"},
    Excuse{"outvoted", "*", "nobody forges parts but a hostile member: with --hostile"},
    Excuse{"violation", "*", "nobody lies in frames but a hostile member: with --hostile"},
    Excuse{"repeated", "*", "of audits by programs, and there are none here: findings_test.cc"},
    Excuse{"fetch-fails", "idle",
           "the call was over when its fetch failed: less than once in 100,000"},
    Excuse{kMastersOwn, "paused dialing no-life ended", "there is no connection to hear it on"},
    Excuse{"Welcome Refuse", kUp, "answers a Hello, once"},
    Excuse{"Roster Start Outcome Reject Moved Waiting HeartbeatAck SyncReply", "greeting",
           "the Welcome comes first"},
    Excuse{"Start", "closing doubt sync fetching", "there is no READY that it could answer"},
    Excuse{"Outcome", "closing", "whoever heard COMMIT asks no more"},
    Excuse{"Reject Moved", "moving reported closing doubt sync fetching",
           "answers a READY that was not started"},
    Excuse{"Waiting", "closing fetching", "said to calls whose round stands still"},
    Excuse{"SyncReply", "waiting moving reported closing doubt", "a sync excludes a call"},
    Excuse{"connected", "greeting no-life", "answers a dial"},
    Excuse{"connected", kUp, "answers a dial"},
    Excuse{"disconnected call cancel attempt-done attempt-fails sync-call fetched fetch-fails "
           "publish edited depart progress measures tick",
           "no-life", "the driver hands in the next life before anything else"},
    Excuse{"call sync-call", "closing", "BUSY_TAG, whatever the open call's phase; too short"},
    Excuse{"cancel depart", "doubt fetching closing", "takes chances that are rare"},
    Excuse{"attempt-done attempt-fails", "idle waiting reported closing fetching",
           "an attempt ends once; of one that is over only if both cross"},
    Excuse{"fetched fetch-fails", "waiting moving reported closing doubt",
           "a sync excludes a call"},
    Excuse{"fetched fetch-fails", "sync", "a fetch ends with the sync that ordered it"},
    Excuse{"publish", "waiting moving reported closing sync fetching",
           "the user publishes when a call has ended"},
    Excuse{"publish", "paused dialing greeting ended",
           "a call rarely ends while there is no master"},
    Excuse{"edited", "ended waiting moving reported closing doubt sync fetching",
           "users edit a state between calls"},
    Excuse{"new-life",
           "paused dialing greeting ended idle waiting moving reported closing doubt sync fetching",
           "answers `rejoin`"},
};

constexpr std::array kStragglerExcuses = {
    Excuse{"ready-again syncs-again", "wait evict", "nobody is skipped"},
};

constexpr std::array kAttemptExcuses = {
    Excuse{"*", "agreed unequal lost", "final: its holder ends it within the same event"},
};

// Whether the blank-separated list has the word.
bool names(std::string_view list, std::string_view word) {
  if (list == "*") return true;
  for (std::size_t at = 0; at < list.size();) {
    const std::size_t end = std::min(list.find(' ', at), list.size());
    if (list.substr(at, end - at) == word) return true;
    at = end + 1;
  }
  return false;
}

const Excuse* excuse(std::span<const Excuse> excuses, std::string_view input,
                     std::string_view phase) {
  for (const Excuse& one : excuses) {
    if (names(one.input, input) && names(one.phases, phase)) return &one;
  }
  return nullptr;
}

struct Table {
  std::string_view title;
  std::span<const std::string_view> columns;
  std::span<const Excuse> excuses;
};

void write_row(const Table& table, std::string_view input, std::span<const std::uint64_t> counts,
               std::string& text, std::vector<std::string>* missing) {
  text += cat("  ", input, ":");
  for (std::size_t c = 0; c < counts.size(); ++c) {
    const Excuse* reason = excuse(table.excuses, input, table.columns[c]);
    if (counts[c] > 0) {
      text += cat(" ", counts[c]);
    } else {
      text += reason != nullptr ? " -" : " MISSING";
    }
    if (counts[c] > 0 || reason != nullptr) continue;
    missing->push_back(cat(table.title, ": ", input, " × ", table.columns[c]));
  }
  text += "\n";
}

std::string heading(const Table& table) {
  std::string text = cat(table.title, ":");
  for (const std::string_view name : table.columns) text += cat(" ", name);
  return text + "\n";
}

}  // namespace

std::string to_text(const Coverage& coverage, std::vector<std::string>* missing) {
  missing->clear();
  const auto messages = message_names(std::make_index_sequence<kMessageKinds>());
  std::string text, notes;
  const Table to_master{"to the master", kMasterColumns, kMasterExcuses};
  text += heading(to_master);
  for (std::size_t row = 0; row < kMasterInputs; ++row) {
    const std::string_view input =
        row < kMessageKinds ? std::string_view(messages[row]) : kMasterEvents[row - kMessageKinds];
    write_row(to_master, input, coverage.master[row], text, missing);
  }
  const Table to_peer{"to a peer", kPeerColumns, kPeerExcuses};
  text += heading(to_peer);
  for (std::size_t row = 0; row < kPeerInputs; ++row) {
    const std::string_view input =
        row < kMessageKinds ? std::string_view(messages[row]) : kPeerEvents[row - kMessageKinds];
    if (!input.empty()) write_row(to_peer, input, coverage.peer[row], text, missing);
  }
  static constexpr std::array<std::string_view, 4> kPhases = {"moving", "agreed", "unequal",
                                                              "lost"};
  static constexpr std::array<std::string_view, 4> kInputs = {"done", "unequal-done", "done-gone",
                                                              "undone-gone"};
  const Table attempts{"attempts", kPhases, kAttemptExcuses};
  text += heading(attempts);
  for (std::size_t input = 0; input < 4; ++input) {
    std::array<std::uint64_t, 4> counts{};
    for (std::size_t p = 0; p < 4; ++p) counts[p] = coverage.attempt[p * 4 + input];
    write_row(attempts, kInputs[input], counts, text, missing);
  }
  static constexpr std::array<std::string_view, 3> kPolicies = {"wait", "skip", "evict"};
  static constexpr std::array<std::string_view, 4> kSites = {"late", "slow", "ready-again",
                                                             "syncs-again"};
  const Table stragglers{"stragglers", kPolicies, kStragglerExcuses};
  text += heading(stragglers);
  for (std::size_t input = 0; input < kStragglerInputs; ++input) {
    write_row(stragglers, kSites[input], coverage.straggler[input], text, missing);
  }
  for (const std::string& pair : *missing) notes += cat("  ", pair, " was never met\n");
  notes += cat(missing->size(), " pairs were never met and have no excuse\n");
  notes += "where a pair was not met (-):\n";
  for (const Table& table : {to_master, to_peer, attempts, stragglers}) {
    for (const Excuse& one : table.excuses) {
      notes += cat("  ", table.title, ": ", one.input, " × ", one.phases, ": ", one.why, "\n");
    }
  }
  return text + notes;
}

}  // namespace jccl::sim
