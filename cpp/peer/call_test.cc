#include "peer/call.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/limits.h"
#include "collective/hint.h"
#include "snapshot/digest.h"

namespace jccl::peer {
namespace {

using base::Code;
using codec::CodecId;
using codec::Dtype;

float g_memory[64];

Leaf leaf(Dtype dtype = Dtype::kF32, std::uint64_t count = 8,
          std::vector<std::uint64_t> shape = {}) {
  return {dtype, count, g_memory, g_memory, "params/w", std::move(shape)};
}

Descriptor described(std::vector<Leaf> leaves, RoundOptions options = {},
                     std::size_t chunk_bytes = 4096) {
  CallRecord record;
  record.leaves = std::move(leaves);
  record.options = std::move(options);
  record.specs = exchange::specs_of(record.leaves, record.options);
  return describe_call(record, chunk_bytes);
}

TEST(CallTest, the_descriptor_changes_with_all_that_peers_must_agree_on) {
  const auto digest_of = [](std::vector<Leaf> leaves,
                            const std::function<void(RoundOptions&)>& set = {},
                            std::size_t chunk = 4096) {
    RoundOptions o;
    if (set) set(o);
    return described(std::move(leaves), o, chunk).digest;
  };
  const base::Digest plain = digest_of({leaf()});
  EXPECT_EQ(plain, digest_of({leaf()}));
  EXPECT_NE(plain, digest_of({leaf(Dtype::kI32)}));
  EXPECT_NE(plain, digest_of({leaf(Dtype::kF32, 9)}));
  EXPECT_NE(plain, digest_of({leaf(Dtype::kF32, 8, {2, 4})}));
  EXPECT_NE(digest_of({leaf(Dtype::kF32, 8, {4, 2})}), digest_of({leaf(Dtype::kF32, 8, {2, 4})}));
  EXPECT_NE(plain, digest_of({leaf(), leaf()}));
  EXPECT_NE(plain, digest_of({leaf()}, [](auto& o) { o.op = collective::Op::kSum; }));
  EXPECT_NE(plain, digest_of({leaf()}, [](auto& o) { o.codec = CodecId::kInt8; }));
  EXPECT_NE(plain, digest_of({leaf()}, [](auto& o) { o.plan = "ring"; }));
  EXPECT_NE(plain, digest_of({leaf()}, [](auto& o) { o.plan = "fastest"; }));
  EXPECT_NE(plain, digest_of({leaf()}, [](auto& o) { o.slots = 3; }));
  EXPECT_NE(plain, digest_of({leaf()}, [](auto& o) { o.collective = Collective::kBroadcast; }));
  EXPECT_NE(plain, digest_of({leaf()}, [](auto& o) { o.guard = false; }));
  EXPECT_NE(plain, digest_of({leaf()}, {}, 8192));
  const auto trimmed = [](double trim) {
    return [trim](auto& o) { o.aggregator = {collective::AggregatorId::kTrimmedMean, trim}; };
  };
  EXPECT_NE(plain, digest_of({leaf()}, trimmed(0.25)));
  EXPECT_NE(digest_of({leaf()}, trimmed(0.2)), digest_of({leaf()}, trimmed(0.25)));
  // What is each peer's own matter.
  EXPECT_EQ(plain, digest_of({leaf()}, [](auto& o) { o.weight = 3; }));
  EXPECT_EQ(plain, digest_of({leaf()}, [](auto& o) { o.root = true; }));
  EXPECT_EQ(plain, digest_of({leaf()}, [](auto& o) { o.deadline = 5; }));
}

// Byte for byte as ALGORITHMS.md has it: a client of another language forms the same.
TEST(CallTest, a_descriptor_is_the_digest_of_the_bytes_that_the_protocol_names) {
  CallRecord record;
  record.leaves = {leaf(Dtype::kF32, 8, {2, 4})};
  record.specs = {{Dtype::kF32, 8}};
  record.options.codec = codec::top_k(64);
  record.options.plan = "direct";
  record.options.quorum = {900, 2 * base::kSecond};
  const Descriptor made = describe_call(record, 4096);
  base::Writer hint, leaves, call;
  hint.u8(1), hint.u64(32), hint.u64(32), hint.u64(32);  // 8 values of 4 bytes, sent whole
  hint.u8(1);                                            // sparse: not for audits
  leaves.u32(1);
  leaves.u8(1), leaves.u64(8), leaves.u32(2), leaves.u64(2), leaves.u64(4);
  leaves.u32(8);
  for (const char c : std::string_view("params/w")) leaves.u8(static_cast<std::uint8_t>(c));
  call.u8(1), call.u8(2), call.u8(7), call.u32(64), call.u8(0), call.u64(0);
  call.u8(0), call.f64(0);  // the mean has no parameter
  call.u8(1);               // guarded
  call.u32(900), call.u64(2'000'000'000);
  call.u32(0), call.u64(4096), call.u32(26);
  for (const base::Writer* part : {&hint, &leaves}) {
    for (const std::uint8_t byte : part->bytes()) call.u8(byte);
  }
  EXPECT_EQ(made.hint, hint.bytes());
  EXPECT_EQ(made.digest, snapshot::digest_of(call.bytes()));
  EXPECT_EQ(describe_state(record.leaves).digest, snapshot::digest_of(leaves.bytes()));
}

TEST(CallTest, leaves_of_one_shape_in_another_order_are_other_leaves) {
  Leaf v = leaf(), w = leaf();
  v.path = "v", w.path = "w";
  EXPECT_EQ(described({v, w}).digest, described({v, w}).digest);
  EXPECT_NE(described({v, w}).digest, described({w, v}).digest);
}

TEST(CallTest, the_summary_lists_the_first_leaves_and_stays_short) {
  const Descriptor d = described({leaf(Dtype::kF32, 8, {2, 4}), leaf(Dtype::kU8)});
  EXPECT_EQ(d.summary,
            "all_reduce mean, codec none, plan auto, chunk 4096, 2 leaves: params/w f32[2,4], "
            "params/w u8[8]");
  Leaf wordy = leaf();
  wordy.path = std::string(3000, 'p');
  EXPECT_LE(described({wordy, wordy}).summary.size(), base::kSummaryBytesMax);
  const std::string some = describe_state(std::vector<Leaf>(20, leaf())).summary;
  EXPECT_EQ(some.find("…"), std::string::npos) << some;
  const std::string many = describe_state(std::vector<Leaf>(200, leaf())).summary;
  EXPECT_NE(many.find("200 leaves"), std::string::npos);
  EXPECT_NE(many.find("…"), std::string::npos);
  EXPECT_LE(many.size(), base::kSummaryBytesMax / 2 + 32);
}

TEST(CallTest, a_quorum_is_part_of_what_peers_agree_on_and_not_for_every_collective) {
  RoundOptions plain, most, all;
  most.quorum = {900, 2 * base::kSecond};
  all.quorum = {901, 2 * base::kSecond};
  EXPECT_NE(described({leaf()}, plain).digest, described({leaf()}, most).digest);
  EXPECT_NE(described({leaf()}, all).digest, described({leaf()}, most).digest);
  EXPECT_NE(described({leaf()}, most).summary.find(", quorum 0.9:2 s, "), std::string::npos);
  EXPECT_EQ(described({leaf()}, most).quorum, most.quorum);
  most.collective = Collective::kBroadcast;
  EXPECT_EQ(check_call({leaf()}, most).text,
            "a quorum is for all_reduce and all_gather; broadcast waits for everybody: leave the "
            "quorum out");
}

TEST(CallTest, a_robust_aggregator_is_refused_where_it_would_not_protect) {
  RoundOptions o;
  o.aggregator = {collective::AggregatorId::kMedian, 0};
  EXPECT_TRUE(check_call({leaf()}, o).ok());
  EXPECT_EQ(collective::decode_hint(described({leaf()}, o).hint).value().kind,
            collective::HintKind::kNoRing);
  EXPECT_NE(described({leaf()}, o).summary.find(", aggregator median, "), std::string::npos);
  EXPECT_EQ(check_call({leaf(Dtype::kI32)}, o).text,
            "params/w i32[8]: aggregator median: it applies to floating-point leaves, not to i32");
  o.plan = "fastest";
  EXPECT_TRUE(check_call({leaf()}, o).ok());
  EXPECT_EQ(collective::decode_hint(described({leaf()}, o).hint).value().kind,
            collective::HintKind::kNoRing);
  o.plan = "ring";
  EXPECT_EQ(check_call({leaf()}, o).text,
            "aggregator median in plan ring: there nobody sees all contributions; use plan auto, "
            "direct or exchange");
  o.plan = "direct";
  o.codec = CodecId::kTopK2;
  EXPECT_EQ(check_call({leaf()}, o).code, Code::kInvalid);
  o.codec = CodecId::kInt8;
  EXPECT_TRUE(check_call({leaf()}, o).ok());
  o.op = collective::Op::kSum;
  EXPECT_EQ(check_call({leaf()}, o).code, Code::kInvalid);
  o.op = collective::Op::kMean;
  for (const auto collective :
       {Collective::kAllGather, Collective::kReduceScatter, Collective::kBroadcast,
        Collective::kBarrier, Collective::kAllToAll}) {
    o.collective = collective;
    EXPECT_EQ(check_call({leaf()}, o).code, Code::kInvalid) << name_of(collective);
  }
  o.collective = Collective::kAllReduce;
  o.aggregator = {collective::AggregatorId::kTrimmedMean, 0.5};
  EXPECT_EQ(check_call({leaf()}, o).text,
            "aggregator trimmed_mean: trim 0.5 is not above 0 and below 0.5");
}

TEST(CallTest, an_unnamed_leaf_is_named_by_its_position) {
  Leaf unnamed = leaf(Dtype::kI64, 3);
  unnamed.path.clear();
  EXPECT_EQ(leaf_text(unnamed, 7), "leaf 7 i64[3]");
}

TEST(CallTest, limits_hold_for_the_whole_round_and_for_all_slots) {
  RoundOptions o;
  const Leaf half = leaf(Dtype::kF32, base::kRoundBytesMax / 8);
  EXPECT_TRUE(check_call({half}, o).ok());
  EXPECT_TRUE(check_call({half, half}, o).ok());
  EXPECT_EQ(check_call({half, half, leaf()}, o).code, Code::kLimit);
  o.collective = Collective::kAllGather;
  o.slots = 2;
  EXPECT_TRUE(check_call({half}, o).ok());
  o.slots = 3;
  EXPECT_EQ(check_call({half}, o).code, Code::kLimit);
  EXPECT_EQ(output_bytes(o, leaf()), 3u * 32);
}

TEST(CallTest, an_all_to_all_takes_arrays_of_one_block_for_each_slot) {
  RoundOptions o;
  o.collective = Collective::kAllToAll;
  EXPECT_EQ(check_call({leaf()}, o).text,
            "all_to_all with slots=0; give it one slot or more for each contributor");
  o.slots = 4;
  EXPECT_TRUE(check_call({leaf()}, o).ok());
  EXPECT_TRUE(check_call({leaf(Dtype::kF32, 8, {4, 2}), leaf(Dtype::kF32, 0)}, o).ok());
  EXPECT_EQ(output_bytes(o, leaf()), 8U * 4) << "as the input";
  const char* why =
      "all_to_all with slots=4 takes arrays whose first axis is 4 long: one block for each slot";
  const std::pair<Leaf, std::string> wrong[] = {
      {leaf(Dtype::kF32, 9), "params/w f32[9]: "},
      {leaf(Dtype::kF32, 8, {2, 4}), "params/w f32[2,4]: "},
      {leaf(Dtype::kF32, 8, {8}), "params/w f32[8]: "}};
  for (const auto& [one, words] : wrong) {
    const base::Status status = check_call({leaf(), one}, o);
    EXPECT_EQ(status.code, Code::kInvalid);
    EXPECT_EQ(status.text, words + why);
  }
  // What goes to one peer is what the master plans with.
  const auto hint = collective::decode_hint(described({leaf(), leaf(Dtype::kF64)}, o).hint);
  EXPECT_EQ(hint.value().kind, collective::HintKind::kAllToAll);
  EXPECT_EQ(hint.value().data_bytes, 2U * 4 + 2U * 8);
  EXPECT_EQ(described({leaf()}, o).contributors_max, 4U);
  const Leaf all = leaf(Dtype::kF32, base::kRoundBytesMax / 4);
  EXPECT_TRUE(check_call({all}, o).ok()) << "outputs are no larger";
}

TEST(CallTest, a_tag_is_a_short_text) {
  EXPECT_TRUE(check_tag("grads").ok());
  EXPECT_TRUE(check_tag(std::string(base::kTagBytesMax, 't')).ok());
  const std::string wrong[] = {"", std::string(base::kTagBytesMax + 1, 't'), "\xFC"};
  for (const std::string& tag : wrong) EXPECT_EQ(check_tag(tag).code, Code::kInvalid) << tag;
}

TEST(CallTest, a_failed_call_leaves_its_input_in_a_private_output_alone_but_not_for_all_gather) {
  std::vector<float> in = {1, 2}, out = {7, 7};
  const Leaf two{Dtype::kF32, 2, in.data(), out.data(), "", {}};
  RoundOptions o;
  keep_input(o, two);
  EXPECT_EQ(out[0], 7) << "somebody may look at it";
  o.out_private = true;
  o.collective = Collective::kAllGather;
  keep_input(o, two);
  EXPECT_EQ(out[0], 7);
  o.collective = Collective::kAllReduce;
  keep_input(o, two);
  EXPECT_EQ(out, in);
  Leaf nowhere = two;
  nowhere.out = nullptr;
  keep_input(o, nowhere);
}

TEST(CallTest, a_feed_needs_inputs_apart_from_outputs_and_no_copies_of_them) {
  const auto feed = std::make_shared<StreamedInput>(32);
  Leaf apart = leaf();
  apart.out = g_memory + 32;
  EXPECT_TRUE(check_feed({leaf()}, nullptr, true).ok());
  EXPECT_EQ(check_feed({apart, apart}, feed, false).code, Code::kInvalid) << "64 bytes";
  EXPECT_TRUE(check_feed({apart}, feed, false).ok());
  EXPECT_EQ(check_feed({apart}, std::make_shared<StreamedInput>(33), false).code, Code::kInvalid);
  EXPECT_EQ(check_feed({apart}, feed, true).code, Code::kInvalid);
  const base::Status same = check_feed({apart, leaf()}, feed, false);
  EXPECT_EQ(same.code, Code::kInvalid);
  EXPECT_NE(same.text.find("params/w"), std::string::npos) << same.text;
}

// Bytes that are not here yet can't be looked at; their number can.
TEST(CallTest, encoded_leaves_of_a_feed_are_checked_for_their_size_alone) {
  std::vector<std::uint8_t> bytes(codec::encoded_bytes(CodecId::kInt8, Dtype::kF32, 8), 0xFF);
  Leaf encoded{Dtype::kF32, 8, nullptr, g_memory, "params/w", {}, bytes.data(), bytes.size() - 4};
  RoundOptions o;
  o.codec = CodecId::kInt8;
  o.feed = std::make_shared<StreamedInput>(bytes.size());
  EXPECT_EQ(check_call({encoded}, o).code, Code::kInvalid);
  encoded.encoded_bytes = bytes.size();
  bytes[7] = 0x80;  // a code that no encoder writes
  bytes[3] = 0x40;
  EXPECT_TRUE(check_call({encoded}, o).ok());
  o.feed.reset();
  EXPECT_EQ(check_call({encoded}, o).code, Code::kInvalid);
}

TEST(CallTest, what_a_stochastic_codec_leaves_out_is_not_asked_without_its_round) {
  RoundOptions o;
  Leaf apart = leaf();
  apart.out = g_memory + 32;
  o.codec = CodecId::kInt8;
  EXPECT_TRUE(roundtrip(apart, o, true).ok());
  o.codec = codec::stochastic(CodecId::kInt8, 7);
  for (const bool residual : {false, true}) {
    EXPECT_EQ(roundtrip(apart, o, residual).code, Code::kInvalid);
  }
}

}  // namespace
}  // namespace jccl::peer
