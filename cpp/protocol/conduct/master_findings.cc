// Audits of work, as members tell of them (docs/audits.md). The master cannot repeat any work, so
// it counts: of each audited peer the newest word of each other site. What most others say is taken
// for true if there are three sites or more; of two nobody can say which is wrong. Pure.
#include <algorithm>

#include "base/planted.h"
#include "base/text.h"
#include "protocol/master/master_state.h"

namespace jccl::protocol {

using base::cat;

namespace {
constexpr std::size_t kAuditedMax = 256;  // keys; the one that was audited longest ago goes
}  // namespace

void Findings::on_finding(const ProcessRecord& process, const wire::Finding& said) {
  const ProcessRecord* of = link_faults().member_record(said.peer);
  if (process.id == 0 || of == nullptr) return;
  const bool own = of->key == process.key || of->site == process.site;
  if (own && !JCCL_PLANTED("findings-on-oneself")) return;
  if (audited_.count(of->key) == 0 && audited_.size() >= kAuditedMax) {
    audited_.erase(std::min_element(audited_.begin(), audited_.end(),
                                    [](auto& a, auto& b) { return a.second.at < b.second.at; }));
  }
  Audited& audited = audited_[of->key];
  audited.site = of->site, audited.at = now();
  audited.said[process.site] = {said.tag, said.round, said.differs, said.worst, said.policy, now()};
  judge(*of, &audited);
}

// The mildest policy that makes up most decides: one member alone makes nothing worse.
void Findings::judge(const ProcessRecord& process, Audited* audited) {
  std::set<std::string> others = membership().member_sites();
  others.erase(process.site);
  std::erase_if(audited->said, [&](const auto& one) {
    const bool left = others.count(one.first) == 0 && !JCCL_PLANTED("findings-of-the-gone-count");
    const bool old =
        now() >= one.second.at + kFaultHalfLife && !JCCL_PLANTED("findings-never-fade");
    return left || old;
  });
  const auto most = [&](wire::FindingPolicy policy) {
    const auto against = std::count_if(
        audited->said.begin(), audited->said.end(),
        [&](const auto& one) { return one.second.differs && one.second.policy >= policy; });
    const std::size_t count = static_cast<std::size_t>(against);
    if (JCCL_PLANTED("one-finding-is-enough")) return count > 0;
    return count >= 2 && 2 * count > others.size();
  };
  const bool warns = JCCL_PLANTED("findings-that-warn-exclude");
  if (!most(warns ? wire::FindingPolicy::kWarn : wire::FindingPolicy::kExclude)) return;
  const bool for_good = most(wire::FindingPolicy::kBan);
  const auto against = std::find_if(audited->said.begin(), audited->said.end(),
                                    [](const auto& one) { return one.second.differs; });
  const std::string why = cat("its work of round ", against->second.round, " of ",
                              against->second.tag, " is not what it claims, as most others say");
  ++audited->convicted;
  for (auto& [by, one] : audited->said) one.policy = wire::FindingPolicy::kWarn;  // carried out
  if (!for_good) return conduct().charge(process, Fault::kWork, why);
  note("fault", {{"site", process.site}, {"key", base::to_hex(process.key)}, {"text", why}});
  const wire::PublicKey key = process.key;
  conduct().ban(key, 0, why, std::string(process.site));
}

std::vector<FindingView> Findings::newest(base::Time now) const {
  std::vector<FindingView> rows;
  for (const auto& [key, audited] : audited_) {
    std::map<std::pair<std::uint64_t, wire::Tag>, FindingView> by_round;
    for (const auto& [by, said] : audited.said) {
      FindingView& row = by_round[{said.round, said.tag}];
      ++row.repeated;
      row.different += said.differs;
      row.worst = std::max(row.worst, said.worst / 1000.0);
    }
    // What most speak of, and of these the newest: one member cannot make up a round.
    const auto shown = std::max_element(by_round.begin(), by_round.end(), [](auto& a, auto& b) {
      return std::pair(a.second.repeated, a.first) < std::pair(b.second.repeated, b.first);
    });
    if (shown == by_round.end()) continue;
    FindingView& row = rows.emplace_back(shown->second);
    row.site = audited.site, row.tag = shown->first.second, row.round = shown->first.first;
    row.convicted = audited.convicted, row.age = std::max<base::Duration>(0, now - audited.at);
  }
  std::sort(rows.begin(), rows.end(),
            [](const FindingView& a, const FindingView& b) { return a.age < b.age; });
  return rows;
}

}  // namespace jccl::protocol
