#include "master/auditor.h"

#include "base/check.h"
#include "collective/audit.h"
#include "net/security/credentials.h"

namespace jccl::master {
namespace {

std::string refusal(base::ByteView hint, base::ByteView plan) {
  return collective::unauditable(plan, hint);
}

protocol::Sum add_up(const protocol::ShownCell& cell) {
  collective::AddedUp sum = collective::add_up({cell.terms, cell.n, cell.weights, cell.parts});
  return {sum.is(cell.result), sum.wrong, std::move(sum.why)};
}

// A machine without randomness draws what can be foreseen: better to stop.
std::uint64_t secret() {
  const auto drawn = net::random_u64();
  JCCL_CHECK(drawn.ok());
  return drawn.value();
}

}  // namespace

protocol::Auditor auditor() {
  protocol::Auditor auditor;
  auditor.refusal = refusal, auditor.add_up = add_up, auditor.random = secret;
  auditor.senders = collective::senders_of;
  return auditor;
}

}  // namespace jccl::master
