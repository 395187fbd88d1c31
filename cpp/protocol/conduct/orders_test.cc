// An operator's order is in effect within one heartbeat, counted, whatever else happens or does
// not.
#include <algorithm>
#include <functional>
#include <map>

#include "base/text.h"
#include "protocol/conduct/blame.h"
#include "protocol/hostile_rig.h"

namespace jccl::protocol {
namespace {

class OrdersTest : public HostileMember {
 protected:
  static wire::PublicKey key(ConnId member) { return key_of(hello(100 * member, "")); }
  // Members 1 and 2 by one token, 3 by another.
  static Shown shown(ConnId member) { return {key(member), member == 3 ? "its" : "theirs"}; }
  void come(ConnId conn, const std::string& site) {
    (void)on(ConnMessage{conn, hello(100 * conn, site), shown(conn)});
    (void)on(ConnMessage{conn, wire::Resume{}, shown(conn)});
  }
  void begin_with(MasterOptions options) {
    options.start_peers = 2;
    begin(options);
    come(1, "a"), come(2, "b"), come(3, "c");
    for (ConnId conn = 1; conn <= 3; ++conn) (void)say(conn, ready("grads"));
  }
  void order(wire::OrderVerb verb, const std::string& subject) {
    const Shown by{{99}, "", 0, true};
    note(on(ConnMessage{++operator_, wire::Order{verb, subject, base::kSecond, ""}, by}));
  }
  void note(const MasterEffects& effects) {
    for (const auto& message : effects.send) {
      const bool out = std::holds_alternative<wire::Evicted>(message.message) ||
                       std::holds_alternative<wire::Refuse>(message.message);
      told_ = told_ || (message.conn == 3 && out);
    }
  }
  int heartbeats_until(const std::function<bool()>& holds) {
    int count = 0;
    for (; count < 10 && !holds(); ++count) {
      now_ += options().heartbeat;
      for (ConnId conn = 1; conn <= 3; ++conn) note(say(conn, wire::Heartbeat{}));
      note(on(Tick{}));
    }
    return count;
  }
  void expect_it_goes_by(wire::OrderVerb verb, const std::string& subject) {
    begin_with(options());
    ASSERT_TRUE(is_member("c"));
    order(verb, subject);
    EXPECT_LE(heartbeats_until([this] { return told_ && !is_member("c"); }), 1);
    EXPECT_TRUE(is_member("a") && is_member("b"));
  }
  struct Place {
    std::uint32_t shard, of;
  };
  // What a key that comes by a token of one use is told; empty: it is welcome.
  std::string refusal_of(ConnId conn, const std::string& site, std::uint8_t key, Place place) {
    wire::Hello one = hello(100 * conn, site);
    one.shard = place.shard, one.shards = place.of;
    const Shown by{{key}, "t", 1};
    const auto refused = sent<wire::Refuse>(on(ConnMessage{conn, one, by}));
    (void)on(ConnMessage{conn, wire::Resume{}, by});
    return refused.empty() ? "" : refused[0].text;
  }
  bool told_ = false;
  ConnId operator_ = 1000;
};

TEST_F(OrdersTest, who_is_kicked_is_out_within_one_heartbeat) {
  expect_it_goes_by(wire::OrderVerb::kKick, "c");
}

// It was in a round and never calls again; the others are READY, and wait for it.
TEST_F(OrdersTest, a_member_that_merely_sits_is_kicked_within_one_heartbeat) {
  begin(options());
  come(1, "a"), come(2, "b"), come(3, "c");
  for (ConnId conn = 1; conn <= 3; ++conn) (void)say(conn, ready(conn == 3 ? "own" : "grads"));
  for (ConnId conn = 1; conn <= 2; ++conn) (void)say(conn, ready("later"));
  ASSERT_TRUE(is_member("c"));
  order(wire::OrderVerb::kKick, "c");
  EXPECT_LE(heartbeats_until([this] { return told_ && !is_member("c"); }), 1);
}

TEST_F(OrdersTest, a_candidate_is_kicked_within_one_heartbeat_and_its_name_is_free) {
  begin(options());
  come(1, "a"), come(2, "b"), come(3, "c");  // c asks for nothing
  for (ConnId conn = 1; conn <= 2; ++conn) (void)say(conn, ready("grads"));
  ASSERT_FALSE(is_member("c"));
  order(wire::OrderVerb::kKick, "c");
  EXPECT_LE(heartbeats_until([this] { return told_; }), 1);
  for (const PeerView& peer : master_->view(now_).peers) EXPECT_NE(peer.member.site, "c");
  EXPECT_FALSE(sent<wire::Evicted>(on(ConnMessage{4, hello(300, "c"), shown(3)})).empty())
      << "that life is over";
  EXPECT_FALSE(sent<wire::Welcome>(on(ConnMessage{5, hello(500, "c"), {key(5)}})).empty());
}

TEST_F(OrdersTest, who_is_not_there_is_not_kicked) {
  begin_with(options());
  const Shown by{{99}, "", 0, true};
  const auto told = sent<wire::OrderReply>(
      on(ConnMessage{40, wire::Order{wire::OrderVerb::kKick, "nobody", 0, ""}, by}));
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].code, base::Code::kInvalid);
  EXPECT_EQ(told[0].text, "no member has the site nobody, and nobody waits outside with it");
}

