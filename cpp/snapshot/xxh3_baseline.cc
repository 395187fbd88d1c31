#define JCCL_XXH3 kXxh3Baseline
#include "snapshot/xxh3_body.h"
