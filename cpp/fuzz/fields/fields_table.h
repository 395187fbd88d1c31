// Every field of every message, record and frame: who may send it, its bound, what happens
// otherwise, and how the hostile member of hostile_target.cc bends it. One table, rendered to
// wire/FIELDS.md; fields_test.cc fails when a field of PROTOCOL.md has no row here. Pure data; any
// thread. Test only.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace jccl::fuzz {

// From which values a bent field is taken.
enum class Bend : std::uint8_t {
  kNone,       // never bent: the bytes decide nothing, or no peer sends them
  kNumber,     // 0, 1, 2^31, 2^32−1, 2^63−1, 2^64−1, one more, one less, any
  kCounter,    // of rounds: the run's, one behind, one ahead, far ahead, 0
  kPeer,       // ids: another's, its own, nobody's
  kLife,       // incarnations: another's, an evicted one, 0, any
  kTag,        // another tag of the run, a fresh one, 64 bytes
  kAttempt,    // running, ended, made up, of another epoch
  kDigest,     // zeros, another's, one bit apart
  kTime,       // 0, 1 ns, negative, 1 ms, 2^63−1, −2^63
  kWeight,     // 0, 1e300, 2^−1074, 2^100, −0, NaN, infinite
  kFlag,       // the other one
  kCode,       // every code
  kText,       // empty, control characters, the most bytes
  kSite,       // another's, control characters and markup, 64 bytes, empty
  kShards,     // 0, 1, 2, 3, 1024, 2^32−1
  kAddress,    // none, another's, no address at all, 128 bytes
  kHint,       // each kind of plan, other sizes, none, garbage
  kList,       // empty, doubled, reversed, as long as allowed
  kFrameKind,  // each kind of frame
  kSmall       // drawn with the whole question
};
std::string_view words_of(Bend bend);

struct FieldRow {
  std::string_view field, type;  // as in PROTOCOL.md
  Bend bend = Bend::kNone;
  std::string_view bound;      // what is accepted
  std::string_view otherwise;  // what happens to the rest; a dash: everything is accepted
};

// A part, message, record or frame, as a heading of PROTOCOL.md names it without its number.
struct FieldsOf {
  std::string_view owner;
  std::string_view sender;  // who may send it, and when; of parts empty
  std::vector<FieldRow> rows;
};

// ---- fields_connections.cc, fields_parts.cc, fields_to_master.cc, fields_to_peer.cc,
// fields_data.cc
const std::vector<FieldsOf>& fields_of_connections();
const std::vector<FieldsOf>& fields_of_parts();
const std::vector<FieldsOf>& fields_to_master();
const std::vector<FieldsOf>& fields_to_peer();
const std::vector<FieldsOf>& fields_of_links();
const std::vector<FieldsOf>& fields_of_journal();
const std::vector<FieldsOf>& fields_of_texts();  // status, etcd's answers: not in PROTOCOL.md

// ---- fields_table.cc
const FieldsOf* fields_of(std::string_view owner);  // of all but the texts; null: unknown
// The bends of a message's fields in the order of their bytes: parts opened up, of a list itself
// and then those of one item.
std::vector<Bend> bends_of(std::string_view owner);
std::string fields_markdown();

}  // namespace jccl::fuzz
