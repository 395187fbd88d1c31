// Whether a START and its plan are about the call that this peer made. Both were made elsewhere:
// whatever they say, nothing of it sizes or indexes the call's memory before it passed here.
// Refuses, saying what does not fit. See attempt.h.
#include <algorithm>
#include <cmath>
#include <vector>

#include "base/limits.h"
#include "base/planted.h"
#include "base/text.h"
#include "exchange/attempt/attempt.h"

namespace jccl::exchange {
namespace {

using base::cat;
using base::Code;
using base::PeerId;
using base::Status;
using collective::CollectiveSpec;
using collective::PlanKind;

Status does_not_fit(PlanKind kind, const std::string& call) {
  return {Code::kInvalid,
          cat("the master's plan is ", collective::name_of(kind), ", but this is ", call,
              ": a peer asked for another plan under the same descriptor, or "
              "the master is of another version; nothing was moved")};
}

Status check_kind(PlanKind kind, const Terms& terms) {
  if (JCCL_PLANTED("plan-of-any-kind")) return {};
  const collective::CollectiveSpec& spec = collective::spec_of(terms.collective);
  if (!spec.carried_by(kind)) return does_not_fit(kind, std::string(spec.name));
  const bool open =
      terms.plan.empty() || terms.plan == "auto" || terms.plan == collective::kFastestPlan;
  const bool named = !open && !spec.only_plan();
  if (!named || collective::name_of(kind) == terms.plan) return {};
  return does_not_fit(kind, cat("a call with plan=", terms.plan));
}

Status not_ours(const std::string& text) {
  return {Code::kInternal, cat("the START of the master is wrong: ", text)};
}

// Everybody once, and the contributors in the plan.
Status check_parts(const wire::Start& start, const collective::Plan& plan) {
  if (start.contributors.size() + start.receivers.size() > base::kPeersMax) {
    return not_ours(cat("it names more than ", base::kPeersMax, " peers"));
  }
  std::vector<PeerId> all;  // ascending
  const auto add = [&all](PeerId id) {
    const auto at = std::lower_bound(all.begin(), all.end(), id);
    if (at != all.end() && *at == id) return false;
    all.insert(at, id);
    return true;
  };
  for (const wire::Contributor& one : start.contributors) {
    if (one.id == 0 || (!add(one.id) && !JCCL_PLANTED("contributor-twice"))) {
      return not_ours(cat("peer ", one.id, " contributes twice, or is no member"));
    }
    if (!std::isfinite(one.weight) || one.weight < 0) {
      return not_ours(cat("peer ", one.id, " has weight ", one.weight));
    }
  }
  const std::vector<PeerId> contributors = all;
  for (const PeerId id : start.receivers) {
    if (id != 0 && add(id)) continue;
    return not_ours(cat("receiver ", id, " is named twice, contributes too, or is no member"));
  }
  std::vector<PeerId> order = plan.order;
  std::sort(order.begin(), order.end());
  if (order.size() != contributors.size() ||
      (order != contributors && !JCCL_PLANTED("plan-of-others"))) {
    return not_ours("its plan is one for other contributors");
  }
  return {};
}

// As what the call asked to be: its own value counts with its own weight, or not at all.
Status check_self(const wire::Start& start, PeerId self, const Terms& terms) {
  for (const wire::Contributor& one : start.contributors) {
    if (one.id != self) continue;
    if (one.weight == terms.weight || JCCL_PLANTED("start-weight-not-compared")) return {};
    return not_ours(
        cat("it gives this peer weight ", one.weight, ", its call has weight ", terms.weight));
  }
  const auto& receivers = start.receivers;
  if (std::find(receivers.begin(), receivers.end(), self) != receivers.end()) return {};
  return not_ours("this peer has no part in it");
}

}  // namespace

Status check_start(const wire::Start& start, const collective::Plan& plan, PeerId self,
                   const Terms& terms) {
  if (const Status kind = check_kind(plan.kind, terms); !kind.ok()) return kind;
  if (const Status parts = check_parts(start, plan); !parts.ok()) return parts;
  if (const Status own = check_self(start, self, terms); !own.ok()) return own;
  const std::size_t count = plan.order.size();
  const collective::CollectiveSpec& spec = collective::spec_of(terms.collective);
  if (spec.contributors == CollectiveSpec::Contributors::kOne && count > 1) {
    return {Code::kLimit, cat(count, " peers ", spec.name, " in one round; one may")};
  }
  if (spec.has_slots() && count > terms.slots + (JCCL_PLANTED("slots-not-compared") ? 1 : 0)) {
    return {Code::kLimit,
            cat(spec.name, " has ", terms.slots, " slots, but ", count, " peers contribute")};
  }
  const Status aggregator = collective::check_aggregator(terms.aggregator, plan.kind);
  return aggregator.ok() ? collective::check_codec(plan.kind, terms.codec) : aggregator;
}

}  // namespace jccl::exchange
