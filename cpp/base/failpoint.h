// Named moments in the drivers at which a test may end, stop or delay the process. In the product
// nobody sets the hook and a failpoint is one load of a null pointer; test programs set it before
// their first thread starts (net/fail_at.h). Pure machines hold none: simulators interrupt them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace jccl::base {

// X(name, text)
#define JCCL_FAILPOINTS(X)                                                               \
  X(PeerHelloSent, "peer.hello-sent") /* to the master */                                \
  X(PeerReadySent, "peer.ready-sent")                                                    \
  X(PeerStartReceived, "peer.start-received")                                            \
  X(PeerLinkDialled, "peer.link-dialled") /* its hello is under way */                   \
  X(PeerLinkAccepted, "peer.link-accepted")                                              \
  X(PeerFrameMade, "peer.frame-made") /* those before it are sent */                     \
  X(PeerFrameArrived, "peer.frame-arrived")                                              \
  X(PeerResultComplete, "peer.result-complete")                                          \
  X(PeerDoneSent, "peer.done-sent")                                                      \
  X(PeerCommitReceived, "peer.commit-received") /* nothing is visible yet */             \
  X(PeerCommitWritten, "peer.commit-written")   /* in the user's arrays; not told yet */ \
  X(PeerCallEnded, "peer.call-ended")                                                    \
  X(PeerSnapshotServing, "peer.snapshot-serving")                                        \
  X(PeerSnapshotFetching, "peer.snapshot-fetching") /* a part of it has arrived */       \
  X(PeerSnapshotFetched, "peer.snapshot-fetched")                                        \
  X(MasterRecovered, "master.recovered")        /* the journal is read; not serving */   \
  X(MasterRunAppending, "master.run-appending") /* before the durable write */           \
  X(MasterRunAppended, "master.run-appended")   /* after it, before anything is told */  \
  X(MasterEpochAppending, "master.epoch-appending")                                      \
  X(MasterEpochAppended, "master.epoch-appended")                                        \
  X(MasterBirthAppending, "master.birth-appending")                                      \
  X(MasterBirthAppended, "master.birth-appended")                                        \
  X(MasterCommitAppending, "master.commit-appending")                                    \
  X(MasterCommitAppended, "master.commit-appended")                                      \
  X(MasterStateAppending, "master.state-appending")                                      \
  X(MasterStateAppended, "master.state-appended")                                        \
  X(MasterWelcomeTold, "master.welcome-told")                                            \
  X(MasterRosterTold, "master.roster-told") /* to one peer of several, as below */       \
  X(MasterStartTold, "master.start-told")                                                \
  X(MasterCommitTold, "master.commit-told")

enum class Failpoint : std::uint8_t {
#define X(name, text) k##name,
  JCCL_FAILPOINTS(X)
#undef X
};

inline constexpr std::string_view kFailpointNames[] = {
#define X(name, text) text,
    JCCL_FAILPOINTS(X)
#undef X
};

constexpr std::string_view name_of(Failpoint point) {
  return kFailpointNames[static_cast<std::size_t>(point)];
}

inline void (*failpoint_hook)(Failpoint) = nullptr;  // set while there is one thread

inline void failpoint(Failpoint point) {
  if (failpoint_hook != nullptr) [[unlikely]]
    failpoint_hook(point);
}

}  // namespace jccl::base
