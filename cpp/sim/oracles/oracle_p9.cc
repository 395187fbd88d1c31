// P9 corruption never reaches a sum: a damaged data frame is no frame, a damaged row of the journal
// is no row, and what a peer hands out has the digest that the journal says.
#include "sim/history.h"

namespace jccl::sim {

using base::cat;

void p9_taken(History& history, std::uint32_t slot, const wire::FrameHeader& frame) {
  history.fail("P9", cat("slot ", slot, " takes a damaged frame of attempt ",
                         to_text(frame.attempt), ", chunk ", frame.chunk));
}

// Not by the network: its memory was used again while it was on its way.
void p9_changed(History& history, std::uint32_t slot, const wire::FrameHeader& frame) {
  history.fail("P9", cat("slot ", slot, " is sent a frame of attempt ", to_text(frame.attempt),
                         ", chunk ", frame.chunk, ", that has not the sum it was made with"));
}

// A row before the last was damaged.
void p9_rows(History& history, bool opened) {
  if (opened) history.fail("P9", "a journal with a damaged row was opened");
}

void p9_published(History& history, const Published& published) {
  CommitInfo& commit = history.commits.at(history.committed.at(published.attempt));
  if (commit.digested.count(published.shard) > 0) return;  // P1 holds the others against it
  const wire::CommitRecord& record = commit.record;
  const wire::Digest& due =
      published.shard == 0 ? record.result : record.shard_results.at(published.shard - 1);
  for (const auto& [id, part] : history.attempts.at(published.attempt).parts) {
    if (part.call != published.call) continue;
    if (reported_digest(part.plan, *published.result, published.terms->aggregator) != due) continue;
    commit.digested.insert(published.shard);
    return;
  }
  for (const auto& [id, part] : history.attempts.at(published.attempt).parts) {
    if (part.call == published.call && part.wrong && part.result == due) return;
  }
  history.fail("P9", cat("slot ", published.slot, " hands out a result of ", record.round.tag, " ",
                         record.round.n, " that has not the committed digest"));
}

}  // namespace jccl::sim
