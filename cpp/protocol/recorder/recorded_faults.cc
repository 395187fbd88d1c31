// See recorded_faults.h.
#include "protocol/recorder/recorded_faults.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "base/planted.h"
#include "base/text.h"
#include "protocol/event_words.h"

namespace jccl::protocol {

using base::cat;
using base::Code;

namespace {

bool is_fault(Code code) {
  return code == Code::kCorrupt || code == Code::kInternal || code == Code::kDisputed ||
         code == Code::kStateLost;
}

// A peer's own clock ended its wait, whatever the others did.
bool is_fault_of_call(Code code) {
  return is_fault(code) || code == Code::kDeadline || code == Code::kInDoubt;
}

Code code_in(const wire::Message& message) {
  if (const auto* m = std::get_if<wire::Outcome>(&message)) return m->code;
  if (const auto* m = std::get_if<wire::Reject>(&message)) return m->code;
  if (const auto* m = std::get_if<wire::SyncReply>(&message)) return m->code;
  return Code::kOk;
}

}  // namespace

std::string fault_in(const MasterEffects& effects) {
  static constexpr std::string_view kKinds[] = {"evict",    "ban",     "fault",  "violation",
                                                "outvoted", "dispute", "restore"};
  for (const HistoryLine& line : effects.history) {
    if (std::find(std::begin(kKinds), std::end(kKinds), line.kind) == std::end(kKinds)) continue;
    if (!JCCL_PLANTED("faults-leave-no-recording")) return words_of(line);
  }
  for (const MasterSend& sent : effects.send) {
    if (is_fault(code_in(sent.message))) return words_of(sent.message);
  }
  return {};
}

std::string fault_in(const PeerEffects& effects) {
  if (!effects.evicted.empty()) return cat("evicted: ", effects.evicted);
  for (const CompleteCall& done : effects.complete) {
    if (is_fault_of_call(done.status.code)) return cat(done.tag, ": ", words_of(done.status));
  }
  for (const CompleteSync& done : effects.synced) {
    if (is_fault_of_call(done.status.code))
      return cat("sync ", done.tag, ": ", words_of(done.status));
  }
  const auto& broken = effects.broken;
  if (broken.has_value() && broken->code != Code::kClosed) return words_of(*broken);
  return {};
}

}  // namespace jccl::protocol
