#include "peer/plane.h"

#include <gtest/gtest.h>

#include "collective/plan.h"
#include "net/test_support.h"

namespace jccl::peer {
namespace {

// One plane, whose peer 2 is nowhere: what it is told to run, it only can wait for.
class PlaneTest : public net::test::NetTest {
 protected:
  PlaneTest() {
    PlaneEvents events;
    events.attempt_failed = [this](const wire::Attempt& attempt, base::Code cause, base::PeerId,
                                   const std::string& text) {
      failed.push_back(attempt);
      EXPECT_EQ(cause, base::Code::kLinkLost) << text;
    };
    on([&] {
      PlaneOptions options;
      options.credentials = net::test::plain();
      plane = std::make_unique<Plane>(loop, options, &store, events);
      plane->set_self(net::test::token_of(1).run, 11, true);
      wire::Roster roster;
      for (const base::PeerId id : {1, 2}) {
        roster.members.emplace_back();
        roster.members.back().id = id;
        roster.members.back().incarnation = 10 + id;
      }
      plane->set_roster(roster);
    });
  }
  ~PlaneTest() override {
    on([this] { plane.reset(); });
  }
  void run(std::uint64_t counter) {
    collective::Plan plan;
    plan.order = {1, 2};
    protocol::RunAttempt order;
    order.start.attempt = {1, counter};
    order.start.round = {"t" + std::to_string(counter), 1};
    order.start.contributors = {{1, 1.0}, {2, 1.0}};
    order.start.plan = collective::encode(plan);
    auto call = std::make_shared<CallRecord>();
    call->leaves.push_back({codec::Dtype::kF32, values.size(), values.data(), out.data(), "w", {}});
    call->specs.push_back({codec::Dtype::kF32, values.size()});
    on([&] { plane->run(order, call); });
  }

  std::vector<float> values = std::vector<float>(100, 1.0F), out = std::vector<float>(100);
  SnapshotStore store;
  std::unique_ptr<Plane> plane;
  std::vector<wire::Attempt> failed;
};

// Its frames may have come before, and were let go as leftovers of an attempt that is over: it
// would wait for them for ever.
TEST_F(PlaneTest, an_attempt_whose_start_was_overtaken_by_a_later_one_fails_at_once) {
  run(3);
  run(5);
  EXPECT_TRUE(failed.empty());
  run(4);
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0], (wire::Attempt{1, 4}));
  run(6);
  EXPECT_EQ(failed.size(), 1u);
}

}  // namespace
}  // namespace jccl::peer
