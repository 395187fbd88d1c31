// Calls, handles and tags of one communicator among others: many at once, misuse, interruption,
// and the end of a communicator under calls.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "base/limits.h"
#include "capi/cluster_support.h"

namespace jccl::capi::test {
namespace {

TEST(CallsTest, a_lone_peer_gets_its_own_values_and_world_one) {
  Cluster cluster(1);
  const SmallRound r = small_round(cluster[0], sum_of("alone"), 3);
  EXPECT_TRUE(r.result.status.ok()) << r.result.status.text;
  EXPECT_EQ(r.result.world, 1u);
  EXPECT_EQ(r.value, 3);
}

SmallRound lone_call_of_a_run_of_two(base::Duration deadline) {
  ClusterOptions options;
  options.master.start_peers = 2;
  options.start_together = false;
  Cluster cluster(1, options);
  RoundOptions o = sum_of("lone");
  o.deadline = deadline;
  return small_round(cluster[0], o, 3);
}

TEST(CallsTest, a_lone_peer_of_a_run_of_two_is_told_so_at_its_deadline) {
  const SmallRound r = lone_call_of_a_run_of_two(300 * kMillisecond);
  EXPECT_EQ(r.result.status.code, Code::kTooFew) << r.result.status.text;
  EXPECT_TRUE(contains(r.result.status.text, "2")) << r.result.status.text;
  EXPECT_EQ(r.value, 3) << "the payload of a failed call is its input";
}

// Else its wait would give up five seconds later, with another code.
TEST(CallsTest, a_call_of_some_seconds_ends_at_its_deadline) {
  const SmallRound r = lone_call_of_a_run_of_two(2 * kSecond);
  EXPECT_EQ(r.result.status.code, Code::kTooFew) << r.result.status.text;
}

TEST(CallsTest, many_tags_run_side_by_side_on_many_threads) {
  Cluster cluster(3);
  constexpr std::size_t kTags = 24, kRounds = 10;
  cluster.on_all([&](std::size_t p, Communicator& comm) {
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < kTags; ++t) {
      threads.emplace_back([&comm, p, t] {
        for (std::size_t n = 1; n <= kRounds; ++n) {
          const SmallRound r =
              small_round(comm, sum_of(cat("tag-", t)), static_cast<float>(p * 100 + t), 1000 + t);
          EXPECT_TRUE(r.result.status.ok()) << r.result.status.text;
          EXPECT_EQ(r.result.n, n);
          EXPECT_EQ(r.value, static_cast<float>(300 + 3 * t));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
  EXPECT_EQ(cluster[0].attributes().rounds_committed, kTags * kRounds);
}

TEST(CallsTest, the_times_of_the_last_calls_are_kept_and_no_more) {
  Cluster cluster(1);
  for (int i = 0; i < 1030; ++i) {
    ASSERT_TRUE(small_round(cluster[0], sum_of("t"), 1, 1).result.status.ok());
  }
  const auto times = cluster[0].timeline();
  EXPECT_EQ(times.size(), 1024U);
  EXPECT_EQ(times.back().n, 1030U);
}

TEST(CallsTest, a_tag_whose_handle_was_lost_is_free_after_an_abort) {
  Cluster cluster(2);
  std::vector<float> x(4, 1.0F);
  ASSERT_TRUE(cluster[0].start({leaf_of(x, x)}, sum_of("t"), true).ok());
  EXPECT_EQ(cluster[0].start({leaf_of(x, x)}, sum_of("t"), true).status().code, Code::kBusyTag);
  cluster[0].abort();
  const auto again = cluster[0].start({leaf_of(x, x)}, sum_of("t"), true);
  EXPECT_TRUE(again.ok()) << again.status().text;
}

TEST(CallsTest, tags_started_in_any_order_match_by_name) {
  Cluster cluster(3);
  cluster.on_all([&](std::size_t p, Communicator& comm) {
    std::vector<std::size_t> order = {0, 1, 2, 3, 4, 5};
    std::rotate(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(2 * p), order.end());
    std::vector<std::vector<float>> x(6);
    std::vector<Handle> handles(6);
    for (std::size_t i : order) {
      x[i].assign(5000, static_cast<float>(i));
      auto handle = comm.start({leaf_of(x[i], x[i])}, sum_of(cat("t", i)));
      ASSERT_TRUE(handle.ok());
      handles[i] = handle.value();
    }
    std::reverse(order.begin(), order.end());
    for (std::size_t i : order) {
      const RoundResult r = comm.wait(handles[i]);
      EXPECT_TRUE(r.status.ok()) << r.status.text;
      EXPECT_EQ(x[i][4999], static_cast<float>(3 * i));
    }
  });
}

TEST(CallsTest, a_staged_call_leaves_its_input_free_and_hands_the_result_out_at_the_wait) {
  Cluster cluster(2);
  cluster.on_all([&](std::size_t p, Communicator& comm) {
    std::vector<float> x(1000, static_cast<float>(p + 1)), out(1000, 0);
    auto handle = comm.start({leaf_of(x, x)}, sum_of("staged"), true);
    ASSERT_TRUE(handle.ok());
    std::fill(x.begin(), x.end(), 99.0F);
    const std::vector<void*> outs = {out.data()};
    const RoundResult r = comm.wait(handle.value(), &outs);
    EXPECT_TRUE(r.status.ok()) << r.status.text;
    EXPECT_EQ(out, std::vector<float>(1000, 3.0F));
    EXPECT_EQ(x, std::vector<float>(1000, 99.0F));
  });
}

TEST(CallsTest, a_staged_all_gather_has_room_for_every_slot) {
  Cluster cluster(3);
  cluster.on_all([&](std::size_t p, Communicator& comm) {
    std::vector<float> x(1500, static_cast<float>(p + 1)), out(1500 * 4, 7);
    RoundOptions o;
    o.collective = Collective::kAllGather;
    o.slots = 4;
    auto handle = comm.start({leaf_of(x, x)}, o, true);
    ASSERT_TRUE(handle.ok()) << handle.status().text;
    const std::vector<void*> outs = {out.data()};
    const RoundResult r = comm.wait(handle.value(), &outs);
    EXPECT_TRUE(r.status.ok()) << r.status.text;
    float sum = 0;
    for (float v : out) sum += v;
    EXPECT_EQ(sum, 1500.0F * 6);
    EXPECT_EQ(out.back(), 0.0F);
  });
}

TEST(CallsTest, waiting_for_what_is_not_open_is_an_error_at_once) {
  Cluster cluster(1);
  std::vector<float> x(8, 1);
  EXPECT_EQ(cluster[0].wait(12345).status.code, Code::kUnknownTag);
  auto handle = cluster[0].start({leaf_of(x, x)}, sum_of("once"));
  ASSERT_TRUE(handle.ok());
  EXPECT_TRUE(cluster[0].wait(handle.value()).status.ok());
  const RoundResult again = cluster[0].wait(handle.value());
  EXPECT_EQ(again.status.code, Code::kUnknownTag);
  EXPECT_TRUE(contains(again.status.text, "waited for already")) << again.status.text;
}

TEST(CallsTest, a_handle_is_waited_for_by_one_thread_and_abort_ends_that_wait) {
  ClusterOptions options;
  options.start_together = false;
  options.master.start_peers = 2;  // nobody else comes: the round stays open
  Cluster cluster(1, options);
  std::vector<float> x(8, 1);
  auto handle = cluster[0].start({leaf_of(x, x)}, sum_of("busy"));
  ASSERT_TRUE(handle.ok());
  const auto second = cluster[0].start({leaf_of(x, x)}, sum_of("busy"));
  EXPECT_EQ(second.status().code, Code::kBusyTag);
  std::atomic<int> ended{0}, busy{0}, aborted{0};
  const auto wait = [&] {
    const RoundResult r = cluster[0].wait(handle.value());
    (r.status.code == Code::kBusyTag ? busy : aborted) += 1;
    EXPECT_TRUE(r.status.code == Code::kBusyTag || r.status.code == Code::kAborted)
        << r.status.text;
    ++ended;
  };
  std::thread a(wait), b(wait);
  EXPECT_TRUE(eventually([&] { return ended == 1; }));  // the second thread to come
  EXPECT_EQ(busy, 1);
  EXPECT_FALSE(cluster[0].finished(handle.value()));
  cluster[0].abort();
  a.join();
  b.join();
  EXPECT_EQ(aborted, 1);
  EXPECT_EQ(x[0], 1);
  EXPECT_TRUE(cluster[0].finished(handle.value()));
}

TEST(CallsTest, a_communicator_stays_usable_after_an_abort) {
  Cluster cluster(2);
  // The same shape as below: the other peer's call may reach the master before the withdrawal does.
  std::vector<float> x(64, 1);
  auto handle = cluster[0].start({leaf_of(x, x)}, sum_of("again"));
  ASSERT_TRUE(handle.ok());
  cluster[0].abort();
  EXPECT_EQ(cluster[0].wait(handle.value()).status.code, Code::kAborted);
  cluster.on_all([](std::size_t, Communicator& comm) {
    const SmallRound r = small_round(comm, sum_of("again"), 2);
    EXPECT_TRUE(r.result.status.ok()) << r.result.status.text;
    EXPECT_EQ(r.value, 4);
  });
}

TEST(CallsTest, bad_arguments_are_refused_with_the_leaf_and_before_anything_is_sent) {
  Cluster cluster(1);
  std::vector<float> x(8, 1);
  std::vector<std::int32_t> i(8, 1);
  const auto code = [&](std::vector<Leaf> leaves, const std::function<void(RoundOptions&)>& set,
                        const std::string& part) {
    RoundOptions o = sum_of("bad");
    set(o);
    const RoundResult r = cluster[0].run(leaves, o);
    EXPECT_TRUE(contains(r.status.text, part)) << r.status.text;
    return r.status.code;
  };
  const Leaf good = leaf_of(x, x, "params/w");
  const Leaf whole = leaf_of(i, i, "step");
  EXPECT_EQ(code({whole}, [](auto& o) { o.codec = CodecId::kInt8; }, "step i32"), Code::kInvalid);
  EXPECT_EQ(code(
                {good},
                [](auto& o) {
                  o.op = Op::kMax;
                  o.codec = CodecId::kInt8;
                },
                "params/w"),
            Code::kInvalid);
  EXPECT_EQ(code({good}, [](auto& o) { o.plan = "best"; }, "unknown plan 'best'"), Code::kInvalid);
  EXPECT_EQ(code({good}, [](auto& o) { o.weight = -1; }, "weight"), Code::kInvalid);
  EXPECT_EQ(code({whole}, [](auto& o) { o.weight = 2; }, "step"), Code::kInvalid);
  EXPECT_EQ(code({good}, [](auto& o) { o.tag = ""; }, "tag"), Code::kInvalid);
  EXPECT_EQ(code(
                {good}, [](auto& o) { o.collective = Collective::kAllGather; }, "slots"),
            Code::kInvalid);
  Leaf odd = good;
  odd.dtype = static_cast<Dtype>(77);
  EXPECT_EQ(code({odd}, [](auto&) {}, "params/w"), Code::kInvalid);
  Leaf nothing = good;
  nothing.in = nullptr;
  EXPECT_EQ(code({nothing}, [](auto&) {}, "no input memory"), Code::kInvalid);
  Leaf huge = good;
  huge.count = std::uint64_t{1} << 60;
  EXPECT_EQ(code({huge}, [](auto&) {}, "bytes"), Code::kLimit);
  EXPECT_EQ(code(std::vector<Leaf>(70000, good), [](auto&) {}, "70000 leaves"), Code::kLimit);
  EXPECT_EQ(cluster[0].attributes().rounds_committed, 0u);
}

TEST(CallsTest, more_tags_than_the_limit_are_refused) {
  Cluster cluster(1);
  for (int i = 0; i < 256; ++i) {
    ASSERT_TRUE(small_round(cluster[0], sum_of(cat("t", i)), 1, 1).result.status.ok());
  }
  const SmallRound r = small_round(cluster[0], sum_of("one more"), 1, 1);
  EXPECT_EQ(r.result.status.code, Code::kLimit) << r.result.status.text;
  EXPECT_TRUE(
      contains(r.result.status.text, "tag 'one more' is one too many; use at most 256 tags"))
      << r.result.status.text << ", before the master is asked";
  EXPECT_TRUE(small_round(cluster[0], sum_of("t0"), 1, 1).result.status.ok());
}

TEST(CallsTest, everything_answers_closed_after_close) {
  Cluster cluster(1);
  auto comm = cluster.share(0);
  std::vector<float> x(8, 1);
  comm->close();
  comm->close();
  EXPECT_EQ(comm->run({leaf_of(x, x)}, sum_of("x")).status.code, Code::kClosed);
  EXPECT_EQ(comm->start({leaf_of(x, x)}, sum_of("x")).status().code, Code::kClosed);
  EXPECT_EQ(comm->wait(1).status.code, Code::kClosed);
  EXPECT_EQ(comm->sync_state({leaf_of(x, x)}, {}).status.code, Code::kClosed);
  EXPECT_EQ(comm->publish({leaf_of(x, x)}, {}).status.code, Code::kClosed);
  EXPECT_EQ(comm->waiting_for(), "closed");
  comm->abort();
  EXPECT_TRUE(comm->finished(1));
}

TEST(CallsTest, closing_ends_blocked_waits_and_leaves_the_output) {
  ClusterOptions options;
  options.start_together = false;
  options.master.start_peers = 2;
  Cluster cluster(1, options);
  auto comm = cluster.share(0);
  std::vector<std::thread> threads;
  std::atomic<int> ended{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::vector<float> x(1000, 5), out(1000, 6);
      const RoundResult r = comm->run({leaf_of(x, out)}, sum_of(cat("t", t)));
      EXPECT_EQ(r.status.code, Code::kClosed) << r.status.text;
      EXPECT_EQ(out, std::vector<float>(1000, 6));
      ++ended;
    });
  }
  EXPECT_TRUE(eventually([&] { return contains(comm->waiting_for(), "t3"); }));
  comm->close();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ended, 4);
}

TEST(CallsTest, a_forked_child_is_told_so_and_the_parent_goes_on) {
  Cluster cluster(2);
  std::vector<float> x(8, 1);
  auto open = cluster[0].start({leaf_of(x, x)}, sum_of("open"));
  ASSERT_TRUE(open.ok());
  const pid_t child = ::fork();
  if (child == 0) {
    const RoundResult run = cluster[0].run({leaf_of(x, x)}, sum_of("x"));
    const bool told = run.status.code == Code::kClosed && contains(run.status.text, "fork") &&
                      cluster[0].wait(open.value()).status.code == Code::kClosed &&
                      cluster[0].sync_state({leaf_of(x, x)}, {}).status.code == Code::kClosed &&
                      cluster[0].publish({leaf_of(x, x)}, {}).status.code == Code::kClosed &&
                      cluster[0].waiting_for() == "closed" && cluster[0].finished(open.value());
    cluster[0].abort();
    cluster[0].close();
    cluster.remove(1);  // destroys a communicator of the parent
    ::_exit(told ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  std::vector<float> y(8, 2);
  EXPECT_TRUE(cluster[1].run({leaf_of(y, y)}, sum_of("open")).status.ok());
  EXPECT_TRUE(cluster[0].wait(open.value()).status.ok());
  EXPECT_EQ(x[0], 3);
}

TEST(CallsTest, two_masters_and_several_communicators_live_in_one_process) {
  Cluster one(2), two(3);
  std::thread other([&] {
    two.on_all([](std::size_t, Communicator& comm) {
      for (int i = 0; i < 20; ++i) EXPECT_EQ(small_round(comm, sum_of("x"), 10).value, 30);
    });
  });
  one.on_all([](std::size_t, Communicator& comm) {
    for (int i = 0; i < 20; ++i) EXPECT_EQ(small_round(comm, sum_of("x"), 1).value, 2);
  });
  other.join();
  EXPECT_NE(one[0].attributes().run, two[0].attributes().run);
}

TEST(CallsTest, the_status_names_world_epoch_attempts_and_contributors) {
  Cluster cluster(3);
  std::vector<RoundResult> results(3);
  std::vector<base::PeerId> ids(3);
  cluster.on_all([&](std::size_t p, Communicator& comm) {
    RoundOptions o = sum_of("x");
    o.weight = static_cast<double>(p + 1);
    results[p] = small_round(comm, o, 1).result;
    ids[p] = comm.attributes().id;
  });
  for (std::size_t p = 0; p < 3; ++p) {
    const RoundResult& r = results[p];
    EXPECT_EQ(r.n, 1u);
    EXPECT_EQ(r.world, 3u);
    EXPECT_GE(r.epoch, 1u);
    EXPECT_EQ(r.epoch, results[0].epoch);
    EXPECT_GE(r.attempts, 1u);
    ASSERT_EQ(r.contributors.size(), 3u);
    EXPECT_TRUE(std::is_sorted(r.contributors.begin(), r.contributors.end()));
    const auto at = std::find(r.contributors.begin(), r.contributors.end(), ids[p]);
    ASSERT_NE(at, r.contributors.end());
    EXPECT_EQ(r.weights[static_cast<std::size_t>(at - r.contributors.begin())], p + 1.0);
  }
  EXPECT_EQ(cluster[0].attributes().world, 3u);
}

TEST(CallsTest, a_tag_that_no_message_can_carry_is_refused_before_anything_is_sent) {
  Cluster cluster(1);
  std::vector<float> state(10, 1);
  SyncOptions o;
  o.deadline = 10 * kSecond;
  for (const std::string& tag : {std::string(), std::string(65, 't'), std::string("\xFF")}) {
    o.tag = tag;
    EXPECT_EQ(cluster[0].sync_state({leaf_of(state, state)}, o).status.code, Code::kInvalid);
    EXPECT_EQ(cluster[0].publish({leaf_of(state, state)}, o).status.code, Code::kInvalid);
  }
  for (std::size_t i = 0; i < base::kTagsMax / 2; ++i) {
    o.tag = cat("t", i);
    ASSERT_TRUE(cluster[0].sync_state({leaf_of(state, state)}, o).status.ok());
  }
  o.tag = "one more";  // of one peer, that no round was committed of
  EXPECT_EQ(cluster[0].sync_state({leaf_of(state, state)}, o).status.code, Code::kLimit);
}

}  // namespace
}  // namespace jccl::capi::test
