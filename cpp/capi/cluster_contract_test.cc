// What every collective promises, cell by cell: collective × op × dtype × codec × plan × world ×
// size, bit for bit.
#include "capi/cluster_contract_test.h"

namespace jccl::capi::test {
namespace {

using namespace contract;  // NOLINT: the oracle of these tests

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
          if (codec::is_sparse(codec) && plan == std::string("ring")) continue;
          cells.push_back({op, dtype, codec, plan, cells.size() % 2 == 0});
          cells.back().weighted = is_weighted(cells.back());
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
  std::vector<RoundResult> last(world);
  std::vector<base::PeerId> ids(world);
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
      o.weight = weight_of(cell, p);
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
      last[p] = r;
    }
    ids[p] = comm.attributes().id;
  });
  const std::vector<std::size_t> peers = in_order(last[0], ids);
  for (std::size_t s = 0; s < sizes.size(); ++s) {
    SCOPED_TRACE(text_of(cell, world, sizes[s]));
    for (std::size_t p = 1; p < world; ++p) ASSERT_EQ(out[p][s], out[0][s]) << "bits differ";
    check_result(cell, peers, out[0][s], 0, sizes[s]);
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

TEST_P(ContractTest, all_to_all_puts_the_block_of_each_into_its_slot_and_zeros_behind) {
  Cluster cluster(GetParam(), small_chunks());
  const std::size_t world = cluster.size(), slots = world + 1;
  for (Dtype dtype : kDtypes) {
    for (std::size_t count : sizes_for(world)) {
      Cell cell;
      cell.dtype = dtype;
      SCOPED_TRACE(text_of(cell, world, count));
      const std::size_t bytes = count * codec::size_of(dtype);
      std::vector<Bytes> in(world), out(world, Bytes(slots * bytes, 0xEE));
      std::vector<RoundResult> results(world);
      std::vector<base::PeerId> ids(world);
      cluster.on_all([&](std::size_t p, Communicator& comm) {
        in[p] = input_of(cell, p, count * slots);
        RoundOptions o;
        o.collective = Collective::kAllToAll;
        o.slots = static_cast<std::uint32_t>(slots);
        results[p] =
            comm.run({Leaf{dtype, count * slots, in[p].data(), out[p].data(), "x", {}}}, o);
        ids[p] = comm.attributes().id;
      });
      const auto order = in_order(results[0], ids);  // who is in which slot
      ASSERT_EQ(order.size(), world);
      for (std::size_t slot = 0; slot < world; ++slot) {
        const std::size_t p = order[slot];
        ASSERT_TRUE(results[p].status.ok()) << results[p].status.text;
        EXPECT_EQ(results[p].scatter_first, slot);
        EXPECT_EQ(results[p].scatter_count, world);
        EXPECT_LE(results[p].sent_bytes, (world - 1) * bytes);
        const auto block = [&](const Bytes& of, std::size_t i) {
          const auto at = of.begin() + static_cast<std::ptrdiff_t>(i * bytes);
          return Bytes(at, at + static_cast<std::ptrdiff_t>(bytes));
        };
        for (std::size_t from = 0; from < world; ++from) {
          ASSERT_EQ(block(out[p], from), block(in[order[from]], slot)) << slot << " of " << from;
        }
        ASSERT_EQ(block(out[p], world), Bytes(bytes, 0));
      }
    }
  }
}

TEST_P(ContractTest, reduce_scatter_gives_each_element_to_exactly_one_peer) {
  Cluster cluster(GetParam(), small_chunks());
  const std::size_t world = cluster.size();
  for (const Cell& cell : {Cell{Op::kSum, Dtype::kF32, CodecId::kNone, "", false, true},
                           Cell{Op::kMean, Dtype::kI16, CodecId::kNone, "", false},
                           Cell{Op::kMax, Dtype::kU64, CodecId::kNone, "", false},
                           Cell{Op::kMean, Dtype::kF32, CodecId::kStat2, "", false, true},
                           Cell{Op::kSum, Dtype::kBf16, CodecId::kInt8, "", false, true}}) {
    for (std::size_t count : sizes_for(world)) {
      SCOPED_TRACE(text_of(cell, world, count));
      std::vector<Bytes> out(world, Bytes(count * codec::size_of(cell.dtype), 0xEE));
      std::vector<RoundResult> results(world);
      std::vector<base::PeerId> ids(world);
      cluster.on_all([&](std::size_t p, Communicator& comm) {
        const Bytes in = input_of(cell, p, count);
        RoundOptions o;
        o.collective = Collective::kReduceScatter;
        o.op = cell.op;
        o.codec = cell.codec;
        o.weight = weight_of(cell, p);
        results[p] = comm.run({Leaf{cell.dtype, count, in.data(), out[p].data(), "x", {}}}, o);
        ids[p] = comm.attributes().id;
      });
      std::vector<int> owners(count, 0);
      const std::size_t size = codec::size_of(cell.dtype);
      for (std::size_t p = 0; p < world; ++p) {
        const RoundResult& r = results[p];
        ASSERT_TRUE(r.status.ok()) << r.status.text;
        const std::size_t last = r.scatter_first + r.scatter_count;
        check_result(cell, in_order(r, ids), out[p], r.scatter_first, last);
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
      check_result(cells[i], first_peers(3), out[i], 0, leaves[i].count);
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

// What the master takes depends on the machine; that all have the same right bits does not.
TEST(ContractEdgeTest, the_fastest_plan_gives_all_peers_the_same_bits_under_every_codec) {
  Cluster cluster(4, small_chunks());
  for (const std::size_t count : {3, 70'001}) {
    for (const CodecId codec : kCodecs) {
      const Cell cell{Op::kMean, Dtype::kF32, codec, "fastest", true, true};
      SCOPED_TRACE(text_of(cell, 4, count));
      std::vector<Bytes> out(4);
      std::vector<RoundResult> results(4);
      std::vector<base::PeerId> ids(4);
      cluster.on_all([&](std::size_t p, Communicator& comm) {
        out[p] = input_of(cell, p, count);
        RoundOptions o = sum_of("fastest");
        o.op = cell.op;
        o.plan = cell.plan;
        o.codec = codec;
        o.weight = weight_of(cell, p);
        results[p] = comm.run({Leaf{cell.dtype, count, out[p].data(), out[p].data(), "x", {}}}, o);
        ids[p] = comm.attributes().id;
      });
      for (std::size_t p = 0; p < 4; ++p) {
        ASSERT_TRUE(results[p].status.ok()) << results[p].status.text;
        ASSERT_EQ(out[p], out[0]) << "bits differ";
      }
      EXPECT_EQ(results[0].contributors.size(), 4U);
      const auto peers = in_order(results[0], ids);
      Cell taken = cell;
      if (is_of_ring(cell, peers, out[0])) taken.plan = "ring";
      check_result(taken, peers, out[0], 0, count);
    }
  }
}

TEST(ContractEdgeTest, a_peer_of_weight_zero_gets_the_result_of_the_others) {
  Cluster cluster(3, small_chunks());
  constexpr std::size_t kCount = 3001;
  for (const char* plan : {"direct", "exchange", "ring"}) {
    for (CodecId codec : kCodecs) {
      if (codec::is_sparse(codec) && plan == std::string("ring")) continue;
      const Cell cell{Op::kMean, Dtype::kF32, codec, plan, true, true};
      SCOPED_TRACE(text_of(cell, 3, kCount));
      std::vector<Bytes> out(3);
      std::vector<RoundResult> results(3);
      std::vector<base::PeerId> ids(3);
      cluster.on_all([&](std::size_t p, Communicator& comm) {
        out[p] = input_of(cell, p, kCount);
        RoundOptions o = sum_of("spectator");
        o.op = cell.op;
        o.plan = plan;
        o.codec = codec;
        o.weight = p == 1 ? 0.0 : weight_of(cell, p);
        results[p] = comm.run({Leaf{cell.dtype, kCount, out[p].data(), out[p].data(), "x", {}}}, o);
        ids[p] = comm.attributes().id;
      });
      for (std::size_t p = 0; p < 3; ++p) {
        ASSERT_TRUE(results[p].status.ok()) << results[p].status.text;
        EXPECT_EQ(results[p].world, 2u);
        check_result(cell, in_order(results[p], ids), out[p], 0, kCount);
      }
    }
  }
}

}  // namespace
}  // namespace jccl::capi::test
