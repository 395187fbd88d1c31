// From a plan request of the protocol to a plan of collective/, as bytes.
#include "master/planner.h"

#include <algorithm>

#include "collective/hint.h"
#include "collective/planner.h"

namespace jccl::master {
namespace {

// A receiver's links don't matter here: no plan waits for one.
bool between_contributors(const protocol::PlanRequest& request,
                          const std::pair<wire::PeerId, wire::PeerId>& link) {
  const auto& all = request.contributors;
  return std::binary_search(all.begin(), all.end(), link.first) &&
         std::binary_search(all.begin(), all.end(), link.second);
}

}  // namespace

base::Result<base::Bytes> make_plan(const protocol::PlanRequest& request) {
  const auto hint = collective::decode_hint(request.hint);
  if (!hint.ok()) return hint.status();
  collective::PlannerOptions options;
  if (hint.value().kind != collective::HintKind::kAuto) {
    options.kind = static_cast<collective::PlanKind>(hint.value().kind);
  }
  for (const auto& link : request.bad_links) {
    if (between_contributors(request, link)) options.avoid.push_back(link);
  }
  const auto plan = collective::choose(request.contributors, options);
  if (!plan.ok()) return plan.status();
  return collective::encode(plan.value());
}

}  // namespace jccl::master
