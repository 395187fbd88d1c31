// The master's side of recorded_sides.h. Pure; any one thread.
#include "protocol/event_words.h"
#include "protocol/recorder/archive_master.h"
#include "protocol/recorder/recorded_sides.h"

namespace jccl::protocol {
namespace {

enum class MasterEffect : std::uint8_t {
  kJournal = 1,
  kSend,
  kClose,
  kProbe,
  kHistory,
  kMeasured,
  kRecord,
  kWake,
  kCount
};

// Each effect, in the order in which a driver carries them out.
template <typename F>
void each_master_effect(const MasterEffects& fx, F&& f) {
  for (const auto& one : fx.journal) f(MasterEffect::kJournal, one);
  for (const auto& one : fx.send) f(MasterEffect::kSend, one);
  for (const auto& one : fx.close) f(MasterEffect::kClose, one);
  for (const auto& one : fx.probe) f(MasterEffect::kProbe, one);
  for (const auto& one : fx.history) f(MasterEffect::kHistory, one);
  for (const auto& one : fx.measured) f(MasterEffect::kMeasured, one);
  for (const auto& one : fx.record) f(MasterEffect::kRecord, one);
  f(MasterEffect::kWake, fx.wake);
}

struct MasterEventWords {
  std::string operator()(const ConnMessage& e) const {
    return base::cat("conn ", e.conn, ": ", words_of(e.message));
  }
  std::string operator()(const ConnClosed& e) const {
    return base::cat("conn ", e.conn, " closed", e.nonsense ? ", after nonsense" : "");
  }
  std::string operator()(const ProbeAnswer& e) const {
    return base::cat("life ", base::to_hex(e.incarnation),
                     e.refused ? " listens no more" : " may still listen");
  }
  std::string operator()(const EvictSite& e) const { return base::cat("evict ", e.site); }
  std::string operator()(const Tick&) const { return "tick"; }
};

struct MasterEffectWords {
  std::string operator()(MasterEffect, const wire::Record& one) const {
    return base::cat("journal: ", words_of(one));
  }
  std::string operator()(MasterEffect, const MasterSend& one) const {
    return base::cat("to conn ", one.conn, ": ", words_of(one.message));
  }
  std::string operator()(MasterEffect, ConnId conn) const { return base::cat("close conn ", conn); }
  std::string operator()(MasterEffect,
                         const std::pair<wire::Incarnation, std::vector<std::string>>& one) const {
    return base::cat("probe life ", base::to_hex(one.first));
  }
  std::string operator()(MasterEffect, const HistoryLine& one) const { return words_of(one); }
  std::string operator()(MasterEffect, const std::pair<wire::PeerId, wire::Measured>& one) const {
    return base::cat("measured by ", one.first);
  }
  std::string operator()(MasterEffect, const std::pair<ConnId, std::string>& one) const {
    return base::cat("a recording for conn ", one.first);
  }
  std::string operator()(MasterEffect, base::Time wake) const {
    return wake == base::kNever ? "wake: never" : base::cat("wake at ", wake);
  }
};

}  // namespace

base::Bytes MasterSide::state_of(const Machine& machine) { return saved(machine.state()); }

std::optional<MasterMachine> MasterSide::machine_of(base::ByteView state, Advisors advisors) {
  MasterOptions options;
  options.auditor = std::move(advisors.auditor);
  MasterMachine machine(std::move(options), std::move(advisors.planner), {}, 0);
  if (!load(state, *machine.state_)) return std::nullopt;
  return machine;
}

void MasterSide::put(const Event& event, Saver& to) { value(to, event); }

std::optional<MasterEvent> MasterSide::event_of(base::ByteView bytes) {
  MasterEvent event;
  if (!load(bytes, event)) return std::nullopt;
  return event;
}

std::vector<EffectNote> MasterSide::notes_of(const Effects& effects, Saver& scratch) {
  std::vector<EffectNote> notes;
  each_master_effect(effects, [&](MasterEffect kind, const auto& one) {
    notes.push_back({static_cast<std::uint8_t>(kind), short_digest(one, scratch)});
  });
  return notes;
}

std::string MasterSide::words(const Event& event) { return std::visit(MasterEventWords{}, event); }

std::vector<std::string> MasterSide::words(const Effects& effects) {
  std::vector<std::string> all;
  each_master_effect(effects, [&](MasterEffect kind, const auto& one) {
    all.push_back(MasterEffectWords{}(kind, one));
  });
  return all;
}

std::string_view MasterSide::kind_name(std::uint8_t kind) {
  constexpr std::string_view kNames[] = {"?",       "journal",  "send",   "close", "probe",
                                         "history", "measured", "record", "wake"};
  return kNames[kind < static_cast<std::uint8_t>(MasterEffect::kCount) ? kind : 0];
}

std::uint64_t MasterSide::layout() {
  Layout layout;
  const MasterMachine machine({}, nullptr, {}, 0);
  value(layout, machine.state());
  const MasterEvent event;
  value(layout, event);
  return layout.number();
}

}  // namespace jccl::protocol
