// Who is let into the links of a peer, and where it dials: connections that say to be somebody.
#include <deque>

#include "peer/links/link_harness.h"

namespace jccl::peer {
namespace {

// Connections of nobody in particular, which say what they are told to.
class LinkAdmissionTest : public LinkTableTest {
 protected:
  ~LinkAdmissionTest() override {
    on([this] { said.clear(); });
  }
  struct Said {
    std::unique_ptr<net::Dial> dial;
    std::unique_ptr<net::FramedStream> stream;
    bool closed = false;
  };
  // As from `from`, by somebody with the key of `who` (of nobody) and the secret.
  void say(const LinkEnd& to, Incarnation from, const LinkEnd* who = nullptr,
           const wire::LinkSecret& secret = kLinkSecret) {
    wire::LinkHello hello;
    hello.run = run;
    hello.from = from;
    hello.to = to.incarnation;
    Said& one = said.emplace_back();
    net::DialOptions options;
    options.purpose = net::Purpose::kLink;
    net::Credentials credentials = who != nullptr ? who->credentials : net::test::plain();
    credentials.shared =
        net::link_key(net::test::token_of(1).run, secret.generation, secret.secret);
    one.dial = net::dial(
        loop, {{"127.0.0.1", to.table->port()}}, credentials, options,
        [this, hello, &one](auto stream) {
          one.closed = !stream.ok();
          if (!stream.ok()) return;
          one.stream = std::make_unique<net::FramedStream>(loop, std::move(stream.value()));
          one.stream->start([](base::ByteView) {}, [&one](net::Status) { one.closed = true; });
          EXPECT_TRUE(one.stream->send(wire::encode(hello)).ok());
        });
  }
  void link() {
    open();
    on([this] {
      first->set(members);
      second->set(members);
      first->table->enqueue(12, 1);
    });
    ASSERT_TRUE(eventually([this] { return second->received.size() == 1; }));
  }
  base::RunId run = net::test::token_of(1).run;  // as they say
  std::deque<Said> said;
};

// An impostor took half of the frames for a peer by saying that it was that peer.
TEST_F(LinkAdmissionTest, where_this_side_dials_nobody_else_brings_a_stripe_of_that_peer) {
  link();
  on([this] {
    first->uses = second->uses = false;
    say(*first, 12, second.get());
  });
  EXPECT_TRUE(eventually([this] { return said[0].closed; }));
  on([this] { EXPECT_EQ(first->table->refused(), 1u); });
  on([this] {
    for (std::uint64_t key = 2; key < 40; ++key) first->table->enqueue(12, key);
  });
  EXPECT_TRUE(eventually([this] { return second->received.size() == 39; }));
}

// Its own end may be the one that can't be dialled.
TEST_F(LinkAdmissionTest, where_dialling_does_not_succeed_the_other_side_is_let_in) {
  open();
  on([this] {
    std::vector<wire::Member> unreachable = members;
    unreachable[1].addresses = {"127.0.0.1:1"};
    first->set(unreachable);
    second->set(members);
    second->table->enqueue(11, 1);
  });
  EXPECT_TRUE(eventually([this] {
    first->table->tick(loop.now());
    second->table->tick(loop.now());
    return first->received.size() == 1;
  }));
}

TEST_F(LinkAdmissionTest, a_member_that_left_is_cut_off_at_once_and_let_in_no_more) {
  link();
  on([this] {
    second->set({members[1]});  // first is no member any more
    EXPECT_EQ(second->left, std::vector<Incarnation>{11});
    EXPECT_EQ(second->gone, std::vector<Incarnation>{11});
    EXPECT_EQ(second->table->links(), 0u);
    say(*second, 11, first.get());
  });
  EXPECT_TRUE(eventually([this] { return first->losses > 0 && said[0].closed; }));
  on([this] {
    EXPECT_GT(second->table->refused(), 0u);
    EXPECT_EQ(second->table->links(), 0u);
    second->set(members);  // the master knows best
    say(*second, 11, first.get());
  });
  EXPECT_TRUE(eventually([this] { return second->table->links() == 1; }));
}

// 1,100 made-up names took all descriptors of a process.
TEST_F(LinkAdmissionTest, made_up_names_get_a_bounded_number_of_links) {
  LinkTableOptions options;
  options.strangers = {8, 6, 20, 3};
  on([&] {
    first = std::make_unique<LinkEnd>(loop, 11, options);
    second = std::make_unique<LinkEnd>(loop, 12);
    members = {first->member(1), second->member(2)};
    first->uses = false;
    first->set(members);
    for (Incarnation from = 100; from < 200; ++from) say(*first, from);
  });
  const auto closed = [this] {
    return std::count_if(said.begin(), said.end(), [](const Said& one) { return one.closed; });
  };
  EXPECT_TRUE(eventually([&] { return closed() == 94; }));
  on([this] {
    EXPECT_EQ(first->table->links(), 7u) << "with that of the member";
    for (int i = 0; i < 5; ++i) say(*first, 100);
    for (int i = 0; i < 5; ++i) say(*first, 199, second.get());
  });
  // Three stripes each at most: one more replaces the oldest idle one, of another name.
  EXPECT_TRUE(eventually([&] { return first->table->refused() >= 2; }));
  on([this] { EXPECT_LE(first->table->links(), 7u); });
}

TEST_F(LinkAdmissionTest, without_the_secret_nobody_is_let_in_whatever_the_name) {
  link();
  on([this] {
    say(*second, 11, first.get(), {kLinkSecret.generation, {1}});
    say(*second, 11, first.get(), {kLinkSecret.generation + 1, kLinkSecret.secret});
    say(*second, 4711, nullptr, {kLinkSecret.generation, {1}});
  });
  EXPECT_TRUE(eventually([this] { return said[0].closed && said[1].closed && said[2].closed; }));
  on([this] { EXPECT_EQ(second->table->links(), 1u); });
}

// Numbers of lives are no secret: an impostor took half of the frames for a peer.
TEST_F(LinkAdmissionTest, a_member_is_known_by_its_key) {
  link();
  on([this] {
    first->uses = second->uses = false;
    say(*second, 11);  // this side does not dial
    say(*first, 12);   // this one does
  });
  EXPECT_TRUE(eventually([this] { return said[0].closed && said[1].closed; }));
  on([this] {
    EXPECT_EQ(first->table->refused(), 1u);
    EXPECT_EQ(second->table->refused(), 1u);
    for (std::uint64_t key = 2; key < 40; ++key) first->table->enqueue(12, key);
  });
  EXPECT_TRUE(eventually([this] { return second->received.size() == 39; }));
}

TEST_F(LinkAdmissionTest, who_answers_at_a_members_address_with_another_key_gets_nothing) {
  open();
  on([this] {
    std::vector<wire::Member> moved = members;
    moved[1].key = net::test::plain().identity->key();
    first->set(moved);
    second->set(members);
    first->table->enqueue(12, 1);
  });
  EXPECT_TRUE(eventually([this] {
    first->table->tick(loop.now());
    return first->failures > 0;
  }));
  on([this] { EXPECT_EQ(first->made, 0); });
}

// As a joiner under a number that the master gives to somebody else next.
TEST_F(LinkAdmissionTest, a_link_of_another_key_ends_when_its_number_is_a_members) {
  open();
  on([this] {
    second->set({members[1]});
    say(*second, 11);
  });
  ASSERT_TRUE(eventually([this] { return second->table->links() == 1; }));
  on([this] {
    second->set(members);
    EXPECT_EQ(second->gone, std::vector<Incarnation>{11});
    second->table->enqueue(11, 1);
  });
  EXPECT_TRUE(eventually([this] { return said[0].closed; }));
  on([this] { EXPECT_EQ(second->made, 0) << "what is for the member"; });
}

// It has the secret of this one.
TEST_F(LinkAdmissionTest, who_says_that_it_is_of_another_run_is_closed) {
  open();
  on([this] {
    second->set({members[1]});
    run = net::test::token_of(9).run;
    say(*second, 500);
  });
  ASSERT_TRUE(eventually([this] { return said[0].closed || second->table->links() > 0; }));
  on([this] { EXPECT_EQ(second->table->links(), 0u); });
}

TEST_F(LinkAdmissionTest, the_secret_of_the_time_before_is_for_members_alone) {
  link();
  on([this] {
    second->table->set_members(members, {kLinkSecret.generation + 1, {9}});
    say(*second, 4711);
  });
  EXPECT_TRUE(eventually([this] { return said[0].closed; }));
  on([this] { EXPECT_EQ(second->table->links(), 1u); });
}

TEST_F(LinkAdmissionTest, a_stranger_has_one_key_for_all_its_connections) {
  link();
  on([this] { say(*second, 500); });
  ASSERT_TRUE(eventually([this] { return second->table->links() == 2; }));
  on([this] { say(*second, 500); });  // another key each
  EXPECT_TRUE(eventually([this] { return said[1].closed; }));
  on([this] { EXPECT_FALSE(said[0].closed); });
}

// A joiner that stopped reading kept its place, and all that was queued for it, for good.
TEST_F(LinkAdmissionTest, a_stranger_without_a_connection_is_forgotten_with_what_waits_for_it) {
  link();
  on([this] {
    second->uses = false;
    say(*second, 500);
  });
  ASSERT_TRUE(eventually([this] { return second->table->links() == 2; }));
  on([this] {
    for (std::uint64_t key = 1; key < 400; ++key) second->table->enqueue(500, key);
  });
  on([this] { said[0].stream.reset(); });
  EXPECT_TRUE(eventually([this] {
    second->table->tick(loop.now());
    return second->table->links() == 1;
  }));
  on([this] { EXPECT_EQ(second->gone, std::vector<Incarnation>{500}); });
}

TEST_F(LinkAdmissionTest, what_a_peer_advertises_is_dialled_only_where_peers_may_be) {
  open();
  on([this] {
    first->table->set_policy(net::DialPolicy(net::endpoint_of("8.8.8.8:29400"), {}));
    first->set(members);
    first->table->enqueue(12, 1);
  });
  EXPECT_TRUE(eventually([this] {
    first->table->tick(loop.now());
    return first->failures > 0;
  }));
  on([this] {
    const std::string why = first->table->describe(12);
    EXPECT_NE(why.find("loopback"), std::string::npos) << why;
    EXPECT_TRUE(second->received.empty());
    first->table->set_policy(net::DialPolicy(net::endpoint_of("127.0.0.1:29400"), {}));
  });
  on([this] { second->set(members); });
  EXPECT_TRUE(eventually([this] {
    first->table->tick(loop.now());
    return second->received.size() == 1;
  }));
}

}  // namespace
}  // namespace jccl::peer
