#include "collective/planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/limits.h"
#include "base/rng.h"

namespace jccl::collective {
namespace {

using base::PeerId;
using Avoid = std::vector<std::pair<PeerId, PeerId>>;

std::vector<PeerId> members(std::uint32_t count) {
  std::vector<PeerId> ids(count);
  std::iota(ids.begin(), ids.end(), 1);
  return ids;
}

bool is_avoided(const Avoid& avoid, PeerId a, PeerId b) {
  return std::count(avoid.begin(), avoid.end(), std::pair{a, b}) +
             std::count(avoid.begin(), avoid.end(), std::pair{b, a}) >
         0;
}

bool is_good_ring(const std::vector<PeerId>& ring, const Avoid& avoid) {
  for (std::size_t i = 0; i < ring.size(); ++i) {
    if (is_avoided(avoid, ring[i], ring[(i + 1) % ring.size()])) return false;
  }
  return true;
}

bool some_ring_exists(std::uint32_t count, const Avoid& avoid) {
  std::vector<PeerId> order = members(count);
  do {
    if (is_good_ring(order, avoid)) return true;
  } while (std::next_permutation(order.begin() + 1, order.end()));
  return false;
}

TEST(PlannerTest, direct_is_the_default_and_members_come_in_id_order) {
  const auto plan = choose({7, 3, 5}, {});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan.value(), (Plan{PlanKind::kDirect, {3, 5, 7}, {}}));
}

TEST(PlannerTest, a_call_that_may_not_ring_is_refused_where_only_a_ring_is_left) {
  PlannerOptions options;
  options.avoid = {{1, 2}, {3, 4}};
  EXPECT_EQ(choose(members(4), options).value().kind, PlanKind::kRing);
  options.may_ring = false;
  EXPECT_EQ(choose(members(4), options).status().code, base::Code::kLinkLost);
  options.avoid = {{1, 2}};
  EXPECT_EQ(choose(members(4), options).value().kind, PlanKind::kDirect);
}

// Links of so many bytes/s, and a core of so many parts for each.
PlannerOptions on_cores(std::uint32_t peers, double share, double bytes_per_s, double work) {
  PlannerOptions options;
  options.any_order = true;
  options.network = Network(peers);
  for (std::uint32_t i = 0; i < peers; ++i) {
    options.network.set_core(i, share);
    options.network.set_up(i, bytes_per_s);
    options.network.set_down(i, bytes_per_s);
  }
  options.work = {work, work, work};
  return options;
}

TEST(PlannerTest, where_any_order_will_do_four_on_two_cores_take_a_ring_for_much) {
  PlannerOptions crowded = on_cores(4, 0.5, 5e9, 64e6);
  const auto found = candidates(members(4), crowded);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found.value().front().plan.kind, PlanKind::kRing);
  EXPECT_LT(found.value()[0].seconds * 1.05, found.value()[1].seconds);
  EXPECT_EQ(found.value().size(), 3U);
  crowded.any_order = false;
  EXPECT_EQ(choose(members(4), crowded).value().kind, PlanKind::kDirect);
  crowded.any_order = true;
  crowded.may_ring = false;  // as for audits
  EXPECT_EQ(choose(members(4), crowded).value().kind, PlanKind::kDirect);
}

TEST(PlannerTest, where_any_order_will_do_the_default_stays_unless_a_ring_gains_a_twentieth) {
  const auto kind = [](const PlannerOptions& options) {
    const auto count = static_cast<std::uint32_t>(options.network.count());
    return choose(members(count), options).value().kind;
  };
  // Lines that carry less than a processor moves: as many bytes either way.
  EXPECT_EQ(kind(on_cores(4, 1, 1e8, 64e6)), PlanKind::kDirect);
  EXPECT_EQ(kind(on_cores(4, 0.5, 1e8, 64e6)), PlanKind::kDirect);
  // Delays count: six on a ring, two over owners, one of an exchange.
  EXPECT_EQ(kind(on_cores(4, 0.5, 5e9, 4096)), PlanKind::kExchange);
  // Of two it is direct in another order.
  EXPECT_EQ(kind(on_cores(2, 0.5, 5e9, 64e6)), PlanKind::kDirect);
}

