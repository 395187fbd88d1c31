// The codec loops for x86-64-v3.
#if defined(__x86_64__)
#define JCCL_KERNELS kKernelsV3
#include "codec/kernels/kernels_body.h"
#endif
