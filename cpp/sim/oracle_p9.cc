// P9 corruption never reaches a sum: a damaged data frame is no frame, a damaged row of the journal
// is no row, and what a peer hands out has the digest that the journal says.
#include "base/crc32c.h"
#include "base/planted.h"
#include "sim/history.h"

namespace jccl::sim {

using base::cat;

namespace {

base::Bytes bytes_of(const DataMessage& message) {
  base::Writer writer;
  writer.attempt(message.attempt);
  writer.u32(message.from_id), writer.u32(message.elements);
  for (const Sum& sum : message.values) {
    for (const Term& term : sum) writer.u64(term.call), writer.u32(term.count);
  }
  return writer.take();
}

}  // namespace

// One bit of a frame is flipped: true if the frame's sum tells.
bool p9_frame(History& history, const DataMessage& message, base::Rng& rng) {
  if (JCCL_PLANTED("damaged-frame-taken")) return false;
  base::Bytes bytes = bytes_of(message);
  const std::uint32_t crc = base::crc32c(bytes);
  bytes[rng.below(bytes.size())] ^= static_cast<std::uint8_t>(1U << rng.below(8));
  if (base::crc32c(bytes) == crc) history.fail("P9", "a flipped data frame has the same CRC");
  return true;
}

void p9_taken(History& history, std::uint32_t slot, const DataMessage& message) {
  history.fail("P9",
               cat("slot ", slot, " takes a damaged frame of attempt ", to_text(message.attempt)));
}

// A row before the last was damaged.
void p9_rows(History& history, bool opened) {
  if (opened) history.fail("P9", "a journal with a damaged row was opened");
}

void p9_published(History& history, const Published& published) {
  const wire::CommitRecord& record =
      history.commits.at(history.committed.at(published.attempt)).record;
  const wire::Digest& due =
      published.shard == 0 ? record.result : record.shard_results.at(published.shard - 1);
  if (digest_of(*published.result) == due) return;
  for (const auto& [id, part] : history.attempts.at(published.attempt).parts) {
    if (part.call == published.call && part.result == due) return;  // it reported wrongly
  }
  history.fail("P9", cat("slot ", published.slot, " hands out a result of ", record.round.tag, " ",
                         record.round.n, " that has not the committed digest"));
}

}  // namespace jccl::sim
