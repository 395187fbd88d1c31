// Weights far above the others' of a round: a mean of those is a mean of one contribution. Pure;
// one event at a time.
#include <algorithm>

#include "base/planted.h"
#include "base/text.h"
#include "protocol/master/master_state.h"

namespace jccl::protocol {

using base::cat;
using base::Code;

namespace {

// Of each site that contributes; one that announces itself is there, and says no more.
std::map<std::string, double> measured_weights(const std::vector<Participant>& parts) {
  std::map<std::string, double> by_site;
  for (const Participant& part : parts) {
    if (!part.contributes() || part.evicted) continue;
    const bool announces = part.weight == base::kWeightAnnounced;
    if (announces && !JCCL_PLANTED("announcements-weigh")) continue;
    by_site[part.site] = std::max(by_site[part.site], part.weight);
  }
  return by_site;
}

double middle_of(const std::map<std::string, double>& by_site) {
  std::vector<double> weights;
  for (const auto& [site, weight] : by_site) weights.push_back(weight);
  const auto middle = weights.begin() + static_cast<std::ptrdiff_t>((weights.size() - 1) / 2);
  std::nth_element(weights.begin(), middle, weights.end());
  return *middle;
}

}  // namespace

// More than half of those that are measured decide how much is too much. Where it is just half, as
// of two, nobody can say who is wrong: then the last round does that had two measures, without a
// fault; and if there was none the others wait for a smaller weight, for without the heavy ones the
// light ones alone would be the mean.
bool Forming::agree_on_weights(const wire::Tag& tag) {
  const std::map<std::string, double> by_site = measured_weights(parts_for(tag));
  if (options().weight_max <= 0 || by_site.size() < 2) return true;
  const double now =
      JCCL_PLANTED("heaviest-is-the-median")
          ? std::max_element(by_site.begin(), by_site.end(),
                             [](const auto& a, const auto& b) { return a.second < b.second; })
                ->second
          : middle_of(by_site);
  const auto above = [&](double median) {
    std::map<std::string, double> heavy;
    for (const auto& [site, weight] : by_site) {
      if (weight > options().weight_max * median) heavy[site] = weight;
    }
    return heavy;
  };
  const double before = rounds().at(tag).weight;
  const bool is_tie =
      2 * above(now).size() >= by_site.size() && !JCCL_PLANTED("half-of-the-weights-decide");
  const bool by_past = is_tie && before > 0 && !JCCL_PLANTED("weights-have-no-past");
  const double median = by_past ? before : now;
  const std::map<std::string, double> heavy = above(median);
  if (heavy.empty()) return true;
  std::map<std::string, base::Status> unfit;
  for (const auto& [site, weight] : heavy) {
    unfit[site] = {
        Code::kInvalid,
        cat("the weight ", weight, " of ", site, " is above ", options().weight_max * median,
            ", which is weight_max = ", options().weight_max, " times the median weight of the ",
            by_past ? "last round, " : "round, ", median,
            ": call with a smaller weight, or start the master with a larger --weight-max")};
    for (const ProcessRecord* process : connections().shards_of(site)) {
      if (rounds().at(tag).ready.count(process->incarnation) == 0 || is_tie) continue;
      if (!JCCL_PLANTED("heavy-weights-are-free"))
        conduct().charge(*process, Fault::kBadCall,
                         cat("a weight of ", weight, ", the median is ", median));
    }
  }
  refuse_sites(tag, unfit, (by_past || !is_tie) && !JCCL_PLANTED("heavy-ones-are-waited-for"));
  return false;
}

// Of a round that commits. One measure alone says nothing of the next ones, nor do two of which one
// is out of all proportion.
void Forming::note_weights(const wire::Tag& tag, const MasterAttempt& committed) {
  std::vector<Participant> parts;
  for (const auto& [id, part] : committed.parts()) parts.push_back(part);
  const std::map<std::string, double> by_site = measured_weights(parts);
  if (by_site.size() < 2) return;
  const auto [least, most] =
      std::minmax_element(by_site.begin(), by_site.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; });
  const bool alike = most->second <= options().weight_max * least->second;
  if (alike || JCCL_PLANTED("odd-weights-become-usual"))
    rounds().at(tag).weight = middle_of(by_site);
}

}  // namespace jccl::protocol
