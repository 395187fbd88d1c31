// Sources that differ before a state begins: whose words stand for how long, whatever is tried.
#include "protocol/states/birth_rig.h"

namespace jccl::protocol {
namespace {

using base::kSecond;

class DisputeTest : public BirthTest {
 protected:
  using Asks = BirthTest::Asks;
  bool is_here(ConnId conn) const {
    return std::find(alive_.begin(), alive_.end(), conn) != alive_.end();
  }
  // The process asks; its connection stays.
  void asks_on(ConnId conn, const Asks& one, const wire::PublicKey& its) {
    if (!is_here(conn)) {
      wire::Hello hello = HostileMember::hello(100 * conn + ++processes_, one.site);
      hello.shard = one.shard, hello.shards = one.shards;
      (void)say(conn, hello, its);
      (void)say(conn, wire::Resume{}, its);
      alive_.push_back(conn);
    }
    note(say(conn, asks(one), its));
  }
  void goes(ConnId conn) {
    note(on(ConnClosed{conn}));
    std::erase(alive_, conn);
  }
  void for_a_moment(ConnId conn, const Asks& one, const wire::PublicKey& its) {
    asks_on(conn, one, its);
    goes(conn);
  }
  void waits(base::Duration time) { note_lines(wait(time)); }
  std::uint64_t processes_ = 0;
};

// e has the digest of a's first shard, and another value for the second one, which a thief of that
// shard's name says to be a's before a's own process comes, and again when it has gone.
TEST_F(DisputeTest, a_thief_who_came_first_takes_no_word_of_a_site_in_dispute) {
  for (const bool renewed : {false, true}) {
    source_.clear(), alive_.clear(), told_.clear();
    begin(three());
    asks_on(1, {"a", 1, 1, true, 0, 2}, key(1));
    asks_on(2, {"e", 1, 9, true, 0, 2}, key(2));
    asks_on(3, {"b", 1, 3, false, 0, 2}, key(3)), asks_on(4, {"b", 2, 3, false, 1, 2}, key(4));
    asks_on(5, {"c", 1, 4, false, 0, 2}, key(5)), asks_on(6, {"c", 2, 4, false, 1, 2}, key(6));
    if (!renewed) for_a_moment(7, {"a", 2, 66, false, 1, 2}, key(7));
    asks_on(7, {"a", 2, 101, true, 1, 2}, key(8));
    if (renewed) {  // a's second process begins anew without its key
      goes(7);
      asks_on(7, {"a", 2, 101, true, 1, 2}, key(9));
      waits(130 * kSecond);
    }
    goes(1), goes(7);
    waits(kSecond);
    for_a_moment(7, {"a", 2, 66, true, 1, 2}, key(10));
    asks_on(2, {"e", 1, 1, true, 0, 2}, key(2));
    asks_on(8, {"e", 2, 66, true, 1, 2}, key(11));
    waits(20 * kSecond);
    EXPECT_EQ(source_, "") << renewed;
  }
}

// Each shard begins anew without its key and with fresh values, whenever it is refused.
TEST_F(DisputeTest, a_source_of_many_processes_begins_soon_after_the_other_one_has_gone) {
  for (const std::uint32_t shards : {1U, 2U, 8U}) {
    source_.clear(), alive_.clear(), told_.clear();
    MasterOptions two = options();
    two.start_peers = 2;
    begin(two);
    for (std::uint32_t k = 0; k < shards; ++k) {
      for_a_moment(1, {"e", static_cast<std::uint8_t>(1 + k), 1, true, k, shards}, key(1));
    }
    for (std::uint32_t k = 0; k < shards; ++k) {
      asks_on(30 + k, {"b", static_cast<std::uint8_t>(1 + k), 250, false, k, shards},
              {77, std::uint8_t(k)});
    }
    std::uint8_t fresh = 2;
    std::map<std::uint32_t, int> away;  // seconds
    const base::Time begun = now_;
    while (source_.empty() && now_ < begun + 600 * kSecond) {
      for (std::uint32_t k = 0; k < shards; ++k) {
        const ConnId conn = 10 + k;
        const bool refused = told(conn).find("are both named") != std::string::npos;
        if (is_here(conn) && refused) goes(conn), away[k] = 1 + (fresh + k) % 3;
        if (is_here(conn) || --away[k] > 0) continue;
        told_.erase(conn);
        ++fresh;
        asks_on(conn, {"a", static_cast<std::uint8_t>(1 + k), fresh, true, k, shards},
                {fresh, static_cast<std::uint8_t>(k), 9, static_cast<std::uint8_t>(++processes_)});
      }
      waits(kSecond);
    }
    EXPECT_EQ(source_.substr(0, 1), "a") << shards;
    EXPECT_LT(now_ - begun, 320 * kSecond) << shards;
  }
}

// A name with a thousand shards, brought by one key one after the other.
TEST_F(DisputeTest, one_key_is_no_crowd) {
  begin(three());
  for (std::uint32_t k = 0; k < 1024; ++k) {
    for_a_moment(1, {"g", 7, 1, true, k, 1024}, key(1));
  }
  asks_on(2, {"a", 1, 1, true}, key(2));
  asks_on(3, {"b", 1, 2}, key(3)), asks_on(4, {"c", 1, 3}, key(4));
  EXPECT_EQ(source_, "a") << told(2);
}

// Sources of other leaves, that say something else every 5 s.
TEST_F(DisputeTest, other_disputes_do_not_renew_the_patience_with_a_member) {
  MasterOptions skip = options();
  skip.start_peers = 3;
  skip.straggler = Straggler::kSkip;
  begin(skip);
  alive_ = {1, 2, 3};
  join({"a", "b", "m"});
  for (ConnId conn = 1; conn <= 3; ++conn) (void)say(conn, ready("grads"));
  ASSERT_TRUE(is_member("m"));
  for (ConnId conn = 1; conn <= 2; ++conn) note(say(conn, asks({"", 1, std::uint8_t(conn)})));
  asks_on(4, {"c", 1, 4}, key(4));
  for (std::uint8_t k = 0; k < 20 && source_.empty(); ++k) {
    for_a_moment(5, {"x", 9, std::uint8_t(10 + k), true}, key(5));
    for_a_moment(6, {"y", 9, std::uint8_t(40 + k), true}, key(6));
    waits(5 * kSecond);
  }
  EXPECT_NE(source_, "");
}

// Who says it and leaves used up the one wait that there was for halves.
TEST_F(DisputeTest, each_half_of_a_source_is_waited_for) {
  begin(three());
  asks_on(3, {"b", 1, 3}, key(3)), asks_on(4, {"c", 1, 4}, key(4)), asks_on(5, {"d", 1, 5}, key(5));
  ASSERT_NE(source_, "");  // without a source one of them begins
  source_.clear(), alive_.clear();
  begin(three());
  for_a_moment(1, {"x", 1, 1, true, 0, 2}, key(1));
  asks_on(3, {"b", 1, 3, false, 0, 2}, key(3)), asks_on(4, {"b", 2, 3, false, 1, 2}, key(4));
  asks_on(5, {"c", 1, 4, false, 0, 2}, key(5)), asks_on(6, {"c", 2, 4, false, 1, 2}, key(6));
  asks_on(8, {"f", 1, 5, false, 0, 2}, key(18)), asks_on(9, {"f", 2, 5, false, 1, 2}, key(19));
  ASSERT_EQ(source_, "");
  waits(29 * kSecond);
  asks_on(7, {"a", 1, 1, true, 0, 2}, key(7));
  asks_on(2, {"e", 1, 1, true, 0, 2}, key(2)), asks_on(10, {"e", 2, 66, true, 1, 2}, key(12));
  waits(10 * kSecond);
  EXPECT_EQ(source_, "") << "a comes";
  asks_on(11, {"a", 2, 101, true, 1, 2}, key(13));
  EXPECT_NE(told(11).find("a and e are both named"), std::string::npos) << told(11);
  EXPECT_EQ(source_, "");
}

// Under one name after the other, of which each speaks for a moment.
TEST_F(DisputeTest, one_key_uses_up_one_wait_for_halves) {
  begin(three());
  for (const char* name : {"x", "y", "z"}) for_a_moment(1, {name, 1, 1, true, 0, 2}, key(1));
  asks_on(3, {"b", 1, 3, false, 0, 2}, key(3)), asks_on(4, {"b", 2, 3, false, 1, 2}, key(4));
  asks_on(5, {"c", 1, 4, false, 0, 2}, key(5)), asks_on(6, {"c", 2, 4, false, 1, 2}, key(6));
  asks_on(8, {"f", 1, 5, false, 0, 2}, key(18)), asks_on(9, {"f", 2, 5, false, 1, 2}, key(19));
  for (const char* name : {"y", "z", "x", "z"}) for_a_moment(1, {name, 1, 1, true, 0, 2}, key(1));
  waits(29 * kSecond);
  ASSERT_EQ(source_, "");
  asks_on(7, {"a", 1, 1, true, 0, 2}, key(7));
  asks_on(2, {"e", 1, 1, true, 0, 2}, key(2)), asks_on(10, {"e", 2, 66, true, 1, 2}, key(12));
  waits(10 * kSecond);
  EXPECT_EQ(source_, "") << "a comes";
}

// a gives in as it was told to, but its processes have changed places: their words age.
TEST_F(DisputeTest, a_key_that_comes_back_as_another_shard_leaves_its_word_behind) {
  begin(three());
  asks_on(1, {"a", 1, 1, true, 0, 2}, key(1)), asks_on(2, {"a", 2, 2, true, 1, 2}, key(2));
  asks_on(3, {"b", 1, 3, false, 0, 2}, key(3)), asks_on(4, {"b", 2, 3, false, 1, 2}, key(4));
  asks_on(5, {"e", 1, 5, true, 0, 2}, key(5)), asks_on(6, {"e", 2, 5, true, 1, 2}, key(6));
  EXPECT_NE(told(1).find("are both named"), std::string::npos) << told(1);
  goes(1), goes(2);
  asks_on(1, {"a", 1, 1, false, 0, 2}, key(2)), asks_on(2, {"a", 2, 2, false, 1, 2}, key(1));
  for (int k = 0; k < 15 && source_.empty(); ++k) {
    waits(10 * kSecond);
    asks_on(5, {"e", 1, 5, true, 0, 2}, key(5)), asks_on(6, {"e", 2, 5, true, 1, 2}, key(6));
  }
  EXPECT_EQ(source_.substr(0, 1), "e");
}

// A new one every 10 s.
TEST_F(DisputeTest, many_halves_keep_a_state_from_beginning_no_longer) {
  begin(three());
  for_a_moment(1, {"x", 1, 1, true, 0, 2}, key(1));
  asks_on(3, {"b", 1, 3, false, 0, 2}, key(3)), asks_on(4, {"b", 2, 3, false, 1, 2}, key(4));
  asks_on(5, {"c", 1, 4, false, 0, 2}, key(5)), asks_on(6, {"c", 2, 4, false, 1, 2}, key(6));
  asks_on(8, {"f", 1, 5, false, 0, 2}, key(18)), asks_on(9, {"f", 2, 5, false, 1, 2}, key(19));
  const base::Time begun = now_;
  for (std::uint8_t k = 0; source_.empty() && k < 60; ++k) {
    for_a_moment(1, {base::cat("x", int{k}).c_str(), 1, 1, true, 0, 2}, {k, 99});
    waits(10 * kSecond);
  }
  EXPECT_LT(now_ - begun, 3 * options().restore_after + 30 * kSecond);
}

// One has loaded a checkpoint and says so. The others have the values of one seed, and one word of
// a stranger must not let these begin.
TEST_F(DisputeTest, values_of_no_source_settle_no_dispute) {
  for (const bool named : {false, true}) {  // whether a source that went had what most have
    source_.clear(), alive_.clear(), told_.clear();
    begin(three());
    for_a_moment(9, {"e", 1, static_cast<std::uint8_t>(named ? 3 : 66), true}, key(9));
    asks_on(1, {"a", 1, 2, true}, key(1));
    asks_on(2, {"b", 1, 3}, key(2)), asks_on(3, {"c", 1, 3}, key(3));
    asks_on(4, {"d", 1, 3}, key(4));
    waits(20 * kSecond);
    EXPECT_EQ(source_, named ? "b" : "");
    const bool both = told(1).find("a and e are both named") != std::string::npos;
    EXPECT_NE(named, both) << told(1);
  }
}

}  // namespace
}  // namespace jccl::protocol
