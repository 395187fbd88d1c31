// No call outlives its deadline, by whatever door it came in and whatever it waits for.
#include <gtest/gtest.h>

#include "capi/cluster_support.h"
#include "capi/in_time.h"
#include "jccl/jccl.h"
#include "peer/streamed_input.h"

namespace jccl::capi::test {
namespace {

constexpr Collective kCollectives[] = {Collective::kAllReduce,     Collective::kAllGather,
                                       Collective::kReduceScatter, Collective::kBroadcast,
                                       Collective::kBarrier,       Collective::kAllToAll};

bool waited_in_vain(Code code) { return code == Code::kDeadline || code == Code::kTooFew; }
bool waited_in_vain(std::int32_t code) { return waited_in_vain(static_cast<Code>(code)); }

RoundOptions wish_of(Collective collective, Duration deadline) {
  RoundOptions o;
  o.tag = cat("alone ", static_cast<int>(collective));
  o.collective = collective;
  o.slots = collective::spec_of(collective).has_slots() ? 2 : 0;
  o.deadline = deadline;
  return o;
}

class EndsInTimeTest : public testing::Test {
 protected:
  // A call of the first peer's, which the other never makes.
  Duration alone(const RoundOptions& options, bool starts) {
    std::vector<float> x(8, 1), out(16, 0);
    std::vector<Leaf> leaves{leaf_of(x, out)};
    if (options.collective == Collective::kBarrier) leaves.clear();
    const Duration begun = steady_now();
    RoundResult result;
    if (starts) {
      const auto handle = cluster_[0].start(leaves, options);
      EXPECT_TRUE(handle.ok()) << handle.status().text;
      result = cluster_[0].wait(handle.value());
    } else {
      result = cluster_[0].run(leaves, options);
    }
    EXPECT_TRUE(waited_in_vain(result.status.code)) << result.status.text;
    return steady_now() - begun;
  }
  void meet() {  // both are members
    cluster_.on_all([](std::size_t, Communicator& comm) {
      EXPECT_TRUE(small_round(comm, sum_of("meet"), 1).result.status.ok());
    });
  }

