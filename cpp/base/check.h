// Assertions on our own bugs. They stay on in release builds and abort: a broken invariant must
// stop a peer before it can tell others something wrong. Never used on input from outside.
#pragma once

#include <cstdio>
#include <cstdlib>

#define JCCL_CHECK(condition)                                                            \
  do {                                                                                   \
    if (!(condition)) [[unlikely]] {                                                     \
      std::fprintf(stderr, "jccl: invariant broken: %s (%s:%d)\n", #condition, __FILE__, \
                   __LINE__);                                                            \
      std::abort();                                                                      \
    }                                                                                    \
  } while (false)
