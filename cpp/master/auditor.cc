#include "master/auditor.h"

#include "base/check.h"
#include "collective/audit.h"
#include "net/credentials.h"

namespace jccl::master {
namespace {

std::string refusal(base::ByteView hint, base::ByteView plan) {
  return collective::unauditable(plan, hint);
}

protocol::Sum add_up(const protocol::ShownCell& cell) {
  collective::AddedUp sum = collective::add_up({cell.terms, cell.n, cell.weights, cell.parts});
  return {std::move(sum.result), sum.wrong, std::move(sum.why)};
}

// A machine without randomness draws what can be foreseen: better to stop.
std::uint64_t secret() {
  const auto drawn = net::random_u64();
  JCCL_CHECK(drawn.ok());
  return drawn.value();
}

}  // namespace

protocol::Auditor auditor() { return {refusal, add_up, secret}; }

}  // namespace jccl::master