TEST(PlannerTest, a_ring_that_gains_less_than_a_twentieth_is_not_taken) {
  int small_gains = 0;
  for (double bytes = 64e3; bytes < 64e6; bytes *= 1.02) {
    PlannerOptions asked = on_cores(4, 0.5, 1e9, bytes);
    const auto found = candidates(members(4), asked);
    ASSERT_TRUE(found.ok());
    const auto& all = found.value();
    const auto ring = std::find_if(all.begin(), all.end(), [](const Candidate& one) {
      return one.plan.kind == PlanKind::kRing;
    });
    ASSERT_NE(ring, all.end());
    asked.any_order = false;
    const double other = candidates(members(4), asked).value().front().seconds;
    const bool gains = ring->seconds * 1.05 < other;
    EXPECT_EQ(all.front().plan.kind == PlanKind::kRing, gains) << bytes;
    if (!gains && ring->seconds < other) ++small_gains;
  }
  EXPECT_GT(small_gains, 0);
}

TEST(PlannerTest, where_any_order_will_do_a_ring_goes_round_slow_pairs) {
  PlannerOptions options = on_cores(4, 1, 1e8, 64e6);
  for (const auto& [a, b] : {std::pair{0U, 2U}, {1U, 3U}}) {
    options.network.set(a, b, {1e-3, 1e7});
    options.network.set(b, a, {1e-3, 1e7});
  }
  EXPECT_EQ(choose(members(4), options).value().kind, PlanKind::kRing);
  options.avoid = {{1, 3}, {1, 2}, {1, 4}};  // no ring, and no other plan: as without the wish
  EXPECT_EQ(choose(members(4), options).status().code, base::Code::kLinkLost);
  options.avoid = {{1, 2}, {1, 4}};  // peer 3 reaches all, and no ring is closed
  EXPECT_EQ(choose(members(4), options).value().kind, PlanKind::kDirect);
}

// As many bytes either way: an exchange saves a delay, direct the second sum.
TEST(PlannerTest, two_exchange_what_they_have_where_a_delay_counts) {
  EXPECT_EQ(choose({7}, {}).value().kind, PlanKind::kDirect);
  EXPECT_EQ(choose({7, 3}, {}).value(), (Plan{PlanKind::kDirect, {3, 7}, {}}));
  PlannerOptions little;
  little.work = {1e6, 1e6, 1e6};
  EXPECT_EQ(choose({7, 3}, little).value(), (Plan{PlanKind::kExchange, {3, 7}, {1, 0}}));
  little.receivers = {9};
  EXPECT_EQ(choose({7, 3}, little).value(), (Plan{PlanKind::kExchange, {3, 7}, {}}));
  PlannerOptions far;
  far.network = Network(2);
  far.network.set(0, 1, {0.04, 1.25e8});
  far.network.set(1, 0, {0.04, 1.25e8});
  EXPECT_EQ(choose({7, 3}, far).value().kind, PlanKind::kExchange);
}

TEST(PlannerTest, little_is_exchanged_and_much_goes_to_owners) {
  const auto kind = [](std::uint32_t peers, double bytes) {
    return choose(members(peers), {.work = {bytes, bytes, bytes}}).value().kind;
  };
  EXPECT_EQ(kind(4, 4096), PlanKind::kExchange);
  EXPECT_EQ(kind(16, 4096), PlanKind::kExchange);
  EXPECT_EQ(kind(17, 4096), PlanKind::kDirect);
  EXPECT_EQ(kind(4, 64e6), PlanKind::kDirect);
  EXPECT_EQ(kind(2, 2e6), PlanKind::kExchange);
}

TEST(PlannerTest, the_longer_the_delay_the_more_is_exchanged) {
  PlannerOptions far;
  far.network = Network(4);
  for (std::uint32_t i = 0; i < 4; ++i) {
    for (std::uint32_t j = 0; j < 4; ++j) {
      if (i != j) far.network.set(i, j, {0.08, 1.25e8});
    }
  }
  far.work = {1e6, 1e6, 1e6};
  EXPECT_EQ(choose(members(4), far).value().kind, PlanKind::kExchange);
  EXPECT_EQ(choose(members(4), {.work = far.work}).value().kind, PlanKind::kDirect);
}

TEST(PlannerTest, candidates_come_with_predictions_and_the_chosen_one_first) {
  PlannerOptions options;
  options.network = Network(3);
  options.network.set_up(1, 1e7);
  const auto found = candidates({9, 4, 6}, options);
  ASSERT_TRUE(found.ok());
  ASSERT_EQ(found.value().size(), 3U);
  const Plan& chosen = found.value().front().plan;
  EXPECT_EQ(chosen.kind, PlanKind::kDirect);
  ASSERT_EQ(chosen.shares.size(), 3U);
  EXPECT_LT(chosen.shares[1], chosen.shares[0] / 10);
  for (const Candidate& c : found.value()) {
    EXPECT_GE(c.seconds, found.value().front().seconds);
    EXPECT_EQ(c.seconds, predict_for(c.plan, {4, 6, 9}, options.network, options.work));
  }
  EXPECT_EQ(choose({9, 4, 6}, options).value(), chosen);
}

