// P3 abort is invisible: a call that ends without success leaves every buffer of its user as it
// was.
#include "sim/history.h"

namespace jccl::sim {

void p3_untouched(History& history, const CallRecord& call, bool untouched) {
  if (untouched || call.success) return;
  history.fail("P3", base::cat("slot ", call.slot, ": call ", call.id, " on ", call.tag, " ended ",
                               name_of(call.code), " and changed a buffer"));
}

}  // namespace jccl::sim
