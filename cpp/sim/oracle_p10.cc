// P10 named: whatever waits can say for what.
#include "sim/history.h"

namespace jccl::sim {

void p10_says_why(History& history, std::uint32_t slot, const wire::Tag& tag,
                  const std::string& words) {
  if (!words.empty()) return;
  history.fail("P10", base::cat("slot ", slot, " waits on ", tag, " and can't say for what"));
}

}  // namespace jccl::sim
