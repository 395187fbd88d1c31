// What users' threads see of a peer's machine: see control.h.
#include <algorithm>

#include "base/planted.h"
#include "peer/control.h"

namespace jccl::peer {
namespace {

constexpr std::size_t kDeparturesMax = 64;  // kept in words
constexpr std::size_t kNamesMax = 4096;     // of peers, most of which may have left

void remember(std::deque<std::string>* last, const std::string& text) {
  last->push_back(text);
  if (last->size() > kDeparturesMax) last->pop_front();
}

}  // namespace

void ControlView::hear(const protocol::PeerEffects& effects) {
  if (!effects.drain.empty()) drain = effects.drain;
  noticed += effects.notices.size();
  for (const std::string& text : effects.notices) remember(&notices, text);
  if (!effects.roster) return;
  sites.clear(), ids.clear();
  if (JCCL_PLANTED("the-gone-have-no-name")) site_of.clear();
  for (const wire::Member& member : effects.roster->members) {
    site_of[member.id] = member.site;
    if (JCCL_PLANTED("shards-are-sites") ||
        std::find(sites.begin(), sites.end(), member.site) == sites.end()) {
      sites.push_back(member.site);
      ids.push_back(member.id);
    }
  }
  // A result may name who has left since. Ids are given once and grow.
  while (site_of.size() > kNamesMax) site_of.erase(site_of.begin());
  if (effects.roster->why.empty()) return;
  ++departures;
  remember(&departed_why, effects.roster->why);
}

void ControlView::note(const std::string& text) {
  ++noticed;
  remember(&notices, text);
}

std::vector<std::pair<wire::Tag, std::string>> Control::waits() {
  std::vector<std::pair<wire::Tag, std::string>> all;
  loop_.call([&] {
    const auto add = [&](const wire::Tag& tag) {
      all.emplace_back(tag, machine_.waiting_for(tag, loop_.now()));
    };
    for (const auto& [tag, call] : calls_) add(tag);
    for (const auto& [tag, record] : syncs_) add(tag);
    if (all.empty()) add({});  // a master that is away is worth a word without an open call too
    std::erase_if(all, [](const auto& one) { return one.first.empty() && one.second.empty(); });
  });
  return all;
}

}  // namespace jccl::peer
