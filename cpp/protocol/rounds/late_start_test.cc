// Whom a START is told again whose connection broke, while a contributor that says that it is done
// goes.
#include "protocol/hostile_rig.h"

namespace jccl::protocol {
namespace {

class LateStartTest : public HostileMember {
 protected:
  // Three are READY; the second loses its connection with the START, the third says DONE and goes.
  void lose_one_and_then_another() {
    run_of_three();
    for (ConnId conn = 1; conn <= 2; ++conn) (void)say(conn, ready("grads", 2));
    attempt_ = sent<wire::Start>(say(3, ready("grads", 2))).at(0).attempt;
    (void)on(ConnClosed{2});
    (void)say(3, wire::Done{attempt_, {7, 7}});
    (void)say(3, wire::Leave{});
  }
  MasterEffects come_back() {
    (void)say(12, hello(200, "b"));
    return say(12, wire::Resume{});
  }
  wire::Attempt attempt_;
};

TEST_F(LateStartTest, names_nobody_who_is_out_the_attempt_ends) {
  lose_one_and_then_another();
  const MasterEffects effects = come_back();
  EXPECT_TRUE(sent<wire::Start>(effects).empty());
  const auto told = sent<wire::Outcome>(effects);
  ASSERT_FALSE(told.empty());
  EXPECT_EQ(told[0].attempt, attempt_);
  EXPECT_EQ(told[0].verdict, wire::Verdict::kAborted);
  EXPECT_TRUE(told[0].retry);
}

}  // namespace
}  // namespace jccl::protocol
