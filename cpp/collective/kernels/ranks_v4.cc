// The robust aggregators' loops for x86-64-v4.
#if defined(__x86_64__)
#define JCCL_RANKS kRanksV4
#include "collective/kernels/ranks_body.h"
#endif
