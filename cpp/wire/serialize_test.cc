#include "wire/serialize.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "base/crc32c.h"
#include "base/rng.h"
#include "wire/samples.h"

namespace jccl::wire {
namespace {

using base::ByteView;
using base::Rng;

// One row per kind of value: all share the same promises.
struct Kind {
  std::string name;
  Bytes bytes;
  // The bytes that the decoded value encodes to; empty when they are refused.
  Bytes (*again)(ByteView);
};

Bytes message_again(ByteView bytes) {
  const base::Result<Message> m = decode(bytes);
  if (!m.ok()) return {};
  const Hello* hello = std::get_if<Hello>(&m.value());
  if (hello != nullptr && !has_common_version(*hello)) return {};  // is only its versions
  return encode(m.value());
}
Bytes record_again(ByteView bytes) {
  const base::Result<Record> r = decode_record(bytes);
  return r.ok() ? encode_record(r.value()) : Bytes{};
}
Bytes hello_again(ByteView bytes) {
  const base::Result<LinkHello> h = decode_link_hello(bytes);
  return h.ok() ? encode(h.value()) : Bytes{};
}
Bytes bytes_of(const FrameHeader& header) {
  Bytes out(kFrameHeaderBytes);
  encode(header, out.data());
  return out;
}
Bytes header_again(ByteView bytes) {
  const base::Result<FrameHeader> h = decode_frame_header(bytes);
  return h.ok() ? bytes_of(h.value()) : Bytes{};
}
Bytes ask_again(ByteView bytes) {
  const base::Result<SnapshotAsk> a = decode_snapshot_ask(bytes);
  return a.ok() ? encode(a.value()) : Bytes{};
}
Bytes proof_ask_again(ByteView bytes) {
  const base::Result<ProofAsk> a = decode_proof_ask(bytes);
  return a.ok() ? encode(a.value()) : Bytes{};
}

std::vector<Kind> all_kinds() {
  std::vector<Kind> kinds;
  for (const Message& m : sample_messages()) {
    kinds.push_back({std::string(name_of(m)), encode(m), message_again});
  }
  for (const Record& r : sample_records()) {
    kinds.push_back({std::string(name_of(r)), encode_record(r), record_again});
  }
  kinds.push_back({"LinkHello", encode(sample_link_hello()), hello_again});
  kinds.push_back({"FrameHeader", bytes_of(sample_frame_header()), header_again});
  kinds.push_back({"SnapshotAsk", encode(sample_ask()), ask_again});
  kinds.push_back({"ProofAsk", encode(sample_proof_ask()), proof_ask_again});
  return kinds;
}

TEST(SerializeTest, every_message_and_record_comes_back_equal) {
  ASSERT_EQ(sample_messages().size(), std::variant_size_v<Message>);
  ASSERT_EQ(sample_records().size(), std::variant_size_v<Record>);
  for (const Message& m : sample_messages()) {
    const base::Result<Message> back = decode(encode(m));
    ASSERT_TRUE(back.ok()) << name_of(m) << ": " << back.status().text;
    EXPECT_TRUE(back.value() == m) << name_of(m);
  }
  for (const Record& r : sample_records()) {
    const base::Result<Record> back = decode_record(encode_record(r));
    ASSERT_TRUE(back.ok()) << name_of(r);
    EXPECT_TRUE(back.value() == r) << name_of(r);
  }
  EXPECT_EQ(decode_link_hello(encode(sample_link_hello())).value(), sample_link_hello());
  EXPECT_EQ(decode_frame_header(bytes_of(sample_frame_header())).value(), sample_frame_header());
  EXPECT_EQ(decode_snapshot_ask(encode(sample_ask())).value(), sample_ask());
  EXPECT_EQ(decode_proof_ask(encode(sample_proof_ask())).value(), sample_proof_ask());
}

TEST(SerializeTest, every_prefix_and_every_extension_is_refused) {
  for (const Kind& kind : all_kinds()) {
    ASSERT_EQ(kind.again(kind.bytes), kind.bytes) << kind.name;
    for (std::size_t size = 0; size < kind.bytes.size(); ++size) {
      EXPECT_TRUE(kind.again(ByteView(kind.bytes).first(size)).empty()) << kind.name << ' ' << size;
    }
    for (int extra = 0; extra < 256; ++extra) {
      Bytes longer = kind.bytes;
      longer.push_back(static_cast<std::uint8_t>(extra));
      EXPECT_TRUE(kind.again(longer).empty()) << kind.name << " + " << extra;
    }
  }
}

TEST(SerializeTest, what_is_accepted_after_any_bit_flip_has_exactly_those_bytes) {
  for (const Kind& kind : all_kinds()) {
    for (std::size_t bit = 0; bit < kind.bytes.size() * 8; ++bit) {
      Bytes flipped = kind.bytes;
      flipped[bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
      const Bytes again = kind.again(flipped);
      EXPECT_TRUE(again.empty() || again == flipped) << kind.name << " bit " << bit;
    }
  }
}

TEST(SerializeTest, garbage_and_splices_are_refused_or_canonical) {
  const std::vector<Kind> kinds = all_kinds();
  Rng rng(20);
  for (int turn = 0; turn < 60'000; ++turn) {
    const Kind& kind = kinds[rng.below(kinds.size())];
    Bytes bytes = kind.bytes;
    const Bytes& other = kinds[rng.below(kinds.size())].bytes;
    for (std::uint64_t edits = 1 + rng.below(6); edits > 0; --edits) {
      const std::size_t at = rng.below(bytes.size());
      switch (rng.below(4)) {
        case 0:
          bytes[at] = static_cast<std::uint8_t>(rng.next());
          break;
        case 1:
          bytes[at] = rng.chance(0.5) ? 0xFF : 0x00;
          break;
        case 2:
          bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), other.begin(),
                       other.begin() + static_cast<std::ptrdiff_t>(rng.below(other.size())));
          break;
        default:
          bytes.resize(at + 1);
          break;
      }
    }
    const Bytes again = kind.again(bytes);
    EXPECT_TRUE(again.empty() || again == bytes) << kind.name << " turn " << turn;
  }
}

TEST(SerializeTest, a_huge_count_allocates_nothing) {
  base::Writer w;
  w.u8(34 + 1);  // Roster
  w.u64(1);
  w.u64(0);
  w.u32(0xFFFFFFFF);
  EXPECT_EQ(decode(w.bytes()).status().code, Code::kInvalid);
  base::Writer many;
  many.u8(2);  // Resume
  many.u32(static_cast<std::uint32_t>(base::kUnresolvedMax));
  EXPECT_FALSE(decode(many.bytes()).ok());
}

base::Writer outcome_up_to_contributors() {
  base::Writer w;
  w.u8(37);
  w.attempt({1, 1});
  w.text("t", 64);
  w.u64(1);
  w.u8(1);  // committed
  return w;
}

Bytes outcome_of(const std::vector<std::pair<std::uint32_t, std::uint32_t>>& ids,
                 const std::vector<std::pair<double, std::uint32_t>>& weights) {
  base::Writer w = outcome_up_to_contributors();
  w.u32(static_cast<std::uint32_t>(ids.size()));
  for (const auto& [first, count] : ids) w.u32(first), w.u32(count);
  w.u32(static_cast<std::uint32_t>(weights.size()));
  for (const auto& [weight, count] : weights) w.f64(weight), w.u32(count);
  w.u32(1);
  w.digest({1, 2});
  w.flag(false);
  w.u8(0);
  w.text("", 0);
  return w.take();
}

TEST(SerializeTest, contributors_have_one_form) {
  Outcome expected;
  expected.attempt = {1, 1};
  expected.round = {"t", 1};
  expected.verdict = Verdict::kCommitted;
  expected.contributors = {{1, 2}, {2, 2}, {3, 1}, {7, 1}};
  expected.world = 1;
  expected.result = {1, 2};
  expected.code = base::Code::kOk;
  EXPECT_EQ(encode(expected), outcome_of({{1, 3}, {7, 1}}, {{2, 2}, {1, 2}}));
  EXPECT_EQ(decode(encode(expected)).value(), Message(expected));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(decode(outcome_of({{1, 2}, {3, 1}}, {{1, 3}})).ok());  // one run in two
  EXPECT_FALSE(decode(outcome_of({{1, 3}}, {{1, 1}, {1, 2}})).ok());  // the same of weights
  EXPECT_FALSE(decode(outcome_of({{5, 2}, {1, 2}}, {{1, 4}})).ok());  // descending
  EXPECT_FALSE(decode(outcome_of({{1, 3}, {3, 2}}, {{1, 5}})).ok());  // twice the same id
  EXPECT_FALSE(decode(outcome_of({{1, 3}}, {{1, 2}})).ok());          // one without a weight
  EXPECT_FALSE(decode(outcome_of({{1, 3}}, {{1, 4}})).ok());          // one weight too many
  EXPECT_FALSE(decode(outcome_of({{1, 0}}, {})).ok());                // an empty run
  EXPECT_FALSE(decode(outcome_of({{1, 1}}, {{nan, 1}})).ok());
  EXPECT_FALSE(decode(outcome_of({{1, 1025}}, {{1, 1025}})).ok());
  EXPECT_TRUE(decode(outcome_of({{1, 1024}}, {{1, 1024}})).ok());
  EXPECT_FALSE(decode(outcome_of({{0xFFFFFFFF, 2}}, {{1, 2}})).ok());  // beyond any id
}

TEST(SerializeTest, one_item_beyond_a_limit_is_refused_on_both_sides) {
  Resume resume;
  resume.unresolved.assign(base::kUnresolvedMax, {{1, 1}, {"t", 1}});
  ASSERT_TRUE(check(resume).ok());
  Bytes bytes = encode(resume);
  resume.unresolved.push_back({{1, 1}, {"t", 1}});
  EXPECT_EQ(check(resume).code, Code::kLimit);
  EXPECT_EQ(check(resume).text, "Resume: 257 unresolved attempts; the limit is 256");
  // The same one item too many, forged into the bytes.
  const Bytes item(bytes.begin() + 5, bytes.begin() + 5 + 16 + 3 + 8);
  bytes[1] = 1;
  bytes[2] = 1;
  bytes.insert(bytes.begin() + 5, item.begin(), item.end());
  EXPECT_FALSE(decode(bytes).ok());
}

TEST(SerializeTest, a_hello_that_would_not_fit_its_frame_is_named_before_it_is_sent) {
  Hello hello;
  hello.site = std::string(base::kSiteNameBytesMax, 's');
  EXPECT_TRUE(check(hello).ok());
  hello.addresses.assign(base::kAddressesMax, std::string(base::kAddressBytesMax, 'a'));
  EXPECT_EQ(check(hello).code, Code::kLimit);
  EXPECT_EQ(check(hello).text, "Hello has 1167 bytes; the limit is 1024");
  hello.addresses.assign(base::kAddressesMax, "h");
  hello.site += 's';
  EXPECT_EQ(check(hello).code, Code::kLimit);
}

TEST(SerializeTest, a_roster_of_all_peers_with_all_addresses_fits) {
  Roster roster;
  for (PeerId id = 1; id <= base::kPeersMax; ++id) {
    Member member = sample_member(id);
    member.site = std::string(base::kSiteNameBytesMax, 's');
    member.addresses.assign(base::kAddressesMax, std::string(base::kAddressBytesMax, 'a'));
    roster.members.push_back(member);
  }
  ASSERT_TRUE(check(roster).ok()) << check(roster).text;
  EXPECT_EQ(decode(encode(roster)).value(), Message(roster));
}

TEST(SerializeTest, a_hello_without_a_common_version_is_its_versions_alone) {
  struct Range {
    std::uint16_t oldest, version;
  };
  for (const auto& [oldest, version] :
       {Range{kVersion + 1, kVersion + 1}, Range{kVersion + 1, kVersion + 9}, Range{kVersion, 5}}) {
    Hello hello = std::get<Hello>(sample_messages()[0]);
    hello.oldest = oldest, hello.version = version;
    Bytes bytes = encode(hello);
    bytes.resize(bytes.size() - 7);  // their hello may be shorter, or longer
    Hello expected;
    expected.version = version;
    expected.oldest = version < kVersionRanges ? version : oldest;  // before, there was no range
    EXPECT_EQ(decode(bytes).value(), Message(expected));
    EXPECT_FALSE(decode(ByteView(bytes).first(2)).ok());
  }
  Hello hello = std::get<Hello>(sample_messages()[0]);
  hello.version = kVersion + 9;
  EXPECT_EQ(decode(encode(hello)).value(), Message(hello)) << "the master's is among them";

  LinkHello link = sample_link_hello();
  link.version = kVersion + 1;
  EXPECT_EQ(decode_link_hello(encode(link)).status().code, Code::kVersion);
}

TEST(SerializeTest, weights_are_finite_and_not_negative) {
  Ready ready;
  ready.round = {"t", 1};
  for (const double bad :
       {-1.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    ready.weight = bad;
    EXPECT_EQ(check(ready).code, Code::kLimit) << bad;
  }
  ready.weight = -0.0;  // has one form on the wire
  const Bytes bytes = encode(ready);
  ready.weight = 0.0;
  EXPECT_EQ(bytes, encode(ready));
  ready.weight = 1.0;
  Bytes negative = encode(ready);
  const std::size_t sign = negative.size() - 8 - 4 - 2 - 8 - 8 - 16 - 16 - 8 - 1 - 1;
  negative[sign] |= 0x80;
  EXPECT_FALSE(decode(negative).ok());
}

TEST(SerializeTest, ids_must_ascend_and_tags_must_not_be_empty) {
  Start start;
  start.round = {"t", 1};
  start.contributors = {{2, 1.0}, {2, 1.0}};
  EXPECT_EQ(check(start).text, "Start: contributors are not in ascending order of id");
  start.contributors.clear();
  start.receivers = {3, 1};
  EXPECT_FALSE(check(start).ok());
  EXPECT_EQ(check(Withdraw{{"", 1}}).text, "Withdraw: a tag is empty");
  EXPECT_FALSE(check(Withdraw{{std::string(base::kTagBytesMax + 1, 't'), 1}}).ok());
}

TEST(SerializeTest, what_the_encoder_refuses_is_named) {
  const auto problem = [](const Message& message) {
    const base::Status status = check(message);
    EXPECT_EQ(status.code, Code::kLimit) << name_of(message);
    return status.text;
  };
  Start start;
  start.round = {"t", 1};
  start.plan.assign(base::kPlanBytesMax + 1, 0);
  EXPECT_EQ(problem(start), "Start: plan has 16385 bytes; the limit is 16384");
  start.plan.clear();
  for (PeerId id = 1; id <= base::kPeersMax + 1; ++id) start.contributors.push_back({id, 1});
  EXPECT_EQ(problem(start), "Start: 1025 contributors; the limit is 1024");
  Outcome outcome;
  outcome.round = {"t", 1};
  outcome.verdict = static_cast<Verdict>(4);
  EXPECT_EQ(problem(outcome), "Outcome: an enumeration has a value out of its range");
  SyncReply reply;
  reply.tag = "model";
  reply.verdict = static_cast<SyncVerdict>(0);
  EXPECT_EQ(problem(reply), "SyncReply: an enumeration has a value out of its range");
  Roster roster;
  roster.members = {sample_member(2), sample_member(1)};
  EXPECT_EQ(problem(roster), "Roster: members are not in ascending order of id");
  roster.members.clear();
  roster.left = {2, 2};
  EXPECT_EQ(problem(roster), "Roster: members that left are not in ascending order of id");
  Measured measured;
  measured.links = {{2, 1, 1}, {1, 1, 1}};
  EXPECT_EQ(problem(measured), "Measured: measured links are not in ascending order of id");
  StatusReply status;
  status.json.assign(base::kStatusBytesMax + 1, ' ');
  EXPECT_NE(problem(status).find("StatusReply: status has "), std::string::npos);
}

TEST(SerializeTest, human_texts_are_cut_between_characters) {
  std::string text;
  while (text.size() < base::kTextBytesMax + 3) text += "ä";  // two bytes
  const Message back = decode(encode(Evicted{"x" + text})).value();
  const std::string& cut = std::get<Evicted>(back).text;
  EXPECT_EQ(cut.size(), base::kTextBytesMax - 1);
  EXPECT_EQ(cut, ("x" + text).substr(0, cut.size()));
}

TEST(SerializeTest, names_that_are_not_utf8_are_refused_and_texts_are_mended) {
  Hello hello = std::get<Hello>(sample_messages()[0]);
  hello.site = "z\xFCrich";  // as Latin-1 has it
  EXPECT_EQ(check(hello).text, "Hello: site 'z?rich' is not UTF-8");
  EXPECT_FALSE(check(Withdraw{{"\x80", 1}}).ok());
  const Message back = decode(encode(Evicted{"gone: z\xFCrich"})).value();
  EXPECT_EQ(std::get<Evicted>(back).text, "gone: z?rich");
  // The same bytes from somebody who does not check.
  Bytes bytes = encode(Evicted{"zurich"});
  bytes[4] = 0xFC;
  EXPECT_FALSE(decode(bytes).ok());
}

TEST(SerializeTest, the_journal_keeps_addresses_and_keys) {
  EpochRecord epoch{1, 2, {sample_member(1)}, "joined"};
  const Record back = decode_record(encode_record(epoch)).value();
  EXPECT_EQ(std::get<EpochRecord>(back).members[0], sample_member(1));
}

TEST(SerializeTest, a_frame_header_with_any_flipped_bit_is_refused) {
  const Bytes bytes = bytes_of(sample_frame_header());
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    Bytes flipped = bytes;
    flipped[bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
    EXPECT_FALSE(decode_frame_header(flipped).ok()) << bit;
  }
}

template <typename T>
void put(Bytes& bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

// Whole and with the right sum: only what it says is wrong.
Bytes header_with(FrameKind kind, std::uint32_t payload_bytes) {
  Bytes bytes = bytes_of(sample_frame_header());
  put(bytes, 4, static_cast<std::uint32_t>(kind));
  put(bytes, 28, payload_bytes);
  put(bytes, 36, base::crc32c(ByteView(bytes).first(36)));
  return bytes;
}

TEST(SerializeTest, a_frame_is_as_long_as_its_kind_may_be) {
  const auto kPart = FrameKind::kSnapshotPart;
  EXPECT_TRUE(decode_frame_header(header_with(kPart, kFramePayloadBytesMax)).ok());
  EXPECT_FALSE(decode_frame_header(header_with(kPart, kFramePayloadBytesMax + 1)).ok());
  for (const FrameKind bare : {FrameKind::kSnapshotGone, FrameKind::kArrived}) {
    EXPECT_TRUE(decode_frame_header(header_with(bare, 0)).ok());
    EXPECT_FALSE(decode_frame_header(header_with(bare, 1)).ok());
  }
  EXPECT_FALSE(decode_frame_header(header_with(static_cast<FrameKind>(0), 0)).ok());
  EXPECT_FALSE(decode_frame_header(header_with(static_cast<FrameKind>(10), 0)).ok());
}

TEST(SerializeTest, a_link_hello_names_a_stripe_that_there_is) {
  const auto with = [](std::uint16_t stripe, std::uint16_t stripes) {
    Bytes bytes = encode(sample_link_hello());
    put(bytes, bytes.size() - 4, stripe);
    put(bytes, bytes.size() - 2, stripes);
    return decode_link_hello(bytes).ok();
  };
  constexpr auto kMost = static_cast<std::uint16_t>(base::kStripesMax);
  EXPECT_TRUE(with(0, 1));
  EXPECT_TRUE(with(kMost - 1, kMost));
  EXPECT_FALSE(with(0, 0));
  EXPECT_FALSE(with(1, 1));
  EXPECT_FALSE(with(0, kMost + 1));
}

TEST(SerializeTest, an_ask_is_for_a_part_at_least) {
  SnapshotAsk ask;
  ask.tag = "t";
  ask.first_part = 3, ask.last_part = 4;
  Bytes bytes = encode(ask);
  ASSERT_TRUE(decode_snapshot_ask(bytes).ok());
  for (const std::uint32_t last : {3U, 2U, 0U}) {
    put(bytes, bytes.size() - 4, last);
    EXPECT_FALSE(decode_snapshot_ask(bytes).ok()) << last;
  }
}

}  // namespace
}  // namespace jccl::wire
