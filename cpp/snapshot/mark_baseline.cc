#define JCCL_MARK kMarkBaseline
#include "snapshot/mark_body.h"
