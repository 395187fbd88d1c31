// Audited attempts: what contributors are bound by fits together, what they show later is what they
// were bound by, and added up anew it is what the owner sent, bit for bit, for whatever can be
// audited.
#include "collective/audit.h"

#include <cmath>

#include "collective/hint.h"
#include "exchange/attempt/attempt_bench.h"
#include "wire/cell_leaf.h"

namespace jccl::exchange {
namespace {

using codec::CodecId;
using collective::AggregatorId;
using collective::Op;

class Audited {
 public:
  explicit Audited(const Bench::Setting& setting) : bench(setting) {
    bench.start_.audit = {1, 2, 3};
    for (auto& peer : bench.peers_) {
      base::Rng rng(setting.seed * 1000 + peer->index);
      if (setting.weights.empty()) {
        for (float& v : peer->in) v = static_cast<float>(rng.unit() - 0.5);
      }
      peer->start();
    }
    bench.begin();
    bench.deliver_and_feed();
    for (auto& peer : bench.peers_) {
      EXPECT_EQ(peer->done, 1) << peer->text;
      roots.push_back(peer->run->audit_roots());
    }
  }
  std::size_t contributors() const { return bench.setting_.peers; }
  std::uint32_t cells() const {
    std::uint32_t all = 0;
    for (std::size_t i = 0; i < contributors(); ++i) all += roots[i].cells;
    return all;
  }
  bool is_bound(const wire::AuditPart& part, std::size_t i) const {
    std::uint32_t begin = 0;
    std::size_t owner = 0;
    while (part.cell >= begin + roots[owner].cells) begin += roots[owner++].cells;
    const wire::Sha256 leaf =
        wire::cell_leaf(bench.start_.audit, bench.start_.attempt, part.result ? 0 : Bench::id(i),
                        part.cell, part.terms, part.bytes);
    if (part.result) return base::proves(part.path, leaf, part.cell, cells(), roots[i].result);
    const wire::PartsRoot& root = roots[i].parts[owner];
    return base::proves(part.path, leaf, part.cell - begin, root.cells, root.root);
  }

