// What a call that fails leaves in its outputs, for every way to fail that a cluster can be brought
// to, every collective, and every route: in place, apart, staged, and private.
#include "capi/cluster_support.h"

namespace jccl::capi::test {
namespace {

constexpr std::size_t kOutputElements = 3000;
constexpr std::size_t kOutSlots = 3;
constexpr float kWasThere = -7, kInputs = 5;

enum class OutRoute { kApart, kInPlace, kStaged, kStagedInput, kPrivate };
constexpr OutRoute kOutRoutes[] = {OutRoute::kApart, OutRoute::kInPlace, OutRoute::kStaged,
                                   OutRoute::kStagedInput, OutRoute::kPrivate};
constexpr Collective kOutCollectives[] = {Collective::kAllReduce, Collective::kAllGather,
                                          Collective::kReduceScatter, Collective::kBroadcast,
                                          Collective::kAllToAll};

// One call and its memory.
class Failing {
 public:
  Failing(OutRoute route, Collective collective, const RoundOptions& options)
      : route_(route), options_(options), in_(kOutputElements, kInputs) {
    options_.collective = collective;
    options_.out_private = route == OutRoute::kPrivate;
    options_.root = options_.root || collective != Collective::kBroadcast;
    const std::size_t each = collective == Collective::kAllGather ? kOutSlots : 1;
    const bool slots = each > 1 || collective == Collective::kAllToAll;
    options_.slots = slots ? kOutSlots : 0;
    out_.assign(kOutputElements * each, kWasThere);
    in_place_ = route == OutRoute::kInPlace && each == 1;
  }

  RoundOptions& options() { return options_; }
  Leaf leaf() {
    Leaf leaf = leaf_of(in_, out_, "params/w");
    if (in_place_) leaf.out = in_.data();
    return leaf;
  }
  base::Result<Handle> start(Communicator& comm) {
    const bool staged = route_ == OutRoute::kStaged || route_ == OutRoute::kStagedInput;
    return comm.start({leaf()}, options_, staged);
  }
  RoundResult wait(Communicator& comm, Handle handle) {
    const std::vector<void*> outs{out_.data()};
    if (route_ == OutRoute::kStaged) return comm.wait(handle, &outs);
    if (route_ == OutRoute::kStagedInput) return comm.wait(handle, &outs, peer::OnFailure::kInput);
    return comm.wait(handle);
  }
  RoundResult run(Communicator& comm) {
    RoundResult r;
    const auto handle = start(comm);
    r.status = handle.status();
    return handle.ok() ? wait(comm, handle.value()) : r;
  }
  void expect_untouched() {
    EXPECT_EQ(in_, std::vector<float>(kOutputElements, kInputs)) << what();
    const bool gather = options_.collective == Collective::kAllGather;
    if (route_ == OutRoute::kPrivate && gather) return;  // anything
    const bool input =
        !gather && (route_ == OutRoute::kPrivate || route_ == OutRoute::kStagedInput);
    EXPECT_EQ(out_, std::vector<float>(out_.size(), input ? kInputs : kWasThere)) << what();
  }
  std::string what() const {
    return cat("route ", static_cast<int>(route_), ", collective ",
               static_cast<int>(options_.collective));
  }