  Cluster cluster_{2};
};

// Whatever the load, which delays some calls and not all.
TEST(InTimeTest, what_is_late_each_time_is_seen) {
  for (const Duration late : {1200 * kMillisecond, 3 * kSecond}) {
    EXPECT_FALSE(ends_in_time([&](Duration deadline) { return deadline + late; }));
  }
  std::vector<Duration> took{3 * kSecond, 2 * kSecond, kSecond / 2};
  EXPECT_TRUE(ends_in_time([&, k = 0](Duration) mutable { return took[std::size_t(k++)]; }));
  EXPECT_FALSE(ends_in_time([](Duration deadline) { return deadline / 3; }));
}

// It keeps an eighth of a call for that, so that its reason is what the call ends with.
TEST_F(EndsInTimeTest, the_master_ends_it_a_little_before) {
  meet();
  constexpr Duration kDeadline = 2 * kSecond;
  Duration best = base::kNever;
  for (int tries = 0; tries < 8 && best > kDeadline - kDeadline / 16; ++tries) {
    best = std::min(best, alone(wish_of(Collective::kAllReduce, kDeadline), false));
  }
  EXPECT_LE(best, kDeadline - kDeadline / 16);
}

TEST_F(EndsInTimeTest, a_round_that_another_never_enters_ends_by_it) {
  meet();
  for (const Collective collective : kCollectives) {
    for (const bool starts : {false, true}) {
      EXPECT_TRUE(ends_in_time([&](Duration d) { return alone(wish_of(collective, d), starts); }))
          << "collective " << static_cast<int>(collective) << (starts ? ", started" : "");
    }
  }
}

// By the peer's own clock: nobody else ends anything.
TEST_F(EndsInTimeTest, calls_without_a_master_end_by_it) {
  meet();
  std::vector<float> state(8, 1);
  SyncOptions sync;
  cluster_.on_all([](std::size_t, Communicator& comm) {
    std::vector<float> own(8, 1);
    SyncOptions wish;
    wish.tag = "published";
    EXPECT_TRUE(comm.sync_state({leaf_of(own, own)}, wish).status.ok());
  });
  cluster_.stop_master();
  EXPECT_TRUE(
      ends_in_time([&](Duration d) { return alone(wish_of(Collective::kAllReduce, d), false); }));
  EXPECT_TRUE(ends_in_time([&](Duration d) {
    sync.tag = "never", sync.deadline = d;
    const Duration begun = steady_now();
    EXPECT_EQ(cluster_[0].sync_state({leaf_of(state, state)}, sync).status.code, Code::kDeadline);
    return steady_now() - begun;
  })) << "sync_state";
  EXPECT_TRUE(ends_in_time([&](Duration d) {
    sync.tag = "published", sync.deadline = d;
    std::vector<float> edited(8, 2);
    sync.before = peer::marks_of({leaf_of(edited, edited)});  // so it asks for the newest
    const Duration begun = steady_now();
    EXPECT_EQ(cluster_[0].publish({leaf_of(state, state)}, sync).status.code, Code::kDeadline);
    return steady_now() - begun;
  })) << "publish";
}

// The other's input never comes, and the master is gone: nobody knows how the round ends.
TEST(EndsInTimeInDoubtTest, a_round_that_has_begun_ends_by_it_in_doubt) {
  EXPECT_TRUE(ends_in_time([](Duration deadline) {
    Cluster cluster(2);
    cluster.on_all([](std::size_t, Communicator& comm) {
      EXPECT_TRUE(small_round(comm, sum_of("meet"), 1).result.status.ok());
    });
    std::vector<float> x(1000, 1), y(1000, 1), out(1000, 0), other_out(1000, 0);
    RoundOptions o = sum_of("doubt");
    RoundOptions late = o;
    late.feed = std::make_shared<peer::StreamedInput>(y.size() * sizeof(float));
    const auto other = cluster[1].start({leaf_of(y, other_out)}, late);
    EXPECT_TRUE(other.ok()) << other.status().text;
    o.deadline = deadline;
    const Duration begun = steady_now();
    const auto handle = cluster[0].start({leaf_of(x, out)}, o);
    EXPECT_TRUE(handle.ok()) << handle.status().text;
    EXPECT_TRUE(eventually([&] {
      return cluster[0].finished(handle.value()) || cluster[0].attributes().sent_bytes > 4000;
    }));
    cluster.stop_master();
    const RoundResult result = cluster[0].wait(handle.value());
    const Duration took = steady_now() - begun;
    EXPECT_TRUE(result.status.code == Code::kInDoubt || result.status.code == Code::kDeadline)
        << result.status.text;
    return took;
  }));
}

// ---- the C API ---------------------------------------------------------------------------------

struct CPeer {
  jccl_comm* comm = nullptr;
  explicit CPeer(const std::string& address, Duration deadline = 0) {
    jccl_options options = JCCL_OPTIONS_INIT;
    options.master = address.c_str();
    options.deadline_ns = deadline;
    EXPECT_EQ(jccl_connect(&options, &comm), JCCL_OK) << jccl_last_error();
  }
  ~CPeer() { jccl_free(comm); }
};

jccl_array c_array(std::vector<float>& values) {
  jccl_array array{};
  array.dtype = JCCL_F32;
  array.in = values.data();
  array.out = values.data();
  array.count = values.size();
  return array;
}

class CEndsInTimeTest : public testing::Test {
 protected:
  CEndsInTimeTest() : cluster_(0, options()) {}
  static ClusterOptions options() {
    ClusterOptions options;
    options.master.start_peers = 2;  // one peer waits for ever
    options.start_together = false;
    return options;
  }
  Cluster cluster_;
};

TEST_F(CEndsInTimeTest, each_call_ends_by_its_deadline_ns) {
  CPeer peer(cluster_.address());
  std::vector<float> values(8, 1);
  const jccl_array array = c_array(values);
  jccl_round_options options = JCCL_ROUND_OPTIONS_INIT;
  options.root = 1;
  const auto timed = [&](auto call) {
    return ends_in_time([&](Duration deadline) {
      options.deadline_ns = deadline;
      const Duration begun = steady_now();
      const std::int32_t code = call();
      EXPECT_TRUE(waited_in_vain(code)) << jccl_last_error();
      return steady_now() - begun;
    });
  };
  EXPECT_TRUE(timed([&] { return jccl_all_reduce(peer.comm, &array, 1, &options, nullptr); }));
  EXPECT_TRUE(timed([&] { return jccl_broadcast(peer.comm, &array, 1, &options, nullptr); }));
  EXPECT_TRUE(timed([&] { return jccl_barrier(peer.comm, &options, nullptr); }));
  EXPECT_TRUE(timed([&] {
    jccl_handle handle = 0;
    EXPECT_EQ(jccl_start(peer.comm, JCCL_ALL_REDUCE, &array, 1, &options, &handle), JCCL_OK);
    return jccl_wait(peer.comm, handle, nullptr);
  }));
}

TEST_F(CEndsInTimeTest, a_synchronisation_ends_by_its_deadline_ns) {
  CPeer peer(cluster_.address());
  std::vector<float> values(8, 1);
  const jccl_array array = c_array(values);
  EXPECT_TRUE(ends_in_time([&](Duration deadline) {
    jccl_sync_options options = JCCL_SYNC_OPTIONS_INIT;
    options.deadline_ns = deadline;
    const Duration begun = steady_now();
    EXPECT_TRUE(waited_in_vain(jccl_sync_state(peer.comm, &array, 1, &options, nullptr)))
        << jccl_last_error();
    return steady_now() - begun;
  }));
}

TEST_F(CEndsInTimeTest, calls_that_name_none_end_by_the_communicators) {
  EXPECT_TRUE(ends_in_time([&](Duration deadline) {
    CPeer peer(cluster_.address(), deadline);
    const Duration begun = steady_now();
    EXPECT_TRUE(waited_in_vain(jccl_barrier(peer.comm, nullptr, nullptr))) << jccl_last_error();
    return steady_now() - begun;
  }));
}

TEST_F(CEndsInTimeTest, connecting_ends_by_its_timeout) {
  EXPECT_TRUE(ends_in_time([](Duration deadline) {
    jccl_options options = JCCL_OPTIONS_INIT;
    options.master = "127.0.0.1:1";
    options.connect_timeout_ns = deadline;
    jccl_comm* comm = nullptr;
    const Duration begun = steady_now();
    EXPECT_EQ(jccl_connect(&options, &comm), JCCL_MASTER_LOST) << jccl_last_error();
    return steady_now() - begun;
  }));
}

}  // namespace
}  // namespace jccl::capi::test
