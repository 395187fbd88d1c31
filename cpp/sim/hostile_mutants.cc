// Planted bugs each of which switches one defence off: what a member that lies gets away with then
// breaks a promise to the honest ones. hostile_mutants.txt keeps the seeds that caught them.
//
// Defences that this simulation does not see switched off (seeds tried), and why:
// * holding-is-free, the-skipped-pay-nothing, visits-are-free, faults-stay-with-their-keys,
//   awaited-for-ever (250 to 1,500): their loss costs time, and bans and waits are 2 s at most
//   here, far below what oracle_l.cc grants a run. A liar that holds rounds by habit showed the
//   second, but broke liveness with the defence on, too: where only it and one other site are
//   members.
// * any-deadline-is-over (1,500): whether its time is over no oracle asks, and the liar's other
//   faults ban it as soon.
// * one-mismatch-ends-all, hints-not-compared (250): an oracle would have to know whose READYs the
//   master had when it answered, for of two sites nobody can say who is wrong.
// * accuser-counts-again, accusers-without-bound, strangers-words-count, one-round-makes-known,
//   departures-are-free, exits-take-no-time (250): one liar for some seconds is below their bounds.
// * repeats-not-counted, violations-are-free, witnesses-that-left-count, any-sender-is-believed,
//   whoever-names-all-is-misled, makers-are-always-right, judged-before-all-have-said-it: what they
//   let pass costs the honest time, and words of one liar against an honest one are bounded without
//   the first of them, too. overcounts-unsaid is in net/, which this simulator does without.
// * terms-not-compared, own-receipts-not-compared, the-convicted-stay-in, the-convicted-pay-nothing
//   (1,500): of an audit's checks, what others catch as well here, or what costs time alone.
// * who-made-a-result-pays (20,000): three such rounds within minutes are rare. Seed 6015200 of the
//   build before the mend was one.
// Each has a unit test, named in planted.txt.
#include "sim/mutants.h"

namespace jccl::sim {
namespace {

constexpr MutantRow kDefences[] = {
    MutantRow{"faults-not-counted"},     MutantRow{"bans-not-looked-at"},
    MutantRow{"the-banned-stay-in"},     MutantRow{"corrupt-ends-all"},
    MutantRow{"one-refusal-ends-all"},   MutantRow{"frames-of-any-sender"},
    MutantRow{"lengths-not-compared"},   MutantRow{"results-before-their-parts"},
    MutantRow{"forwarders-pay"},         MutantRow{"violations-unsaid"},
    MutantRow{"wrong-values-unsaid"},    MutantRow{"the-misled-pay"},
    MutantRow{"the-starved-are-late"},   MutantRow{"contributors-not-compared"},
    MutantRow{"heaviest-is-the-median"}, MutantRow{"sums-not-compared"},
    MutantRow{"nothing-is-drawn"},       MutantRow{"receipts-not-compared"},
    MutantRow{"parts-need-no-proof"},    MutantRow{"commits-before-the-audit"},
};

}  // namespace

std::span<const MutantRow> hostile_mutants() { return kDefences; }

}  // namespace jccl::sim
