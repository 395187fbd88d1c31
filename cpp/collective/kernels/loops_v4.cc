// The reduction loops for x86-64-v4.
#if defined(__x86_64__)
#define JCCL_LOOPS kLoopsV4
#include "collective/kernels/loops_body.h"
#endif
