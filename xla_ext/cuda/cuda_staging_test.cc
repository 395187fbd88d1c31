// Pinned memory, host threads and deadlines of calls, over a driver that stands in for CUDA's.
#include "cuda/cuda_staging.h"

#include <gtest/gtest.h>

#include <cstring>

#include "testing/cluster.h"
#include "testing/fake_cuda.h"

namespace jccl::xla_ext::cuda {
namespace {

using base::Code;
using testing::eventually;

void* stream() {
  static void* held = fake_cuda_stream(0);
  return held;
}

class Staging : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_cuda_reset();
    ASSERT_TRUE(driver().ok()) << driver().status().text;
  }
  void TearDown() override {
    EXPECT_TRUE(eventually([] { return fake_cuda_idle(stream()); }));
    EXPECT_STREQ(fake_cuda_violation(), "");
    EXPECT_TRUE(eventually([] { return fake_cuda_contexts_pushed() == 0; }));
  }
};

TEST_F(Staging, a_library_that_is_not_there_is_named) {
  const auto none = open_driver("libcuda-of-nobody.so.1");
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().code, Code::kIo);
  EXPECT_NE(none.status().text.find("libcuda-of-nobody.so.1"), std::string::npos);
}

TEST_F(Staging, a_library_that_is_no_driver_names_what_it_lacks) {
  const auto other = open_driver("libm.so.6");
  ASSERT_FALSE(other.ok());
  EXPECT_NE(other.status().text.find("cuInit"), std::string::npos) << other.status().text;
}

TEST_F(Staging, pinned_blocks_are_used_again_and_freed_once) {
  {
    const StreamScope scope(driver().value(), stream());
    PinnedPool pool(driver().value());
    void* first = nullptr;
    for (int i = 0; i < 3; ++i) {
      const auto block = pool.take(100'000, scope.context());
      ASSERT_TRUE(block.ok());
      if (first == nullptr) first = block.value()->memory;
      EXPECT_EQ(block.value()->memory, first);
    }
    EXPECT_EQ(fake_cuda_count("cuMemHostAlloc"), 1);
    auto out = pool.take(100'000, scope.context());
    pool.close();
    EXPECT_GT(fake_cuda_pinned_bytes(), 0U);  // out
    out.value().reset();
  }
  EXPECT_TRUE(eventually([] { return fake_cuda_pinned_bytes() == 0; }));
}

TEST_F(Staging, what_the_stream_brings_is_there_when_the_host_works_and_back_after_it) {
  const StreamScope scope(driver().value(), stream());
  PinnedPool pool(driver().value());
  auto made = StagedCall::make(scope, pool, {1000, 1000});
  ASSERT_TRUE(made.ok());
  StagedCall& call = *made.value();
  auto* from = static_cast<unsigned char*>(fake_cuda_alloc(1000));
  auto* to = static_cast<unsigned char*>(fake_cuda_alloc(1000));
  std::memset(from, 7, 1000);
  std::memset(to, 0, 1000);
  fake_cuda_pace(1'000'000);
  StagedCall::Host host;
  host.patience = [] { return 60 * base::kSecond; };
  host.work = [&] {
    for (int i = 0; i < 1000; ++i) {
      call.region(1)[i] = static_cast<std::uint8_t>(call.region(0)[i] + i % 3);
    }
  };
  ASSERT_TRUE(call.fetch(scope, 0, reinterpret_cast<DevicePointer>(from), 1000).ok());
  ASSERT_TRUE(call.post(scope, host).ok());
  ASSERT_TRUE(scope.can_wait() || synchronize(scope).ok());
  ASSERT_TRUE(call.wait(scope).ok());
  ASSERT_TRUE(call.store(scope, 1, reinterpret_cast<DevicePointer>(to), 1000).ok());
  ASSERT_TRUE(call.retire(scope).ok());
  ASSERT_TRUE(synchronize(scope).ok());
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(to[i], 7 + i % 3);
}

TEST_F(Staging, a_host_that_never_ends_is_given_up_at_the_deadline) {
  const StreamScope scope(driver().value(), stream());
  PinnedPool pool(driver().value());
  auto made = StagedCall::make(scope, pool, {64});
  ASSERT_TRUE(made.ok());
  const auto call = made.value();
  auto* to = static_cast<unsigned char*>(fake_cuda_alloc(64));
  std::memset(to, 0, 64);
  std::mutex stuck;
  std::unique_lock hold(stuck);
  std::atomic<int> given_up{0};
  StagedCall::Host host;
  host.patience = [] { return 20 * base::kMillisecond; };
  host.work = [&] { std::lock_guard until_the_end(stuck); };
  host.give_up = [&, raw = call.get()](const base::Status& why) {
    EXPECT_EQ(why.code, Code::kInternal);
    std::memset(raw->region(0), 9, 64);
    ++given_up;
  };
  ASSERT_TRUE(call->post(scope, host).ok());
  ASSERT_TRUE(scope.can_wait() || synchronize(scope).ok());
  ASSERT_TRUE(call->wait(scope).ok());
  ASSERT_TRUE(call->store(scope, 0, reinterpret_cast<DevicePointer>(to), 64).ok());
  ASSERT_TRUE(call->retire(scope).ok());
  ASSERT_TRUE(synchronize(scope).ok());  // ends though the work did not
  EXPECT_EQ(to[63], 9);
  EXPECT_EQ(given_up, 1);
  hold.unlock();
  EXPECT_TRUE(eventually([&] { return call.use_count() == 2; }));  // `made` and `call`
}

TEST_F(Staging, calls_wait_for_no_thread) {
  constexpr int kCalls = 30;
  struct Meeting {
    std::mutex mutex;
    std::condition_variable all_here;
    int here = 0;
    bool wait(std::unique_lock<std::mutex>& lock) {
      return all_here.wait_for(lock, std::chrono::seconds(60), [&] { return here == kCalls; });
    }
  };
  const auto meeting = std::make_shared<Meeting>();  // threads leave it after this test did
  for (int i = 0; i < kCalls; ++i) {
    HostThreads::get().reserve();
    HostThreads::get().post([meeting] {
      std::unique_lock lock(meeting->mutex);
      ++meeting->here;
      meeting->all_here.notify_all();
      (void)meeting->wait(lock);
    });
  }
  std::unique_lock lock(meeting->mutex);
  EXPECT_TRUE(meeting->wait(lock));
  EXPECT_GE(HostThreads::get().threads(), static_cast<std::size_t>(kCalls));
}

TEST_F(Staging, deadlines_come_in_their_order_and_not_after_they_were_taken_back) {
  std::mutex mutex;
  std::vector<int> came;
  const auto note = [&](int which) {
    return [&, which] {
      std::lock_guard lock(mutex);
      came.push_back(which);
    };
  };
  Deadlines& deadlines = Deadlines::get();
  deadlines.add(60 * base::kMillisecond, note(3));
  deadlines.add(20 * base::kMillisecond, note(1));
  const auto never = deadlines.add(30 * base::kMillisecond, note(2));
  deadlines.remove(never);
  deadlines.remove(never);
  EXPECT_TRUE(eventually([&] {
    std::lock_guard lock(mutex);
    return came.size() == 2;
  }));
  std::lock_guard lock(mutex);
  EXPECT_EQ(came, (std::vector<int>{1, 3}));
}

}  // namespace
}  // namespace jccl::xla_ext::cuda
