// Cells, their terms as bytes, and sums of parts that somebody made up.
#include "collective/audit.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/rng.h"

namespace jccl::collective {
namespace {

using codec::CodecId;
using codec::Dtype;

CellTerms some_terms() {
  CellTerms terms;
  terms.op = Op::kMean;
  terms.codec = codec::stochastic(CodecId::kInt8, 7);
  terms.chunk = 3;
  terms.piece = {2, 512, 300};
  return terms;
}

TEST(CellsTest, cells_fill_their_chunk_at_the_grid_and_each_fits_a_frame) {
  const std::vector<LeafSpec> leaves = {
      {Dtype::kF32, 100'000}, {Dtype::kF64, 33'333}, {Dtype::kI8, 7}, {Dtype::kBf16, 70'001}};
  for (const CodecId id : {CodecId::kNone, CodecId::kInt8, CodecId::kInt4, CodecId::kStat2}) {
    std::vector<LeafSpec> some = leaves;
    if (id != CodecId::kNone) some[2].dtype = Dtype::kF16;
    Plan plan;
    plan.order = {1, 2, 3};
    for (const Chunk& chunk : make_layout(plan, some, id, 256 * 1024)) {
      std::size_t part = 0, result = 0;
      std::uint64_t elements = 0;
      for (const Cell& cell : cells_of(plan, chunk, some, id, {})) {
        EXPECT_EQ(cell.part_at, part);
        EXPECT_EQ(cell.result_at, result);
        EXPECT_LE(std::max(cell.part_bytes, cell.result_bytes), base::kCellBytesMax);
        EXPECT_EQ(cell.piece.first % codec::block_elements(id), 0U);
        part += cell.part_bytes, result += cell.result_bytes, elements += cell.piece.count;
      }
      EXPECT_EQ(elements, chunk.elements);
      EXPECT_EQ(result, chunk.encoded_bytes);
    }
  }
}

TEST(CellsTest, what_cannot_be_audited_says_why) {
  const std::vector<LeafSpec> f32 = {{Dtype::kF32, 10}}, f64 = {{Dtype::kF64, 10}};
  const Aggregator median{AggregatorId::kMedian, 0};
  EXPECT_EQ(auditable(f32, CodecId::kInt8, {}), Auditable::kYes);
  EXPECT_EQ(auditable(f32, CodecId::kNone, median), Auditable::kYes);
  EXPECT_EQ(auditable(f64, CodecId::kNone, median), Auditable::kWide);
  EXPECT_EQ(auditable(f32, codec::top_k(64), {}), Auditable::kSparse);
  Plan plan;
  plan.order = {1, 2};
  Hint hint;
  EXPECT_EQ(unauditable(plan, hint), "");
  hint.audit = Auditable::kSparse;
  EXPECT_NE(unauditable(plan, hint).find("sparse"), std::string::npos);
  hint.audit = Auditable::kYes;
  for (const PlanKind kind : {PlanKind::kRing, PlanKind::kGather, PlanKind::kScatter,
                              PlanKind::kExchange, PlanKind::kAllToAll}) {
    plan.kind = kind;
    EXPECT_NE(unauditable(plan, hint), "") << name_of(kind);
  }
}

TEST(CellTermsTest, terms_come_back_as_they_went_and_others_are_refused) {
  const CellTerms terms = some_terms();
  const base::Bytes bytes = encode_terms(terms);
  EXPECT_LE(bytes.size(), base::kCellTermsMax);
  const auto back = decode_terms(bytes);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back.value(), terms);
  base::Bytes longer = bytes;
  longer.push_back(0);
  EXPECT_FALSE(decode_terms(longer).ok());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(decode_terms(base::ByteView(bytes).first(size)).ok());
  }
  CellTerms odd = terms;
  odd.dtype = Dtype::kI32;  // a lossy codec of integers
  EXPECT_FALSE(decode_terms(encode_terms(odd)).ok());
  odd = terms, odd.piece.count = 1 << 20;
  EXPECT_FALSE(decode_terms(encode_terms(odd)).ok()) << "longer than a cell";
  odd = terms, odd.piece.first = 3;
  EXPECT_FALSE(decode_terms(encode_terms(odd)).ok()) << "inside a block";
  odd = terms, odd.piece.count = 0;
  EXPECT_FALSE(decode_terms(encode_terms(odd)).ok());
  odd = terms, odd.codec = codec::top_k(64);
  EXPECT_FALSE(decode_terms(encode_terms(odd)).ok());
  odd = terms, odd.aggregator = {AggregatorId::kMedian, 5};
  EXPECT_FALSE(decode_terms(encode_terms(odd)).ok());
}

// Whatever anybody sends: the master adds it up, or says whose it is.
TEST(AddUpTest, any_bytes_are_added_up_or_named) {
  base::Rng rng(11);
  for (int i = 0; i < 3000; ++i) {
    CellTerms terms = some_terms();
    terms.codec = static_cast<CodecId>(rng.below(10));
    terms.aggregator = rng.chance(0.3) ? Aggregator{AggregatorId::kMedian, 0} : Aggregator{};
    terms.piece = {0, 4096 * rng.below(3), 1 + rng.below(500)};
    base::Bytes bytes = encode_terms(terms);
    if (rng.chance(0.3)) bytes[rng.below(bytes.size())] ^= 1 << rng.below(8);
    std::vector<base::Bytes> parts(2);
    for (base::Bytes& part : parts) {
      part.resize(codec::encoded_bytes(terms.codec, terms.dtype, terms.piece.count) +
                  (rng.chance(0.1) ? 1 : 0));
      for (std::uint8_t& byte : part) byte = static_cast<std::uint8_t>(rng.next());
    }
    const AddedUp sum = add_up({bytes, 1, {1, 1}, {parts[0], parts[1]}});
    EXPECT_TRUE(sum.result.has_value() || !sum.why.empty());
    EXPECT_FALSE(sum.result.has_value() && sum.wrong.has_value());
  }
}

TEST(AddUpTest, weights_count_and_a_part_of_another_length_names_its_sender) {
  CellTerms terms;
  terms.op = Op::kMean, terms.piece = {0, 0, 2};
  const float a[2] = {1, 2}, b[2] = {4, 8};
  const auto bytes = [](const float* v) {
    return base::ByteView(reinterpret_cast<const std::uint8_t*>(v), 8);
  };
  const base::Bytes told = encode_terms(terms);
  const AddedUp sum = add_up({told, 1, {1, 3}, {bytes(a), bytes(b)}});
  float mean[2];
  ASSERT_TRUE(sum.result.has_value());
  std::memcpy(mean, sum.result->data(), 8);
  EXPECT_EQ(mean[0], 13.0F / 4);
  EXPECT_EQ(mean[1], 26.0F / 4);
  const AddedUp cut = add_up({told, 1, {1, 3}, {bytes(a), bytes(b).first(7)}});
  EXPECT_EQ(cut.wrong, 1U);
  EXPECT_NE(cut.why.find("7 bytes, not 8"), std::string::npos);
  EXPECT_FALSE(add_up({told, 1, {0, 0}, {bytes(a), bytes(b)}}).result.has_value());
}

}  // namespace
}  // namespace jccl::collective
