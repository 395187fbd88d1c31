// Bugs planted on purpose, one line each, to try the oracles of the simulator: a test that no bug
// can fail proves nothing. In the product JCCL_MUTANT is the constant false: no code, no branch, no
// symbol. The simulator compiles the protocol a second time with JCCL_MUTANTS and chooses one bug
// per thread at run time. What each breaks stands in sim/mutants.cc.
#pragma once

#ifdef JCCL_MUTANTS

#include <cstdint>

namespace jccl::protocol {

enum class Mutant : std::uint8_t {
  kNone,
  // The master's driver.
  kCommitToldEarly,
  kEpochToldEarly,
  kTornTailLeft,
  kDamageTakenForTear,
  // A peer's data plane.
  kAbortKeepsResult,
  kLateAbortKeepsResult,
  kStaleDataAccepted,
  kRetryAddsToOldSum,
  kDamagedFrameTaken,
  kOwnStateNotCompared,
  // Attempts and the commit condition.
  kReceiversDecide,
  kTooFewCommit,
  kUnequalCommit,
  kFirstDoneCommits,
  kDeadContributorLeftOut,
  kZeroWeightContributes,
  kAnyAttemptFits,
  kDecisionLeftForLater,
  kAttemptsReused,
  kReceiverHoldsUp,
  kFastOneIsSlow,
  // Outcomes.
  kCommittedToldAborted,
  kExpiredToldAborted,
  kRunningToldAborted,
  kUnknownAttemptDropped,
  kResultOfAnotherShard,
  // Calls and READY.
  kNewCallInOldAttempt,
  kReadyKeptOverAbort,
  kOldReadyDropped,
  kOldNumberAccepted,
  kStartBeforeRoster,
  // Membership.
  kFenceNotChecked,
  kFencesForgotten,
  kGhostKeepsItsSeat,
  kIdsGivenAgain,
  kSilenceIsNoDeath,
  kOwnPauseHeldAgainstPeers,
  kRestartGivesNoGrace,
  kResumeNotNeeded,
  kSkippedForEver,
  // State and joiners.
  kJoinerOneBehind,
  kMatchOutlivesCommit,
  kStrangerNamesTheDigest,
  kReceiversHoldNothing,
  kWaitsForOneWhoIsBehind,
  kFetcherNotAwaited,
  kBornAgain,
  kHoldNeverEnds,
  kDoorNeverShut,
  kNoHoldForTheSkipped,
  kHeldRoundSaysNothing,
  // Peers.
  kStartOfAnEndedCall,
  kOutcomeOfAnotherAttempt,
  kVisibleAtDone,
  kGuardWeightKept,
  kResultNotCompared,
  kDoubtPresumesCommit,
  kDoubtToldAsFailure,
  kDeadlineTimerLost,
  kEndOfCallNotNamed,
  kOldMasterFollowed,
  kCount
};

inline constinit thread_local Mutant planted = Mutant::kNone;

}  // namespace jccl::protocol

#define JCCL_MUTANT(name) (::jccl::protocol::planted == ::jccl::protocol::Mutant::name)

#else

#define JCCL_MUTANT(name) false

#endif