  Bench bench;
  std::vector<wire::AuditRoots> roots;
};

void expect_shown(const Bench::Setting& setting) {
  SCOPED_TRACE(base::cat(codec::name_of(setting.codec), " ", collective::name_of(setting.op), " ",
                         collective::name_of(setting.aggregator), " world ", setting.peers));
  Audited audited(setting);
  const std::size_t n = setting.peers;
  for (std::size_t i = 0; i < n; ++i) {
    ASSERT_EQ(audited.roots[i].parts.size(), n);
    EXPECT_EQ(audited.roots[i].result, audited.roots[0].result);
    for (std::size_t o = 0; o < n; ++o) {
      EXPECT_EQ(audited.roots[i].parts[o].cells, audited.roots[o].cells);
      EXPECT_EQ(audited.roots[i].parts[o].root, audited.roots[o].receipts[i]) << i << " " << o;
    }
  }
  for (std::size_t i = n; i < audited.roots.size(); ++i) EXPECT_TRUE(audited.roots[i].none());
  std::vector<std::uint32_t> all(audited.cells());
  ASSERT_FALSE(all.empty());
  for (std::uint32_t cell = 0; cell < all.size(); ++cell) all[cell] = cell;
  std::vector<std::vector<wire::AuditPart>> shown(all.size());
  std::vector<wire::AuditPart> results(all.size());
  for (std::size_t i = 0; i < n; ++i) {
    for (wire::AuditPart& part : audited.bench.peers_[i]->run->audit_parts(all)) {
      EXPECT_TRUE(audited.is_bound(part, i)) << i << " " << part.cell;
      EXPECT_LE(part.bytes.size(), base::kCellBytesMax);
      EXPECT_TRUE(wire::check(wire::Message(part)).ok());
      if (part.result) {
        results[part.cell] = part;
      } else {
        shown[part.cell].push_back(part);
      }
    }
  }
  for (const std::uint32_t cell : all) {
    ASSERT_EQ(shown[cell].size(), n);
    collective::Summands in{results[cell].terms, 1, {}, {}};
    for (std::size_t i = 0; i < n; ++i) {
      EXPECT_EQ(shown[cell][i].terms, results[cell].terms);
      in.weights.push_back(audited.bench.weight(i));
      in.parts.emplace_back(shown[cell][i].bytes);
    }
    const collective::AddedUp sum = collective::add_up(in);
    ASSERT_TRUE(sum.result.has_value()) << sum.why;
    ASSERT_EQ(*sum.result, results[cell].bytes) << "cell " << cell;
  }
}

TEST(AuditBookTest, every_cell_added_up_anew_is_what_its_owner_sent) {
  for (const CodecId id :
       {CodecId::kNone, CodecId::kBf16, CodecId::kFp16, CodecId::kInt8, CodecId::kFp8,
        CodecId::kInt4, CodecId::kE3m0, CodecId::kInt2, CodecId::kStat2}) {
    for (const Op op : {Op::kSum, Op::kMean}) {
      Bench::Setting setting;
      setting.peers = 3 + static_cast<std::size_t>(id) % 3;
      setting.codec = id, setting.op = op, setting.second = 777;
      setting.receivers = 1;
      expect_shown(setting);
      setting.weights = {0.5, 2, 1.25, 3, 0.125};
      setting.out_private = true;
      setting.feeds = true;
      expect_shown(setting);
    }
  }
}

TEST(AuditBookTest, so_it_is_by_any_op_and_under_robust_aggregators) {
  for (const Op op : {Op::kMin, Op::kMax, Op::kProd}) {
    Bench::Setting setting;
    setting.op = op;
    expect_shown(setting);
  }
  for (const auto id : {AggregatorId::kTrimmedMean, AggregatorId::kMedian,
                        AggregatorId::kCenteredClip, AggregatorId::kNormLimit}) {
    for (const CodecId codec : {CodecId::kNone, CodecId::kInt8}) {
      Bench::Setting setting;
      setting.peers = 5, setting.count = 30'000, setting.codec = codec, setting.op = Op::kMean;
      setting.aggregator = {id, id == AggregatorId::kMedian        ? 0.0
                                : id == AggregatorId::kTrimmedMean ? 0.25
                                                                   : 2.0};
      expect_shown(setting);
    }
  }
}

TEST(AuditBookTest, owners_with_unequal_shares_or_none_and_encoded_inputs_fit) {
  Bench::Setting setting;
  setting.shares = {3, 0, 1};
  expect_shown(setting);
  setting.codec = CodecId::kInt8, setting.encoded = true;
  expect_shown(setting);
}

TEST(AuditBookTest, nothing_is_shown_before_its_roots_after_the_commit_or_of_no_cell) {
  Bench::Setting setting;
  setting.out_private = true;
  Audited audited(setting);
  Attempt& run = *audited.bench.peers_[0]->run;
  EXPECT_TRUE(run.audit_roots().none()) << "they are told once";
  EXPECT_FALSE(run.audit_parts({0}).empty());
  EXPECT_TRUE(run.audit_parts({audited.cells()}).empty());
  run.commit();
  EXPECT_TRUE(run.audit_parts({0}).empty()) << "the input is its owner's again";
  Bench plain(setting);
  plain.begin();
  plain.deliver_all();
  EXPECT_TRUE(plain.peers_[0]->run->audit_roots().none());
}

TEST(AuditBookTest, a_start_that_is_audited_under_another_plan_is_none_that_a_master_sends) {
  for (const PlanKind kind : {PlanKind::kExchange, PlanKind::kRing}) {
    Bench::Setting setting;
    setting.kind = kind;
    Bench bench(setting);
    bench.start_.audit = {1};
    bench.peers_[0]->start();
    EXPECT_EQ(bench.peers_[0]->run->prepare().code, Code::kInternal);
  }
}

}  // namespace
}  // namespace jccl::exchange
