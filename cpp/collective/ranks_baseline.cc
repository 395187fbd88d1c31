// The robust aggregators' loops for the processor family the library is built for.
#define JCCL_RANKS kRanksBaseline
#include "collective/ranks_body.h"
