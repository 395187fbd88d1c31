#include "peer/buffers.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <thread>

namespace jccl::peer {
namespace {

TEST(BuffersTest, a_buffer_has_the_size_asked_for_and_wastes_at_most_a_quarter) {
  BufferPool pool;
  for (std::size_t size : {0UL, 1UL, 4095UL, 4096UL, 4097UL, 5000UL, 5120UL, 5121UL, 8192UL, 8193UL,
                           100'000UL, 262'144UL, 262'145UL, 1'000'001UL}) {
    const BufferRef buffer = pool.take(size);
    EXPECT_EQ(buffer->size(), size);
    EXPECT_GE(buffer->capacity(), size);
    EXPECT_LE(buffer->capacity(), std::max<std::size_t>(4096, size + size / 4 + 1)) << size;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->data()) % 64, 0u);
    std::memset(buffer->data(), 0x5A, buffer->size());
  }
}

TEST(BuffersTest, released_memory_is_used_again) {
  BufferPool pool;
  std::set<const void*> first, second;
  for (auto* seen : {&first, &second}) {
    std::vector<BufferRef> held;
    for (int i = 0; i < 10; ++i) held.push_back(pool.take(200'000 + static_cast<std::size_t>(i)));
    for (const BufferRef& buffer : held) seen->insert(buffer->data());
  }
  EXPECT_EQ(first.size(), 10u) << "no two share memory while both are held";
  EXPECT_EQ(first, second);
}

TEST(BuffersTest, what_exceeds_the_kept_bytes_is_freed) {
  BufferPool pool(10'000);
  {
    const BufferRef a = pool.take(8000), b = pool.take(8000);
  }
  EXPECT_EQ(pool.kept_bytes(), 8192u) << "one was kept, the other is gone";
  const BufferRef again = pool.take(8000);
  EXPECT_EQ(again->size(), 8000u);
  EXPECT_EQ(pool.kept_bytes(), 0u) << "what is in use again is not kept";
}

TEST(BuffersTest, a_buffer_may_outlive_its_pool_and_be_released_on_any_thread) {
  auto pool = std::make_unique<BufferPool>();
  std::vector<BufferRef> held;
  for (int i = 0; i < 100; ++i) held.push_back(pool->take(10'000));
  std::thread other([&] { held.resize(50); });
  other.join();
  std::thread racing([&] { held.clear(); });
  for (int i = 0; i < 100; ++i) (void)pool->take(10'000);
  racing.join();
  held.push_back(pool->take(1));
  pool.reset();
  held.clear();
}

}  // namespace
}  // namespace jccl::peer
