// Who is in a run and who is not: sites of several shards, joining, leaving, hanging, coming back,
// and a master that goes and comes.
#include <spawn.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>

#include "capi/cluster_support.h"

extern char** environ;

namespace jccl::capi::test {
namespace {

ConnectOptions shard_of(const Cluster& cluster, const std::string& site, std::uint32_t shard,
                        std::uint32_t shards) {
  ConnectOptions o = cluster.peer_options();
  o.site = site;
  o.shard = shard;
  o.shards = shards;
  return o;
}

ClusterOptions of_sites(std::uint32_t start_peers) {
  ClusterOptions options;
  options.start_together = false;
  options.master.start_peers = start_peers;
  return options;
}

// A peer in a process of its own, to be stopped and killed.
struct Child {
  pid_t pid = 0;
  std::string log;
  explicit Child(const std::string& master, const std::vector<std::string>& more = {}) {
    std::string pattern = (std::filesystem::temp_directory_path() / "jccl-child-XXXXXX").string();
    const int fd = ::mkstemp(pattern.data());
    if (fd >= 0) ::close(fd);
    log = pattern;
    std::vector<std::string> words = {JCCL_STRESS_PEER, "--master", master, "--log", log,
                                      "--elements",     "64"};
    words.insert(words.end(), more.begin(), more.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    EXPECT_EQ(::posix_spawn(&pid, JCCL_STRESS_PEER, nullptr, nullptr, argv.data(), environ), 0);
  }
  ~Child() {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    std::filesystem::remove(log);
  }
};

// ---- sites -------------------------------------------------------------------------------------

TEST(SitesTest, each_shard_reduces_with_its_own_kind_and_world_counts_sites) {
  Cluster cluster(0, of_sites(2));
  for (const char* site : {"eu", "us"}) {
    for (std::uint32_t shard : {0U, 1U})
      ASSERT_NE(cluster.add(shard_of(cluster, site, shard, 2)), nullptr);
  }
  const std::vector<float> value = {1, 100, 10, 1000};
  cluster.on_all([&](std::size_t p, Communicator& comm) {
    for (const char* plan : {"direct", "exchange", "ring", "fastest", ""}) {
      RoundOptions o = sum_of("x");
      o.plan = plan;
      const SmallRound r = small_round(comm, o, value[p], 5000);
      EXPECT_TRUE(r.result.status.ok()) << r.result.status.text;
      EXPECT_EQ(r.value, p % 2 == 0 ? 11 : 1100);
      EXPECT_EQ(r.result.world, 2u);
      EXPECT_EQ(r.result.contributors.size(), 4u);
    }
  });
  EXPECT_EQ(cluster[0].attributes().world, 2u);
}

TEST(SitesTest, a_site_is_admitted_when_all_its_shards_are_there) {
  Cluster cluster(0, of_sites(1));
  Communicator* first = cluster.add(shard_of(cluster, "eu", 0, 2));
  RoundOptions o = sum_of("x");
  o.deadline = 300 * kMillisecond;
  const SmallRound alone = small_round(*first, o, 1);
  EXPECT_FALSE(alone.result.status.ok());
  EXPECT_EQ(first->attributes().id, 0u);
  cluster.add(shard_of(cluster, "eu", 1, 2));
  cluster.on_all([](std::size_t p, Communicator& comm) {
    const SmallRound r = small_round(comm, sum_of("x"), static_cast<float>(p + 1));
    EXPECT_TRUE(r.result.status.ok()) << r.result.status.text;
    EXPECT_EQ(r.value, static_cast<float>(p + 1));
    EXPECT_EQ(r.result.world, 1u);
  });
}

TEST(SitesTest, a_site_is_evicted_as_a_whole_when_one_shard_dies) {
  Cluster cluster(0, of_sites(2));
  cluster.add(shard_of(cluster, "eu", 0, 2));
  cluster.add(shard_of(cluster, "eu", 1, 2));
  cluster.add(shard_of(cluster, "us", 0, 2));
  auto child = std::make_unique<Child>(
      cluster.address(), std::vector<std::string>{"--site", "us", "--shard", "1", "--shards", "2"});
  std::atomic<std::uint64_t> last{UINT64_MAX};
  cluster.on_all([&](std::size_t p, Communicator& comm) {
    for (std::uint64_t n = 0; n < last;) {
      std::vector<float> x(64, 1);
      RoundOptions o = sum_of("f32-in");
      if (p == 2 && n > 0) o.deadline = 5 * kSecond;
      const RoundResult r = comm.run({leaf_of(x, x)}, o);
      if (p == 2 && !r.status.ok()) {  // its site is gone
        EXPECT_GE(n, 1u);
        EXPECT_EQ(x, std::vector<float>(64, 1.0F));
        return;
      }
      ASSERT_TRUE(r.status.ok()) << r.status.text;
      EXPECT_EQ(r.contributors.size(), 2 * r.world);
      n = r.n;
      if (p != 0) continue;
      if (r.world == 2) child.reset();
      if (r.world == 1 && last == UINT64_MAX) last = n + 2;
    }
    EXPECT_NE(p, 2u) << "the surviving shard of the dead site went on";
  });
}

TEST(SitesTest, a_peer_whose_seat_is_taken_is_told_by_whom) {
  ClusterOptions options;
  options.peer.site = "eu";
  Cluster cluster(1, options);
  ConnectOptions second = cluster.peer_options();
  second.connect_timeout = 2 * kSecond;
  const base::Status told = Communicator::connect(second).status();
  EXPECT_EQ(told.code, Code::kMasterLost) << told.text;
  EXPECT_NE(told.text.find("the seat of site eu, shard 0 of 1, is taken by the key "),
            std::string::npos)
      << told.text;
  EXPECT_NE(told.text.find("give each a site or shard of its own"), std::string::npos) << told.text;
  EXPECT_TRUE(small_round(cluster[0], sum_of("x"), 1).result.status.ok());
}

TEST(SitesTest, sites_of_different_shard_counts_are_told_so) {
  Cluster cluster(0, of_sites(2));
  cluster.add(shard_of(cluster, "eu", 0, 1));
  cluster.add(shard_of(cluster, "us", 0, 2));
  cluster.add(shard_of(cluster, "us", 1, 2));
  cluster.on_all([](std::size_t, Communicator& comm) {
    const SmallRound r = small_round(comm, sum_of("x"), 5);
    EXPECT_EQ(r.result.status.code, Code::kMismatch) << r.result.status.text;
    EXPECT_TRUE(contains(r.result.status.text, "different numbers of shards"))
        << r.result.status.text;
    EXPECT_EQ(r.value, 5);
  });
}

// ---- joining and leaving -----------------------------------------------------------------------

// A run over one state tag: every round adds the sum of the peers' values to the state.
struct Trainer {
  std::vector<float> state = std::vector<float>(70000, 0.0F);
  RoundResult last;

