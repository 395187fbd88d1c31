// Whose state changes again and again is left out of a round: once for each site, and where the
// others can do without it.
#include "protocol/hostile_rig.h"

namespace jccl::protocol {
namespace {

using base::Code;
using base::kSecond;

class EditsTest : public HostileMember {
 protected:
  static wire::Sync asks(bool changed = false) {
    wire::Sync sync;
    sync.tag = "model", sync.changed = changed;
    sync.deadline = 600 * kSecond;
    return sync;
  }
  static wire::Ready state_ready() {
    wire::Ready call = ready("model");
    call.has_state = true;
    return call;
  }
};

// Simulator, seed 5006297: of three the only one that listens was left out, and nobody else could
// reach another.
TEST_F(EditsTest, without_whom_there_is_no_plan_is_waited_for_again) {
  MasterOptions three = options();
  three.start_peers = 3;
  begin(three, [](const PlanRequest& wanted) -> base::Result<base::Bytes> {
    if (wanted.contributors.size() < 3) return base::Status{Code::kLinkLost, "both only dial out"};
    return base::Bytes{};
  });
  join({"a", "b", "c"});
  for (ConnId conn = 1; conn <= 3; ++conn) (void)say(conn, asks());
  for (ConnId conn = 1; conn <= 2; ++conn) (void)say(conn, state_ready());
  for (int time = 0; time < 3; ++time) {
    EXPECT_TRUE(sent<wire::Reject>(say(3, asks(true))).empty()) << "of those that wait";
  }
  EXPECT_EQ(sent<wire::Start>(say(3, state_ready())).size(), 3U);
}

TEST_F(EditsTest, one_edit_of_a_site_counts_once_for_all_its_shards) {
  MasterOptions three = options();
  three.start_peers = 2;
  begin(three);
  for (ConnId conn = 1; conn <= 4; ++conn) {
    wire::Hello one = hello(100 * conn, conn <= 2 ? "a" : "b");
    one.shard = (conn - 1) % 2, one.shards = 2;
    (void)join(conn, one);
  }
  for (ConnId conn = 1; conn <= 4; ++conn) (void)say(conn, asks());
  for (ConnId conn = 1; conn <= 2; ++conn) (void)say(conn, state_ready());
  for (ConnId conn = 3; conn <= 4; ++conn) {
    EXPECT_TRUE(sent<wire::Start>(say(conn, asks(true))).empty()) << "left out by one edit";
  }
  EXPECT_EQ(sent<wire::Start>(say(3, asks(true))).size(), 2U) << "by the second";
}

// It took its call back, which crossed the START, and asks for the run's state then.
TEST_F(EditsTest, one_edit_that_crosses_a_start_counts_once) {
  MasterOptions three = options();
  three.start_peers = 3;
  begin(three);
  join({"a", "b", "c"});
  for (ConnId conn = 1; conn <= 3; ++conn) (void)say(conn, asks());
  for (ConnId conn = 1; conn <= 2; ++conn) (void)say(conn, state_ready());
  ASSERT_EQ(sent<wire::Start>(say(3, state_ready())).size(), 3U);
  (void)say(3, wire::Withdraw{{"model", 1}});
  for (ConnId conn = 1; conn <= 2; ++conn) (void)say(conn, state_ready());
  EXPECT_TRUE(sent<wire::Start>(say(3, asks(true))).empty()) << "without it, by one edit";
  EXPECT_EQ(sent<wire::Start>(say(3, state_ready())).size(), 3U);
}

}  // namespace
}  // namespace jccl::protocol
