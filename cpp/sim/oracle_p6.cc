// P6 one history: a revision of a state tag has one digest, whoever holds, journals or reports it.
#include "sim/history.h"

namespace jccl::sim {

void p6_state(History& history, const std::string& who, std::uint32_t shard,
              const wire::Held& held) {
  const auto [known, fresh] =
      history.states.emplace(std::tuple(held.tag, shard, held.revision), held.digest);
  if (fresh || known->second == held.digest) return;
  history.fail("P6", base::cat(who, " has another digest for ", held.tag, " revision ",
                               held.revision, ", shard ", shard, ": ", to_hex(held.digest), " not ",
                               to_hex(known->second)));
}

}  // namespace jccl::sim
