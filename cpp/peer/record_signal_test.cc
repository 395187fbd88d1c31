#include "peer/record_signal.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <csignal>

namespace jccl::peer {
namespace {

constexpr int kPatienceMs = 20'000;

std::atomic<int> programs_own{0};
void own_handler(int) { ++programs_own; }

// SIGUSR1 as it was before, at the end.
class RecordSignal : public testing::Test {
 protected:
  RecordSignal() { ::sigaction(SIGUSR1, nullptr, &before_); }
  ~RecordSignal() override { ::sigaction(SIGUSR1, &before_, nullptr); }
  static bool comes_to(const std::atomic<int>& count, int wanted) {
    for (int i = 0; i < kPatienceMs && count < wanted; ++i) ::usleep(1000);
    return count >= wanted;
  }

  struct ::sigaction before_{};
};

TEST_F(RecordSignal, a_handler_of_the_program_is_left_to_it) {
  for (const auto handler : {static_cast<void (*)(int)>(own_handler), SIG_IGN}) {
    std::signal(SIGUSR1, handler);
    const base::Status no = record_at_signal(this, [](const std::string&) {});
    EXPECT_EQ(no.code, base::Code::kInvalid);
    EXPECT_NE(no.text.find("record()"), std::string::npos) << no.text;
    EXPECT_EQ(std::signal(SIGUSR1, SIG_DFL), handler);
  }
}

TEST_F(RecordSignal, each_signal_asks_whoever_wants_it_until_it_is_forgotten) {
  std::signal(SIGUSR1, SIG_DFL);
  std::atomic<int> first{0}, second{0};
  ASSERT_TRUE(record_at_signal(&first, [&](const std::string& why) {
                EXPECT_EQ(why, "SIGUSR1");
                ++first;
              }).ok());
  ASSERT_TRUE(record_at_signal(&second, [&](const std::string&) { ++second; }).ok());
  std::raise(SIGUSR1);
  EXPECT_TRUE(comes_to(first, 1) && comes_to(second, 1));
  forget_signal(&first);
  std::raise(SIGUSR1);
  EXPECT_TRUE(comes_to(second, 2));
  EXPECT_EQ(first, 1);
  forget_signal(&second);
  std::raise(SIGUSR1);  // nobody's wish, and the end of nobody
}

}  // namespace
}  // namespace jccl::peer
