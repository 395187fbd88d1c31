#if defined(__x86_64__)
#define JCCL_MARK kMarkV3
#include "snapshot/mark_body.h"
#endif
