#include "peer/links/link_table.h"

#include "peer/links/link_harness.h"

namespace jccl::peer {
namespace {

TEST_F(LinkTableTest, a_peer_that_heard_of_us_first_waits_for_our_secret) {
  open();
  on([this] {
    first->set(members);
    first->table->enqueue(12, 1);
  });
  dialled_early();
  on([this] { second->set(members); });
  EXPECT_TRUE(eventually([this] { return second->received.size() == 1; }));
  on([this] {
    EXPECT_EQ(first->losses, 0);
    EXPECT_EQ(first->made, 1) << "nothing is sent twice";
    EXPECT_EQ(second->received.front(), 11u);
  });
}

TEST_F(LinkTableTest, one_that_came_early_with_another_secret_is_closed) {
  open();
  on([this] {
    first->table->set_members(members, {kLinkSecret.generation, {8}});
    first->table->enqueue(12, 1);
  });
  dialled_early();
  on([this] { second->set(members); });
  EXPECT_TRUE(eventually([this] {
    first->table->tick(loop.now());
    return first->failures > 0;
  }));
  on([this] { EXPECT_TRUE(second->received.empty()); });
}

// After an eviction one of two has heard of the new secret, and the other not yet.
TEST_F(LinkTableTest, members_a_generation_apart_find_each_other) {
  open();
  on([this] {
    first->set(members);
    second->set(members);
    second->table->set_members(members, {kLinkSecret.generation + 1, {9}});
    first->table->enqueue(12, 1);
  });
  EXPECT_TRUE(eventually([this] { return second->received.size() == 1; }));
}

// It closes each connection without a word. Dialling on for ever, and at once, was a hang.
TEST_F(LinkTableTest, an_end_that_has_a_new_life_makes_the_link_fail) {
  LinkTableOptions options;
  options.repair_max = 200 * base::kMillisecond;
  on([&] {
    first = std::make_unique<LinkEnd>(loop, 11, options);
    second = std::make_unique<LinkEnd>(loop, 12);
    members = {first->member(1), second->member(2)};
    second->table->set_self(net::test::token_of(1).run, 13, true);
    first->set(members);
    first->table->enqueue(12, 1);
  });
  EXPECT_TRUE(eventually([this] {
    first->table->tick(loop.now());
    return first->failures > 0;
  }));
  // 20 ms, 40, 80 … between them: 5 in 200 ms, and a few more should the machine be slow.
  on([this] { EXPECT_LT(first->losses, 100); });
}

TEST_F(LinkTableTest, a_connection_lost_with_more_frames_than_are_remembered_fails_the_link) {
  LinkTableOptions options;
  options.frames_remembered = 2;
  on([&] {
    first = std::make_unique<LinkEnd>(loop, 11, options);
    second = std::make_unique<LinkEnd>(loop, 12);
    members = {first->member(1), second->member(2)};
    first->set(members);
    second->set(members);
    for (std::uint64_t key = 1; key <= 8; ++key) first->table->enqueue(12, key);
  });
  EXPECT_TRUE(eventually([this] { return second->received.size() == 8; }));
  on([this] {
    EXPECT_EQ(first->failures, 0);
    first->table->renew(12, {base::Code::kLinkLost, "by the test"});
  });
  EXPECT_TRUE(eventually([this] { return first->losses == 1 && first->failures == 1; }));
}

TEST_F(LinkTableTest, who_acknowledges_what_never_left_is_told_of) {
  open();
  on([this] {
    first->set(members);
    second->set(members);
    second->acknowledges = 1000;
    second->table->enqueue(11, 1);
  });
  EXPECT_TRUE(eventually([this] { return !first->overcounted.empty(); }));
  on([this] {
    EXPECT_EQ(first->overcounted.front(), 12U);
    EXPECT_GT(first->losses, 0);
    EXPECT_TRUE(second->overcounted.empty());
  });
}

TEST_F(LinkTableTest, copies_for_whoever_does_not_read_are_bounded_and_it_loses_its_connections) {
  LinkTableOptions options;
  options.copies_max = 1000;
  on([&] {
    first = std::make_unique<LinkEnd>(loop, 11, options);
    second = std::make_unique<LinkEnd>(loop, 12);
    second->deaf = true;
    members = {first->member(1), second->member(2)};
    first->set(members);
    second->set(members);
    for (std::uint64_t key = 1; key <= 400; ++key) first->table->enqueue(12, key);
  });
  EXPECT_TRUE(eventually([&] {
    first->table->own([](std::uint64_t) { return true; });
    EXPECT_LE(first->table->copied_bytes(), options.copies_max);
    return first->losses > 0;
  }));
}

// Each attempt that ends looks for its frames. With strangers' answers among them, unread by the
// thousand, that took a tenth of all rounds.
TEST_F(LinkTableTest, who_only_asks_for_the_state_costs_no_attempt_a_look) {
  on([&] {
    first = std::make_unique<LinkEnd>(loop, 11);
    second = std::make_unique<LinkEnd>(loop, 12);
    second->deaf = true;
    members = {first->member(1), second->member(2)};
    first->set(members);
    second->set(members);
    const auto looks = [&] {
      int count = 0;
      const auto counted = [&](std::uint64_t) { return ++count > 0 && false; };
      first->table->abandon(counted, [](base::ByteView) { return false; });
      first->table->forget(counted);
      return count;
    };
    for (std::uint64_t key = 1; key <= 100; ++key) {
      first->table->enqueue(12, key, false, /*of_attempt=*/false);
    }
    EXPECT_EQ(looks(), 0);
    first->table->enqueue(12, 101);
    EXPECT_GT(looks(), 0);
  });
}

TEST_F(LinkTableTest, one_of_another_run_is_closed) {
  open();
  on([this] {
    second->table->set_self(net::test::token_of(9).run, 12, true);
    second->set(members);
    first->set(members);
    first->table->enqueue(12, 1);
  });
  EXPECT_TRUE(eventually([this] {
    first->table->tick(loop.now());
    return first->failures > 0;
  }));
  on([this] { EXPECT_TRUE(second->received.empty()); });
}

TEST_F(LinkTableTest, one_of_another_life_is_closed_at_once) {
  open();
  on([this] {
    std::vector<wire::Member> stale = members;
    stale[1].incarnation = 13;
    second->set(members);
    first->set(stale);
    first->table->enqueue(13, 1);
  });
  EXPECT_TRUE(eventually([this] { return first->losses > 0; }));
}

// A communicator that was closed lives on in its process.
TEST_F(LinkTableTest, who_hangs_up_is_heard_and_can_be_reached_no_more) {
  open();
  on([this] {
    first->set(members);
    second->set(members);
    first->table->enqueue(12, 1);
  });
  ASSERT_TRUE(eventually([this] { return second->received.size() == 1; }));
  on([this] { second->table->hang_up(); });
  EXPECT_TRUE(eventually([this] {
    first->table->tick(loop.now());
    return first->failures > 0;
  }));
  on([this] {
    EXPECT_EQ(second->gone, std::vector<Incarnation>{11});
    EXPECT_EQ(second->table->links(), 0U);
  });
}

}  // namespace
}  // namespace jccl::peer
