#include "peer/data_plane.h"

#include <gtest/gtest.h>

#include "collective/plan.h"
#include "net/test_support.h"

namespace jccl::peer {
namespace {

// One plane, whose peer 2 is nowhere: what it is told to run, it only can wait for.
class DataPlaneTest : public net::test::NetTest {
 protected:
  DataPlaneTest() {
    DataPlaneEvents events;
    events.attempt_done = [](const wire::Attempt&, const base::Digest&,
                             const std::vector<wire::Share>&, const wire::AuditRoots&) {};
    events.attempt_failed = [this](const wire::Attempt& attempt, base::Code cause, base::PeerId,
                                   const std::string& text) {
      failed.push_back(attempt);
      causes.push_back(cause);
      texts.push_back(text);
    };
    on([&] {
      DataPlaneOptions options;
      options.credentials = net::test::plain();
      plane = std::make_unique<DataPlane>(loop, options, &store, events);
      plane->set_self(net::test::token_of(1).run, 11, true);
      plane->set_policy(net::DialPolicy(net::endpoint_of("127.0.0.1:1"), {}));
      for (const base::PeerId id : {1, 2}) {
        wire::Member& member = roster.members.emplace_back();
        member.id = id;
        member.incarnation = 10 + id;
        member.site = id == 1 ? "alpha" : "beta";
      }
      plane->set_roster(roster);
    });
  }
  ~DataPlaneTest() override {
    on([this] { plane.reset(); });
  }
  CallRef run(std::uint64_t counter) {
    collective::Plan plan;
    plan.order = {1, 2};
    protocol::RunAttempt order;
    order.start.attempt = {1, counter};
    order.start.round = {"t" + std::to_string(counter), 1};
    order.start.contributors = {{1, 1.0}, {2, 1.0}};
    order.start.plan = collective::encode(plan);
    const CallRef call = call_of();
    on([&] { plane->run(order, call); });
    return call;
  }
  CallRef call_of() {
    auto call = std::make_shared<CallRecord>();
    call->leaves.push_back({codec::Dtype::kF32, values.size(), values.data(), out.data(), "w", {}});
    call->specs.push_back({codec::Dtype::kF32, values.size()});
    return call;
  }

  std::vector<float> values = std::vector<float>(100, 1.0F), out = std::vector<float>(100);
  wire::Roster roster;
  SnapshotStore store;
  std::unique_ptr<DataPlane> plane;
  std::vector<wire::Attempt> failed;
  std::vector<base::Code> causes;
  std::vector<std::string> texts;
};

// Its frames may have come before, and were let go as leftovers of an attempt that is over: it
// would wait for them for ever.
TEST_F(DataPlaneTest, an_attempt_whose_start_was_overtaken_by_a_later_one_fails_at_once) {
  run(3);
  run(5);
  EXPECT_TRUE(failed.empty());
  run(4);
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0], (wire::Attempt{1, 4}));
  EXPECT_EQ(causes[0], base::Code::kLinkLost) << texts[0];
  run(6);
  EXPECT_EQ(failed.size(), 1u);
}

// Their frames could not be told apart, and the first call's memory would be gone under them.
TEST_F(DataPlaneTest, an_attempt_that_was_started_for_another_call_already_is_refused) {
  const CallRef first = run(3);
  run(3);
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(causes[0], base::Code::kInternal);
  on([&] {
    plane->commit({1, 3});  // not done: nothing becomes visible
    plane->commit({1, 9});
    plane->release(first);
  });
  EXPECT_FALSE(first->delivered);
}

TEST_F(DataPlaneTest, a_peer_that_left_fails_the_attempts_that_wait_for_it_and_is_named) {
  run(3);
  roster.members.pop_back();
  on([&] { plane->set_roster(roster); });
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(causes[0], base::Code::kLinkLost);
  EXPECT_EQ(texts[0], "beta left the run");
}

// Its results stayed, round after round, and at 257 of them the heartbeat could not be written.
TEST_F(DataPlaneTest, a_receiver_that_never_reads_keeps_the_results_of_a_few_rounds_only) {
  collective::Plan alone;
  alone.order = {1};
  for (std::uint64_t n = 1; n <= 300; ++n) {
    protocol::RunAttempt order;
    order.start.attempt = {1, n};
    order.start.round = {"t", n};
    order.start.contributors = {{1, 1.0}};
    order.start.receivers = {2};
    order.start.plan = collective::encode(alone);
    const CallRef call = call_of();
    on([&] {
      plane->run(order, call);
      plane->commit({1, n});
      EXPECT_TRUE(call->delivered);
      plane->release(call);
      EXPECT_LE(plane->attempts(), 4u);
    });
  }
  EXPECT_TRUE(failed.empty());
}

// A member can advertise anything: others must not learn which of it is open from here.
TEST_F(DataPlaneTest, what_others_hear_of_a_failed_link_names_the_peer_and_no_address) {
  roster.members[1].addresses = {"127.0.0.1:1"};
  roster.links = {1, {5}};
  on([&] { plane->set_roster(roster); });
  const CallRef call = run(3);
  ASSERT_TRUE(eventually([this] { return !failed.empty(); }));
  on([&] {
    EXPECT_EQ(causes[0], base::Code::kLinkLost);
    EXPECT_EQ(texts[0], "can't reach beta");
    EXPECT_NE(call->here.find("127.0.0.1:1"), std::string::npos) << call->here;
  });
}

TEST(IoThreadsTest, begin_where_each_peer_of_the_machine_has_three_cores) {
  std::vector<wire::Member> members(4);
  for (std::size_t i = 0; i < 4; ++i) members[i].incarnation = 10 + i;
  members[0].addresses = {"10.0.0.1:5", "192.0.2.1:5"};
  members[1].addresses = {"192.0.2.1:6"};     // the same machine
  members[2].addresses = {"198.51.100.7:5"};  // another one
  EXPECT_FALSE(has_cores_for_io(members, 10, 5));
  EXPECT_TRUE(has_cores_for_io(members, 10, 6));
  EXPECT_TRUE(has_cores_for_io(members, 12, 3));
  EXPECT_FALSE(has_cores_for_io(members, 13, 2));  // who only dials out counts itself
  EXPECT_TRUE(has_cores_for_io(members, 13, 3));
  EXPECT_EQ(core_of_each(members, 10, 1), 500U);
  EXPECT_EQ(core_of_each(members, 10, 2), 1000U);
  EXPECT_EQ(core_of_each(members, 12, 16), 1000U) << "a data thread runs on one";
}

}  // namespace
}  // namespace jccl::peer
