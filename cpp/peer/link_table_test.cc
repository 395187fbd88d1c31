#include "peer/link_table.h"

#include <gtest/gtest.h>

#include "net/test_support.h"

namespace jccl::peer {
namespace {

using base::Incarnation;
using net::Placement;

constexpr std::size_t kBytes = 100'000;
constexpr std::uint64_t kTicket = 77;

// One end: sends frames of kBytes, counts what arrives and what is lost.
struct End final : LinkOwner {
  End(net::Loop& loop, Incarnation self, LinkTableOptions options = {}) : incarnation(self) {
    options.credentials = net::test::plain();
    options.stripes = 1;
    table = std::make_unique<LinkTable>(loop, options, this);
    EXPECT_TRUE(table->listen({"127.0.0.1", 0}).ok());
    table->set_self(net::test::token_of(1).run, self, true);
  }
  wire::Member member(base::PeerId id) const {
    wire::Member out;
    out.id = id;
    out.incarnation = incarnation;
    out.addresses = {"127.0.0.1:" + std::to_string(table->port())};
    out.ticket = kTicket;
    return out;
  }

  Placement place(Incarnation, base::ByteView) override {
    return Placement::into(net::MutableView(in));
  }
  base::Status arrived(Incarnation from, base::ByteView, std::uint64_t) override {
    received.push_back(from);
    return {};
  }
  void lost(Incarnation, base::ByteView, std::uint64_t) override {}
  std::optional<net::OutFrame> produce(Incarnation, std::uint64_t) override {
    wire::FrameHeader header;
    header.payload_bytes = kBytes;
    net::OutFrame frame;
    frame.header.resize(wire::kFrameHeaderBytes);
    wire::encode(header, frame.header.data());
    frame.payload = {out};
    ++made;
    return frame;
  }
  void stripe_lost(Incarnation) override { ++losses; }
  void link_failed(Incarnation, const base::Status&) override { ++failures; }
  bool wanted(Incarnation) const override { return true; }

  Incarnation incarnation;
  base::Bytes in = base::Bytes(kBytes), out = base::Bytes(kBytes, 5);
  std::vector<Incarnation> received;
  int made = 0, losses = 0, failures = 0;
  std::unique_ptr<LinkTable> table;
};

class LinkTableTest : public net::test::NetTest {
 protected:
  ~LinkTableTest() override {
    on([this] {
      first.reset();
      second.reset();
    });
  }
  // Long enough for the hello to have come, in all but a few runs.
  void sent_early() {
    ASSERT_TRUE(eventually([this] { return first->made == 1; }));
    const base::Time until = loop.now() + 20 * base::kMillisecond;
    ASSERT_TRUE(eventually([&] { return loop.now() > until; }));
  }
  void open() {
    on([this] {
      first = std::make_unique<End>(loop, 11);
      second = std::make_unique<End>(loop, 12);
      members = {first->member(1), second->member(2)};
    });
  }
  std::unique_ptr<End> first, second;  // the first dials
  std::vector<wire::Member> members;
};

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
    wrong[1].ticket = kTicket + 1;
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
    first = std::make_unique<End>(loop, 11, options);
    second = std::make_unique<End>(loop, 12);
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
    first = std::make_unique<End>(loop, 11, options);
    second = std::make_unique<End>(loop, 12);
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

TEST_F(LinkTableTest, one_of_another_life_or_run_is_closed_at_once) {
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
