#if defined(__x86_64__)
#define JCCL_XXH3 kXxh3V3
#include "snapshot/xxh3_body.h"
#endif
