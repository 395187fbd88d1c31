// What a peer hears whose place is another's, and for whom the name of a site is kept.
#include "protocol/hostile_rig.h"

namespace jccl::protocol {
namespace {

using base::kMillisecond;
using base::kSecond;

class SeatsTest : public HostileMember {
 protected:
  static wire::PublicKey key(ConnId member) { return key_of(hello(100 * member, "")); }
  // Three members, a, b and c, after a round.
  void three() {
    MasterOptions three = options();
    three.start_peers = 3;
    begin(three);
    join({"a", "b", "c"});
    commit("grads", 1);
  }
  // … and both processes of site v, on 4 and 5, of which the second one has called.
  void three_and_a_newcomer() {
    three();
    for (const std::uint32_t shard : {0U, 1U}) {
      wire::Hello one = hello(400 + shard, "v");
      one.shard = shard, one.shards = 2;
      (void)join(4 + shard, one);
    }
    (void)say(5, ready("grads", 2));
  }
  // Two members, a and b.
  void two() {
    join({"a", "b"});
    (void)say(2, ready("grads"));
    (void)say(1, ready("grads"));
  }
  std::string refusal(const wire::Hello& hello, const wire::PublicKey& key) {
    const auto refused = sent<wire::Refuse>(say(++knocks_, hello, key));
    if (refused.empty()) return {};
    EXPECT_EQ(refused[0].code, base::Code::kLinkLost) << "which ends no communicator";
    return refused[0].text;
  }
  ConnId knocks_ = 50;
};

TEST_F(SeatsTest, a_seat_in_use_is_told_with_its_key_its_end_and_what_to_do) {
  two();
  now_ += 3 * kMillisecond;
  EXPECT_EQ(refusal(hello(777, "a"), {7}),
            "the seat of site a, shard 0 of 1, is taken by the key 6400000000000000…, heard 3 ms "
            "ago. It is free when that process has ended or been away for 200 ms. If both are to "
            "run, give each a site or shard of its own");
  EXPECT_EQ(refusal(hello(777, "a"), key(1)),
            "the seat of site a, shard 0 of 1, is taken by this peer's own key 6400000000000000… "
            "in another process, heard 3 ms ago. It is free when that process has ended or been "
            "away for 200 ms. If both are to run, give each a site or shard of its own and a key "
            "file of its own");
}

TEST_F(SeatsTest, a_seat_whose_key_is_away_is_told_with_the_time_until_it_is_free) {
  two();
  (void)on(ConnClosed{1});
  now_ += 150 * kMillisecond;
  const std::string why = refusal(hello(777, "a"), {7});
  EXPECT_NE(why.find("taken by the key 6400000000000000…, which is away."), std::string::npos);
  EXPECT_NE(why.find("the seat is free in 50 ms: try again then"), std::string::npos) << why;
  EXPECT_NE(why.find("With a key file"), std::string::npos) << why;
  now_ += 50 * kMillisecond;
  (void)on(Tick{});
  EXPECT_EQ(refusal(hello(777, "a"), {7}), "") << "as it was told";
}

// Nobody hung up, but nothing is heard: it is given up after the silence, not the grace.
TEST_F(SeatsTest, a_seat_whose_key_is_silent_is_free_when_the_silence_is_over) {
  two();
  now_ += 2 * options().heartbeat;
  const base::Duration left = options().silence - 2 * options().heartbeat;
  const std::string why = refusal(hello(777, "a"), {7});
  EXPECT_NE(why.find(base::cat("free in ", left / kMillisecond, " ms")), std::string::npos) << why;
}

TEST_F(SeatsTest, a_kicked_seat_is_told_with_its_key_and_the_time_it_is_kept) {
  two();
  (void)on(ConnMessage{40, wire::Order{wire::OrderVerb::kKick, "a", 0, ""}, {{99}, "", 0, true}});
  const std::string why = refusal(hello(777, "a"), {7});
  EXPECT_NE(why.find("kept for the key 6400000000000000… for 61 s more"), std::string::npos) << why;
}

// One process of a newcomer calls while its other one still fetches a state that moves on. Let in
// for that call it was waited for, put out, and let in again (simulator, seed 6036197924).
TEST_F(SeatsTest, a_newcomer_is_let_in_by_a_call_of_all_its_shards) {
  three_and_a_newcomer();
  EXPECT_FALSE(is_member("v"));
  now_ += options().heartbeat;
  std::string told;
  for (const auto& one : sent<wire::Waiting>(on(Tick{}))) told += base::cat(one.text, "; ");
  EXPECT_NE(told.find("v/1 waits for shard 0 of 2 of its own site to call grads; "),
            std::string::npos)
      << told;
  (void)say(4, ready("other", 1));
  EXPECT_FALSE(is_member("v"));
  (void)say(4, ready("grads", 2));
  EXPECT_TRUE(is_member("v"));
}

// It alone would contribute; the rounds of those that are in end as nobody does (seed 29390484763).
TEST_F(SeatsTest, who_is_not_in_yet_hears_of_no_round_to_which_nobody_contributes) {
  three_and_a_newcomer();
  wire::Ready none = ready("grads", 2);
  none.weight = 0;
  (void)say(1, none), (void)say(2, none);
  const auto told = sent<wire::Reject>(say(3, none));
  ASSERT_EQ(told.size(), 3U);
  EXPECT_EQ(told[0].code, base::Code::kEmpty);
  (void)say(4, ready("grads", 2));
  EXPECT_TRUE(is_member("v"));
}

// Its own shards are what it waits for, and not the others' round.
TEST_F(SeatsTest, a_site_that_is_not_whole_hears_which_of_its_shards_is_missing) {
  three();
  wire::Hello first = hello(400, "v");
  first.shard = 1, first.shards = 3;
  (void)join(4, first);
  wire::Ready call = ready("grads", 2);
  call.deadline = 2 * kSecond;
  (void)say(4, call);
  now_ += options().heartbeat;
  std::string told;
  for (const auto& one : sent<wire::Waiting>(on(Tick{}))) told += base::cat(one.text, "; ");
  EXPECT_NE(told.find("v/1 waits for shards 0, 2 of 3 of its own site; "), std::string::npos)
      << told;
  alive_ = {1, 2, 3, 4};
  wait(kSecond);
  wire::Hello second = hello(500, "v");
  second.shards = 3;
  (void)join(5, second);
  now_ += kSecond;
  std::string ended;
  for (const auto& one : sent<wire::Reject>(on(Tick{}))) ended += base::cat(one.text, "; ");
  EXPECT_NE(ended.find("before admission; v/1 waits for shard 2 of 3 of its own site; "),
            std::string::npos)
      << ended;
}

// ---- names that are for the tokens of a site ---------------------------------------------------

class ReservedTest : public SeatsTest {
 protected:
  // As the driver asks: a token whose name is "for a" is the site's.
  base::Status of_shared(const std::string& site, const wire::PublicKey& key) const {
    return master_->reserved(site, key, [&](const std::string& t) { return t == "for " + site; });
  }
  void come(ConnId conn, const std::string& site, const std::string& token) {
    const Shown shown{key(conn), token};
    (void)on(ConnMessage{conn, hello(100 * conn, site), shown});
    (void)on(ConnMessage{conn, wire::Resume{}, shown});
    (void)on(ConnMessage{conn, ready("grads"), shown});
  }
};

TEST_F(ReservedTest, a_name_is_its_tokens_once_a_key_has_joined_by_one) {
  come(1, "b", "shared");
  EXPECT_TRUE(of_shared("a", {7}).ok()) << "nobody has come by a token of its own";
  EXPECT_TRUE(of_shared("b", {7}).ok());
  come(2, "a", "for a");
  const base::Status no = of_shared("a", {7});
  EXPECT_EQ(no.code, base::Code::kAuth);
  EXPECT_NE(no.text.find("site a has tokens of its own"), std::string::npos) << no.text;
  EXPECT_NE(no.text.find("jccl token create --site"), std::string::npos) << no.text;
  EXPECT_TRUE(of_shared("b", {7}).ok());
  (void)say(2, wire::Leave{});
  EXPECT_FALSE(of_shared("a", {7}).ok()) << "when it is away, too";
}

TEST_F(ReservedTest, a_name_is_kept_over_a_restart_and_until_its_token_is_revoked) {
  std::vector<wire::Record> journal = {wire::RunRecord{options().run, wire::kVersion},
                                       wire::TokenRecord{"for a", false, {5}, 0}};
  begin(options(), plan, journal);
  EXPECT_FALSE(of_shared("a", {7}).ok());
  (void)on(
      ConnMessage{40, wire::Order{wire::OrderVerb::kRevoke, "for a", 0, ""}, {{99}, "", 0, true}});
  EXPECT_TRUE(of_shared("a", {7}).ok());
}

// A site of two shards, of which one came by a shared token: nobody is put out by the other's.
TEST_F(ReservedTest, a_member_comes_back_as_it_came) {
  for (ConnId conn = 1; conn <= 2; ++conn) {
    const Shown shown{key(conn), conn == 1 ? "for a" : "shared"};
    wire::Hello half = hello(100 * conn, "a");
    half.shard = static_cast<std::uint32_t>(conn - 1), half.shards = 2;
    (void)on(ConnMessage{conn, half, shown});
    (void)on(ConnMessage{conn, wire::Resume{}, shown});
  }
  (void)say(1, ready("grads"));
  EXPECT_TRUE(of_shared("a", key(2)).ok());
  EXPECT_FALSE(of_shared("a", {7}).ok());
}

// b has been silent for too long when the last DONE comes: both are in the round all the same.
TEST_F(SeatsTest, the_last_done_decides_before_who_was_silent_goes) {
  MasterOptions both = options();
  both.min_peers = 2;
  begin(both);
  join({"a", "b"});
  (void)say(2, ready("grads"));
  const auto starts = sent<wire::Start>(say(1, ready("grads")));
  ASSERT_EQ(starts.size(), 2U);
  (void)say(2, wire::Done{starts[0].attempt, {7, 7}});
  alive_ = {1};
  (void)wait(options().silence - kMillisecond);
  ASSERT_TRUE(is_member("b"));
  now_ += 2 * kMillisecond;
  (void)say(1, wire::Done{starts[0].attempt, {7, 7}});
  EXPECT_EQ(committed("grads"), 1U);
  EXPECT_FALSE(is_member("b"));
}

}  // namespace
}  // namespace jccl::protocol