 private:
  OutRoute route_;
  RoundOptions options_;
  std::vector<float> in_, out_;
  bool in_place_ = false;
};

RoundOptions means() {
  RoundOptions o = sum_of("outputs");
  o.op = Op::kMean;
  return o;
}

void each_cell(const std::function<void(OutRoute, Collective)>& cell) {
  for (const Collective collective : kOutCollectives) {
    for (const OutRoute route : kOutRoutes) cell(route, collective);
  }
}

TEST(OutputsTest, a_mismatch_leaves_them_as_they_were) {
  Cluster cluster(2);
  cluster.on_all([](std::size_t p, Communicator& comm) {
    each_cell([&](OutRoute route, Collective collective) {
      Failing call(route, collective, means());
      if (p == 1) call.options().codec = CodecId::kBf16;
      const RoundResult r = call.run(comm);
      EXPECT_EQ(r.status.code, Code::kMismatch) << r.status.text;
      call.expect_untouched();
    });
  });
}

TEST(OutputsTest, an_empty_round_leaves_them_as_they_were) {
  Cluster cluster(2);
  cluster.on_all([](std::size_t, Communicator& comm) {
    each_cell([&](OutRoute route, Collective collective) {
      Failing call(route, collective, means());
      call.options().weight = 0;
      call.options().root = false;
      const RoundResult r = call.run(comm);
      EXPECT_EQ(r.status.code, Code::kEmpty) << r.status.text;
      call.expect_untouched();
    });
  });
}

// More contribute than may: whose call ends hears so, and the others' go on.
TEST(OutputsTest, a_round_that_no_attempt_can_make_leaves_them_as_they_were) {
  constexpr std::size_t kPeers = 4;
  Cluster cluster(kPeers);
  std::atomic<std::size_t> refused{0}, expected{0};
  cluster.on_all([&](std::size_t p, Communicator& comm) {
    EXPECT_TRUE(small_round(comm, sum_of("outputs"), 1).result.status.ok());  // all are in the run
    for (const Collective collective :
         {Collective::kBroadcast, Collective::kAllGather, Collective::kAllToAll}) {
      for (const OutRoute route : kOutRoutes) {
        Failing call(route, collective, means());
        call.options().root = true;
        const bool one = collective == Collective::kBroadcast;
        if (p == 0) expected += kPeers - (one ? 1 : call.options().slots);
        const RoundResult r = call.run(comm);
        if (r.status.ok()) continue;
        EXPECT_EQ(r.status.code, Code::kLimit) << r.status.text;
        call.expect_untouched();
        ++refused;
      }
    }
  });
  EXPECT_EQ(refused, expected);
}

TEST(OutputsTest, a_deadline_too_few_peers_and_a_call_on_a_busy_tag_leave_them_as_they_were) {
  ClusterOptions options;
  options.start_together = false;
  options.master.min_peers = 2;
  Cluster few(1, options);
  Cluster late(2);  // of whom one does not come
  late.on_all([](std::size_t, Communicator& comm) {
    EXPECT_TRUE(small_round(comm, sum_of("outputs"), 1).result.status.ok());
  });
  each_cell([&](OutRoute route, Collective collective) {
    for (Cluster* cluster : {&few, &late}) {
      Failing call(route, collective, means());
      call.options().deadline = 50 * kMillisecond;
      const auto handle = call.start((*cluster)[0]);
      ASSERT_TRUE(handle.ok()) << handle.status().text;
      Failing second(route, collective, means());
      EXPECT_EQ(second.run((*cluster)[0]).status.code, Code::kBusyTag);
      const RoundResult r = call.wait((*cluster)[0], handle.value());
      // The master's word, that they are too few, may come after the peer's own clock.
      const bool told = cluster == &few && r.status.code == Code::kTooFew;
      EXPECT_TRUE(told || r.status.code == Code::kDeadline) << r.status.text;
      call.expect_untouched();
    }
  });
}

TEST(OutputsTest, an_abort_leaves_them_as_they_were) {
  ClusterOptions options;
  options.start_together = false;
  options.master.start_peers = 2;
  Cluster cluster(1, options);
  each_cell([&](OutRoute route, Collective collective) {
    Failing call(route, collective, means());
    const auto handle = call.start(cluster[0]);
    ASSERT_TRUE(handle.ok()) << handle.status().text;
    cluster[0].abort();
    const RoundResult r = call.wait(cluster[0], handle.value());
    EXPECT_EQ(r.status.code, Code::kAborted) << r.status.text;
    call.expect_untouched();
  });
}

// Data have moved, and may lie where nobody looks yet.
TEST(OutputsTest, a_round_in_doubt_leaves_them_as_they_were) {
  Cluster cluster(2);
  each_cell([&](OutRoute route, Collective collective) {
    if (collective == Collective::kBroadcast) return;  // of one value: nobody is waited for
    const base::Tag tag = cat("doubt ", static_cast<int>(route), static_cast<int>(collective));
    RoundOptions o = means();
    o.tag = tag;
    o.codec = CodecId::kNone;
    Failing call(route, collective, o);
    call.options().deadline = 300 * kMillisecond;
    const auto handle = call.start(cluster[0]);
    ASSERT_TRUE(handle.ok()) << handle.status().text;
    // The other one's input never comes.
    std::vector<float> in(kOutputElements, 1), out(kOutputElements * kOutSlots, 0);
    o.collective = collective;
    o.slots = collective::spec_of(collective).has_slots() ? kOutSlots : 0;
    o.deadline = 60 * kSecond;
    o.feed = std::make_shared<peer::StreamedInput>(kOutputElements * sizeof(float));
    const auto other = cluster[1].start({leaf_of(in, out, "params/w")}, o);
    ASSERT_TRUE(other.ok()) << other.status().text;
    const RoundResult r = call.wait(cluster[0], handle.value());
    EXPECT_TRUE(r.status.code == Code::kInDoubt || r.status.code == Code::kDeadline)
        << r.status.text;
    call.expect_untouched();
    cluster[1].abort();
    (void)cluster[1].wait(other.value());
    cluster[1].abort();
  });
}

TEST(OutputsTest, a_close_and_a_lost_master_leave_them_as_they_were) {
  for (const bool closes : {true, false}) {
    each_cell([&](OutRoute route, Collective collective) {
      ClusterOptions options;
      options.start_together = false;
      options.master.start_peers = 2;
      options.peer.master_grace = 20 * kMillisecond;
      Cluster cluster(1, options);
      Failing call(route, collective, means());
      const auto handle = call.start(cluster[0]);
      ASSERT_TRUE(handle.ok()) << handle.status().text;
      RoundResult r;
      std::thread waiting([&] { r = call.wait(cluster[0], handle.value()); });
      if (closes) {
        EXPECT_TRUE(eventually([&] { return !cluster[0].waiting_for().empty(); }));
        cluster[0].close();
      } else {
        cluster.stop_master();
      }
      waiting.join();
      EXPECT_EQ(r.status.code, closes ? Code::kClosed : Code::kMasterLost) << r.status.text;
      call.expect_untouched();
    });
  }
}

TEST(OutputsTest, a_peer_whose_state_is_behind_leaves_them_as_they_were) {
  Cluster cluster(1);
  std::vector<float> state(10, 1);
  SyncOptions sync;
  sync.tag = "outputs";
  ASSERT_TRUE(cluster[0].sync_state({leaf_of(state, state)}, sync).status.ok());
  RoundOptions of_state = means();
  of_state.state = peer::marks_of({leaf_of(state, state)});
  ASSERT_TRUE(small_round(cluster[0], of_state, 1).result.status.ok());  // and nothing published
  each_cell([&](OutRoute route, Collective collective) {
    Failing call(route, collective, of_state);
    const RoundResult r = call.run(cluster[0]);
    EXPECT_EQ(r.status.code, Code::kResync) << r.status.text;
    call.expect_untouched();
  });
}

}  // namespace
}  // namespace jccl::capi::test