// Only the driver knows where the file is, so it answers.
TEST_F(OrdersTest, an_operator_s_dump_is_the_drivers_to_answer_and_nobody_else_s_is_one) {
  begin_with(options());
  const wire::Order dump{wire::OrderVerb::kDump, "", 0, "a drill"};
  const MasterEffects effects = on(ConnMessage{40, dump, {{99}, "", 0, true}});
  ASSERT_EQ(effects.record.size(), 1U);
  EXPECT_EQ(effects.record[0], (std::pair<ConnId, std::string>(40, "a drill")));
  EXPECT_TRUE(effects.send.empty());
  EXPECT_EQ(effects.close, std::vector<ConnId>{40});
  const MasterEffects refused = on(ConnMessage{41, dump, {{99}, "", 0, false}});
  EXPECT_TRUE(refused.record.empty());
  EXPECT_EQ(sent<wire::Refuse>(refused).at(0).code, base::Code::kAuth);
  wire::Order odd = dump;
  odd.span = -1;
  const MasterEffects invalid = on(ConnMessage{42, odd, {{99}, "", 0, true}});
  EXPECT_TRUE(invalid.record.empty());
  EXPECT_EQ(sent<wire::OrderReply>(invalid).at(0).code, base::Code::kInvalid);
}

TEST_F(OrdersTest, who_is_banned_is_out_within_one_heartbeat) {
  expect_it_goes_by(wire::OrderVerb::kBan, base::to_hex(key(3)));
}

// Whether it was there when it was banned, or comes later.
TEST_F(OrdersTest, who_is_banned_hears_which_key_why_for_how_long_and_what_ends_it) {
  begin(options());
  come(1, "a"), come(2, "b"), come(3, "c");  // c asks for nothing
  for (ConnId conn = 1; conn <= 2; ++conn) (void)say(conn, ready("grads"));
  ASSERT_FALSE(is_member("c"));
  const Shown by{{99}, "", 0, true};
  const std::string brief = brief_key(key(3));
  const wire::Order ban{wire::OrderVerb::kBan, base::to_hex(key(3)), 60 * base::kSecond, "drill"};
  const auto told = sent<wire::Refuse>(on(ConnMessage{operator_, ban, by}));
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].text, base::cat("the key ", brief,
                                    "… is banned for 60 s, or until an operator "
                                    "pardons it (`jccl pardon ",
                                    brief, "`): drill"));
  const auto knock = [this](ConnId conn) {
    const auto refused =
        sent<wire::Refuse>(on(ConnMessage{conn, hello(100 * conn, "c"), shown(3)}));
    return refused.empty() ? "" : refused[0].text;
  };
  EXPECT_EQ(knock(4), told[0].text);
  (void)on(ConnMessage{++operator_, wire::Order{ban.verb, ban.subject, 0, ban.reason}, by});
  EXPECT_EQ(knock(5),
            base::cat("the key ", brief, "… is banned until an operator pardons it (`jccl pardon ",
                      brief, "`): drill"));
}

