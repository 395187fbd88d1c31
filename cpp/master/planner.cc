// From a plan request of the protocol to a plan of collective/, as bytes.
#include "master/planner.h"

#include "collective/hint.h"
#include "collective/planner.h"

namespace jccl::master {

base::Result<base::Bytes> make_plan(const protocol::PlanRequest& request) {
  const auto hint = collective::decode_hint(request.hint);
  if (!hint.ok()) return hint.status();
  collective::PlannerOptions options;
  if (hint.value().kind != collective::HintKind::kAuto) {
    options.kind = static_cast<collective::PlanKind>(hint.value().kind);
  }
  options.receivers = request.receivers;
  options.avoid = request.bad_links;
  options.dial_only = request.dial_only;
  const auto plan = collective::choose(request.contributors, options);
  if (!plan.ok()) return plan.status();
  return collective::encode(plan.value());
}

}  // namespace jccl::master
