// The codec loops for the processor family the library is built for.
#define JCCL_KERNELS kKernelsBaseline
#include "codec/kernels/kernels_body.h"