TEST_F(OrdersTest, who_is_in_by_a_revoked_token_is_out_within_one_heartbeat) {
  expect_it_goes_by(wire::OrderVerb::kRevoke, "its");
}

TEST_F(OrdersTest, who_is_admitted_is_in_within_one_heartbeat) {
  MasterOptions listed = options();
  listed.admission = Admission::kListed;
  listed.listed = {key(1), key(2)};
  begin_with(listed);
  EXPECT_EQ(heartbeats_until([this] { return is_member("c"); }), 10);
  order(wire::OrderVerb::kAdmit, base::to_hex(key(3)));
  EXPECT_LE(heartbeats_until([this] { return is_member("c"); }), 1);
}

// By the token that is in no hand but an operator's: nothing is done for whoever still has it.
TEST_F(OrdersTest, who_has_a_revoked_operator_s_token_orders_nothing) {
  begin_with(options());
  const Shown operators{{98}, "operator's", 0, true};
  EXPECT_FALSE(master_->is_revoked("operator's"));
  order(wire::OrderVerb::kRevoke, "operator's");
  EXPECT_TRUE(master_->is_revoked("operator's"));
  const MasterEffects effects =
      on(ConnMessage{2000, wire::Order{wire::OrderVerb::kKick, "c", 0, ""}, operators});
  ASSERT_EQ(effects.send.size(), 1U);
  const auto* refuse = std::get_if<wire::Refuse>(&effects.send[0].message);
  ASSERT_NE(refuse, nullptr);
  EXPECT_EQ(refuse->code, base::Code::kBanned);
  EXPECT_TRUE(is_member("c"));
}

TEST_F(OrdersTest, who_admits_where_all_may_come_in_is_told_so) {
  const auto admit = [this](ConnId conn) {
    const wire::Order order{wire::OrderVerb::kAdmit, base::to_hex(key(3)), 0, ""};
    const Shown by{{99}, "", 0, true};
    return sent<wire::OrderReply>(on(ConnMessage{conn, order, by})).at(0).text;
  };
  begin(options());
  EXPECT_NE(admit(2000).find("as all newcomers may"), std::string::npos);
  MasterOptions listed = options();
  listed.admission = Admission::kListed;
  begin(listed);
  EXPECT_EQ(admit(2001).find("as all newcomers may"), std::string::npos);
}

TEST_F(OrdersTest, who_admits_a_banned_key_is_told_that_it_is_banned) {
  begin_with(options());
  order(wire::OrderVerb::kBan, base::to_hex(key(3)));
  const wire::Order admit{wire::OrderVerb::kAdmit, base::to_hex(key(3)), 0, ""};
  const auto replies =
      sent<wire::OrderReply>(on(ConnMessage{++operator_, admit, Shown{{99}, "", 0, true}}));
  ASSERT_EQ(replies.size(), 1U);
  EXPECT_NE(replies[0].text.find("may come in when its ban is over"), std::string::npos)
      << replies[0].text;
  EXPECT_NE(replies[0].text.find("jccl pardon"), std::string::npos) << replies[0].text;
}

TEST_F(OrdersTest, the_history_says_what_was_ordered_and_by_whose_token) {
  begin_with(options());
  const Shown by{{99}, "a-0-0-0-00000001", 0, true};
  const wire::Order revoke{wire::OrderVerb::kRevoke, "p-1-0-0-0000000f", 0, ""};
  const MasterEffects effects = on(ConnMessage{2000, revoke, by});
  const auto line = std::find_if(effects.history.begin(), effects.history.end(),
                                 [](const HistoryLine& one) { return one.kind == "order"; });
  ASSERT_NE(line, effects.history.end());
  std::map<std::string, std::string> said(line->fields.begin(), line->fields.end());
  EXPECT_EQ(said["verb"], "revoke");
  EXPECT_EQ(said["token"], "a-0-0-0-00000001");
  EXPECT_EQ(said["text"], "the token p-1-0-0-0000000f is taken no more; nobody had joined by it");
}

