// Sites that leave attempts, mostly as their program edited the state that it shares: which of them
// the next attempts do without. Pure; one event at a time.
#include <algorithm>

#include "base/planted.h"
#include "protocol/master/master_state.h"

namespace jccl::protocol {

// It left an attempt, as its own state had changed, or for no reason that others share: once is a
// mistake that costs them a try. A program that does so at each of its calls would cost them all of
// theirs.
void Stragglers::note_edit(const wire::Tag& tag, const std::string& site) {
  if (JCCL_PLANTED("edits-hold-everybody-up")) return;
  note_spoilt(tag, site);
}

void Stragglers::note_spoilt(const wire::Tag& tag, const std::string& site) {
  for (ProcessRecord* process : connections().shards_of(site)) {
    process->edit_noted.insert(tag);  // if that was why
    if (++process->spoilt[tag] >= 2) rounds().at(tag).without.insert(site);
  }
}

// As its program noticed before its READY, or after it, which it has said then.
void Stragglers::note_asked_edit(ProcessRecord& process, const wire::Sync& sync) {
  const bool noted = process.edit_noted.erase(sync.tag) > 0;
  if (!sync.changed || noted || process.id == 0 || !ledger().standing(sync.tag).born) return;
  if (JCCL_PLANTED("asked-edits-hold-everybody-up")) return;
  note_edit(sync.tag, process.site);
  process.edit_noted.erase(sync.tag);  // the site's other shards ask, too, and it is one edit
}

// Without them there is no plan, as where the others can only dial out.
bool Stragglers::take_back_left_out(const wire::Tag& tag) {
  Round& round = rounds().at(tag);
  if (round.without.empty() || JCCL_PLANTED("edited-hubs-stay-out")) return false;
  round.without.clear();
  touch(tag);
  return true;
}

// Who contributed has a whole state again. The others are on probation.
void Stragglers::forget_spoilt(const wire::Tag& tag, const MasterAttempt& committed) {
  rounds().at(tag).without.clear();
  for (auto& [incarnation, process] : processes()) {
    const auto spoilt = process.spoilt.find(tag);
    if (spoilt == process.spoilt.end()) continue;
    const auto part = committed.parts().find(process.id);
    if (part != committed.parts().end() && part->second.contributes()) {
      process.spoilt.erase(spoilt);
    } else {
      spoilt->second = 1;
    }
  }
}

}  // namespace jccl::protocol
