#include "peer/link_table.h"

#include "peer/link_harness.h"

namespace jccl::peer {
namespace {

TEST_F(LinkTableTest, a_peer_that_heard_of_us_first_waits_with_what_it_sent) {
  open();
  on([this] {
    first->table->set_members(members);
    first->table->enqueue(12, 1);
  });
  sent_early();
  on([this] { second->table->set_members(members); });
  EXPECT_TRUE(eventually([this] { return second->received.size() == 1; }));
  on([this] {
    EXPECT_EQ(first->losses, 0);
    EXPECT_EQ(first->made, 1) << "nothing is sent twice";
    EXPECT_EQ(second->received.front(), 11u);
  });
}

TEST_F(LinkTableTest, one_that_came_early_with_the_wrong_ticket_is_closed) {
  open();
  on([this] {
    std::vector<wire::Member> wrong = members;
    wrong[1].ticket = kLinkTicket + 1;
    first->table->set_members(wrong);
    first->table->enqueue(12, 1);
  });
  sent_early();
  on([this] { second->table->set_members(members); });
  EXPECT_TRUE(eventually([this] { return first->losses > 0; }));
  on([this] { EXPECT_TRUE(second->received.empty()); });
}

TEST_F(LinkTableTest, one_that_came_early_is_let_go_after_a_while) {
  open();
  on([this] {
    first->table->set_members(members);
    first->table->enqueue(12, 1);
  });
  sent_early();
  EXPECT_TRUE(eventually([this] {
    second->table->tick(loop.now() + base::kHandshakeMax + base::kSecond);
    return first->losses > 0;
  }));
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
    first->table->set_members(members);
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
    first->table->set_members(members);
    second->table->set_members(members);
    for (std::uint64_t key = 1; key <= 8; ++key) first->table->enqueue(12, key);
  });
  EXPECT_TRUE(eventually([this] { return second->received.size() == 8; }));
  on([this] {
    EXPECT_EQ(first->failures, 0);
    first->table->renew(12, {base::Code::kLinkLost, "by the test"});
  });
  EXPECT_TRUE(eventually([this] { return first->losses == 1 && first->failures == 1; }));
}

TEST_F(LinkTableTest, one_of_another_run_is_closed) {
  open();
  on([this] {
    second->table->set_self(net::test::token_of(9).run, 12, true);
    second->table->set_members(members);
    first->table->set_members(members);
    first->table->enqueue(12, 1);
  });
  EXPECT_TRUE(eventually([this] { return first->losses > 0; }));
  on([this] { EXPECT_TRUE(second->received.empty()); });
}

TEST_F(LinkTableTest, one_of_another_life_is_closed_at_once) {
  open();
  on([this] {
    std::vector<wire::Member> stale = members;
    stale[1].incarnation = 13;
    first->table->set_members(stale);
    first->table->enqueue(13, 1);
  });
  EXPECT_TRUE(eventually([this] { return first->losses > 0; }));
}

}  // namespace
}  // namespace jccl::peer
