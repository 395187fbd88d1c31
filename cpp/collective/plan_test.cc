#include "collective/plan.h"

#include <gtest/gtest.h>

#include "base/limits.h"
#include "base/rng.h"

namespace jccl::collective {
namespace {

using base::Bytes;

Chunk owned_by(std::uint32_t owner) {
  Chunk chunk;
  chunk.owner = owner;
  return chunk;
}

Plan plan_of(PlanKind kind, std::uint32_t size) {
  Plan plan;
  plan.kind = kind;
  for (std::uint32_t i = 0; i < size; ++i) plan.order.push_back(10 + i);
  return plan;
}

TEST(PlanTest, a_plan_comes_back_from_its_bytes) {
  for (const Plan& plan :
       {Plan{PlanKind::kDirect, {1, 4, 9}, {1, 0, 7}}, Plan{PlanKind::kRing, {9, 1, 4}, {}},
        Plan{PlanKind::kGather, {3}, {}}, Plan{PlanKind::kScatter, {3, 4}, {}},
        Plan{PlanKind::kExchange, {3, 4}, {}}, Plan{PlanKind::kAllToAll, {3, 4}, {}}}) {
    const auto back = decode(encode(plan));
    ASSERT_TRUE(back.ok()) << back.status().text;
    EXPECT_EQ(back.value(), plan);
  }
}

TEST(PlanTest, the_largest_plan_fits_its_limit) {
  Plan plan = plan_of(PlanKind::kDirect, base::kPeersMax);
  plan.shares.assign(base::kPeersMax, UINT32_MAX);
  const Bytes bytes = encode(plan);
  EXPECT_LE(bytes.size(), base::kPlanBytesMax);
  EXPECT_TRUE(decode(bytes).ok());
}

TEST(PlanTest, a_plan_that_breaks_a_rule_is_refused) {
  const Plan bad[] = {
      {static_cast<PlanKind>(0), {1}, {}},
      {static_cast<PlanKind>(7), {1}, {}},
      {PlanKind::kDirect, {}, {}},
      {PlanKind::kDirect, {0, 1}, {}},
      {PlanKind::kDirect, {2, 1}, {}},
      {PlanKind::kRing, {2, 1, 2}, {}},
      {PlanKind::kDirect, {1, 2}, {1}},
      {PlanKind::kRing, {1, 2}, {0, 0}},
      {PlanKind::kGather, {1, 2}, {1, 1}},
      {PlanKind::kScatter, {1, 2}, {1, 1}},
      {PlanKind::kExchange, {1, 2}, {1}},
      {PlanKind::kAllToAll, {1, 2}, {1, 1}},
      {PlanKind::kAllToAll, {2, 1}, {}},
      {PlanKind::kExchange, {2, 1}, {}},
      plan_of(PlanKind::kRing, base::kPeersMax + 1),
  };
  for (const Plan& plan : bad) {
    EXPECT_EQ(check(plan).code, base::Code::kInvalid) << check(plan).text;
    base::Writer w;  // the bytes such a plan would have
    w.u8(static_cast<std::uint8_t>(plan.kind));
    w.u32(static_cast<std::uint32_t>(plan.order.size()));
    for (const auto peer : plan.order) w.u32(peer);
    w.u32(static_cast<std::uint32_t>(plan.shares.size()));
    for (const auto share : plan.shares) w.u32(share);
    EXPECT_EQ(decode(w.bytes()).status().code, base::Code::kInvalid);
  }
}

TEST(PlanTest, cut_prolonged_and_random_bytes_never_become_a_wrong_plan) {
  const Bytes bytes = encode({PlanKind::kRing, {3, 1, 2}, {1, 2, 3}});
  for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
    EXPECT_FALSE(decode(base::ByteView(bytes).first(cut)).ok()) << cut;
  }
  Bytes longer = bytes;
  longer.push_back(0);
  EXPECT_FALSE(decode(longer).ok());
  base::Rng rng(5);
  for (int round = 0; round < 20000; ++round) {
    Bytes noise = bytes;
    for (std::uint64_t flips = 1 + rng.below(4); flips > 0; --flips) {
      noise[rng.below(noise.size())] =
          static_cast<std::uint8_t>(rng.below(4) == 0 ? 255 : rng.below(6));
    }
    const auto plan = decode(noise);
    if (plan.ok()) {
      EXPECT_TRUE(check(plan.value()).ok());
      EXPECT_EQ(encode(plan.value()), noise);
    }
  }
}

TEST(RouteTest, in_a_direct_plan_the_owner_adds_everyone_in_order_and_answers_all) {
  const Plan plan = plan_of(PlanKind::kDirect, 3);
  EXPECT_EQ(route(plan, owned_by(1), 0), (Route{{}, false, {1}, false, 1, {}}));
  EXPECT_EQ(route(plan, owned_by(1), 1), (Route{{0, 1, 2}, false, {}, true, -1, {0, 2}}));
  EXPECT_EQ(receiver_route(plan, owned_by(1)), (Route{{}, false, {}, false, 1, {}}));
}

TEST(RouteTest, in_an_exchange_everyone_adds_everyone_and_the_owner_serves_receivers) {
  const Plan plan = plan_of(PlanKind::kExchange, 3);
  EXPECT_EQ(route(plan, owned_by(1), 0), (Route{{0, 1, 2}, false, {1, 2}, true, -1, {}}));
  EXPECT_EQ(route(plan, owned_by(1), 1), (Route{{0, 1, 2}, false, {0, 2}, true, -1, {}}));
  EXPECT_EQ(receiver_route(plan, owned_by(1)), (Route{{}, false, {}, false, 1, {}}));
  EXPECT_EQ(result_targets(plan, owned_by(1), 1, {20}), (std::vector<base::PeerId>{20}));
  EXPECT_TRUE(result_targets(plan, owned_by(1), 0, {20}).empty());
}

TEST(RouteTest, whose_frames_one_takes_is_what_its_route_says) {
  for (const PlanKind kind :
       {PlanKind::kDirect, PlanKind::kRing, PlanKind::kGather, PlanKind::kExchange}) {
    const Plan plan = plan_of(kind, 4);
    std::vector<base::PeerId> owners = plan.order;
    owners.push_back(999);  // has no part
    EXPECT_EQ(senders_of(encode(plan), 999, owners), std::vector<base::PeerId>(5, 0));
    for (std::uint32_t me = 0; me < 4; ++me) {
      const auto senders = senders_of(encode(plan), plan.order[me], owners);
      ASSERT_EQ(senders.size(), 5U);
      EXPECT_EQ(senders[4], 0U);
      for (std::uint32_t owner = 0; owner < 4; ++owner) {
        const std::int32_t from = route(plan, owned_by(owner), me).result_from;
        const auto at = from >= 0 ? static_cast<std::uint32_t>(from) : owner;
        EXPECT_EQ(senders[owner], plan.order[at]) << name_of(kind) << " " << owner << " to " << me;
      }
    }
  }
  EXPECT_EQ(senders_of({}, 1, {1}), std::vector<base::PeerId>{0}) << "no plan";
  Plan relayed = plan_of(PlanKind::kDirect, 3);
  relayed.shares = {0, 7, 0};
  const std::vector<base::PeerId> only = {0, relayed.order[1], 0};
  EXPECT_EQ(senders_of(encode(relayed), relayed.order[2], relayed.order), only);
  relayed.kind = PlanKind::kExchange;  // who owns nothing contributes there as well
  EXPECT_EQ(senders_of(encode(relayed), relayed.order[2], relayed.order), relayed.order);
}

TEST(RouteTest, in_a_ring_the_sum_starts_after_the_owner_and_the_result_follows_it) {
  const Plan plan = plan_of(PlanKind::kRing, 4);
  EXPECT_EQ(route(plan, owned_by(2), 3), (Route{{3}, true, {0}, false, 2, {0}}));
  EXPECT_EQ(route(plan, owned_by(2), 0), (Route{{3, 0}, true, {1}, false, 3, {1}}));
  EXPECT_EQ(route(plan, owned_by(2), 1), (Route{{0, 1}, true, {2}, false, 0, {}}));
  EXPECT_EQ(route(plan, owned_by(2), 2), (Route{{1, 2}, true, {}, true, -1, {3}}));
  const Plan two = plan_of(PlanKind::kRing, 2);
  EXPECT_EQ(route(two, owned_by(0), 0), (Route{{1, 0}, true, {}, true, -1, {1}}));
  EXPECT_EQ(route(two, owned_by(0), 1), (Route{{1}, true, {0}, false, 0, {}}));
}

TEST(RouteTest, alone_a_peer_adds_itself_and_talks_to_nobody) {
  for (const PlanKind kind : {PlanKind::kDirect, PlanKind::kRing, PlanKind::kGather,
                              PlanKind::kScatter, PlanKind::kExchange, PlanKind::kAllToAll}) {
    EXPECT_EQ(route(plan_of(kind, 1), owned_by(0), 0), (Route{{0}, false, {}, true, -1, {}}));
  }
}

TEST(RouteTest, a_gather_sends_only_results_and_a_scatter_none) {
  const Plan gather = plan_of(PlanKind::kGather, 3);
  EXPECT_EQ(route(gather, owned_by(0), 0), (Route{{0}, false, {}, true, -1, {1, 2}}));
  EXPECT_EQ(route(gather, owned_by(0), 2), (Route{{}, false, {}, false, 0, {}}));
  const Plan scatter = plan_of(PlanKind::kScatter, 3);
  EXPECT_EQ(route(scatter, owned_by(0), 0), (Route{{0, 1, 2}, false, {}, true, -1, {}}));
  EXPECT_EQ(route(scatter, owned_by(0), 2), (Route{{}, false, {0}, false, -1, {}}));
  EXPECT_EQ(receiver_route(scatter, owned_by(0)), Route{});
}

// Each owns the chunks of the blocks for its slot, and sends the others theirs.
TEST(RouteTest, in_an_all_to_all_the_owner_takes_a_block_of_each_and_hands_nothing_on) {
  const Plan plan = plan_of(PlanKind::kAllToAll, 3);
  EXPECT_EQ(route(plan, owned_by(1), 1), (Route{{0, 1, 2}, false, {}, true, -1, {}}));
  EXPECT_EQ(route(plan, owned_by(1), 2), (Route{{}, false, {1}, false, -1, {}}));
  EXPECT_EQ(receiver_route(plan, owned_by(1)), Route{});
  EXPECT_TRUE(result_targets(plan, owned_by(1), 1, {20}).empty());
  for (const codec::CodecId codec : {codec::CodecId::kTopK, codec::CodecId::kStat2}) {
    EXPECT_EQ(contribution_codec(plan, codec), codec::Codec(codec));
    EXPECT_EQ(result_codec(plan, codec), codec::Codec(codec)) << "nothing was added";
  }
}

TEST(RouteTest, the_owner_alone_serves_receivers) {
  const Plan ring = plan_of(PlanKind::kRing, 3);
  using Ids = std::vector<base::PeerId>;
  EXPECT_EQ(result_targets(ring, owned_by(0), 0, {20, 21}), (Ids{11, 20, 21}));
  EXPECT_EQ(result_targets(ring, owned_by(0), 1, {20, 21}), (Ids{12}));
  EXPECT_EQ(result_targets(ring, owned_by(0), 2, {20, 21}), Ids{});
  EXPECT_EQ(result_targets(plan_of(PlanKind::kScatter, 3), owned_by(0), 0, {20}), Ids{});
}

// Every send has exactly one peer that awaits it, and the other way round.
TEST(RouteTest, what_is_sent_is_what_is_awaited_in_every_world) {
  for (const PlanKind kind : {PlanKind::kDirect, PlanKind::kRing, PlanKind::kGather,
                              PlanKind::kScatter, PlanKind::kExchange, PlanKind::kAllToAll}) {
    for (std::uint32_t size = 1; size <= 16; ++size) {
      const Plan plan = plan_of(kind, size);
      for (std::uint32_t owner = 0; owner < size; ++owner) {
        std::vector<std::pair<std::uint32_t, std::uint32_t>> sent, awaited, given, taken;
        for (std::uint32_t me = 0; me < size; ++me) {
          const Route r = route(plan, owned_by(owner), me);
          EXPECT_EQ(r.owner, me == owner || kind == PlanKind::kExchange);
          for (const auto to : r.send_to) sent.emplace_back(me, to);
          for (const auto from : r.add_order) {
            if (from != me) awaited.emplace_back(from, me);
          }
          for (const auto to : r.result_to) given.emplace_back(me, to);
          if (r.result_from >= 0) taken.emplace_back(r.result_from, me);
        }
        for (auto* pairs : {&sent, &awaited, &given, &taken})
          std::sort(pairs->begin(), pairs->end());
        EXPECT_EQ(sent, awaited);
        EXPECT_EQ(given, taken);
      }
    }
  }
}

}  // namespace
}  // namespace jccl::collective
