// See replay.h.
#include "protocol/recorder/replay.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/planted.h"
#include "base/text.h"
#include "protocol/recorder/archive.h"
#include "protocol/recorder/recorded_answers.h"

namespace jccl::protocol {

using base::cat;
using base::Code;
using base::Status;

namespace {

constexpr std::size_t kDifferencesMax = 8;  // told of one event

template <typename Side>
class Replay {
 public:
  using Tell = std::function<void(const Replayed&)>;
  explicit Replay(const Tell& tell) : tell_(tell) {}

  base::Result<ReplayCounts> run(const Recording& recording) {
    for (std::size_t at = 0; at < recording.entries.size(); ++at) {
      const Entry& entry = recording.entries[at];
      const bool fits = entry.kind == EntryKind::kState ? stand(entry) : act(entry);
      if (!fits) {
        return Status(Code::kDamaged, cat("entry ", at + 1, " of the recording holds no ",
                                          entry.kind == EntryKind::kState ? "state" : "event",
                                          " of this machine, though its build says so"));
      }
    }
    return counts_;
  }

 private:
  // A state in the middle is what the replay must have come to. From there on it goes on from what
  // was recorded: so one difference does not make all that follows differ.
  bool stand(const Entry& entry) {
    auto machine = Side::machine_of(entry.body, answers_.advisors());
    if (!machine.has_value()) return false;
    ++counts_.states;
    if (machine_.has_value()) {
      const base::Bytes reached = Side::state_of(*machine_);
      const bool equal =
          std::equal(reached.begin(), reached.end(), entry.body.begin(), entry.body.end());
      if (!equal && !JCCL_PLANTED("states-not-compared")) {
        ++counts_.differing;
        tell_({entry.at, "state", {}, {"the machine has come to another state than it had then"}});
      }
    }
    machine_.emplace(std::move(*machine));
    return true;
  }

  bool act(const Entry& entry) {
    std::optional<typename Side::Event> event;
    if (entry.kind == EntryKind::kEvent) {
      event = Side::event_of(entry.body);
      if (!event.has_value()) return false;
    } else if (!entry.body.empty()) {
      return false;
    }
    answers_.begin(entry.answers);
    const auto effects =
        event.has_value() ? machine_->on(*event, entry.at) : machine_->start(entry.at);
    Replayed told;
    told.at = entry.at;
    told.event = event.has_value() ? Side::words(*event) : "start";
    told.effects = Side::words(effects);
    compare(entry, Side::notes_of(effects, scratch_), told);
    ++counts_.events;
    counts_.effects += told.effects.size();
    if (!told.differences.empty()) ++counts_.differing;
    tell_(told);
    return true;
  }

  void compare(const Entry& entry, const std::vector<EffectNote>& notes, Replayed& told) const {
    std::vector<std::string>& out = told.differences;
    if (answers_.unasked() > 0) out.push_back("it asked a question that is not in the recording");
    if (answers_.any_left()) out.push_back("it asked less than in the recording");
    const std::size_t common = std::min(notes.size(), entry.effects.size());
    for (std::size_t i = 0; i < common && out.size() < kDifferencesMax; ++i) {
      if (notes[i] == entry.effects[i]) continue;
      if (JCCL_PLANTED("effects-compared-by-kind") && notes[i].kind == entry.effects[i].kind)
        continue;
      const std::string_view then = Side::kind_name(entry.effects[i].kind);
      out.push_back(notes[i].kind == entry.effects[i].kind
                        ? cat("effect ", i + 1, " was another ", then, ": now ", told.effects[i])
                        : cat("effect ", i + 1, " was a ", then, ": now ", told.effects[i]));
    }
    if (notes.size() != entry.effects.size()) {
      out.push_back(cat(entry.effects.size(), " effects came then, ", notes.size(), " now"));
    }
  }

  const Tell& tell_;
  std::optional<typename Side::Machine> machine_;
  RecordedAnswers answers_;
  ReplayCounts counts_;
  Saver scratch_;
};

template <typename Side>
base::Result<ReplayCounts> replay_as(const Recording& recording,
                                     const std::function<void(const Replayed&)>& tell) {
  const About& about = recording.about;
  if (about.layout != Side::layout() || about.wire_version != wire::kVersion) {
    return Status(
        Code::kVersion,
        cat("the recording is of the build '", about.build, "' (wire version ", about.wire_version,
            ", fields ", base::to_hex(about.layout),
            "), whose machines have other fields than this build's (wire version ", wire::kVersion,
            ", fields ", base::to_hex(Side::layout()), "): take the jccl-sim of that commit"));
  }
  return Replay<Side>(tell).run(recording);
}

}  // namespace

base::Result<ReplayCounts> replay(const Recording& recording,
                                  const std::function<void(const Replayed&)>& tell) {
  if (recording.about.role == Role::kMaster) return replay_as<MasterSide>(recording, tell);
  return replay_as<PeerSide>(recording, tell);
}

}  // namespace jccl::protocol
