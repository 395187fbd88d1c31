#include "net/socket/loop.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "net/test_support.h"

namespace jccl::net {
namespace {

using test::eventually;

TEST(LoopTest, posted_functions_run_in_order_on_the_loop_thread) {
  Loop loop;
  std::vector<int> order;
  bool on_thread = true;
  for (int i = 0; i < 100; ++i) {
    loop.post([&, i] {
      order.push_back(i);
      on_thread = on_thread && loop.on_loop_thread();
    });
  }
  EXPECT_TRUE(order.empty());
  loop.start();
  ASSERT_TRUE(loop.call([] {}));
  loop.stop();
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
  EXPECT_TRUE(on_thread);
  EXPECT_FALSE(loop.on_loop_thread());
}

TEST(LoopTest, posts_from_many_threads_all_run) {
  Loop loop;
  loop.start();
  int count = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) loop.post([&] { ++count; });
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(eventually(loop, [&] { return count == 4000; }));
}

TEST(LoopTest, timers_run_in_the_order_of_their_deadlines) {
  Loop loop;
  std::vector<int> order;
  loop.run_after(3 * base::kMillisecond, [&] { order.push_back(3); });
  loop.run_after(1 * base::kMillisecond, [&] { order.push_back(1); });
  loop.run_after(2 * base::kMillisecond, [&] { order.push_back(2); });
  loop.run_after(0, [&] { order.push_back(0); });
  loop.start();
  EXPECT_TRUE(eventually(loop, [&] { return order.size() == 4; }));
  loop.stop();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3}));
}

TEST(LoopTest, a_timer_does_not_run_before_its_time) {
  Loop loop;
  loop.start();
  const Time start = loop.now();
  Time ran = 0;
  loop.call([&] { loop.run_after(20 * base::kMillisecond, [&] { ran = loop.now(); }); });
  ASSERT_TRUE(eventually(loop, [&] { return ran != 0; }));
  EXPECT_GE(ran - start, 20 * base::kMillisecond);
}

TEST(LoopTest, a_cancelled_timer_never_runs_even_if_it_is_due_in_the_same_turn) {
  Loop loop;
  bool second_ran = false;
  TimerId second = 0;
  loop.run_after(0, [&] { loop.cancel(second); });
  second = loop.run_after(0, [&] { second_ran = true; });
  bool last_ran = false;
  loop.run_after(1, [&] { last_ran = true; });
  loop.start();
  EXPECT_TRUE(eventually(loop, [&] { return last_ran; }));
  loop.stop();
  EXPECT_FALSE(second_ran);
}

TEST(LoopTest, a_timer_far_in_the_future_does_not_overflow) {
  Loop loop;
  const TimerId timer = loop.run_after(base::kNever, [] { FAIL(); });
  bool ran = false;
  loop.run_after(0, [&] { ran = true; });
  loop.start();
  EXPECT_TRUE(eventually(loop, [&] { return ran; }));
  loop.call([&] { loop.cancel(timer); });
}

TEST(LoopTest, what_was_never_run_is_freed_with_the_loop) {
  const auto held = std::make_shared<int>(0);
  {
    Loop loop;
    loop.post([held] { FAIL(); });
    loop.run_after(0, [held] { FAIL(); });
    EXPECT_EQ(held.use_count(), 3);
  }
  EXPECT_EQ(held.use_count(), 1);
}

TEST(LoopTest, a_poster_may_outlive_its_loop) {
  auto loop = std::make_unique<Loop>();
  const Loop::Poster poster = loop->poster();
  bool ran = false;
  poster.post([&] { ran = true; });
  loop->start();
  EXPECT_TRUE(eventually(*loop, [&] { return ran; }));
  loop.reset();
  poster.post([] { FAIL(); });
}

TEST(LoopTest, call_returns_when_the_loop_stops_first) {
  Loop loop;
  loop.start();
  std::atomic<bool> inside{false};
  std::atomic<bool> leave{false};
  loop.post([&] {
    inside = true;
    while (!leave) std::this_thread::yield();
  });
  while (!inside) std::this_thread::yield();
  std::thread stopper([&] { loop.stop(); });
  bool ran = true;
  std::thread caller([&] { ran = loop.call([] {}); });
  leave = true;
  caller.join();  // whether it came in time or not: it returns
  stopper.join();
  (void)ran;
}

TEST(LoopTest, a_loop_can_be_stopped_twice_and_started_again) {
  Loop loop;
  loop.start();
  loop.stop();
  loop.stop();
  loop.start();
  bool ran = false;
  EXPECT_TRUE(loop.call([&] { ran = loop.on_loop_thread(); }));
  EXPECT_TRUE(ran);
}

TEST(LoopTest, a_thousand_loops_open_and_close) {
  for (int i = 0; i < 1000; ++i) {
    Loop loop;
    loop.start();
    if (i % 2 == 0) loop.post([] {});
    EXPECT_TRUE(i % 3 != 0 || loop.call([&] { loop.run_after(base::kSecond, [] {}); }));
  }
}

}  // namespace
}  // namespace jccl::net
