// The reduction loops for the processor family the library is built for.
#define JCCL_LOOPS kLoopsBaseline
#include "collective/kernels/loops_body.h"