TEST(PlannerTest, a_ring_that_is_asked_for_is_ordered_by_its_links) {
  PlannerOptions options{.kind = PlanKind::kRing};
  options.network = Network(4);
  for (const auto& [a, b] : {std::pair{0U, 1U}, {2U, 3U}}) {
    options.network.set(a, b, {0.05, 1e6});
    options.network.set(b, a, {0.05, 1e6});
  }
  const auto plan = choose(members(4), options);
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(is_good_ring(plan.value().order, {{1, 2}, {3, 4}}));
}

TEST(PlannerTest, a_kind_can_be_asked_for) {
  for (const PlanKind kind : {PlanKind::kDirect, PlanKind::kRing, PlanKind::kGather,
                              PlanKind::kScatter, PlanKind::kExchange, PlanKind::kAllToAll}) {
    const auto plan = choose({2, 1}, {.kind = kind});
    ASSERT_TRUE(plan.ok());
    EXPECT_EQ(plan.value().kind, kind);
  }
}

TEST(PlannerTest, an_all_to_all_needs_every_link_and_says_which_is_missing) {
  const auto plan = choose(members(3), {.kind = PlanKind::kAllToAll, .avoid = {{3, 2}}});
  EXPECT_EQ(plan.status().code, base::Code::kLinkLost);
  EXPECT_EQ(plan.status().text, "no all_to_all plan does without the link between peers 2 and 3");
}

TEST(PlannerTest, a_missing_link_leaves_the_owning_to_those_everybody_can_reach) {
  const auto plan = choose(members(4), {.avoid = {{2, 1}}});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan.value(), (Plan{PlanKind::kDirect, {1, 2, 3, 4}, {0, 0, 1, 1}}));
  const auto three = choose(members(3), {.kind = PlanKind::kDirect, .avoid = {{3, 2}}});
  EXPECT_EQ(three.value(), (Plan{PlanKind::kDirect, {1, 2, 3}, {1, 0, 0}}));
}

TEST(PlannerTest, without_such_a_peer_a_ring_does_without_the_links) {
  const Avoid avoid = {{2, 1}, {3, 4}};
  const auto plan = choose(members(4), {.avoid = avoid});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan.value().kind, PlanKind::kRing);
  EXPECT_TRUE(is_good_ring(plan.value().order, avoid));
}

TEST(PlannerTest, peers_that_only_dial_out_meet_at_those_that_listen) {
  EXPECT_EQ(choose(members(3), {.dial_only = {2, 3}}).value(),
            (Plan{PlanKind::kDirect, {1, 2, 3}, {1, 0, 0}}));
  EXPECT_EQ(choose(members(5), {.dial_only = {1, 4}}).value().shares,
            (std::vector<std::uint32_t>{0, 1, 1, 0, 1}));
  EXPECT_EQ(choose(members(3), {.dial_only = {2}}).value(),
            (Plan{PlanKind::kDirect, {1, 2, 3}, {}}));
  EXPECT_TRUE(choose(members(2), {.dial_only = {2, 9}}).ok());
  const auto alone = choose({2, 7}, {.dial_only = {2, 7}});
  EXPECT_EQ(alone.status().code, base::Code::kLinkLost);
  EXPECT_EQ(alone.status().text,
            "peers 2 and 7 can both only dial out, and no plan does without a link between them: "
            "let one listen (bind, advertise), or add a peer that all can reach");
}

TEST(PlannerTest, what_a_receiver_gets_comes_from_a_peer_it_can_reach) {
  const auto dialling = choose(members(3), {.receivers = {9}, .dial_only = {2, 9}});
  EXPECT_EQ(dialling.value(), (Plan{PlanKind::kDirect, {1, 2, 3}, {1, 0, 1}}));
  const auto two =
      choose(members(2), {.kind = PlanKind::kExchange, .receivers = {9}, .dial_only = {2, 9}});
  EXPECT_EQ(two.value(), (Plan{PlanKind::kExchange, {1, 2}, {1, 0}}));
  // The master names the lower id first.
  for (const auto& link : {std::pair<PeerId, PeerId>{3, 9}, {9, 3}}) {
    const auto failed = choose(members(3), {.receivers = {9}, .avoid = {link}});
    EXPECT_EQ(failed.value(), (Plan{PlanKind::kDirect, {1, 2, 3}, {1, 1, 0}}));
  }
  const auto older = choose({5, 6, 7}, {.receivers = {1}, .avoid = {{1, 6}}});
  EXPECT_EQ(older.value(), (Plan{PlanKind::kDirect, {5, 6, 7}, {1, 0, 1}}));
  const auto hopeless = choose(members(1), {.receivers = {9}, .dial_only = {1, 9}});
  EXPECT_EQ(hopeless.value(), (Plan{PlanKind::kDirect, {1}, {}}));
}

