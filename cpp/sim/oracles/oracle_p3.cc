// P3 abort is invisible: an attempt that ends without a commit leaves every buffer of its user as
// it was, for the next attempt and for the user; nothing is written elsewhere before a commit.
#include "sim/history.h"

namespace jccl::sim {

using base::cat;

// At the end of a call.
void p3_untouched(History& history, const CallRecord& call, bool untouched) {
  if (untouched || call.success) return;
  history.fail("P3", cat("slot ", call.slot, ": call ", call.id, " on ", call.tag, " ended ",
                         name_of(call.code), " and changed a buffer"));
}

// At the start of each attempt: what it is given is the input.
void p3_given(History& history, const CallRecord& call, bool untouched) {
  if (untouched) return;
  history.fail("P3", cat("slot ", call.slot, ": an attempt of call ", call.id, " on ", call.tag,
                         " is given what an earlier one left"));
}

// While a call is open, before its commit.
void p3_open(History& history, const CallRecord& call, bool untouched) {
  if (untouched) return;
  history.fail("P3", cat("slot ", call.slot, ": a buffer of call ", call.id, " on ", call.tag,
                         " is changed before a commit"));
}

}  // namespace jccl::sim
