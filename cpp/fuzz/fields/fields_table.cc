// The table as one: looked up, opened up, and rendered. See fields_table.h.
#include "fuzz/fields/fields_table.h"

#include "base/check.h"
#include "base/text.h"

namespace jccl::fuzz {
namespace {

using base::cat;

const FieldsOf* find(const std::vector<FieldsOf>& in, std::string_view owner) {
  for (const FieldsOf& one : in) {
    if (one.owner == owner) return &one;
  }
  return nullptr;
}

// Of a type, as PROTOCOL.md writes it: the part that it names, alone or as the item of a list.
const FieldsOf* part_of(std::string_view type) {
  const std::size_t of = type.find(" of ");
  if (type.starts_with("list ") && of != std::string_view::npos) type.remove_prefix(of + 4);
  return find(fields_of_parts(), type);
}

void open_up(const FieldsOf& from, std::vector<Bend>* out) {
  for (const FieldRow& row : from.rows) {
    const FieldsOf* part = part_of(row.type);
    const bool list = row.type.starts_with("list ");
    if (part == nullptr || list) out->push_back(row.bend);
    if (part != nullptr) {
      open_up(*part, out);
    } else if (list) {
      out->push_back(row.bend == Bend::kList ? Bend::kPeer : row.bend);  // of ids, or names
    }
  }
}

void render(std::string_view title, const std::vector<FieldsOf>& all, std::string* out) {
  *out += cat("\n## ", title, "\n");
  for (const FieldsOf& one : all) {
    *out += cat("\n### ", one.owner, "\n\n");
    if (!one.sender.empty()) *out += cat("From ", one.sender, ".\n\n");
    if (one.rows.empty()) {
      *out += "No fields.\n";
      continue;
    }
    *out += "| field | type | accepted | otherwise | bent to |\n|---|---|---|---|---|\n";
    for (const FieldRow& row : one.rows) {
      *out += cat("| ", row.field, " | `", row.type, "` | ", row.bound, " | ", row.otherwise, " | ",
                  words_of(row.bend), " |\n");
    }
  }
}

constexpr std::string_view kFieldsHead =
    R"(# The fields, and what each may hold

This page lists every field that another process writes. For each it names the sender, the accepted
values, and what happens to the others. [PROTOCOL.md](PROTOCOL.md) says what the fields mean.
`cpp/fuzz/fields/fields_*.cc` holds the table, and `fields_test` writes this page (`JCCL_REWRITE=1`) and
fails when a field of PROTOCOL.md has no row.

"Decoder refuses" means that `wire::decode` returns an error. Then the receiver closes the connection,
without a word.

The last column is what the fuzz target `hostile` does with a field of messages and frames: a member
of a run in one process, with a real master and honest peers, bends it to those values; in one run
of six the master bends its own. Snapshot and proof asks are made anew, with values of that kind. A
dash: this target leaves the field alone. It has no sockets, so it does not say what comes before
the first message, nor a link hello. Other targets say those bytes: `introduction` those of the
introduction, `sealed` and `frames` records and frames, `header` link hellos to their decoder, and
`manifest`, `journal`, `status` and `etcd` those of their names. Whose link hello is taken is tried
by tests alone.
)";

}  // namespace

std::string_view words_of(Bend bend) {
  switch (bend) {
    case Bend::kNone:
      return "–";
    case Bend::kNumber:
      return "edges of its type, one more, one less";
    case Bend::kCounter:
      return "0, one behind, one ahead, far ahead";
    case Bend::kPeer:
      return "another's, its own, nobody's";
    case Bend::kLife:
      return "another's, an evicted one, 0";
    case Bend::kTag:
      return "another, a fresh one, 64 bytes";
    case Bend::kAttempt:
      return "running, ended, made up";
    case Bend::kDigest:
      return "zeros, another's, one bit apart";
    case Bend::kTime:
      return "0, 1 ns, 1 ms, negative, ±2^63";
    case Bend::kWeight:
      return "0, 2^100, 1e300, NaN, infinite";
    case Bend::kFlag:
      return "the other one";
    case Bend::kCode:
      return "each code";
    case Bend::kText:
      return "empty, escapes, the most bytes";
    case Bend::kSite:
      return "another's, markup, line ends, 64 bytes";
    case Bend::kShards:
      return "0 to 3, 1,024, 2^32−1";
    case Bend::kAddress:
      return "none, another's, nonsense";
    case Bend::kHint:
      return "each kind of plan, other sizes, garbage";
    case Bend::kList:
      return "empty, doubled, reversed, full";
    case Bend::kFrameKind:
      return "each kind";
    case Bend::kSmall:
      return "small ones";
  }
  return "";
}

const FieldsOf* fields_of(std::string_view owner) {
  for (const auto* all : {&fields_of_connections(), &fields_of_parts(), &fields_to_master(),
                          &fields_to_peer(), &fields_of_links(), &fields_of_journal()}) {
    if (const FieldsOf* found = find(*all, owner)) return found;
  }
  return nullptr;
}

std::vector<Bend> bends_of(std::string_view owner) {
  const FieldsOf* found = fields_of(owner);
  JCCL_CHECK(found != nullptr);
  std::vector<Bend> out;
  open_up(*found, &out);
  return out;
}

std::string fields_markdown() {
  std::string out(kFieldsHead);
  render("Before the first message", fields_of_connections(), &out);
  render("Parts", fields_of_parts(), &out);
  render("To the master", fields_to_master(), &out);
  render("To a peer", fields_to_peer(), &out);
  render("Between peers", fields_of_links(), &out);
  render("Journal", fields_of_journal(), &out);
  render("Frames, status, etcd", fields_of_texts(), &out);
  return out;
}

}  // namespace jccl::fuzz