TEST(PlannerTest, links_of_strangers_do_not_matter) {
  const auto plan = choose(members(3), {.avoid = {{1, 9}, {8, 9}, {2, 2}}});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan.value().kind, PlanKind::kDirect);
}

TEST(PlannerTest, a_link_nothing_goes_around_is_named) {
  const auto three = choose(members(3), {.avoid = {{3, 2}, {1, 2}}});
  EXPECT_EQ(three.status().code, base::Code::kLinkLost);
  EXPECT_EQ(three.status().text, "no plan does without the link between peers 2 and 3");
  EXPECT_EQ(choose(members(2), {.avoid = {{1, 2}}}).status().code, base::Code::kLinkLost);
  const auto direct =
      choose(members(5), {.kind = PlanKind::kDirect, .avoid = {{3, 2}, {1, 4}, {5, 1}}});
  EXPECT_EQ(direct.status().text, "no direct plan does without the link between peers 2 and 3");
  const auto exchange = choose(members(5), {.kind = PlanKind::kExchange, .avoid = {{3, 2}}});
  EXPECT_EQ(exchange.status().text, "no exchange plan does without the link between peers 2 and 3");
}

TEST(PlannerTest, small_worlds_find_a_ring_exactly_when_there_is_one) {
  base::Rng rng(3);
  int found = 0;
  int none = 0;
  for (int round = 0; round < 600; ++round) {
    const auto count = static_cast<std::uint32_t>(3 + rng.below(5));
    Avoid avoid = {{1, 2}};
    for (PeerId a = 1; a <= count; ++a) {
      for (PeerId b = a + 1; b <= count; ++b) {
        if (rng.chance(0.35)) avoid.emplace_back(b, a);
      }
    }
    const auto plan = choose(members(count), {.kind = PlanKind::kRing, .avoid = avoid});
    ASSERT_EQ(plan.ok(), some_ring_exists(count, avoid));
    plan.ok() ? ++found : ++none;
    if (plan.ok()) {
      EXPECT_TRUE(is_good_ring(plan.value().order, avoid));
    }
  }
  EXPECT_GT(found, 50);
  EXPECT_GT(none, 50);
}

TEST(PlannerTest, large_worlds_go_around_many_links) {
  base::Rng rng(4);
  for (const std::uint32_t count : {16U, 17U, 64U, 200U}) {
    Avoid avoid = {{1, 2}};
    for (PeerId a = 1; a <= count; ++a) {
      for (PeerId b = a + 1; b <= count; ++b) {
        if (rng.chance(0.3)) avoid.emplace_back(a, b);
      }
    }
    const auto plan = choose(members(count), {.avoid = avoid});
    ASSERT_TRUE(plan.ok()) << count;
    EXPECT_TRUE(check(plan.value()).ok());
    EXPECT_EQ(plan.value().order.size(), count);
    EXPECT_TRUE(is_good_ring(plan.value().order, avoid)) << count;
    EXPECT_EQ(plan.value(), choose(members(count), {.avoid = avoid}).value());
  }
}

// Links only between two halves: every peer can reach just half of them all, the fewest for which
// a ring is certain, and the first guess is wrong almost everywhere.
TEST(PlannerTest, a_large_world_of_two_halves_is_threaded) {
  for (const std::uint32_t count : {18U, 40U, 100U}) {
    Avoid avoid;
    for (PeerId a = 1; a <= count; ++a) {
      for (PeerId b = a + 1; b <= count; ++b) {
        if ((a <= count / 2) == (b <= count / 2)) avoid.emplace_back(a, b);
      }
    }
    const auto plan = choose(members(count), {.avoid = avoid});
    ASSERT_TRUE(plan.ok()) << count;
    EXPECT_TRUE(is_good_ring(plan.value().order, avoid)) << count;
  }
}

TEST(PlannerTest, impossible_memberships_are_refused) {
  EXPECT_EQ(choose({}, {}).status().code, base::Code::kInvalid);
  EXPECT_EQ(choose({1, 1}, {}).status().code, base::Code::kInvalid);
  EXPECT_EQ(choose({0, 1}, {}).status().code, base::Code::kInvalid);
  EXPECT_EQ(choose(members(base::kPeersMax + 1), {}).status().code, base::Code::kLimit);
}

}  // namespace
}  // namespace jccl::collective
