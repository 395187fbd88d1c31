// The robust aggregators' loops for the processor family the library is built for.
#define JCCL_RANKS kRanksBaseline
#include "collective/kernels/ranks_body.h"
