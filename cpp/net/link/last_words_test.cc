// What is left to say when this side ends a connection.
#include <gtest/gtest.h>

#include "net/link/frames.h"
#include "net/test_support.h"

namespace jccl::net::test {
namespace {

class LastWordsTest : public NetTest {};

TEST_F(LastWordsTest, who_has_much_unread_hears_no_last_word) {
  auto pairs = connect(plain());
  ASSERT_EQ(pairs.size(), 1u);
  std::unique_ptr<FramedStream> near, far;
  int frames = 0;
  bool ended = false;
  on([&] {
    near = std::make_unique<FramedStream>(loop, std::move(pairs[0].first));
    far = std::make_unique<FramedStream>(loop, std::move(pairs[0].second));
    far->start([&](ByteView) { ++frames; }, [&](Status) { ended = true; });
    far->authenticated();
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(near->send(Bytes(60'000, 'u')).ok());
    near->finish();
    near.reset();
  });
  EXPECT_TRUE(eventually([&] { return ended; }));
  EXPECT_EQ(frames, 0);
  on([&] { far.reset(); });
}

}  // namespace
}  // namespace jccl::net::test
