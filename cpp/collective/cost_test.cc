#include "collective/cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/rng.h"

namespace jccl::collective {
namespace {

constexpr double kMiB = 1024.0 * 1024;

Work bytes_of(double bytes) { return {bytes, bytes, bytes}; }

Plan plan_over(PlanKind kind, std::size_t size, std::vector<std::uint32_t> shares = {}) {
  Plan plan;
  plan.kind = kind;
  for (std::uint32_t i = 0; i < size; ++i) plan.order.push_back(1 + i);
  plan.shares = std::move(shares);
  return plan;
}

std::vector<std::uint32_t> in_order(std::size_t size) {
  std::vector<std::uint32_t> place(size);
  std::iota(place.begin(), place.end(), 0);
  return place;
}

double direct(const Network& network, const Work& work, std::vector<std::uint32_t> shares = {}) {
  const std::size_t n = network.count();
  return predict(plan_over(PlanKind::kDirect, n, std::move(shares)), in_order(n), network, work);
}

void set_both(Network& network, std::uint32_t a, std::uint32_t b, LinkCost cost) {
  network.set(a, b, cost);
  network.set(b, a, cost);
}

std::vector<bool> all(std::size_t size) { return std::vector<bool>(size, true); }

bool equal(const std::vector<std::uint32_t>& shares) {
  return std::adjacent_find(shares.begin(), shares.end(), std::not_equal_to<>()) == shares.end();
}

double fraction(const std::vector<std::uint32_t>& shares, std::size_t i) {
  return shares[i] / static_cast<double>(std::accumulate(shares.begin(), shares.end(), 0U));
}

// Links, capacities and owners of every kind.
Network some_network(base::Rng& rng, std::size_t size) {
  Network network(size);
  const double dense = rng.unit();
  for (std::uint32_t i = 0; i < size; ++i) {
    if (rng.chance(0.5)) network.set_up(i, std::exp(12 + 9 * rng.unit()));
    if (rng.chance(0.5)) network.set_down(i, std::exp(12 + 9 * rng.unit()));
    for (std::uint32_t j = 0; j < size; ++j) {
      if (i == j || !rng.chance(dense)) continue;
      network.set(i, j, {0.1 * rng.unit() * rng.unit(), std::exp(12 + 9 * rng.unit())});
    }
  }
  return network;
}

TEST(CostTest, an_unmeasured_network_gets_equal_shares) {
  for (const std::size_t size : {1U, 2U, 3U, 16U, 200U}) {
    EXPECT_TRUE(equal(balanced_shares(Network(size), bytes_of(64 * kMiB), all(size)))) << size;
  }
}

TEST(CostTest, a_uniform_network_gets_equal_shares_whatever_its_speed) {
  Network network(5);
  for (std::uint32_t i = 0; i < 5; ++i) {
    network.set_up(i, 1e6);
    network.set_down(i, 2e6);
    for (std::uint32_t j = 0; j < 5; ++j) {
      if (i != j) network.set(i, j, {0.08, 3e5 * (1 + 0.04 * ((i + j) % 2))});
    }
  }
  EXPECT_TRUE(equal(balanced_shares(network, bytes_of(64 * kMiB), all(5))));
}

// (1 + s)·E / up is least when the slow one owns nothing.
TEST(CostTest, a_slow_uplink_owns_less) {
  Network network(3);
  for (std::uint32_t i = 0; i < 3; ++i) network.set_up(i, i == 1 ? 5e7 : 1e8);
  const Work work = bytes_of(100e6);
  const auto shares = balanced_shares(network, work, all(3));
  EXPECT_LT(fraction(shares, 1), 0.01);
  EXPECT_NEAR(fraction(shares, 0), fraction(shares, 2), 0.01);
  EXPECT_NEAR(direct(network, work, shares), 2.0, 0.05);
  EXPECT_NEAR(direct(network, work), 4.0 / 3 * 2, 0.05);
}

TEST(CostTest, uplinks_that_differ_own_in_proportion_to_what_they_can_spare) {
  Network network(4);
  const double up[] = {1e8, 1.2e8, 1.4e8, 1.8e8};
  for (std::uint32_t i = 0; i < 4; ++i) network.set_up(i, up[i]);
  const Work work = bytes_of(1e8);
  const auto shares = balanced_shares(network, work, all(4));
  // (1 + 2·s_i)/up_i = T for all, Σ s = 1: T = 6 / Σ up.
  const double best = 6.0 / 5.4;
  EXPECT_NEAR(direct(network, work, shares), best, 0.01);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(fraction(shares, i), (best * up[i] / 1e8 - 1) / 2, 0.01) << i;
  }
}

TEST(CostTest, the_ends_of_a_slow_link_own_little) {
  Network network(3);
  for (std::uint32_t i = 0; i < 3; ++i) {
    network.set_up(i, 1e8);
    network.set_down(i, 1e8);
  }
  set_both(network, 1, 2, {1e-3, 25e6});
  const Work work = bytes_of(1e8);
  const auto shares = balanced_shares(network, work, all(3));
  EXPECT_NEAR(fraction(shares, 0), 0.6, 0.01);  // 1 + s = T = (1 - s)/0.25
  EXPECT_NEAR(direct(network, work, shares), 1.6, 0.02);
}

TEST(CostTest, a_peer_whose_links_are_all_slow_owns_nothing) {
  Network network(5);
  for (std::uint32_t j = 1; j < 5; ++j) set_both(network, 0, j, {1e-3, 1e7});
  const auto shares = balanced_shares(network, bytes_of(1e8), all(5));
  EXPECT_LT(fraction(shares, 0), 0.02);
}

TEST(CostTest, only_owners_get_shares) {
  Network network(4);
  network.set_up(3, 1e7);
  const auto shares = balanced_shares(network, bytes_of(1e8), {false, true, true, true});
  EXPECT_EQ(shares[0], 0U);
  EXPECT_GT(shares[1], 0U);
  EXPECT_EQ(balanced_shares(network, bytes_of(1e8), {false, false, true, false}),
            (std::vector<std::uint32_t>{0, 0, 1, 0}));
}

TEST(CostTest, never_slower_than_equal_shares_and_never_without_an_owner) {
  base::Rng rng(11);
  for (int trial = 0; trial < 600; ++trial) {
    const std::size_t size = 1 + rng.below(12);
    const Network network = some_network(rng, size);
    std::vector<bool> owners(size);
    for (std::size_t i = 0; i < size; ++i) owners[i] = rng.chance(0.8);
    owners[rng.below(size)] = true;
    const Work work = bytes_of(std::exp(20 * rng.unit()));
    const auto shares = balanced_shares(network, work, owners);
    ASSERT_EQ(shares.size(), size);
    for (std::size_t i = 0; i < size; ++i) {
      if (!owners[i]) {
        ASSERT_EQ(shares[i], 0U);
      }
    }
    ASSERT_GT(std::accumulate(shares.begin(), shares.end(), 0U), 0U);
    const std::vector<std::uint32_t> flat(owners.begin(), owners.end());
    ASSERT_LE(direct(network, work, shares), direct(network, work, flat) * (1 + 1e-12));
    ASSERT_EQ(balanced_shares(network, work, owners), shares);
  }
}

// Against every division into sixteenths.
TEST(CostTest, shares_are_near_the_best_there_are) {
  base::Rng rng(15);
  double worst = 1;
  for (int trial = 0; trial < 150; ++trial) {
    const Network network = some_network(rng, 4);
    const Work work = bytes_of(1e9);
    double best = 1e99;
    for (std::uint32_t a = 0; a <= 16; ++a) {
      for (std::uint32_t b = 0; a + b <= 16; ++b) {
        for (std::uint32_t c = 0; a + b + c <= 16; ++c) {
          best = std::min(best, direct(network, work, {a, b, c, 16 - a - b - c}));
        }
      }
    }
    worst = std::max(worst, direct(network, work, balanced_shares(network, work, all(4))) / best);
  }
  EXPECT_LT(worst, 1.15);
}

TEST(CostTest, who_is_named_first_does_not_matter) {
  base::Rng rng(12);
  for (int trial = 0; trial < 200; ++trial) {
    const std::size_t size = 3 + rng.below(8);
    const Network network = some_network(rng, size);
    std::vector<std::uint32_t> to = in_order(size);
    for (std::size_t i = size; i > 1; --i) std::swap(to[i - 1], to[rng.below(i)]);
    Network moved(size);
    for (std::uint32_t i = 0; i < size; ++i) {
      moved.set_up(to[i], network.up(i));
      moved.set_down(to[i], network.down(i));
    }
    for (const auto& m : network.measured()) moved.set(to[m.from], to[m.to], m.cost);
    const Work work = bytes_of(1e8);
    const auto here = balanced_shares(network, work, all(size));
    const auto there = balanced_shares(moved, work, all(size));
    const double seconds = direct(network, work, here);
    EXPECT_NEAR(direct(moved, work, there) / seconds, 1, 0.002);
    for (std::size_t i = 0; i < size; ++i) {
      EXPECT_NEAR(fraction(here, i), fraction(there, to[i]), 0.002);
    }
  }
}

TEST(CostTest, a_thousand_peers_are_balanced) {
  base::Rng rng(13);
  Network network(1000);
  for (std::uint32_t i = 0; i < 1000; ++i) {
    network.set_up(i, 1e7 * (1 + rng.unit()));
    for (std::uint32_t k = 1; k <= 64; ++k) network.set(i, (i + k) % 1000, {0.05, 1e6});
  }
  const Work work = bytes_of(1e8);
  const auto shares = balanced_shares(network, work, all(1000));
  EXPECT_LE(direct(network, work, shares), direct(network, work));
}

TEST(CostTest, what_takes_longer_is_predicted_to_take_longer) {
  Network network(4);
  for (std::uint32_t i = 0; i < 4; ++i) {
    network.set_up(i, 1e8);
    for (std::uint32_t j = 0; j < 4; ++j) {
      if (i != j) network.set(i, j, {0.04, 1e8});
    }
  }
  const auto seconds = [&](PlanKind kind, double bytes) {
    return predict(plan_over(kind, 4), in_order(4), network, bytes_of(bytes));
  };
  EXPECT_NEAR(seconds(PlanKind::kExchange, 4096), 0.04, 0.001);
  EXPECT_NEAR(seconds(PlanKind::kDirect, 4096), 0.08, 0.001);
  EXPECT_NEAR(seconds(PlanKind::kRing, 4096), 2 * 3 * 0.04, 0.001);
  EXPECT_NEAR(seconds(PlanKind::kExchange, 1e8), 3 + 0.04, 0.01);
  EXPECT_NEAR(seconds(PlanKind::kDirect, 1e8), 1.5 + 0.08, 0.01);
  EXPECT_NEAR(seconds(PlanKind::kRing, 1e8), 1.5 + 0.24, 0.01);
  EXPECT_NEAR(seconds(PlanKind::kScatter, 1e8), 0.75 + 0.04, 0.01);
  EXPECT_NEAR(seconds(PlanKind::kAllToAll, 1e8), 3 + 0.04, 0.01) << "of blocks of so many bytes";
  EXPECT_EQ(predict(plan_over(PlanKind::kDirect, 1), {0}, Network(1), bytes_of(1e9)), 0);
}

TEST(CostTest, a_shared_core_slows_every_plan_and_what_waits_slows_all_but_a_ring) {
  Network whole(4), half(4);
  for (Network* network : {&whole, &half}) {
    for (std::uint32_t i = 0; i < 4; ++i) network->set_up(i, 1e12), network->set_down(i, 1e12);
  }
  for (std::uint32_t i = 0; i < 4; ++i) half.set_core(i, 0.5);
  const auto seconds = [&](PlanKind kind, const Network& network) {
    return predict(plan_over(kind, 4), in_order(4), network, bytes_of(1e9));
  };
  for (const PlanKind kind : {PlanKind::kDirect, PlanKind::kExchange, PlanKind::kRing}) {
    EXPECT_NEAR(seconds(kind, half) / seconds(kind, whole), 2, 0.01) << name_of(kind);
  }
  EXPECT_LT(seconds(PlanKind::kRing, half) * 1.1, seconds(PlanKind::kDirect, half));
  EXPECT_LT(seconds(PlanKind::kDirect, half) * 1.5, seconds(PlanKind::kExchange, half));
}

TEST(CostTest, the_slowest_link_of_a_ring_holds_it_up_by_what_was_measured_last) {
  Network network(3);
  const auto seconds = [&] {
    return predict(plan_over(PlanKind::kRing, 3), in_order(3), network, bytes_of(3e6));
  };
  for (std::uint32_t i = 0; i < 3; ++i) network.set(i, (i + 1) % 3, {0.001, 1e9});
  EXPECT_LT(seconds(), 0.1);
  network.set(1, 2, {0.001, 1e6});
  EXPECT_NEAR(seconds(), 4, 0.1);  // two thirds of a sum and of its result
  network.set(1, 2, {0.001, 2e6});
  EXPECT_NEAR(seconds(), 2, 0.1);
  EXPECT_EQ(network.measured().size(), 3U);
}

// Sites 0, 2, 4 and 1, 3, 5 are near each other; the ring as given crosses the ocean six times.
TEST(CostTest, a_ring_crosses_slow_links_as_seldom_as_it_can) {
  Network network(6);
  for (std::uint32_t i = 0; i < 6; ++i) {
    for (std::uint32_t j = 0; j < 6; ++j) {
      if (i != j) network.set(i, j, {i % 2 == j % 2 ? 0.001 : 0.1, 1e8});
    }
  }
  const auto linked = [](std::uint32_t, std::uint32_t) { return true; };
  const auto ring = ordered_ring(in_order(6), network, bytes_of(1e6), linked);
  int crossings = 0;
  for (std::size_t i = 0; i < 6; ++i) crossings += ring[i] % 2 != ring[(i + 1) % 6] % 2;
  EXPECT_EQ(crossings, 2);
  EXPECT_EQ(ring[0], 0U);
}

TEST(CostTest, a_ring_is_turned_only_along_links) {
  base::Rng rng(14);
  for (int trial = 0; trial < 100; ++trial) {
    const std::size_t size = 4 + rng.below(8);
    const Network network = some_network(rng, size);
    const auto ring = in_order(size);
    const auto linked = [&](std::uint32_t a, std::uint32_t b) {
      const std::uint32_t d = a > b ? a - b : b - a;
      return d == 1 || d == size - 1 || (a * 7 + b * 7) % 3 == 0;
    };
    const auto better = ordered_ring(ring, network, bytes_of(1e7), linked);
    ASSERT_TRUE(std::is_permutation(better.begin(), better.end(), ring.begin()));
    for (std::size_t i = 0; i < size; ++i) ASSERT_TRUE(linked(better[i], better[(i + 1) % size]));
    const Plan plan = plan_over(PlanKind::kRing, size);
    EXPECT_LE(predict(plan, better, network, bytes_of(1e7)),
              predict(plan, ring, network, bytes_of(1e7)));
  }
}

}  // namespace
}  // namespace jccl::collective
