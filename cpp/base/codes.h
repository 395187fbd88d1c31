// Every outcome a user can meet, with its one remedy. The numbers are part of the C API, of the
// in-jit status array and of the wire; they are never reused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace jccl::base {

// X(name, number, remedy)
#define JCCL_CODES(X)                                                                           \
  X(Ok, 0, None)               /* committed */                                                  \
  X(Empty, 1, Retry)           /* sum of weights is 0: nobody contributed */                    \
  X(TooFew, 2, Retry)          /* fewer than min_peers sites within the deadline */             \
  X(Deadline, 3, Retry)        /* deadline passed; surely not committed here */                 \
  X(InDoubt, 4, Resync)        /* deadline passed; the outcome is not known yet */              \
  X(Mismatch, 5, Fix)          /* peers disagree in shape, dtype, codec or op */                \
  X(Guard, 6, Fix)             /* own contribution left out: NaN or Inf */                      \
  X(Corrupt, 7, Report)        /* digests differ twice, or the input changed during the call */ \
  X(Evicted, 8, Resync)        /* the run went on without this peer */                          \
  X(Resync, 9, Resync)         /* own state is behind or different */                           \
  X(Resynced, 10, None)        /* state was replaced by the newest snapshot */                  \
  X(MasterLost, 11, Reconnect) /* master unreachable beyond the grace period */                 \
  X(Version, 12, Fix)          /* protocol versions differ */                                   \
  X(WrongRun, 13, Fix)         /* master or journal belongs to another run */                   \
  X(Auth, 14, Fix)             /* token missing, wrong, or required */                          \
  X(Closed, 15, Reconnect)     /* communicator closed or process forked */                      \
  X(Aborted, 16, Retry)        /* the user interrupted the wait */                              \
  X(Invalid, 17, Fix)          /* bad argument; nothing was sent */                             \
  X(UnknownTag, 18, Fix)       /* no call with this tag was started */                          \
  X(BusyTag, 19, Fix)          /* a call with this tag is already running */                    \
  X(Limit, 20, Fix)            /* more leaves, bytes or peers than the limits */                \
  X(LocalSkew, 21, Fix)        /* local devices did not arrive together */                      \
  X(StateLost, 22, Fix)        /* every holder of the newest revision is gone */                \
  X(Io, 23, Fix)               /* port in use, disk full, unresolvable name */                  \
  X(Damaged, 24, Report)       /* the journal is damaged; the record is named */                \
  X(PeerLost, 25, Retry)       /* a peer died, hung or was cut off */                           \
  X(LinkLost, 26, Retry)       /* a link between two peers broke */                             \
  X(Internal, 27, Report)      /* a bug of ours */                                              \
  X(Skipped, 28, None)         /* own contribution left out: too slow */                        \
  X(Disputed, 29, Fix)         /* no majority says what the newest revision is */               \
  X(Banned, 30, Reconnect)     /* the run refuses this key or token */

enum class Code : std::int32_t {
#define X(name, number, remedy) k##name = number,
  JCCL_CODES(X)
#undef X
};

// Numbers have no gaps.
inline constexpr std::size_t kCodes = 0
#define X(name, number, remedy) +1
    JCCL_CODES(X)
#undef X
    ;

enum class Remedy : std::uint8_t { kNone, kRetry, kReconnect, kResync, kFix, kReport };

constexpr std::string_view name_of(Code code) {
  switch (code) {
#define X(name, number, remedy) \
  case Code::k##name:           \
    return #name;
    JCCL_CODES(X)
#undef X
  }
  return "Unknown";
}

constexpr Remedy remedy_of(Code code) {
  switch (code) {
#define X(name, number, remedy) \
  case Code::k##name:           \
    return Remedy::k##remedy;
    JCCL_CODES(X)
#undef X
  }
  return Remedy::kReport;
}

constexpr std::string_view name_of(Remedy remedy) {
  constexpr std::string_view kNames[] = {"none", "retry", "reconnect", "resync", "fix", "report"};
  return kNames[static_cast<std::size_t>(remedy)];
}

// The outputs of the call hold the round's result, also if the own contribution is not in it.
constexpr bool holds_result(Code code) {
  return code == Code::kOk || code == Code::kGuard || code == Code::kSkipped;
}

constexpr bool is_code(std::int32_t number) {
  return number >= 0 && static_cast<std::size_t>(number) < kCodes;
}

}  // namespace jccl::base
