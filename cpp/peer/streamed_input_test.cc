#include "peer/streamed_input.h"

#include <gtest/gtest.h>

#include <thread>

namespace jccl::peer {
namespace {

TEST(StreamedInputTest, it_waits_for_all_of_it_or_a_fault_and_never_goes_back) {
  StreamedInput feed(10);
  EXPECT_FALSE(feed.wait(0));
  feed.advance(7);
  feed.advance(3);
  EXPECT_EQ(feed.here(), 7u);
  std::thread rest([&] { feed.advance(10); });
  EXPECT_TRUE(feed.wait(60 * base::kSecond));
  rest.join();
  feed.fail("late");
  EXPECT_FALSE(feed.fault()) << "everything is here";
  StreamedInput broken(10);
  broken.fail("gone");
  broken.fail("again");
  EXPECT_EQ(broken.fault(), "gone");
  EXPECT_FALSE(broken.wait(60 * base::kSecond));
}

}  // namespace
}  // namespace jccl::peer
