#include "base/bytes.h"

#include <gtest/gtest.h>

namespace jccl::base {
namespace {

TEST(BytesTest, what_is_written_is_read_back) {
  Writer w;
  w.u8(7);
  w.u16(300);
  w.u32(70000);
  w.u64(1ULL << 40);
  w.f64(-0.5);
  w.text("grads", 16);
  w.attempt({3, 4});
  Reader r(w.bytes());
  EXPECT_EQ(r.u8(), 7);
  EXPECT_EQ(r.u16(), 300);
  EXPECT_EQ(r.u32(), 70000U);
  EXPECT_EQ(r.u64(), 1ULL << 40);
  EXPECT_EQ(r.f64(), -0.5);
  EXPECT_EQ(r.text(16), "grads");
  EXPECT_EQ(r.attempt(), (Attempt{3, 4}));
  EXPECT_TRUE(r.finished());
}

TEST(BytesTest, a_short_or_overlong_field_fails_for_good) {
  Writer w;
  w.text("too long for its limit", 64);
  Reader limited(w.bytes());
  EXPECT_EQ(limited.text(4), "");
  EXPECT_TRUE(limited.failed());
  EXPECT_EQ(limited.u8(), 0);
  for (std::size_t cut = 0; cut < w.size(); ++cut) {
    Reader r(ByteView(w.bytes()).first(cut));
    (void)r.text(64);
    EXPECT_FALSE(r.finished()) << cut;
  }
}

TEST(BytesTest, a_count_is_bounded_by_the_bytes_that_follow) {
  Writer w;
  w.u32(1000000);
  Reader r(w.bytes());
  EXPECT_EQ(r.count(2000000, 4), 0U);
  EXPECT_TRUE(r.failed());
}

}  // namespace
}  // namespace jccl::base
