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
  End(net::Loop& loop, Incarnation self, std::uint8_t run = 1) : incarnation(self) {
    LinkTableOptions options;
    options.credentials = net::test::plain();
    options.stripes = 1;
    table = std::make_unique<LinkTable>(loop, options, this);
    EXPECT_TRUE(table->listen({"127.0.0.1", 0}).ok());
    table->set_self(net::test::token_of(run).run, self, true);
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