  Leaf leaf() { return leaf_of(state, state, "state"); }
  SyncResult sync(Communicator& comm) {
    SyncOptions o;
    o.tag = "model";
    o.deadline = 120 * kSecond;
    return comm.sync_state({leaf()}, o);
  }
  void step(Communicator& comm, float value) {
    std::vector<float> delta(state.size(), value);
    RoundOptions round = sum_of("model");
    round.state = peer::marks_of({leaf()});
    last = comm.run({leaf_of(delta, delta)}, round);
    EXPECT_TRUE(last.status.ok()) << last.status.text;
    if (!last.status.ok()) return;
    for (std::size_t i = 0; i < state.size(); ++i) state[i] += delta[i];
    SyncOptions o;
    o.tag = "model";
    const SyncResult published = comm.publish({leaf()}, o);
    EXPECT_TRUE(published.status.ok()) << published.status.text;
  }
};

TEST(JoinTest, a_joiner_gets_bit_identical_state_while_rounds_go_on) {
  Cluster cluster(2);
  std::vector<Trainer> trainers(3);
  for (std::size_t i = 0; i < 3; ++i) trainers[i].state.assign(70000, static_cast<float>(i));
  std::atomic<std::uint64_t> round{0}, last{UINT64_MAX};
  const auto train = [&](Communicator& comm, Trainer& trainer) {
    while (trainer.last.n < last) {
      trainer.step(comm, 1);
      if (!trainer.last.status.ok()) break;
      round = std::max<std::uint64_t>(round, trainer.last.n);
    }
  };
  std::vector<std::thread> members;
  for (std::size_t p = 0; p < 2; ++p) {
    members.emplace_back([&, p] {
      const SyncResult s = trainers[p].sync(cluster[p]);
      ASSERT_TRUE(s.status.ok()) << s.status.text;
      train(cluster[p], trainers[p]);
    });
  }
  EXPECT_TRUE(eventually([&] { return round >= 5; }));
  auto comm = Communicator::connect(cluster.peer_options());
  ASSERT_TRUE(comm.ok());
  const SyncResult synced = trainers[2].sync(*comm.value());
  EXPECT_TRUE(synced.status.ok()) << synced.status.text;
  EXPECT_GE(synced.revision, 5u);
  EXPECT_TRUE(synced.replaced);
  EXPECT_GE(synced.received_bytes, 4 * trainers[2].leaf().count);
  for (int i = 0; i < 5; ++i) {
    trainers[2].step(*comm.value(), 1);
    EXPECT_EQ(trainers[2].last.world, 3u);
  }
  last = trainers[2].last.n + 2;  // the others are at most one round ahead
  train(*comm.value(), trainers[2]);
  for (std::thread& member : members) member.join();
  EXPECT_EQ(trainers[0].last.n, last);
  EXPECT_EQ(trainers[0].state, trainers[1].state);
  EXPECT_EQ(trainers[0].state, trainers[2].state);
  EXPECT_EQ(cluster[0].digest("model"), comm.value()->digest("model"));
  EXPECT_EQ(comm.value()->revision("model"), last);
}

TEST(JoinTest, a_named_source_gives_the_first_state) {
  Cluster cluster(3);
  std::vector<Trainer> trainers(3);
  cluster.on_all([&](std::size_t p, Communicator& comm) {
    trainers[p].state.assign(1000, static_cast<float>(p));
    SyncOptions o;
    o.tag = "model";
    o.source = p == 1;
    const SyncResult s = comm.sync_state({trainers[p].leaf()}, o);
    EXPECT_TRUE(s.status.ok()) << s.status.text;
    EXPECT_EQ(trainers[p].state, std::vector<float>(1000, 1.0F));
  });
}

TEST(JoinTest, a_blocked_synchronisation_can_be_ended_and_begun_again) {
  Cluster cluster(0, of_sites(2));
  Communicator* comm = cluster.add();
  std::vector<float> state(1000, 1), same(1000, 2);
  SyncOptions o;
  o.tag = "model";
  o.deadline = 300 * kMillisecond;
  SyncResult late = comm->sync_state({leaf_of(state, state)}, o);
  EXPECT_TRUE(late.status.code == Code::kTooFew || late.status.code == Code::kDeadline)
      << late.status.text;
  o.deadline = 60 * kSecond;
  std::thread blocked([&] {
    const SyncResult s = comm->sync_state({leaf_of(state, state)}, o);
    EXPECT_EQ(s.status.code, Code::kAborted) << s.status.text;
  });
  EXPECT_TRUE(eventually([&] { return contains(comm->waiting_for(), "model"); }));
  EXPECT_EQ(comm->sync_state({leaf_of(same, same)}, o).status.code, Code::kBusyTag);
  comm->abort();
  blocked.join();
  cluster.add();
  cluster.on_all([&](std::size_t p, Communicator& peer) {
    std::vector<float> mine(1000, static_cast<float>(p));
    const SyncResult s = peer.sync_state({leaf_of(mine, mine)}, o);
    EXPECT_TRUE(s.status.ok()) << s.status.text;
  });
  EXPECT_EQ(cluster[0].digest("model"), cluster[1].digest("model"));
}

TEST(JoinTest, a_state_without_elements_and_one_of_many_leaves_are_synchronised) {
  Cluster cluster(2);
  cluster.on_all([](std::size_t p, Communicator& comm) {
    std::vector<float> nothing;
    SyncOptions o;
    o.tag = "empty";
    EXPECT_TRUE(comm.sync_state({leaf_of(nothing, nothing)}, o).status.ok());
    std::vector<std::vector<double>> many;
    std::vector<Leaf> leaves;
    for (std::size_t i = 0; i < 500; ++i) many.emplace_back(i % 5, static_cast<double>(p));
    for (auto& v : many) leaves.push_back(leaf_of(v, v, cat("leaf/", v.size())));
    o.tag = "many";
    const SyncResult s = comm.sync_state(leaves, o);
    EXPECT_TRUE(s.status.ok()) << s.status.text;
    for (auto& v : many) {
      for (double value : v) EXPECT_EQ(value, many[1][0]);
    }
  });
  EXPECT_EQ(cluster[0].digest("many"), cluster[1].digest("many"));
}

TEST(JoinTest, a_state_of_another_form_is_refused_in_words) {
  Cluster cluster(2);
  std::vector<Code> codes(2);
  cluster.on_all([&](std::size_t p, Communicator& comm) {
    std::vector<float> state(1000 + p, 1);
    SyncOptions o;
    o.deadline = 20 * kSecond;
    const SyncResult s = comm.sync_state({leaf_of(state, state)}, o);
    codes[p] = s.status.code;
    EXPECT_TRUE(s.status.ok() || contains(s.status.text, "f32[100")) << s.status.text;
  });
  EXPECT_TRUE(codes[0] == Code::kMismatch || codes[1] == Code::kMismatch);
}

TEST(LeaveTest, the_others_go_on_in_the_next_attempt_when_one_leaves) {
  Cluster cluster(3);
  cluster.on_all([](std::size_t p, Communicator& comm) {
    for (int i = 0; i < 10; ++i) EXPECT_EQ(small_round(comm, sum_of("x"), 1).value, 3);
    if (p == 2) return comm.close();
    const SmallRound r = small_round(comm, sum_of("x"), 1);
    EXPECT_TRUE(r.result.status.ok()) << r.result.status.text;
    EXPECT_LE(r.result.attempts, 2u);
    EXPECT_EQ(r.value, 2);
    EXPECT_EQ(r.result.world, 2u);
  });
}

TEST(LeaveTest, one_after_the_other_may_leave_and_join_and_every_sum_is_of_its_contributors) {
  Cluster cluster(2);
  std::atomic<bool> stop{false};
  std::thread come_and_go([&] {
    for (int i = 0; i < 5; ++i) {
      auto comm = Communicator::connect(cluster.peer_options());
      ASSERT_TRUE(comm.ok()) << comm.status().text;
      for (int k = 0; k < 3; ++k) {
        const SmallRound r = small_round(*comm.value(), sum_of("x"), 1);
        EXPECT_TRUE(r.result.status.ok()) << r.result.status.text;
        EXPECT_EQ(r.value, static_cast<float>(r.result.world));
      }
      comm.value()->close();
    }
    stop = true;
  });
  std::atomic<std::uint64_t> last{UINT64_MAX};
  cluster.on_all([&](std::size_t, Communicator& comm) {
    for (std::uint64_t n = 0; n < last;) {
      const SmallRound r = small_round(comm, sum_of("x"), 1);
      ASSERT_TRUE(r.result.status.ok()) << r.result.status.text;
      EXPECT_EQ(r.value, static_cast<float>(r.result.world));
      n = r.result.n;
      std::uint64_t open = UINT64_MAX;
      if (stop) last.compare_exchange_strong(open, n + 2);
    }
    for (base::PeerId id = 1; id <= 7; ++id) {
      EXPECT_FALSE(comm.site_of(id).empty()) << "of " << id << ", which may have left";
    }
    EXPECT_EQ(comm.site_of(8), "");
  });
  come_and_go.join();
}

// ---- hanging -----------------------------------------------------------------------------------

TEST(HungTest, a_stopped_peer_is_evicted_is_told_when_it_wakes_and_comes_back) {
  Cluster cluster(1);
  Child child(cluster.address());
  // The child's values differ by element: only the world is looked at.
  std::vector<float> x(64, 1);
  const auto reduce = [&](std::uint32_t world) {
    return eventually([&] {
      std::fill(x.begin(), x.end(), 1.0F);
      const RoundResult r = cluster[0].run({leaf_of(x, x)}, sum_of("f32-in"));
      EXPECT_TRUE(r.status.ok()) << r.status.text;
      return r.world == world || !r.status.ok();
    });
  };
  ASSERT_TRUE(reduce(2));
  ASSERT_EQ(::kill(child.pid, SIGSTOP), 0);
  ASSERT_TRUE(reduce(1));
  EXPECT_EQ(x, std::vector<float>(64, 1.0F));
  ASSERT_EQ(::kill(child.pid, SIGCONT), 0);
  ASSERT_TRUE(reduce(2));
}

TEST(HungTest, a_killed_peer_is_gone_after_at_most_one_round) {
  Cluster cluster(2);
  auto child = std::make_unique<Child>(cluster.address());
  std::atomic<bool> joined{false};
  std::atomic<std::uint64_t> last{UINT64_MAX};
  cluster.on_all([&](std::size_t p, Communicator& comm) {
    for (std::uint64_t n = 0; n < last;) {
      std::vector<float> x(64, 1);
      const RoundResult r = comm.run({leaf_of(x, x)}, sum_of("f32-in"));
      ASSERT_TRUE(r.status.ok()) << r.status.text;
      n = r.n;
      if (p == 0 && r.world == 3 && !joined) {
        joined = true;
        child.reset();
      } else if (p == 0 && joined && r.world == 2 && last == UINT64_MAX) {
        last = n + 2;
      }
    }
  });
}

// ---- the master --------------------------------------------------------------------------------

struct Folder {
  std::filesystem::path path;
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "jccl-cluster-XXXXXX").string();
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    path = pattern;
  }
  ~Folder() { std::filesystem::remove_all(path); }
};

TEST(MasterTest, open_calls_survive_a_restart_of_the_master) {
  const Folder folder;
  ClusterOptions options;
  options.master.store = cat("sqlite:", (folder.path / "run.db").string());
  Cluster cluster(3, options);
  std::atomic<std::uint64_t> round{0};
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> last{UINT64_MAX};
  std::thread restarts([&] {
    for (int i = 0; i < 3; ++i) {
      const std::uint64_t before = round;
      EXPECT_TRUE(eventually([&] { return round > before + 3; }));
      cluster.stop_master();
      cluster.start_master();
    }
    const std::uint64_t before = round;
    EXPECT_TRUE(eventually([&] { return round > before + 3; }));
    stop = true;
  });
  cluster.on_all([&](std::size_t, Communicator& comm) {
    for (std::uint64_t n = 0; n < last;) {
      const SmallRound r = small_round(comm, sum_of("x"), 1, 20000);
      ASSERT_TRUE(r.result.status.ok()) << r.result.status.text;
      EXPECT_EQ(r.value, 3);
      EXPECT_EQ(r.result.n, n + 1) << "commits are gapless";
      n = r.result.n;
      round = std::max<std::uint64_t>(round, n);
      std::uint64_t open = UINT64_MAX;
      if (stop) last.compare_exchange_strong(open, n + 2);
    }
  });
  restarts.join();
}

TEST(MasterTest, a_master_gone_beyond_the_grace_period_ends_calls_with_master_lost) {
  ClusterOptions options;
  options.peer.master_grace = 300 * kMillisecond;
  Cluster cluster(2, options);
  cluster.on_all([](std::size_t, Communicator& comm) {
    EXPECT_TRUE(small_round(comm, sum_of("x"), 1).result.status.ok());
  });
  cluster.stop_master();
  cluster.on_all([&](std::size_t, Communicator& comm) {
    const SmallRound r = small_round(comm, sum_of("x"), 1);
    EXPECT_EQ(r.result.status.code, Code::kMasterLost) << r.result.status.text;
    EXPECT_EQ(r.value, 1);
    EXPECT_EQ(small_round(comm, sum_of("y"), 1).result.status.code, Code::kMasterLost);
  });
}

TEST(MasterTest, another_run_at_the_same_address_is_refused) {
  Cluster cluster(1);
  EXPECT_TRUE(small_round(cluster[0], sum_of("x"), 1).result.status.ok());
  cluster.stop_master();
  cluster.start_master();  // kept nothing: a new run
  const SmallRound r = small_round(cluster[0], sum_of("x"), 1);
  EXPECT_EQ(r.result.status.code, Code::kWrongRun) << r.result.status.text;
}

TEST(TeardownTest, ports_can_be_used_again_at_once) {
  std::string master_at, peer_at;
  for (int i = 0; i < 4; ++i) {
    ClusterOptions options = of_sites(2);
    if (!master_at.empty()) options.master.bind = master_at;
    Cluster cluster(0, options);
    master_at = cluster.address();
    ConnectOptions o = cluster.peer_options();
    o.deadline = 20 * kSecond;
    if (!peer_at.empty()) o.bind = peer_at;
    Communicator* fixed = cluster.add(o);
    ASSERT_NE(fixed, nullptr);
    peer_at = fixed->attributes().listen;
    cluster.add();
    cluster.on_all([](std::size_t, Communicator& comm) {
      const SmallRound r = small_round(comm, sum_of("x"), 1);
      EXPECT_TRUE(r.result.status.ok()) << r.result.status.text;
    });
  }
}

}  // namespace
}  // namespace jccl::capi::test
