// What is held against whom, and what follows: members that lie are named, left alone with their
// lie, and banned; weather is nobody's fault; operators have the last word.
#include "protocol/conduct/blame.h"

#include "protocol/hostile_rig.h"

namespace jccl::protocol {
namespace {

using base::Code;
using base::kMillisecond;
using base::kSecond;

class BlameTest : public HostileMember {
 protected:
  wire::Ready odd(const wire::Tag& tag, std::uint64_t n) {
    wire::Ready ready = HostileMember::ready(tag, n);
    ready.descriptor = {6, 6};
    return ready;
  }
  wire::PublicKey key(ConnId member) const { return key_of(hello(100 * member, "")); }
  static bool bans(const MasterEffects& effects) {
    return std::any_of(effects.journal.begin(), effects.journal.end(), [](const auto& record) {
      return std::holds_alternative<wire::BanRecord>(record);
    });
  }
  // Both honest members are READY for a round that member 3 then answers.
  void honest_ready(std::uint64_t n) {
    for (ConnId conn = 1; conn <= 2; ++conn) (void)say(conn, ready("grads", n));
  }
  MasterEffects ban_of_three() {
    honest_ready(2);
    (void)say(3, odd("grads", 2));
    (void)say(3, odd("grads", 2));
    return say(3, odd("grads", 2));
  }
  MasterEffects order(wire::OrderVerb verb, const std::string& subject, base::Duration span = 0,
                      bool may_order = true) {
    Shown shown;
    shown.key = {99};
    shown.may_order = may_order;
    return on(ConnMessage{++orders_, wire::Order{verb, subject, span, ""}, shown});
  }
  MasterEffects come(ConnId conn, wire::Incarnation process, const std::string& site,
                     const Shown& shown, std::uint32_t shard = 0, std::uint32_t shards = 1) {
    wire::Hello one = hello(process, site);
    one.shard = shard, one.shards = shards;
    const auto effects = on(ConnMessage{conn, one, shown});
    (void)on(ConnMessage{conn, wire::Resume{}, shown});
    return effects;
  }
  static Shown shown(std::uint8_t key, std::string token = {}, std::uint32_t uses = 0) {
    return {{key}, std::move(token), uses};
  }
  ConnId orders_ = 1000;
};

TEST_F(BlameTest, who_asks_for_another_call_than_most_is_left_alone_with_it) {
  run_of_three();
  honest_ready(2);
  const auto told = sent<wire::Reject>(say(3, odd("grads", 2)));
  ASSERT_EQ(told.size(), 1U);  // to it alone; the others wait
  EXPECT_EQ(told[0].code, Code::kMismatch);
  EXPECT_EQ(sent<wire::Start>(say(3, ready("grads", 2))).size(), 3U);
}

TEST_F(BlameTest, three_lies_are_a_ban_and_the_others_go_on) {
  run_of_three();
  const auto effects = ban_of_three();
  EXPECT_FALSE(is_member("c"));
  EXPECT_EQ(sent<wire::Start>(effects).size(), 2U);  // at once, without it
  const auto again = sent<wire::Refuse>(come(4, 999, "c", shown(44)));
  EXPECT_TRUE(again.empty());  // another key is another peer …
  const auto same = sent<wire::Refuse>(on(ConnMessage{5, hello(1000, "c"), {key(3)}}));
  ASSERT_EQ(same.size(), 1U);
  EXPECT_EQ(same[0].code, Code::kBanned);
  EXPECT_NE(same[0].text.find("3 calls unlike the others'"), std::string::npos) << same[0].text;
  ASSERT_EQ(master_->view(now_).bans.size(), 1U);
}

TEST_F(BlameTest, lies_of_different_kinds_count_together) {
  run_of_three();
  honest_ready(2);
  (void)say(3, odd("grads", 2));
  auto starts = sent<wire::Start>(say(3, ready("grads", 2)));
  ASSERT_EQ(starts.size(), 3U);
  (void)say(3, wire::Fail{starts[0].attempt, Code::kInvalid, 0, "no"});
  wait(kSecond);
  honest_ready(2);
  starts = sent<wire::Start>(say(3, ready("grads", 2)));
  ASSERT_EQ(starts.size(), 3U);
  (void)say(3, wire::Done{starts[0].attempt, {6, 6}});
  for (ConnId conn = 1; conn <= 2; ++conn) (void)say(conn, wire::Done{starts[0].attempt, {7, 7}});
  EXPECT_FALSE(is_member("c"));
}

TEST_F(BlameTest, a_refusal_that_nobody_shares_ends_the_call_of_who_says_it) {
  run_of_three();
  honest_ready(2);
  const auto starts = sent<wire::Start>(say(3, ready("grads", 2)));
  ASSERT_EQ(starts.size(), 3U);
  EXPECT_TRUE(sent<wire::Outcome>(say(3, wire::Fail{starts[0].attempt, Code::kLimit, 0, "no room"}))
                  .empty());  // others may say so, too
  now_ += kSecond;
  for (const MasterSend& one : on(Tick{}).send) {
    const auto* told = std::get_if<wire::Outcome>(&one.message);
    if (told == nullptr) continue;
    EXPECT_EQ(told->retry, one.conn != 3);
    EXPECT_EQ(told->code, one.conn == 3 ? Code::kLimit : Code::kPeerLost);
  }
  EXPECT_EQ(master_->view(now_).tags.at(0).aborts, 1U);
}

TEST_F(BlameTest, a_refusal_that_half_share_ends_the_calls_of_all) {
  run_of_three();
  honest_ready(2);
  const auto starts = sent<wire::Start>(say(3, ready("grads", 2)));
  (void)say(3, wire::Fail{starts[0].attempt, Code::kInvalid, 0, "does not fit"});
  const auto told =
      sent<wire::Outcome>(say(1, wire::Fail{starts[0].attempt, Code::kInvalid, 0, "neither"}));
  ASSERT_EQ(told.size(), 3U);
  for (const wire::Outcome& one : told) {
    EXPECT_FALSE(one.retry);
    EXPECT_EQ(one.code, Code::kInvalid);
  }
  for (const PeerView& peer : master_->view(now_).peers) EXPECT_EQ(peer.faults, "");
}

TEST_F(BlameTest, whose_result_is_outvoted_twice_ends_alone) {
  run_of_three();
  for (int time = 1; time <= 2; ++time) {
    honest_ready(2);
    const auto starts = sent<wire::Start>(say(3, ready("grads", 2)));
    ASSERT_EQ(starts.size(), 3U) << time;
    (void)say(1, wire::Done{starts[0].attempt, {7, 7}});
    EXPECT_TRUE(sent<wire::Outcome>(say(3, wire::Done{starts[0].attempt, {6, 6}})).empty());
    const auto told = on(ConnMessage{2, wire::Done{starts[0].attempt, {7, 7}}});
    int ended = 0;
    for (const MasterSend& one : told.send) {
      const auto* outcome = std::get_if<wire::Outcome>(&one.message);
      if (outcome == nullptr) continue;
      EXPECT_EQ(outcome->retry, time == 1 || one.conn != 3) << one.conn;
      EXPECT_NE(outcome->text.find("outvoted c"), std::string::npos) << outcome->text;
      ended += !outcome->retry && outcome->code == Code::kCorrupt;
    }
    EXPECT_EQ(ended, time == 1 ? 0 : 1);
  }
  EXPECT_TRUE(is_member("c"));
}

TEST_F(BlameTest, results_that_all_differ_are_held_against_nobody) {
  run_of_three();
  honest_ready(2);
  const auto starts = sent<wire::Start>(say(3, ready("grads", 2)));
  for (ConnId conn = 1; conn <= 3; ++conn) {
    (void)say(conn, wire::Done{starts[0].attempt, {conn, conn}});
  }
  EXPECT_EQ(master_->view(now_).tags.at(0).aborts, 1U);
  for (const PeerView& peer : master_->view(now_).peers) EXPECT_EQ(peer.faults, "");
}

TEST_F(BlameTest, of_two_nothing_is_held_against_either) {
  MasterOptions two = options();
  two.start_peers = 2;
  begin(two);
  join({"a", "b"});
  for (int time = 0; time < 5; ++time) {
    (void)say(1, ready("grads"));
    EXPECT_EQ(sent<wire::Reject>(say(2, odd("grads", 1))).size(), 2U);
  }
  EXPECT_TRUE(is_member("a") && is_member("b"));
  for (const PeerView& peer : master_->view(now_).peers) EXPECT_EQ(peer.faults, "");
}

TEST_F(BlameTest, a_ban_outlives_the_master_and_ends_in_its_time) {
  run_of_three();
  std::vector<wire::Record> bans;
  for (const wire::Record& record : ban_of_three().journal) {
    if (std::holds_alternative<wire::BanRecord>(record)) bans.push_back(record);
  }
  ASSERT_EQ(bans.size(), 1U);
  bans.insert(bans.begin(), wire::RunRecord{options().run, wire::kVersion});
  MasterOptions later = options();
  const auto refused = [&](base::Duration after) {
    later.unix_ahead = after;  // its own clock begins anew, the world's does not
    begin(later, plan, bans);
    return !sent<wire::Refuse>(on(ConnMessage{1, hello(1, "c"), {key(3)}})).empty();
  };
  EXPECT_TRUE(refused(0));
  EXPECT_TRUE(refused(599 * kSecond));
  EXPECT_FALSE(refused(601 * kSecond));
}

TEST_F(BlameTest, a_second_ban_is_twice_as_long) {
  run_of_three();
  (void)order(wire::OrderVerb::kBan, base::to_hex(key(3)), kSecond);
  now_ += 2 * kSecond;
  for (ConnId conn = 1; conn <= 2; ++conn) (void)say(conn, wire::Heartbeat{});
  (void)on(ConnMessage{7, hello(777, "c"), {key(3)}});
  (void)on(ConnMessage{7, wire::Resume{}, {key(3)}});
  (void)say(7, odd("grads", 2));
  ASSERT_TRUE(is_member("c"));
  honest_ready(2);
  (void)say(7, odd("grads", 2));
  (void)say(7, odd("grads", 2));
  const auto bans = master_->view(now_).bans;
  ASSERT_EQ(bans.size(), 1U);
  const auto unix_ms = static_cast<std::uint64_t>(now_ / kMillisecond);
  EXPECT_EQ(bans[0].until_unix_ms - unix_ms, 1'200'000U);
}

TEST_F(BlameTest, after_a_ban_new_keys_enter_ever_more_slowly) {
  run_of_three();
  (void)ban_of_three();
  for (ConnId conn = 1; conn <= 2; ++conn) (void)say(conn, wire::Done{{1, 99}, {7, 7}});
  (void)come(4, 400, "d", shown(44));
  (void)say(4, ready("grads", 2));
  EXPECT_FALSE(is_member("d"));
  alive_ = {1, 2, 4};
  wait(2 * kSecond);
  EXPECT_TRUE(is_member("d"));
  (void)come(5, 500, "e", shown(55));
  (void)say(5, ready("grads", 2));
  alive_ = {1, 2, 4, 5};
  wait(500 * kMillisecond);
  EXPECT_FALSE(is_member("e"));
  wait(2 * kSecond);
  EXPECT_TRUE(is_member("e"));
}

// Real links that fail twice are gone round; who reports them still has made that up.
TEST_F(BlameTest, who_reports_a_link_that_the_plan_does_without_is_banned) {
  for (const auto cause : {Code::kLinkLost, Code::kPeerLost}) {
    last_ = 0;
    run_of_three();
    alive_ = {1, 2, 3};
    int attempts = 0;
    for (; is_member("c") && attempts < 10; ++attempts) {
      honest_ready(2);
      const auto starts = sent<wire::Start>(say(3, ready("grads", 2)));
      ASSERT_EQ(starts.size(), 3U);
      (void)say(3, wire::Fail{starts[0].attempt, cause, 1, "made up"});
      wait(2 * kSecond);
    }
    EXPECT_FALSE(is_member("c"));
    EXPECT_GE(attempts, 4) << "one that broke once or twice is weather";
    EXPECT_TRUE(is_member("a") && is_member("b"));
    ASSERT_EQ(master_->view(now_).bans.size(), 1U);
    EXPECT_EQ(master_->view(now_).bans[0].site, "c");
  }
}

// Its connection is closed for each, it is back at once, and the others wait for its READY.
TEST_F(BlameTest, who_says_what_is_no_message_again_and_again_is_banned) {
  run_of_three();
  ConnId conn = 3;
  for (int time = 0; time < 10 && is_member("c"); ++time) {
    if (time % 2 == 0)
      (void)on(ConnClosed{conn, true});  // bytes
    else
      (void)say(conn, wire::Resume{});  // a second one
    (void)say(++conn, hello(300, "c"));
    (void)say(conn, wire::Resume{});
  }
  EXPECT_FALSE(is_member("c"));
  ASSERT_EQ(master_->view(now_).bans.size(), 1U);
  EXPECT_EQ(master_->view(now_).bans[0].key, key(3));
}

TEST_F(BlameTest, who_edits_its_state_again_and_again_is_not_banned) {
  run_of_three();
  for (int i = 0; i < 14; ++i) {
    const std::uint64_t n = committed("grads") + 1;
    honest_ready(n);
    const auto starts = sent<wire::Start>(say(3, ready("grads", n)));
    EXPECT_FALSE(bans(say(3, wire::Fail{starts.at(0).attempt, Code::kResync, 0, "leaf w"}))) << i;
    (void)say(1, ready("grads", n));
    const auto without = sent<wire::Start>(say(2, ready("grads", n)));
    ASSERT_EQ(without.size(), i == 0 ? 0U : 2U) << i;  // the first time it is waited for
    ConnId conn = 0;
    for (const wire::Start& start : without) (void)say(++conn, wire::Done{start.attempt, {7, 7}});
  }
}

// An edit that is seen before START ends the call by WITHDRAW, which may cross it.
TEST_F(BlameTest, who_takes_calls_back_as_they_begin_is_not_banned_at_once) {
  run_of_three();
  alive_ = {1, 2, 3};
  for (std::uint64_t n = 2; n < 16; ++n) {
    for (ConnId conn = 1; conn <= 3; ++conn) (void)say(conn, ready("grads", n));
    const auto effects = say(3, wire::Withdraw{{"grads", n}});
    ASSERT_FALSE(sent<wire::Outcome>(effects).empty()) << n;  // it ended an attempt
    EXPECT_FALSE(bans(effects)) << n;
    commit("grads", n);  // with it
  }
}

TEST_F(BlameTest, a_connection_that_breaks_is_held_against_nobody) {
  run_of_three();
  for (ConnId conn = 3; conn < 30; ++conn) {
    (void)on(ConnClosed{conn});
    (void)say(conn + 1, hello(300, "c"));
    (void)say(conn + 1, wire::Resume{});
  }
  EXPECT_TRUE(is_member("c"));
  for (const PeerView& peer : master_->view(now_).peers) EXPECT_EQ(peer.faults, "");
}

// It fetches the state all the time, and can't come in.
TEST_F(BlameTest, no_round_is_held_for_half_a_site) {
  begin(options());
  wire::Sync sync;
  sync.tag = "model", sync.deadline = 600 * kSecond;
  wire::Hello holder = hello(100, "a");
  holder.addresses = {"127.0.0.1:1"};
  (void)join(1, holder);
  (void)say(1, sync);
  (void)say(1, wire::Published{{"model", 0, {}}});
  sync.digest = {9, 9};
  wire::Hello half = hello(1000, "half");
  half.shards = 2;
  (void)join(2, half);
  for (std::uint64_t n = 0; n < 20; ++n) {
    (void)say(2, sync);
    wire::Ready call = ready("model", n + 1);
    call.has_state = true;
    call.revision = n, call.state = {n, 0};
    const auto starts = sent<wire::Start>(say(1, call));
    ASSERT_EQ(starts.size(), 1U) << n << ": " << master_->view(now_).tags.at(0).waiting_for;
    (void)say(1, wire::Done{starts[0].attempt, {n, 1}});
    (void)say(1, wire::Published{{"model", n + 1, {n + 1, 0}}});
    now_ += 10 * kMillisecond;
  }
}

TEST_F(BlameTest, faults_fade) {
  Blame blame;
  const wire::PublicKey key{1};
  for (int day = 0; day < 20; ++day) {
    const base::Time now = day * 86'400 * kSecond;
    EXPECT_LT(blame.charge(key, "", Fault::kMismatch, now), 1.01);
    EXPECT_LT(blame.charge(key, "", Fault::kMismatch, now), kBanAt);
  }
  EXPECT_GE(blame.charge(key, "", Fault::kMismatch, 19 * 86'400 * kSecond), kBanAt);
}

TEST_F(BlameTest, who_has_to_go_again_and_again_stays_out_longer_each_time) {
  Blame blame;
  const wire::PublicKey key{1};
  base::Time now = 1000 * kSecond;
  blame.departed(key, 4 * kSecond, 600 * kSecond, now);
  EXPECT_LE(blame.out_until(key), now);  // the first is free
  blame.departed(key, 4 * kSecond, 600 * kSecond, now);
  EXPECT_EQ(blame.out_until(key), now + 4 * kSecond);
  blame.departed(key, 4 * kSecond, 600 * kSecond, now);
  EXPECT_EQ(blame.out_until(key), now + 8 * kSecond);
  now = blame.out_until(key) + 3 * kFaultHalfLife;  // time outside counts for nothing
  blame.departed(key, 4 * kSecond, 600 * kSecond, now);
  EXPECT_LE(blame.out_until(key), now);  // long ago
}

TEST_F(BlameTest, a_straggler_that_was_evicted_twice_waits_before_it_comes_in) {
  MasterOptions slow = options();
  slow.start_peers = 3;
  slow.straggler = Straggler::kEvict;
  slow.straggler_after = kSecond;
  begin(slow);
  join({"a", "b", "c"});
  commit("grads", 1);
  alive_ = {1, 2, 3};
  honest_ready(2);
  wait(1500 * kMillisecond);
  ASSERT_FALSE(is_member("c"));
  (void)come(4, 400, "c", {key(3)});
  (void)say(4, ready("x"));
  ASSERT_TRUE(is_member("c"));  // weather
}

// ---- tokens ------------------------------------------------------------------------------------

TEST_F(BlameTest, a_token_of_one_use_admits_one_key_and_that_again) {
  (void)come(1, 100, "a", shown(1, "t", 1));
  (void)say(1, ready("grads"));
  ASSERT_TRUE(is_member("a"));
  const auto other = sent<wire::Refuse>(come(2, 200, "b", shown(2, "t", 1)));
  ASSERT_EQ(other.size(), 1U);
  EXPECT_EQ(other[0].code, Code::kBanned);
  EXPECT_NE(other[0].text.find("used by 1 key"), std::string::npos) << other[0].text;
  (void)on(ConnClosed{1});
  now_ += kSecond;
  (void)on(Tick{});
  EXPECT_TRUE(sent<wire::Refuse>(come(3, 300, "a", shown(1, "t", 1))).empty());
}

TEST_F(BlameTest, of_two_that_wait_outside_with_one_use_one_comes_in) {
  (void)come(1, 100, "a", shown(1, "t", 1));
  (void)come(2, 200, "b", shown(2, "t", 1));
  (void)say(1, ready("grads"));
  (void)say(2, ready("grads"));
  EXPECT_TRUE(is_member("a"));
  EXPECT_FALSE(is_member("b"));
}

TEST_F(BlameTest, shards_of_a_site_share_a_token) {
  (void)come(1, 100, "a", shown(1, "t", 1), 0, 2);
  (void)come(2, 200, "a", shown(2, "t", 1), 1, 2);
  (void)say(1, ready("grads"));
  EXPECT_TRUE(is_member("a"));
  EXPECT_EQ(master_->view(now_).tokens.at(0).keys, 2U);
}

TEST_F(BlameTest, a_revoked_token_is_taken_no_more_and_who_is_in_by_it_leaves) {
  (void)come(1, 100, "a", shown(1, "t"));
  (void)come(2, 200, "b", shown(2, "u"));
  for (ConnId conn = 1; conn <= 2; ++conn) (void)say(conn, ready("grads"));
  (void)order(wire::OrderVerb::kRevoke, "t");
  EXPECT_FALSE(is_member("a"));
  EXPECT_TRUE(is_member("b"));
  const auto again = sent<wire::Refuse>(come(3, 300, "a", shown(1, "t")));
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].code, Code::kBanned);
}

// ---- orders ------------------------------------------------------------------------------------

TEST_F(BlameTest, only_operators_give_orders) {
  run_of_three();
  const auto no = sent<wire::Refuse>(order(wire::OrderVerb::kKick, "c", 0, false));
  ASSERT_EQ(no.size(), 1U);
  EXPECT_EQ(no[0].code, Code::kAuth);
  EXPECT_TRUE(is_member("c"));
  const auto late = sent<wire::Refuse>(say(1, wire::Order{wire::OrderVerb::kKick, "c", 0, ""}));
  EXPECT_EQ(late.size(), 1U);  // in the middle of a member's words
}

TEST_F(BlameTest, a_kick_a_ban_and_a_pardon_do_what_they_say) {
  run_of_three();
  const auto reply = [&](wire::OrderVerb verb, const std::string& subject, base::Duration span) {
    return sent<wire::OrderReply>(order(verb, subject, span)).at(0).code;
  };
  EXPECT_EQ(reply(wire::OrderVerb::kKick, "nobody", 0), Code::kInvalid);
  EXPECT_EQ(reply(wire::OrderVerb::kKick, "c", 0), Code::kOk);
  EXPECT_FALSE(is_member("c"));
  EXPECT_EQ(reply(wire::OrderVerb::kBan, "b", 0), Code::kInvalid);  // no key
  EXPECT_EQ(reply(wire::OrderVerb::kBan, base::to_hex(key(2)), -1), Code::kInvalid);
  EXPECT_EQ(reply(wire::OrderVerb::kBan, base::to_hex(key(2)), 0), Code::kOk);
  EXPECT_FALSE(is_member("b"));
  EXPECT_EQ(master_->view(now_).bans.at(0).until_unix_ms, wire::kForGood);
  EXPECT_EQ(reply(wire::OrderVerb::kPardon, base::to_hex(key(1)), 0), Code::kInvalid);
  EXPECT_EQ(reply(wire::OrderVerb::kPardon, base::to_hex(key(2)), 0), Code::kOk);
  EXPECT_TRUE(sent<wire::Refuse>(on(ConnMessage{8, hello(888, "b"), {key(2)}})).empty());
}

TEST_F(BlameTest, a_site_that_is_drained_is_asked_until_it_goes_and_the_others_hear_why) {
  run_of_three();
  EXPECT_EQ(sent<wire::OrderReply>(order(wire::OrderVerb::kDrain, "nobody")).at(0).code,
            Code::kInvalid);
  const auto asked = order(wire::OrderVerb::kDrain, "c");
  EXPECT_EQ(sent<wire::OrderReply>(asked).at(0).code, Code::kOk);
  ASSERT_EQ(sent<wire::Drain>(asked).size(), 1U);
  EXPECT_EQ(sent<wire::Drain>(asked)[0].text, "drained by an operator");
  EXPECT_TRUE(is_member("c"));  // until it goes by itself
  (void)on(ConnClosed{3});
  const Shown same = {key(3)};
  (void)on(ConnMessage{4, hello(300, "c"), same});
  EXPECT_EQ(sent<wire::Drain>(on(ConnMessage{4, wire::Resume{}, same})).size(), 1U);
  const auto left = on(ConnMessage{4, wire::Leave{}, same});
  EXPECT_FALSE(is_member("c"));
  const auto told = sent<wire::Roster>(left);
  ASSERT_EQ(told.size(), 2U);
  EXPECT_EQ(told[0].why, "c left: drained by an operator");
}

TEST_F(BlameTest, with_a_list_only_its_keys_and_those_let_in_are_members) {
  MasterOptions listed = options();
  listed.admission = Admission::kListed;
  listed.listed = {{1}};
  begin(listed);
  (void)come(1, 100, "a", shown(1));
  (void)come(2, 200, "b", shown(2));
  (void)say(1, ready("grads"));
  (void)say(2, ready("grads"));
  EXPECT_TRUE(is_member("a"));
  EXPECT_FALSE(is_member("b"));
  now_ += kSecond;
  std::string told;
  for (const wire::Waiting& one : sent<wire::Waiting>(on(Tick{}))) told += one.text;
  EXPECT_NE(told.find("b waits for an operator: jccl admit 02"), std::string::npos) << told;
  (void)order(wire::OrderVerb::kAdmit, base::to_hex(wire::PublicKey{2}));
  EXPECT_TRUE(is_member("b"));
}

}  // namespace
}  // namespace jccl::protocol
