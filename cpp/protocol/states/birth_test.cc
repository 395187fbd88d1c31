// With whom and whose state a run begins, where one of those that ask brings another state, or came
// first.
#include <gtest/gtest.h>

#include <string>

#include "protocol/states/birth_rig.h"

namespace jccl::protocol {
namespace {

TEST_F(BirthTest, leaves_unlike_most_others_are_not_the_runs) {
  EXPECT_EQ(source_of({{"e", 1, 1}, {"a", 2, 2}, {"b", 2, 3}}), "a");
  EXPECT_NE(told(1).find("leaves 2 (a began it)"), std::string::npos) << told(1);
}

TEST_F(BirthTest, nor_are_values_that_one_alone_has) {
  EXPECT_EQ(source_of({{"e", 1, 1}, {"a", 1, 2}, {"b", 1, 2}}), "a");
  EXPECT_EQ(source_of({{"a", 1, 1}, {"b", 1, 2}, {"c", 1, 3}}), "a") << "nobody can tell";
}

TEST_F(BirthTest, a_named_source_has_to_have_the_leaves_of_most) {
  EXPECT_EQ(source_of({{"e", 1, 1, true}, {"a", 2, 2}, {"b", 2, 3}}), "a");
  EXPECT_EQ(source_of({{"e", 1, 1, true}, {"a", 2, 2}, {"b", 2, 3, true}}), "b");
  EXPECT_EQ(source_of({{"a", 1, 2}, {"b", 1, 2}, {"c", 1, 1, true}}), "c") << "whatever its values";
}

TEST_F(BirthTest, of_as_many_leaves_those_of_a_named_source_are_the_runs) {
  MasterOptions two = options();
  two.start_peers = 2;
  EXPECT_EQ(source_of({{"a", 1, 1}, {"b", 2, 2, true}}, two), "b");
  EXPECT_EQ(source_of({{"a", 1, 1}, {"b", 2, 2}}, two), "a");
}

TEST_F(BirthTest, of_sources_that_differ_most_decide_or_nobody_does) {
  EXPECT_EQ(source_of({{"e", 1, 1, true}, {"a", 1, 2, true}, {"b", 1, 2, true}}), "a");
  EXPECT_EQ(source_of({{"a", 1, 1, true}, {"b", 1, 1, true}, {"c", 1, 3}}), "a") << "they agree";
  EXPECT_EQ(source_of({{"e", 1, 1, true}, {"a", 1, 2, true}, {"b", 1, 3}}), "");
  for (ConnId conn = 1; conn <= 2; ++conn) {
    EXPECT_NE(told(conn).find("a and e are both named as the source of model, with other values"),
              std::string::npos)
        << told(conn);
    EXPECT_NE(told(conn).find("--source"), std::string::npos) << told(conn);
  }
}

TEST_F(BirthTest, what_most_have_settles_a_dispute) {
  EXPECT_EQ(source_of({{"e", 1, 1, true}, {"a", 1, 2, true}, {"b", 1, 2}, {"c", 1, 2}}), "a");
}

TEST_F(BirthTest, the_operators_source_is_the_source) {
  MasterOptions named = three();
  named.source = "a";
  EXPECT_EQ(source_of({{"e", 1, 1, true}, {"a", 1, 2}, {"b", 1, 1}, {"c", 1, 1}}, named), "a");
  EXPECT_NE(told(1).find("the operator named a as the source"), std::string::npos) << told(1);
  EXPECT_EQ(source_of({{"e", 2, 1}, {"a", 1, 2}, {"b", 2, 1}}, named), "a")
      << "whatever others have";
  EXPECT_EQ(source_of({{"e", 1, 1}, {"b", 1, 2}, {"c", 1, 2}}, named), "");
  EXPECT_NE(told(2).find("waits for a, the source that the operator named"), std::string::npos)
      << told(2);
}

TEST_F(BirthTest, half_a_source_is_waited_for_a_while) {
  EXPECT_EQ(source_of({{"e", 2, 1, true, 0, 2}, {"a", 2, 2}, {"b", 2, 2}, {"c", 2, 2}}), "");
  alive_ = {1, 2, 3, 4};
  for (const HistoryLine& line : wait(29 * base::kSecond)) EXPECT_NE(line.kind, "birth");
  note_lines(wait(2 * base::kSecond));
  EXPECT_EQ(source_, "a");
}

// Of a further state. Where slow ones are waited for, so is this one.
TEST_F(BirthTest, a_member_that_does_not_ask_is_waited_for_as_stragglers_are) {
  for (const Straggler straggler : {Straggler::kWait, Straggler::kSkip, Straggler::kEvict}) {
    MasterOptions all = three();
    all.straggler = straggler;
    EXPECT_EQ(source_of({{"a", 1, 1}, {"b", 1, 1}, {"e", 1, 1}}, all), "a");
    alive_ = {1, 2, 3};
    commit("grads", 1);
    source_.clear();
    for (ConnId conn = 1; conn <= 2; ++conn) {
      wire::Sync further = asks({"", 1, 1});
      further.tag = "ema";
      note(say(conn, further));
    }
    note_lines(wait(9 * base::kSecond));
    EXPECT_EQ(source_, "");
    note_lines(wait(3 * base::kSecond));
    EXPECT_EQ(source_, straggler == Straggler::kWait ? "" : "a");
  }
}

TEST_F(BirthTest, half_a_site_brings_nothing) {
  EXPECT_EQ(source_of({{"e", 1, 1, false, 0, 2}, {"a", 2, 2}, {"b", 2, 2}, {"c", 2, 2}}), "a");
  EXPECT_EQ(source_of({{"e", 1, 1, false, 0, 2}, {"a", 2, 2}, {"b", 2, 2}}), "");
  EXPECT_EQ(source_of({{"a", 2, 1, true, 0, 2}, {"b", 2, 2}, {"c", 2, 2}, {"d", 2, 2}}), "");
  EXPECT_EQ(source_of({{"a", 1, 1, true, 0, 2}, {"b", 2, 2}, {"c", 2, 2}, {"d", 2, 2}}), "b")
      << "its leaves could not be the run's";
}

TEST_F(BirthTest, who_is_not_let_in_brings_nothing_and_counts_for_nobody) {
  MasterOptions listed = three();
  listed.admission = Admission::kListed;
  listed.listed = {key(2), key(3)};
  EXPECT_EQ(source_of({{"e", 1, 1}, {"a", 1, 2}, {"b", 1, 3}}, listed), "");
  EXPECT_NE(told(1).find("jccl admit"), std::string::npos) << told(1);
  EXPECT_NE(told(2).find("first 3 sites to synchronise model, 2 did"), std::string::npos)
      << told(2);
  EXPECT_EQ(told(2).find("call jccl.sync_state there"), std::string::npos) << told(2);
  listed.listed.insert(key(4));
  EXPECT_EQ(source_of({{"e", 1, 1}, {"a", 1, 2}, {"b", 1, 3}, {"c", 1, 4}}, listed), "a");
  EXPECT_EQ(source_of({{"e", 1, 1, true}, {"a", 1, 2}, {"b", 1, 3}, {"c", 1, 4}}, listed), "a");
}

TEST_F(BirthTest, one_that_is_let_in_later_counts_from_then_on) {
  MasterOptions listed = three();
  listed.admission = Admission::kListed;
  listed.listed = {key(2), key(3)};
  EXPECT_EQ(source_of({{"a", 1, 1}, {"b", 1, 2}, {"c", 1, 2}}, listed), "");
  const wire::Order admit{wire::OrderVerb::kAdmit, base::to_hex(key(1)), 0, ""};
  note(on(ConnMessage{2000, admit, Shown{{99}, "", 0, true}}));
  for (ConnId conn = 1; conn <= 3; ++conn) note(say(conn, wire::Heartbeat{}));
  EXPECT_EQ(source_, "b");
}

// Once it asked for a moment with its leaves, and only stays.
TEST_F(BirthTest, many_processes_that_differ_cost_what_they_are) {
  MasterOptions wide = options();
  wide.start_peers = 3;
  begin(wide);
  for (std::size_t site = 0; site < 2; ++site) {
    for (std::uint32_t shard = 0; shard < 200; ++shard) {
      const Asks one{site == 0 ? "x" : "y", 9, static_cast<std::uint8_t>(site), true, shard, 201};
      enter(200 * site + shard, one);
      note(say(200 * site + shard + 1, asks(one), its(200 * site + shard)));
    }
  }
  const auto sites = {"a", "b", "c"};
  std::size_t i = 400;
  for (const char* site : sites) {
    const Asks one{site, 1, 3};
    enter(i, one);
    note(say(i + 1, asks(one), its(i)));
    ++i;
  }
  EXPECT_EQ(source_, "a");
}

// It took part alone before the others came, and is never done.
TEST_F(BirthTest, a_sole_member_shuts_no_door) {
  begin(options());
  join({"e"});
  EXPECT_EQ(sent<wire::Start>(say(1, ready("grads"))).size(), 1U);
  join({"a", "b"});
  (void)say(2, ready("grads"));
  EXPECT_TRUE(sent<wire::Start>(say(3, ready("grads"))).empty());
  alive_ = {1, 2, 3};
  EXPECT_EQ(wait(options().silence - base::kSecond).size(), 0U);
  EXPECT_EQ(wait(2 * base::kSecond).at(0).kind, "abort");
  EXPECT_EQ(sent<wire::Start>(say(1, ready("grads"))).size(), 3U);
}

}  // namespace
}  // namespace jccl::protocol
