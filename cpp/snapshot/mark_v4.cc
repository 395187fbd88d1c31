#if defined(__x86_64__)
#define JCCL_MARK kMarkV4
#include "snapshot/mark_body.h"
#endif
