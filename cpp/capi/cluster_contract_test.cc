// What every collective promises, cell by cell: collective × op × dtype × codec × plan × world ×
// size, against an oracle that knows nothing of chunks, codecs or plans: exact where arithmetic is
// exact, within the documented bounds where a codec loses, and the same bits on all peers always.
#include <cmath>

#include "base/rng.h"
#include "capi/cluster_support.h"
#include "codec/reference.h"

namespace jccl::capi::test {
namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr Dtype kDtypes[] = {Dtype::kF32, Dtype::kF64, Dtype::kBf16, Dtype::kF16,
                             Dtype::kI8,  Dtype::kI16, Dtype::kI32,  Dtype::kI64,
                             Dtype::kU8,  Dtype::kU16, Dtype::kU32,  Dtype::kU64};
constexpr Op kOps[] = {Op::kSum, Op::kMean, Op::kMin, Op::kMax, Op::kProd};
constexpr CodecId kCodecs[] = {CodecId::kNone, CodecId::kBf16, CodecId::kFp16,
                               CodecId::kInt8, CodecId::kFp8,  CodecId::kInt4,
                               CodecId::kE3m0, CodecId::kInt2, CodecId::kStat2};

bool is_unsigned(Dtype dtype) { return dtype >= Dtype::kU8; }

void store(Dtype dtype, double value, std::uint8_t* to) {
  const auto put = [to](auto v) { std::memcpy(to, &v, sizeof v); };
  const auto whole = static_cast<std::int64_t>(value);
  switch (dtype) {
    case Dtype::kF32:
      return put(static_cast<float>(value));
    case Dtype::kF64:
      return put(value);
    case Dtype::kBf16:
      return put(codec::reference::bf16_of_f32(static_cast<float>(value)));
    case Dtype::kF16:
      return put(codec::reference::f16_of_f32(static_cast<float>(value)));
    case Dtype::kI8:
      return put(static_cast<std::int8_t>(whole));
    case Dtype::kI16:
      return put(static_cast<std::int16_t>(whole));
    case Dtype::kI32:
      return put(static_cast<std::int32_t>(whole));
    case Dtype::kI64:
      return put(whole);
    case Dtype::kU8:
      return put(static_cast<std::uint8_t>(whole));
    case Dtype::kU16:
      return put(static_cast<std::uint16_t>(whole));
    case Dtype::kU32:
      return put(static_cast<std::uint32_t>(whole));
    case Dtype::kU64:
      return put(static_cast<std::uint64_t>(whole));
  }
}

template <typename T>
T get(const std::uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

double load(Dtype dtype, const std::uint8_t* from) {
  switch (dtype) {
    case Dtype::kF32:
      return get<float>(from);
    case Dtype::kF64:
      return get<double>(from);
    case Dtype::kBf16:
      return codec::reference::f32_of_bf16(get<std::uint16_t>(from));
    case Dtype::kF16:
      return codec::reference::f32_of_f16(get<std::uint16_t>(from));
    case Dtype::kI8:
      return get<std::int8_t>(from);
    case Dtype::kI16:
      return get<std::int16_t>(from);
    case Dtype::kI32:
      return get<std::int32_t>(from);
    case Dtype::kI64:
      return static_cast<double>(get<std::int64_t>(from));
    case Dtype::kU8:
      return get<std::uint8_t>(from);
    case Dtype::kU16:
      return get<std::uint16_t>(from);
    case Dtype::kU32:
      return get<std::uint32_t>(from);
    case Dtype::kU64:
      return static_cast<double>(get<std::uint64_t>(from));
  }
  return 0;
}

struct Cell {
  Op op = Op::kSum;
  Dtype dtype = Dtype::kF32;
  CodecId codec = CodecId::kNone;
  std::string plan;
  bool in_place = false;
};

std::string text_of(const Cell& cell, std::size_t world, std::size_t count) {
  return cat(name_of(cell.op), " ", name_of(cell.dtype), " ", name_of(cell.codec), " plan '",
             cell.plan, "' world ", world, " count ", count, cell.in_place ? " in place" : "");
}

// Peer p's element k: small, so that sums are exact in every dtype; with a lossy codec, fractions.
double value_at(const Cell& cell, std::size_t peer, std::size_t k) {
  base::Rng rng(peer * 7919 + k * 31 + static_cast<std::size_t>(cell.dtype));
  if (cell.op == Op::kProd) {
    const double v = static_cast<double>(1 + rng.below(2));
    return is_unsigned(cell.dtype) || rng.chance(0.5) ? v : -v;
  }
  const double v = is_unsigned(cell.dtype) ? static_cast<double>(rng.below(9))
                                           : static_cast<double>(rng.below(17)) - 8;
  return cell.codec == CodecId::kNone ? v : v / 7;
}

Bytes input_of(const Cell& cell, std::size_t peer, std::size_t count) {
  const std::size_t size = codec::size_of(cell.dtype);
  Bytes bytes(count * size);
  for (std::size_t k = 0; k < count; ++k) {
    store(cell.dtype, value_at(cell, peer, k), bytes.data() + k * size);
  }
  return bytes;
}

double expected_at(const Cell& cell, std::size_t world, std::size_t k) {
  double total = value_at(cell, 0, k);
  for (std::size_t p = 1; p < world; ++p) {
    const double v = value_at(cell, p, k);
    if (cell.op == Op::kMin) total = std::min(total, v);
    if (cell.op == Op::kMax) total = std::max(total, v);
    if (cell.op == Op::kProd) total *= v;
    if (cell.op == Op::kSum || cell.op == Op::kMean) total += v;
  }
  if (cell.op != Op::kMean) return total;
  total /= static_cast<double>(world);
  return codec::is_float(cell.dtype) ? total : std::trunc(total);
}

// How far a result may be off: half a step per rounding, one for each contribution and one for
// the result; all values are below 8 (8/7 with a codec) in magnitude.
double bound_of(const Cell& cell, std::size_t world) {
  const double unit = cell.dtype == Dtype::kBf16  ? 0x1p-8
                      : cell.dtype == Dtype::kF16 ? 0x1p-10
                      : cell.dtype == Dtype::kF32 ? 0x1p-22
                                                  : 0x1p-50;
  if (!codec::is_float(cell.dtype)) return 0;
  if (cell.codec == CodecId::kNone) return cell.op == Op::kMean ? 8 * unit : 0;
  const double w = cell.op == Op::kMean ? 1 : static_cast<double>(world);
  const double largest = 8.0 / 7;
  const double contribution = codec::reference::error_bound(cell.codec, largest, largest);
  const double sum = w * (largest + contribution);
  return 1.02 * (w * contribution + codec::reference::error_bound(cell.codec, sum, sum) +
                 2 * w * largest * unit);
}

void check_result(const Cell& cell, std::size_t world, const Bytes& out, std::size_t first,
                  std::size_t last) {
  const std::size_t size = codec::size_of(cell.dtype);
  const double bound = bound_of(cell, world);
  for (std::size_t k = first; k < last; ++k) {
    const double got = load(cell.dtype, out.data() + k * size);
    const double want = expected_at(cell, world, k);
    ASSERT_LE(std::abs(got - want), bound) << "element " << k << ": " << got << " for " << want;
  }
}

ClusterOptions small_chunks() {
  ClusterOptions options;
  options.peer.chunk_bytes = 4096;  // so that small arrays already have many chunks
  options.peer.deadline = 120 * kSecond;
  return options;
}

std::vector<std::size_t> sizes_for(std::size_t world) { return {0, 1, world - 1, 255, 257, 9001}; }

std::vector<Cell> reduce_cells() {
  std::vector<Cell> cells;
  for (Dtype dtype : kDtypes) {
    for (Op op : kOps) {
      for (CodecId codec : kCodecs) {
        if (!collective::is_supported(op, dtype, codec)) continue;
        for (const char* plan : {"direct", "exchange", "ring"}) {
          cells.push_back({op, dtype, codec, plan, cells.size() % 2 == 0});
        }
      }
    }
  }
  return cells;
}

// Every size of a cell at once, each on its own tag.
void reduce_all_sizes(Cluster& cluster, const Cell& cell) {
  const std::size_t world = cluster.size();
  const std::vector<std::size_t> sizes = sizes_for(world);
  std::vector<std::vector<Bytes>> out(world, std::vector<Bytes>(sizes.size()));
  cluster.on_all([&](std::size_t p, Communicator& comm) {
    std::vector<Bytes> in;
    std::vector<Handle> handles;
    for (std::size_t s = 0; s < sizes.size(); ++s) {
      in.push_back(input_of(cell, p, sizes[s]));
      out[p][s] = cell.in_place ? in[s] : Bytes(in[s].size(), 0xEE);
      RoundOptions o;
      o.tag = cat("size-", s);
      o.op = cell.op;
      o.codec = cell.codec;
      o.plan = cell.plan;
      Leaf leaf;
      leaf.dtype = cell.dtype;
      leaf.count = sizes[s];
      leaf.in = cell.in_place ? out[p][s].data() : in[s].data();
      leaf.out = out[p][s].data();
      auto handle = comm.start({leaf}, o);
      ASSERT_TRUE(handle.ok()) << handle.status().text;
      handles.push_back(handle.value());
    }
    for (std::size_t s = 0; s < sizes.size(); ++s) {
      const RoundResult r = comm.wait(handles[s]);
      EXPECT_TRUE(r.status.ok()) << r.status.text;
      EXPECT_EQ(r.world, world);
      EXPECT_EQ(cell.in_place ? Bytes() : in[s],
                cell.in_place ? Bytes() : input_of(cell, p, sizes[s]))
          << "the input changed";
    }
  });
  for (std::size_t s = 0; s < sizes.size(); ++s) {
    SCOPED_TRACE(text_of(cell, world, sizes[s]));
    for (std::size_t p = 1; p < world; ++p) ASSERT_EQ(out[p][s], out[0][s]) << "bits differ";
    check_result(cell, world, out[0][s], 0, sizes[s]);
  }
}

class ContractTest : public testing::TestWithParam<std::size_t> {};

TEST_P(ContractTest, all_reduce_equals_the_oracle_in_every_cell) {
  Cluster cluster(GetParam(), small_chunks());
  for (const Cell& cell : reduce_cells()) {
    reduce_all_sizes(cluster, cell);
    if (HasFatalFailure() || HasNonfatalFailure()) break;
  }
}

TEST_P(ContractTest, all_gather_puts_every_peer_into_its_slot_and_zeros_behind) {
  Cluster cluster(GetParam(), small_chunks());
  const std::size_t world = cluster.size();
  for (Dtype dtype : kDtypes) {
    for (std::size_t count : sizes_for(world)) {
      Cell cell;
      cell.dtype = dtype;
      SCOPED_TRACE(text_of(cell, world, count));
      const std::size_t bytes = count * codec::size_of(dtype);
      std::vector<Bytes> out(world, Bytes((world + 1) * bytes, 0xEE));
      std::vector<std::vector<base::PeerId>> order(world);
      std::vector<base::PeerId> ids(world);
      cluster.on_all([&](std::size_t p, Communicator& comm) {
        const Bytes in = input_of(cell, p, count);
        RoundOptions o;
        o.collective = Collective::kAllGather;
        o.slots = static_cast<std::uint32_t>(world + 1);
        Leaf leaf{dtype, count, in.data(), out[p].data(), "x", {}};
        const RoundResult r = comm.run({leaf}, o);
        EXPECT_TRUE(r.status.ok()) << r.status.text;
        order[p] = r.contributors;
        ids[p] = comm.attributes().id;
      });
      for (std::size_t p = 0; p < world; ++p) {
        ASSERT_EQ(out[p], out[0]);
        const auto slot = std::find(order[0].begin(), order[0].end(), ids[p]) - order[0].begin();
        ASSERT_LT(slot, static_cast<std::ptrdiff_t>(world));
        const Bytes in = input_of(cell, p, count);
        ASSERT_TRUE(std::equal(in.begin(), in.end(),
                               out[0].begin() + slot * static_cast<std::ptrdiff_t>(bytes)));
      }
      for (std::size_t k = world * bytes; k < out[0].size(); ++k) ASSERT_EQ(out[0][k], 0);
    }
  }
}

TEST_P(ContractTest, reduce_scatter_gives_each_element_to_exactly_one_peer) {
  Cluster cluster(GetParam(), small_chunks());
  const std::size_t world = cluster.size();
  for (const Cell& cell : {Cell{Op::kSum, Dtype::kF32, CodecId::kNone, "", false},
                           Cell{Op::kMean, Dtype::kI16, CodecId::kNone, "", false},
                           Cell{Op::kMax, Dtype::kU64, CodecId::kNone, "", false},
                           Cell{Op::kSum, Dtype::kBf16, CodecId::kInt8, "", false}}) {
    for (std::size_t count : sizes_for(world)) {
      SCOPED_TRACE(text_of(cell, world, count));
      std::vector<Bytes> out(world, Bytes(count * codec::size_of(cell.dtype), 0xEE));
      std::vector<RoundResult> results(world);
      cluster.on_all([&](std::size_t p, Communicator& comm) {
        const Bytes in = input_of(cell, p, count);
        RoundOptions o;
        o.collective = Collective::kReduceScatter;
        o.op = cell.op;
        o.codec = cell.codec;
        results[p] = comm.run({Leaf{cell.dtype, count, in.data(), out[p].data(), "x", {}}}, o);
      });
      std::vector<int> owners(count, 0);
      const std::size_t size = codec::size_of(cell.dtype);
      for (std::size_t p = 0; p < world; ++p) {
        const RoundResult& r = results[p];
        ASSERT_TRUE(r.status.ok()) << r.status.text;
        const std::size_t last = r.scatter_first + r.scatter_count;
        check_result(cell, world, out[p], r.scatter_first, last);
        for (std::size_t k = 0; k < count; ++k) {
          if (k >= r.scatter_first && k < last)
            ++owners[k];
          else
            ASSERT_EQ(out[p][k * size], 0xEE) << "written outside of its range";
        }
      }
      for (int n : owners) ASSERT_EQ(n, 1);
    }
  }
}

TEST_P(ContractTest, broadcast_gives_all_the_bytes_of_the_root) {
  Cluster cluster(GetParam(), small_chunks());
  const std::size_t world = cluster.size();
  for (Dtype dtype : kDtypes) {
    for (std::size_t count : sizes_for(world)) {
      Cell cell;
      cell.dtype = dtype;
      const std::size_t root = (static_cast<std::size_t>(dtype) + count) % world;
      SCOPED_TRACE(cat(text_of(cell, world, count), " root ", root));
      cluster.on_all([&](std::size_t p, Communicator& comm) {
        const Bytes in = input_of(cell, p, count);
        Bytes out(in.size(), 0xEE);
        RoundOptions o;
        o.collective = Collective::kBroadcast;
        o.root = p == root;
        const RoundResult r = comm.run({Leaf{dtype, count, in.data(), out.data(), "x", {}}}, o);
        EXPECT_TRUE(r.status.ok()) << r.status.text;
        EXPECT_EQ(out, input_of(cell, root, count));
        EXPECT_EQ(r.world, 1u) << "one contributes";
      });
    }
  }
}

TEST_P(ContractTest, nobody_passes_a_barrier_before_all_have_come) {
  Cluster cluster(GetParam(), small_chunks());
  std::atomic<std::size_t> arrived{0};
  for (std::size_t turn = 1; turn <= 5; ++turn) {
    cluster.on_all([&](std::size_t, Communicator& comm) {
      RoundOptions o;
      o.collective = Collective::kBarrier;
      ++arrived;
      const RoundResult r = comm.run({}, o);
      EXPECT_TRUE(r.status.ok()) << r.status.text;
      EXPECT_GE(arrived, turn * cluster.size());
    });
  }
}

INSTANTIATE_TEST_SUITE_P(worlds, ContractTest, testing::Values(1, 2, 3, 5));

TEST(ContractEdgeTest, integers_wrap_in_sums_and_means_are_exact_and_truncate_like_c) {
  Cluster cluster(3, small_chunks());
  const std::int64_t big = INT64_MAX;
  const std::vector<std::vector<std::int64_t>> wide = {
      {big, -7, 1, INT64_MIN}, {big, -4, 1, INT64_MIN}, {big - 1, 0, 0, INT64_MIN}};
  const std::vector<std::vector<std::int8_t>> narrow = {
      {127, -128, 5, -1}, {127, -128, 0, -1}, {127, -128, 0, 0}};
  cluster.on_all([&](std::size_t p, Communicator& comm) {
    for (Op op : {Op::kSum, Op::kMean}) {
      std::vector<std::int64_t> a = wide[p];
      std::vector<std::int8_t> b = narrow[p];
      RoundOptions o = sum_of("x");
      o.op = op;
      const RoundResult r = comm.run({leaf_of(a, a), leaf_of(b, b)}, o);
      ASSERT_TRUE(r.status.ok()) << r.status.text;
      if (op == Op::kMean) {
        EXPECT_EQ(a, (std::vector<std::int64_t>{big - 1, -3, 0, INT64_MIN}));
        EXPECT_EQ(b, (std::vector<std::int8_t>{127, -128, 1, 0}));
      } else {
        const auto wrapped = static_cast<std::int64_t>(3 * static_cast<std::uint64_t>(big) - 1);
        EXPECT_EQ(a, (std::vector<std::int64_t>{wrapped, -11, 2, INT64_MIN}));
        EXPECT_EQ(b, (std::vector<std::int8_t>{125, -128, 5, -2}));
      }
    }
  });
}

TEST(ContractEdgeTest, leaves_of_mixed_dtypes_travel_in_one_round) {
  Cluster cluster(3, small_chunks());
  cluster.on_all([&](std::size_t p, Communicator& comm) {
    std::vector<Bytes> in, out;
    std::vector<Leaf> leaves;
    std::vector<Cell> cells;
    for (std::size_t i = 0; i < 36; ++i) {
      Cell cell;
      cell.dtype = kDtypes[i % 12];
      cells.push_back(cell);
      in.push_back(input_of(cell, p, 1 + i * 41));
      out.emplace_back(in.back().size(), 0xEE);
    }
    for (std::size_t i = 0; i < cells.size(); ++i) {
      leaves.push_back({cells[i].dtype, 1 + i * 41, in[i].data(), out[i].data(), "", {}});
    }
    const RoundResult r = comm.run(leaves, sum_of("mixed"));
    ASSERT_TRUE(r.status.ok()) << r.status.text;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      check_result(cells[i], 3, out[i], 0, leaves[i].count);
    }
  });
}

TEST(ContractEdgeTest, two_thousand_leaves_travel_in_one_round) {
  Cluster cluster(2, small_chunks());
  cluster.on_all([&](std::size_t p, Communicator& comm) {
    std::vector<std::vector<float>> x;
    std::vector<Leaf> leaves;
    for (std::size_t i = 0; i < 2000; ++i) x.emplace_back(i % 7, static_cast<float>(i + p));
    for (auto& v : x) leaves.push_back(leaf_of(v, v));
    const RoundResult r = comm.run(leaves, sum_of("many"));
    ASSERT_TRUE(r.status.ok()) << r.status.text;
    for (std::size_t i = 0; i < 2000; ++i) {
      for (float v : x[i]) ASSERT_EQ(v, static_cast<float>(2 * i + 1));
    }
  });
}

TEST(ContractEdgeTest, a_weighted_mean_counts_each_peer_with_its_weight) {
  Cluster cluster(3, small_chunks());
  cluster.on_all([&](std::size_t p, Communicator& comm) {
    RoundOptions o = sum_of("tokens");
    o.op = Op::kMean;
    o.weight = static_cast<double>(1 << p);  // 1, 2, 4
    const SmallRound r = small_round(comm, o, static_cast<float>(7 * (p + 1)));
    EXPECT_TRUE(r.result.status.ok()) << r.result.status.text;
    EXPECT_EQ(r.value, 1.0F * 1 * 1 + 2 * 2 + 3 * 4);  // Σ w·7(p+1) / 7
  });
}

TEST(ContractEdgeTest, a_peer_of_weight_zero_gets_the_result_of_the_others) {
  Cluster cluster(3, small_chunks());
  for (const char* plan : {"direct", "exchange", "ring"}) {
    for (CodecId codec : kCodecs) {
      cluster.on_all([&](std::size_t p, Communicator& comm) {
        RoundOptions o = sum_of("spectator");
        o.plan = plan;
        o.codec = codec;
        o.weight = p == 1 ? 0.0 : 1.0;
        const SmallRound r = small_round(comm, o, p == 1 ? 1000.0F : 2.0F, 3000);
        EXPECT_TRUE(r.result.status.ok()) << r.result.status.text;
        const auto off = [&](double v) { return codec::reference::error_bound(codec, v, v); };
        EXPECT_NEAR(r.value, 4.0F, 2 * off(2) + off(5));
        EXPECT_EQ(r.result.world, 2u);
      });
    }
  }
}

}  // namespace
}  // namespace jccl::capi::test
