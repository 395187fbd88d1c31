// What peers are told when they disagree, contribute nonsense, come too few or too late, and when
// strangers send garbage.
#include <cmath>
#include <limits>

#include "base/limits.h"
#include "base/rng.h"
#include "capi/cluster_support.h"
#include "master/raw_peer.h"
#include "wire/serialize.h"

namespace jccl::capi::test {
namespace {

using Change = std::function<void(Leaf&, RoundOptions&)>;

// The last of so many peers calls what `change` makes of the others' call.
void expect_mismatch(std::size_t peers, const Change& change,
                     const std::vector<std::string>& parts) {
  Cluster cluster(peers);
  cluster.on_all([&](std::size_t p, Communicator& comm) {
    std::vector<float> x(1000, 1), out(1000, 2);
    Leaf leaf = leaf_of(x, out, "params/w");
    leaf.shape = {10, 100};
    const Leaf as_others = leaf;
    RoundOptions o = sum_of("x");
    const bool odd = p + 1 == peers;
    if (odd) change(leaf, o);
    if (odd || peers == 2) {
      const RoundResult r = comm.run({leaf}, o);
      EXPECT_EQ(r.status.code, Code::kMismatch) << r.status.text;
      for (const std::string& part : parts) {
        EXPECT_TRUE(contains(r.status.text, part)) << part << " in: " << r.status.text;
      }
      EXPECT_EQ(r.sent_bytes, 0u) << "nothing moved";
      EXPECT_EQ(x[0], 1);
      EXPECT_EQ(out, std::vector<float>(1000, 2));
    }
    const RoundResult right = comm.run({as_others}, sum_of("x"));
    EXPECT_TRUE(right.status.ok()) << right.status.text;
    EXPECT_EQ(out, std::vector<float>(1000, static_cast<float>(peers)));
  });
}

// Of two nobody can say which call is meant, so both hear it; of three the one that is alone does,
// and the others' call waits for it.
void expect_mismatch(const Change& change, const std::vector<std::string>& parts) {
  for (const std::size_t peers : {2, 3}) expect_mismatch(peers, change, parts);
}

TEST(MismatchTest, shapes_that_differ_are_listed_for_every_peer) {
  expect_mismatch([](Leaf& leaf, RoundOptions&) { leaf.shape = {100, 10}; },
                  {"params/w f32[10,100]", "params/w f32[100,10]"});
}
TEST(MismatchTest, counts_that_differ_are_listed) {
  expect_mismatch([](Leaf& leaf, RoundOptions&) { leaf.count = 999, leaf.shape = {}; },
                  {"f32[10,100]", "f32[999]"});
}
TEST(MismatchTest, dtypes_that_differ_are_listed) {
  expect_mismatch([](Leaf& leaf, RoundOptions&) { leaf.dtype = Dtype::kI32; },
                  {"f32[10,100]", "i32[10,100]"});
}
TEST(MismatchTest, codecs_that_differ_are_listed) {
  expect_mismatch([](Leaf&, RoundOptions& o) { o.codec = CodecId::kInt8; },
                  {"codec none", "codec int8"});
}
TEST(MismatchTest, ops_that_differ_are_listed) {
  expect_mismatch([](Leaf&, RoundOptions& o) { o.op = Op::kMax; }, {" sum", " max"});
}
TEST(MismatchTest, plans_that_differ_are_listed) {
  expect_mismatch([](Leaf&, RoundOptions& o) { o.plan = "ring"; }, {"plan auto", "plan ring"});
  expect_mismatch([](Leaf&, RoundOptions& o) { o.plan = "fastest"; },
                  {"plan auto", "plan fastest"});
}
TEST(MismatchTest, collectives_that_differ_are_listed) {
  expect_mismatch([](Leaf&, RoundOptions& o) { o.collective = Collective::kReduceScatter; },
                  {"all_reduce", "reduce_scatter"});
}

TEST(MismatchTest, peers_that_wait_for_each_other_in_different_tags_are_told_so) {
  Cluster cluster(2);
  std::atomic<int> told{0};
  cluster.on_all([&](std::size_t p, Communicator& comm) {
    std::vector<float> x(8, 1);
    auto handle = comm.start({leaf_of(x, x)}, sum_of(p == 0 ? "left" : "right"));
    ASSERT_TRUE(handle.ok());
    EXPECT_TRUE(eventually([&] { return contains(comm.waiting_for(), "cross wait"); }))
        << comm.waiting_for();
    const std::string text = comm.waiting_for();
    EXPECT_TRUE(contains(text, "waits in left") && contains(text, "waits in right")) << text;
    ++told;
    EXPECT_TRUE(eventually([&] { return told == 2; }));
    comm.abort();
    EXPECT_EQ(comm.wait(handle.value()).status.code, Code::kAborted);
  });
}

TEST(GuardTest, nan_is_left_out_and_its_peer_is_told_the_leaf) {
  Cluster cluster(3);
  for (const char* plan : {"direct", "exchange", "ring"}) {
    for (CodecId codec : {CodecId::kNone, CodecId::kInt8}) {
      cluster.on_all([&](std::size_t p, Communicator& comm) {
        std::vector<float> a(500, 1), b(70000, 2);
        if (p == 1) b[69999] = p % 2 ? std::nanf("") : std::numeric_limits<float>::infinity();
        RoundOptions o = sum_of("guarded");
        o.plan = plan;
        o.codec = codec;
        const RoundResult r = comm.run({leaf_of(a, a, "a"), leaf_of(b, b, "params/b")}, o);
        EXPECT_EQ(r.world, 2u);
        EXPECT_NEAR(a[0], 2, 0.05);
        EXPECT_NEAR(b[69999], 4, 0.05) << "also the guarded peer gets the others' result";
        if (p != 1) {
          EXPECT_TRUE(r.status.ok()) << r.status.text;
          return;
        }
        EXPECT_EQ(r.status.code, Code::kGuard);
        EXPECT_TRUE(contains(r.status.text, "params/b")) << r.status.text;
      });
    }
  }
}

TEST(GuardTest, without_the_guard_nan_travels_and_all_get_the_same_bits) {
  Cluster cluster(2);
  cluster.on_all([&](std::size_t p, Communicator& comm) {
    std::vector<float> x(100, 1);
    if (p == 1) x[7] = std::nanf("");
    RoundOptions o = sum_of("x");
    o.guard = false;
    EXPECT_TRUE(comm.run({leaf_of(x, x)}, o).status.ok());
    EXPECT_TRUE(std::isnan(x[7]));
    EXPECT_EQ(x[8], 2);
  });
}

TEST(GuardTest, a_round_of_nothing_but_nan_is_empty) {
  Cluster cluster(2);
  cluster.on_all([&](std::size_t, Communicator& comm) {
    const SmallRound r = [&] {
      std::vector<float> x(100, std::nanf(""));
      SmallRound s;
      s.result = comm.run({leaf_of(x, x)}, sum_of("x"));
      return s;
    }();
    EXPECT_TRUE(r.result.status.code == Code::kEmpty || r.result.status.code == Code::kGuard)
        << r.result.status.text;
    EXPECT_TRUE(contains(r.result.status.text, "NaN")) << r.result.status.text;
    EXPECT_EQ(r.result.world, 0u);
  });
}

TEST(FewTest, a_round_of_weights_zero_is_empty_and_keeps_the_input) {
  Cluster cluster(2);
  cluster.on_all([](std::size_t, Communicator& comm) {
    RoundOptions o = sum_of("x");
    o.weight = 0;
    const SmallRound r = small_round(comm, o, 7);
    EXPECT_EQ(r.result.status.code, Code::kEmpty) << r.result.status.text;
    EXPECT_EQ(r.value, 7);
  });
}

TEST(FewTest, fewer_than_min_peers_end_the_round_at_its_deadline) {
  ClusterOptions options;
  options.start_together = false;
  options.master.min_peers = 2;
  Cluster cluster(1, options);
  RoundOptions o = sum_of("x");
  o.deadline = 300 * kMillisecond;
  const SmallRound r = small_round(cluster[0], o, 7);
  EXPECT_EQ(r.result.status.code, Code::kTooFew) << r.result.status.text;
  EXPECT_EQ(r.value, 7);
}

TEST(FewTest, min_peers_that_come_in_time_are_enough) {
  ClusterOptions options;
  options.start_together = false;
  options.master.min_peers = 2;
  Cluster cluster(1, options);
  std::vector<float> x(8, 1);
  auto handle = cluster[0].start({leaf_of(x, x)}, sum_of("x"));
  ASSERT_TRUE(handle.ok());
  Communicator* late = cluster.add();
  EXPECT_TRUE(small_round(*late, sum_of("x"), 1, 8).result.status.ok());
  EXPECT_EQ(cluster[0].wait(handle.value()).world, 2u);
  EXPECT_EQ(x[0], 2);
}

TEST(DeadlineTest, its_text_names_who_was_waited_for) {
  Cluster cluster(0, [] {
    ClusterOptions options;
    options.start_together = false;
    options.master.start_peers = 3;
    return options;
  }());
  for (const char* site : {"alpha", "beta", "gamma"}) {
    ConnectOptions o = cluster.peer_options();
    o.site = site;
    cluster.add(o);
  }
  cluster.on_all([](std::size_t, Communicator& comm) {
    EXPECT_TRUE(small_round(comm, sum_of("x"), 1).result.status.ok());
  });
  cluster.on_all([](std::size_t p, Communicator& comm) {
    if (p == 1) return;  // beta does not come
    RoundOptions o = sum_of("x");
    o.deadline = 300 * kMillisecond;
    const SmallRound r = small_round(comm, o, 7);
    EXPECT_EQ(r.result.status.code, Code::kDeadline) << r.result.status.text;
    EXPECT_TRUE(contains(r.result.status.text, "beta")) << r.result.status.text;
    EXPECT_EQ(r.value, 7);
  });
  cluster.on_all([](std::size_t, Communicator& comm) {  // the tag goes on
    EXPECT_TRUE(small_round(comm, sum_of("x"), 1).result.status.ok());
  });
}

// The newest of them hears so, and the others go on. (Who is the newest is chance here.)
TEST(TogetherTest, where_too_many_contribute_one_hears_so_and_the_others_go_on) {
  Cluster cluster(3);
  std::mutex mutex;
  std::map<std::string, std::multiset<Code>> codes;
  cluster.on_all([&](std::size_t p, Communicator& comm) {
    std::vector<float> x(100, 1), out(200, 2);
    RoundOptions o;
    EXPECT_TRUE(small_round(comm, sum_of("x"), 1).result.status.ok());  // all are in the run
    const auto run = [&](const std::string& tag, const std::string& text) {
      o.tag = tag;
      const RoundResult r = comm.run({leaf_of(x, out)}, o);
      EXPECT_TRUE(r.status.ok() || contains(r.status.text, text)) << r.status.text;
      std::lock_guard lock(mutex);
      codes[tag].insert(r.status.code);
    };
    o.collective = Collective::kBroadcast;
    o.root = p < 2;
    run("two roots", "2 peers contribute to one round, at most 1 may");
    o.root = false;
    run("no root", "nobody contributes");
    o.collective = Collective::kAllGather;
    o.slots = 2;
    run("few slots", "3 peers contribute to one round, at most 2 may");
  });
  using Codes = std::multiset<Code>;
  EXPECT_EQ(codes["two roots"], (Codes{Code::kOk, Code::kOk, Code::kLimit}));
  EXPECT_EQ(codes["no root"], (Codes{Code::kEmpty, Code::kEmpty, Code::kEmpty}));
  EXPECT_EQ(codes["few slots"], (Codes{Code::kOk, Code::kOk, Code::kLimit}));
}

TEST(ConnectTest, what_can_not_be_connected_says_why) {
  Cluster cluster(0);
  const auto why = [&](const std::function<void(ConnectOptions&)>& set) {
    ConnectOptions o = cluster.peer_options();
    o.connect_timeout = 500 * kMillisecond;
    set(o);
    return Communicator::connect(o).status();
  };
  base::Status s = why([](auto& o) { o.master = "127.0.0.1:1"; });
  EXPECT_EQ(s.code, Code::kMasterLost);
  EXPECT_TRUE(contains(s.text, "127.0.0.1:1")) << s.text;
  s = why([](auto& o) { o.master = "no-such-host.invalid:29400"; });
  EXPECT_TRUE(s.code == Code::kMasterLost || s.code == Code::kAuth) << s.text;
  EXPECT_EQ(why([](auto& o) { o.master = "127.0.0.1"; }).code, Code::kInvalid);
  EXPECT_EQ(why([](auto& o) { o.master = ""; }).code, Code::kInvalid);
  EXPECT_EQ(why([](auto& o) { o.token = "jccl2.zz.0.zz"; }).code, Code::kAuth);
  s = why([](auto& o) { o.shard = 2, o.shards = 2, o.site = "eu"; });
  EXPECT_EQ(s.code, Code::kInvalid);
  EXPECT_EQ(s.text, "shard 2 of 2 does not exist; shards count from 0");
  EXPECT_EQ(why([](auto& o) { o.shards = 2; }).code, Code::kInvalid) << "no site name";
  EXPECT_EQ(why([](auto& o) { o.bind = "0.0.0.0:0"; }).code, Code::kAuth);
  EXPECT_EQ(why([](auto& o) { o.master = "192.0.2.1:29400"; }).code, Code::kAuth);
  EXPECT_EQ(why([](auto& o) { o.master += ",192.0.2.1:29400"; }).code, Code::kAuth);
  EXPECT_EQ(why([](auto& o) { o.chunk_bytes = 12; }).code, Code::kInvalid);
  EXPECT_EQ(why([](auto& o) { o.chunk_bytes = base::kChunkBytesMax + 1; }).code, Code::kInvalid);
  for (const double rate : {-1.0, 9999.0, HUGE_VAL, std::nan("")}) {
    const auto refused = why([rate](auto& o) { o.max_rate = rate; });
    EXPECT_EQ(refused.code, Code::kInvalid) << rate;
    EXPECT_TRUE(contains(refused.text, "at least 10000")) << refused.text;
  }
  for (const double day : {-1.0, 8.9e8, HUGE_VAL, std::nan("")}) {
    const auto refused = why([day](auto& o) { o.day_bytes = day; });
    EXPECT_EQ(refused.code, Code::kInvalid) << day;
    EXPECT_TRUE(contains(refused.text, "day_bytes must be")) << refused.text;
  }
  EXPECT_EQ(why([](auto& o) { o.advertise = {"nonsense"}; }).code, Code::kInvalid);
  s = why([](auto& o) { o.bind = o.master; });
  EXPECT_EQ(s.code, Code::kIo) << s.text;
  EXPECT_TRUE(why([](auto& o) { o.bind = "0.0.0.0:0", o.insecure = true; }).ok());
}

TEST(ConnectTest, a_hello_of_another_version_or_run_is_refused_in_words) {
  Cluster cluster(0);
  wire::Hello hello = master::hello_of(5);
  hello.version = hello.oldest = 99;
  master::RawPeer old(cluster.address());
  old.send(hello);
  const auto refused = old.await<wire::Refuse>();
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code, Code::kVersion);
  hello = master::hello_of(6);
  hello.run.fill(7);
  master::RawPeer stray(cluster.address());
  stray.send(hello);
  const auto other = stray.await<wire::Refuse>();
  ASSERT_TRUE(other);
  EXPECT_EQ(other->code, Code::kWrongRun);
}

// Garbage of several kinds, again and again, until told to stop.
void pester(const std::string& address, net::Purpose purpose, std::atomic<bool>& stop,
            std::uint64_t seed) {
  base::Rng rng(seed);
  std::vector<master::RawPeer> held;  // some just hang there
  while (!stop) {
    master::RawPeer peer = rng.below(2) == 0 ? master::RawPeer::stranger(address)
                                             : master::RawPeer(address, 0, rng.next(), purpose);
    base::Bytes bytes(1 + rng.below(3000));
    for (auto& b : bytes) b = static_cast<std::uint8_t>(rng.next());
    switch (rng.below(5)) {
      case 0:
        peer.send_bytes(bytes);
        break;
      case 1:
        peer.send_frame(bytes);  // well framed, nonsense inside
        break;
      case 2: {
        wire::LinkHello hello;
        hello.from = rng.next();
        hello.to = rng.next();
        peer.send_frame(wire::encode(hello));
        break;
      }
      case 3: {
        base::Writer huge;
        huge.u32(0xFFFFFFF0);
        peer.send_bytes(huge.take());
        break;
      }
      default:
        peer.send_bytes({22, 3, 1, 0, 200});  // the beginning of a TLS hello
        break;
    }
    if (held.size() < 40) held.push_back(std::move(peer));
  }
}

TEST(StrangersTest, garbage_to_the_ports_of_master_and_peers_has_no_effect_on_rounds) {
  Cluster cluster(3);
  std::atomic<bool> stop{false};
  std::vector<std::thread> strangers;
  strangers.emplace_back([&] { pester(cluster.address(), net::Purpose::kControl, stop, 1); });
  for (std::size_t p = 0; p < 2; ++p) {
    strangers.emplace_back(
        [&, p] { pester(cluster[p].attributes().listen, net::Purpose::kLink, stop, 2 + p); });
  }
  cluster.on_all([](std::size_t, Communicator& comm) {
    for (int i = 0; i < 60; ++i) {
      const SmallRound r = small_round(comm, sum_of("x"), 1, 30000);
      ASSERT_TRUE(r.result.status.ok()) << r.result.status.text;
      EXPECT_EQ(r.value, 3);
      EXPECT_EQ(r.result.attempts, 1u);
    }
  });
  stop = true;
  for (std::thread& stranger : strangers) stranger.join();
}

}  // namespace
}  // namespace jccl::capi::test
