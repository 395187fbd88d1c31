// The audit of an attempt whose contributors are all DONE, so that none can change its data any
// more. The master draws cells, each contributor shows them, and the master adds them up anew. This
// file holds the audit's record; the rules are in master_audit.cc. Pure.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/merkle.h"
#include "base/time.h"
#include "wire/messages.h"

namespace jccl::protocol {

// One cell of which everybody has shown its part. Plan, terms and bytes are opaque here.
struct ShownCell {
  base::ByteView plan, terms;
  std::uint64_t n = 0;                // of the round
  std::vector<double> weights;        // of all contributors, ascending id
  std::vector<base::ByteView> parts;  // likewise
  base::ByteView result;              // as the owner has it
};
struct Sum {
  bool right = false;                // the result is what the parts add up to
  std::optional<std::size_t> wrong;  // whose part no encoder writes
  std::string why;                   // not right: of terms that are none, or a part
};
// By owner, the sender of the frames that bring a peer the owner's data, in a plan that is opaque
// here: the result, or in an exchange the contribution. The peer itself: it makes the data. 0: the
// plan has no such two.
using Senders = std::function<std::vector<wire::PeerId>(base::ByteView plan, wire::PeerId whom,
                                                        const std::vector<wire::PeerId>& owners)>;

// The functions of an audit that this folder cannot have, and all that it does with the bytes of
// cells. A recording keeps the answers, not the bytes. From the driver; pure, except `random`.
struct Auditor {
  // Why an attempt of calls with the hint, under the plan, can't be audited; empty: it can. Then
  // each cell has one owner, and positions in the plan ascend with the ids of contributors.
  std::function<std::string(base::ByteView hint, base::ByteView plan)> refusal;
  std::function<Sum(const ShownCell& cell)> add_up;
  std::function<wire::Sha256(base::ByteView head, base::ByteView bytes)> leaf = base::leaf_hash;
  std::function<std::uint64_t()> random;  // secret, and fresh each time
  Senders senders = [](base::ByteView, wire::PeerId, const std::vector<wire::PeerId>& owners) {
    return owners;
  };
};

struct CellName {
  std::uint32_t shard = 0, cell = 0;
  auto operator<=>(const CellName&) const = default;
};
struct AuditedCell {
  std::map<wire::PeerId, wire::AuditPart> parts;
  std::optional<wire::AuditPart> result;
};
struct Audit {
  bool drawn = false;
  std::vector<CellName> cells;               // that were drawn, ascending
  std::size_t asked = 0;                     // so many of them, from the first on
  std::map<CellName, AuditedCell> open;      // asked for, and not all is here
  std::size_t batch = 0;                     // of them, asked for at once
  std::size_t batches = 0;                   // questions so far
  std::map<wire::PeerId, base::Time> since;  // when each was asked for those; not who has shown all
  std::map<wire::PeerId, base::Duration> took;  // each, for all questions before that
  std::map<wire::PeerId, std::size_t> pieces;   // parts and results that each was asked for
  std::map<wire::PeerId, std::size_t> shown;    // … and has shown; none of who has shown none
};

// Bytes that audits may bring to the master: of one attempt in all, and at once.
inline constexpr std::size_t kAuditBytesMax = 64 << 20;
inline constexpr std::size_t kAuditBytesAtOnce = 2 << 20;

}  // namespace jccl::protocol
