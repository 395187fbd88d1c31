// A real master and honest peers in one process, and one member that the input drives: whatever it
// says and sends, nothing aborts, nothing grows without bound, what commits is right and the same
// everywhere, and the others go on when it has gone. See hostile_member.h.
#include "base/rng.h"
#include "fuzz/hostile/hostile_member.h"
#include "fuzz/target.h"

namespace jccl::fuzz {

void run_hostile(ByteView bytes) { HostileMember(bytes).run(); }

// The input of a number: so that a range of them can be run, and run again, anywhere.
Bytes hostile_input(std::uint64_t number) {
  base::Rng rng(number);
  Bytes out(8 + rng.below(120));
  for (std::uint8_t& byte : out) byte = static_cast<std::uint8_t>(rng.next());
  return out;
}

}  // namespace jccl::fuzz