TEST_F(OrdersTest, a_kicked_site_s_name_is_its_key_s_for_a_minute) {
  begin_with(options());
  order(wire::OrderVerb::kKick, "c");
  const auto knock = [this](ConnId conn, const Shown& who) {
    const MasterEffects effects = on(ConnMessage{conn, hello(100 * conn, "c"), who});
    for (const auto& sent : effects.send) {
      if (const auto* no = std::get_if<wire::Refuse>(&sent.message)) return no->text;
    }
    return std::string();
  };
  EXPECT_NE(knock(4, shown(4)).find("c was kicked and may come back"), std::string::npos);
  EXPECT_EQ(knock(5, shown(3)), "");  // its own key
  order(wire::OrderVerb::kBan, base::to_hex(key(3)));
  EXPECT_EQ(knock(6, {key(6), "another"}), "");  // a ban gives it to others
  order(wire::OrderVerb::kKick, "a");
  now_ += 61 * base::kSecond;
  (void)on(Tick{});
  EXPECT_EQ(on(ConnMessage{7, hello(700, "a"), shown(7)}).send.size(), 1U);
}

// Each of them could be a site by itself afterwards: one use would be as many votes as wanted.
TEST_F(OrdersTest, shards_of_one_use_are_no_sites_of_their_own) {
  begin(options());
  EXPECT_EQ(refusal_of(1, "a", 1, {0, 2}), "");
  EXPECT_EQ(refusal_of(2, "a", 2, {1, 2}), "");
  (void)say(1, ready("grads"));
  ASSERT_TRUE(is_member("a"));
  (void)on(ConnClosed{1}), (void)on(ConnClosed{2});
  EXPECT_NE(refusal_of(3, "b", 2, {0, 1}).find("by a site of 2 shards, this peer says 1"),
            std::string::npos);
  EXPECT_NE(refusal_of(4, "b", 2, {0, 2}).find("this key is shard 1"), std::string::npos);
  EXPECT_EQ(refusal_of(5, "a", 2, {1, 2}), "");
}

// A thief of a used token was shard 1 of 2 of the owner's site of one, and kept the name.
TEST_F(OrdersTest, a_used_token_admits_no_further_shard_of_a_site_that_has_none) {
  begin(options());
  EXPECT_EQ(refusal_of(1, "a", 1, {0, 1}), "");
  (void)say(1, ready("grads"));
  ASSERT_TRUE(is_member("a"));
  (void)on(ConnClosed{1});
  EXPECT_NE(refusal_of(2, "a", 2, {1, 2}).find("used by a site of 1 shard,"), std::string::npos);
  EXPECT_EQ(refusal_of(3, "a", 1, {0, 1}), "");
}

// Votes and places are by sites, and whoever has one key is one.
TEST_F(OrdersTest, one_key_is_one_site) {
  begin(options());
  const Shown by{{7}};
  for (ConnId conn = 1; conn <= 2; ++conn) {
    (void)on(ConnMessage{conn, hello(100 * conn, conn == 1 ? "a" : "b"), by});
    (void)on(ConnMessage{conn, wire::Resume{}, by});
  }
  for (ConnId conn = 1; conn <= 2; ++conn) (void)on(ConnMessage{conn, ready("grads"), by});
  EXPECT_NE(is_member("a"), is_member("b"));
  (void)on(ConnMessage{3, hello(300, "c"), {{8}}});
  (void)on(ConnMessage{3, wire::Resume{}, {{8}}});
  (void)on(ConnMessage{3, ready("grads"), {{8}}});
  EXPECT_TRUE(is_member("c"));
  EXPECT_NE(is_member("a"), is_member("b"));
}

}  // namespace
}  // namespace jccl::protocol
