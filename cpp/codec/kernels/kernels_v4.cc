// The codec loops for x86-64-v4.
#if defined(__x86_64__)
#define JCCL_KERNELS kKernelsV4
#include "codec/kernels/kernels_body.h"
#endif
