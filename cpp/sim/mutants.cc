#include "sim/mutants.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/text.h"

namespace jccl::sim {
namespace {

using protocol::Mutant;

constexpr std::size_t kMutants = static_cast<std::size_t>(Mutant::kCount) - 1;

constexpr std::array<MutantRow, kMutants> kRows = {{
    {Mutant::kCommitToldEarly, "commit-told-early", "COMMIT is told before its record is durable"},
    {Mutant::kEpochToldEarly, "epoch-told-early",
     "an admission or eviction is told before its epoch is durable"},
    {Mutant::kTornTailLeft, "torn-tail-left",
     "a torn last row stays, and rows are written after it"},
    {Mutant::kDamageTakenForTear, "damage-taken-for-tear",
     "what follows a damaged row of the journal is cut off as torn"},
    {Mutant::kAbortKeepsResult, "abort-keeps-result",
     "an abort leaves partial results in an in-place buffer"},
    {Mutant::kLateAbortKeepsResult, "late-abort-keeps-result",
     "an abort after DONE does not bring the input back: the retry counts survivors twice"},
    {Mutant::kStaleDataAccepted, "stale-data-accepted", "data is matched by round, not by attempt"},
    {Mutant::kRetryAddsToOldSum, "retry-adds-to-old-sum",
     "a retry goes on with the sum of the aborted attempt"},
    {Mutant::kDamagedFrameTaken, "damaged-frame-taken", "the sum of a data frame is not looked at"},
    {Mutant::kOwnStateNotCompared, "own-state-not-compared",
     "a state that its user edited goes into a round, or becomes a revision"},
    {Mutant::kReceiversDecide, "receivers-decide",
     "a receiver counts among the sites and the DONEs of the commit condition"},
    {Mutant::kTooFewCommit, "too-few-commit", "a commit with fewer than min_peers living sites"},
    {Mutant::kUnequalCommit, "unequal-commit", "unequal digests of the result are ignored"},
    {Mutant::kFirstDoneCommits, "first-done-commits", "one DONE is enough for a commit"},
    {Mutant::kDeadContributorLeftOut, "dead-contributor-left-out",
     "an evicted contributor is in the sum but not in the contributor set"},
    {Mutant::kZeroWeightContributes, "zero-weight-contributes",
     "weight 0 contributes, and a round without any weight commits"},
    {Mutant::kAnyAttemptFits, "any-attempt-fits",
     "a late DONE or FAIL is taken for the attempt that runs now"},
    {Mutant::kDecisionLeftForLater, "decision-left-for-later",
     "a decided attempt is concluded after the rest of the event"},
    {Mutant::kAttemptsReused, "attempts-reused",
     "a restarted master journals no epoch, so attempt numbers come again"},
    {Mutant::kReceiverHoldsUp, "receiver-holds-up",
     "a receiver that gives up ends the attempt of the others"},
    {Mutant::kFastOneIsSlow, "fast-one-is-slow", "any contributor is taken for the slow one"},
    {Mutant::kCommittedToldAborted, "committed-told-aborted",
     "the outcome of a committed attempt is not looked up"},
    {Mutant::kExpiredToldAborted, "expired-told-aborted",
     "an attempt older than the remembered history is answered ABORT"},
    {Mutant::kRunningToldAborted, "running-told-aborted",
     "whoever asks about a running attempt hears ABORT"},
    {Mutant::kUnknownAttemptDropped, "unknown-attempt-dropped",
     "a message about an unknown attempt is not answered"},
    {Mutant::kResultOfAnotherShard, "result-of-another-shard",
     "every shard is told the digest of shard 0"},
    {Mutant::kNewCallInOldAttempt, "new-call-in-old-attempt",
     "a READY of a new call is answered with the START of the one that ended"},
    {Mutant::kReadyKeptOverAbort, "ready-kept-over-abort",
     "the READYs of an attempt, with their weights, are used again after an abort"},
    {Mutant::kOldReadyDropped, "old-ready-dropped",
     "READY for a round that was committed meanwhile is not answered"},
    {Mutant::kOldNumberAccepted, "old-number-accepted",
     "READY for an old round counts for the present one"},
    {Mutant::kStartBeforeRoster, "start-before-roster",
     "START names peers whom nobody was told of"},
    {Mutant::kFenceNotChecked, "fence-not-checked", "a fenced incarnation is let in again"},
    {Mutant::kFencesForgotten, "fences-forgotten",
     "a restarted master has forgotten whom it evicted"},
    {Mutant::kGhostKeepsItsSeat, "ghost-keeps-its-seat",
     "a new incarnation does not replace the one before at its seat"},
    {Mutant::kIdsGivenAgain, "ids-given-again",
     "the id of an evicted peer goes to the next joiner"},
    {Mutant::kSilenceIsNoDeath, "silence-is-no-death", "a silent peer is never evicted"},
    {Mutant::kOwnPauseHeldAgainstPeers, "own-pause-held-against-peers",
     "a master that was stopped takes its own silence for that of the peers"},
    {Mutant::kRestartGivesNoGrace, "restart-gives-no-grace",
     "a restarted master evicts members that had no time to come back"},
    {Mutant::kResumeNotNeeded, "resume-not-needed",
     "messages are answered before the greeting has ended"},
    {Mutant::kSkippedForEver, "skipped-for-ever", "a skipped site that is back is not waited for"},
    {Mutant::kJoinerOneBehind, "joiner-one-behind", "a joiner is admitted with an older revision"},
    {Mutant::kMatchOutlivesCommit, "match-outlives-commit",
     "a joiner that was current before a commit counts as current after it"},
    {Mutant::kStrangerNamesTheDigest, "stranger-names-the-digest",
     "anybody may say which digest the newest revision has"},
    {Mutant::kReceiversHoldNothing, "receivers-hold-nothing",
     "receivers of the last round do not count as holders of the state"},
    {Mutant::kWaitsForOneWhoIsBehind, "waits-for-one-who-is-behind",
     "a contributor in doubt is awaited as a publisher for ever"},
    {Mutant::kFetcherNotAwaited, "fetcher-not-awaited",
     "the newest state is called lost while somebody fetches it or is told of its commit"},
    {Mutant::kBornAgain, "born-again", "a state whose holders are gone is born a second time"},
    {Mutant::kHoldNeverEnds, "hold-never-ends", "rounds are held for a slow joiner without limit"},
    {Mutant::kDoorNeverShut, "door-never-shut",
     "a joiner is let in while members are ready, and keeps them waiting"},
    {Mutant::kNoHoldForTheSkipped, "no-hold-for-the-skipped",
     "a skipped site that fetches more slowly than the others commit never catches up"},
    {Mutant::kHeldRoundSaysNothing, "held-round-says-nothing",
     "a round that is held for a joiner does not say so"},
    {Mutant::kStartOfAnEndedCall, "start-of-an-ended-call",
     "the START for a call that ended is taken by the next call"},
    {Mutant::kOutcomeOfAnotherAttempt, "outcome-of-another-attempt",
     "the outcome of an earlier attempt is taken for the one that runs"},
    {Mutant::kVisibleAtDone, "visible-at-done", "the result is handed out at DONE, not at COMMIT"},
    {Mutant::kGuardWeightKept, "guard-weight-kept",
     "a contribution that the guard refused is offered again"},
    {Mutant::kResultNotCompared, "result-not-compared",
     "the own result is not compared with the committed digest"},
    {Mutant::kDoubtPresumesCommit, "doubt-presumes-commit",
     "a call in doubt with a whole result counts as committed"},
    {Mutant::kDoubtToldAsFailure, "doubt-told-as-failure",
     "a call in doubt ends as a plain failure and frees its buffer"},
    {Mutant::kDeadlineTimerLost, "deadline-timer-lost",
     "no timer is set for the deadline of a call"},
    {Mutant::kEndOfCallNotNamed, "end-of-call-not-named",
     "a call that waits for the rest of a committed result can't say so"},
    {Mutant::kOldMasterFollowed, "old-master-followed",
     "a peer follows a master that another has replaced"},
}};

constexpr bool in_order() {
  for (std::size_t i = 0; i < kMutants; ++i) {
    if (static_cast<std::size_t>(kRows[i].mutant) != i + 1) return false;
  }
  return true;
}
static_assert(in_order(), "each mutant has its row, in the order of the enumeration");

}  // namespace

std::span<const MutantRow> mutants() { return kRows; }

const MutantRow* find_mutant(std::string_view name) {
  const auto* found = std::find_if(kRows.begin(), kRows.end(),
                                   [&](const MutantRow& row) { return row.name == name; });
  return found == kRows.end() ? nullptr : found;
}

base::Result<Catches> read_catches(std::string_view text) {
  Catches catches;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, std::min(end, text.find('#')));
    text.remove_prefix(std::min(text.size(), end + 1));
    if (line.find_first_not_of(' ') == std::string_view::npos) continue;
    const std::size_t first = line.find(' '), second = line.find(' ', first + 1);
    Catch entry;
    const char* digits = line.data() + first + 1;
    const bool whole = first != line.npos && second != line.npos;
    if (!whole || std::from_chars(digits, line.data() + second, entry.seed).ptr == digits) {
      return base::Status{base::Code::kInvalid,
                          base::cat("not \"name seed promise\": ", std::string(line))};
    }
    entry.promise = line.substr(second + 1);
    catches[std::string(line.substr(0, first))] = entry;
  }
  return catches;
}

std::string write_catches(const Catches& catches) {
  std::string text =
      "# The seed that caught each planted bug last, and the promise that was broken.\n"
      "# Written by: jccl-sim --mutants --rewrite FILE\n";
  for (const auto& [name, entry] : catches) {
    text += base::cat(name, " ", entry.seed, " ", entry.promise, "\n");
  }
  return text;
}

}  // namespace jccl::sim
