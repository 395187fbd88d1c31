// Who says before a state begins that it is the source, and for how long that counts.
#include "protocol/states/claims.h"

#include <gtest/gtest.h>

#include <string>

#include "base/limits.h"
#include "base/sanitized.h"
#include "protocol/states/birth_rig.h"

namespace jccl::protocol {
namespace {

// Else who differs would have to wait only until the other one's program has ended by that.
TEST_F(BirthTest, a_claim_outlives_its_call_and_its_process) {
  EXPECT_EQ(source_of(kDispute), "");
  note(on(ConnClosed{2}));
  alive_ = {1, 3, 4};
  for (int k = 0; k < 60; ++k) {
    wait(base::kSecond);
    note(say(1, asks(kDispute[0])));
  }
  EXPECT_EQ(source_, "") << "the other one may come back";
  comes(5, "a", key(2));
  note(say(5, asks({"a", 1, 5})));  // its user has seen it
  EXPECT_NE(told(5).find("waits for e, which is named as the source"), std::string::npos)
      << told(5);
  note(say(1, asks(kDispute[0])));
  EXPECT_EQ(source_, "e");
}

// Else it is gone by a stranger who has the name while its process is away.
TEST_F(BirthTest, in_a_dispute_a_claim_is_its_keys) {
  for (const bool says_so : {false, true}) {
    EXPECT_EQ(source_of(kDispute), "");
    another_comes_as("a");
    for (int k = 0; k < 50; ++k) {
      note(say(5, asks({"a", 1, 1, says_so}), key(5)));
      note(say(1, asks(kDispute[0])));
      note_lines(wait(base::kSecond));
    }
    EXPECT_EQ(source_, "") << "the word of the first a stands";
  }
}

// Else the liar would only have to be silent while the other one is away.
TEST_F(BirthTest, nothing_begins_while_one_of_those_that_differ_is_here) {
  EXPECT_EQ(source_of(kDispute), "");
  note(on(ConnClosed{2}));
  alive_ = {1, 3, 4};
  comes(5, "d", key(5));
  note(say(5, asks({"d", 1, 4}), key(5)));
  alive_ = {1, 3, 4, 5};
  note_lines(wait(100 * base::kSecond));
  EXPECT_EQ(source_, "") << "e asked once, and stays";
  note(say(5, asks({"d", 1, 4}), key(5)));
  EXPECT_EQ(source_, "");
  EXPECT_NE(told(5).find("waits for e and a to agree"), std::string::npos) << told(5);
  EXPECT_NE(told(5).find("--source SITE"), std::string::npos) << told(5);
}

// Both have begun anew without saying so, and without a key file (seed 36634423100).
TEST_F(BirthTest, a_dispute_of_which_nobody_is_here_ends_soon) {
  EXPECT_EQ(source_of(kDispute), "");
  note(on(ConnClosed{1}));
  another_comes_as("a");
  comes(6, "e", key(6));
  alive_ = {3, 4, 5, 6};
  note(say(5, asks({"a", 1, 2}), key(5)));
  note(say(6, asks({"e", 1, 1}), key(6)));
  note_lines(wait(options().restore_after + base::kSecond));
  EXPECT_NE(source_, "");
}

// A liar under both names, of which each speaks alone for a moment.
TEST_F(BirthTest, nor_does_it_end_when_the_other_one_gives_in_meanwhile) {
  for (const std::uint8_t thief : {5, 1}) {
    EXPECT_EQ(source_of(kDispute), "");
    note(on(ConnClosed{2}));
    alive_ = {1, 3, 4};
    wait(10 * base::kSecond);
    note(say(1, asks({"e", 1, 1})));
    says(5, "a", key(thief), 1, false);
    EXPECT_EQ(source_, "");
    note(say(1, asks(kDispute[0])));
    EXPECT_EQ(source_, "") << "what a said stands";
  }
}

TEST_F(BirthTest, nor_by_who_repeats_it_under_another_key) {
  EXPECT_EQ(source_of(kDispute), "");
  another_comes_as("a");
  for (const bool source : {true, false}) {
    note(say(5, asks({"a", 1, source ? std::uint8_t{2} : std::uint8_t{1}, source}), key(5)));
  }
  note(say(1, asks(kDispute[0])));
  EXPECT_EQ(source_, "");
}

// The liar comes when nobody asks: before that the state was as if nobody had spoken of it.
TEST_F(BirthTest, a_claim_outlives_all_that_ask) {
  EXPECT_EQ(source_of({{"a", 1, 2, true, 0, 1, 3}}), "");
  note(on(ConnClosed{1}));
  alive_.clear();
  wait(10 * base::kSecond);
  for (ConnId conn = 5; conn <= 7; ++conn) {
    const auto its = static_cast<std::uint8_t>(conn);
    comes(conn, conn == 5 ? "e" : conn == 6 ? "b" : "c", key(its));
    note(say(conn, asks({"", 1, its, conn == 5}), key(its)));
  }
  EXPECT_EQ(source_, "");
  EXPECT_NE(told(5).find("a and e are both named"), std::string::npos) << told(5);
}

TEST_F(BirthTest, a_tag_of_claims_alone_makes_room_in_time) {
  EXPECT_EQ(source_of({{"a", 1, 2, true, 0, 1, 3}}), "");
  note(on(ConnClosed{1}));
  alive_.clear();
  for (const bool over : {false, true}) {
    now_ += (over ? 70 : 60) * base::kSecond;
    note(on(Tick{}));
    EXPECT_EQ(master_->view(now_).tags.empty(), over);
  }
}

// Under many names, or as many processes: none may hide what another one says.
TEST_F(BirthTest, many_claims_hide_none) {
  const std::uint16_t many = base::kSanitized ? base::kPeersMax / 4 : base::kPeersMax;
  for (const bool one_key : {true, false}) {
    EXPECT_EQ(source_of({{"b", 1, 3}}), "");
    const auto all = [&](bool source) {
      for (std::uint16_t q = 0; q < many; ++q) {
        const auto low = static_cast<std::uint8_t>(q), high = static_cast<std::uint8_t>(q >> 8);
        const wire::PublicKey its = one_key ? key(77) : wire::PublicKey{low, 9, high};
        says(200 + q, base::cat("z", q).c_str(), its, 1, source);
      }
    };
    all(true);
    comes(3, "a", key(3));
    note(say(3, asks({"a", 1, 2, true}), key(3)));
    note(on(ConnClosed{3}));
    all(false);
    comes(4, "c", key(4));
    note(say(4, asks({"c", 1, 4}), key(4)));
    comes(5, "e", key(5));
    note(say(5, asks({"e", 1, 1, true}), key(5)));
    EXPECT_EQ(source_, "");
    alive_ = {1, 4, 5};
    wait(121 * base::kSecond);
    note(say(5, asks({"e", 1, 1, true}), key(5)));
    EXPECT_EQ(source_, "e");
  }
}

// It does not count from an earlier time when enough asked.
TEST_F(BirthTest, each_dispute_has_its_own_patience) {
  EXPECT_EQ(source_of({{"e", 1, 1, true, 0, 2}, {"b", 1, 3}, {"c", 1, 4}, {"f", 1, 5}}), "");
  for (const ConnId conn : {1, 3, 4}) note(on(ConnClosed{conn}));
  alive_ = {2};
  wait(50 * base::kSecond);
  EXPECT_EQ(source_, "") << "one asks";
  note(on(ConnClosed{2}));
  comes(5, "e", key(1));
  comes(6, "a", key(6));
  note(say(5, asks({"e", 1, 1, true}), key(1)));
  note(say(6, asks({"a", 1, 2, true}), key(6)));
  note(on(ConnClosed{6}));
  note(say(5, asks({"e", 1, 1}), key(1)));
  comes(7, "c", key(7));
  note(say(7, asks({"c", 1, 4}), key(7)));
  comes(8, "b", key(8));
  note(say(8, asks({"b", 1, 3}), key(8)));
  alive_ = {5, 7, 8};
  note_lines(wait(options().restore_after - 2 * base::kSecond));
  EXPECT_EQ(source_, "");
  EXPECT_NE(told(5).find("waits for a, which is named as the source"), std::string::npos)
      << told(5);
  note_lines(wait(3 * base::kSecond));
  EXPECT_NE(source_, "");
}

TEST_F(BirthTest, nor_does_who_has_the_name_keep_it) {
  EXPECT_EQ(source_of(kDispute), "");
  another_comes_as("a");
  wait(111 * base::kSecond);
  note(say(1, asks(kDispute[0])));
  EXPECT_EQ(source_, "e");
}

// Where sources agree its site may say another thing by another key.
TEST_F(BirthTest, without_a_dispute_the_newest_word_of_a_site_counts) {
  EXPECT_EQ(source_of({{"a", 1, 1, true}, {"b", 1, 3}}), "");
  note(on(ConnClosed{1}));
  comes(5, "a", key(5));
  note(say(5, asks({"a", 1, 2, true}), key(5)));
  comes(6, "c", key(6));
  note(say(6, asks({"c", 1, 4}), key(6)));
  EXPECT_EQ(source_, "a");
}

TEST_F(BirthTest, who_is_not_let_in_takes_no_claim_back) {
  MasterOptions listed = three();
  listed.admission = Admission::kListed;
  listed.listed = {key(1), key(2), key(3), key(4)};
  EXPECT_EQ(source_of(kDispute, listed), "");
  another_comes_as("a");
  note(say(5, asks({"a", 1, 1}), key(5)));
  note(say(1, asks(kDispute[0])));
  EXPECT_EQ(source_, "");
}

// Where one admits by hand, programs ask first and are let in then.
TEST_F(BirthTest, what_was_claimed_outside_counts_when_its_peer_is_let_in) {
  MasterOptions listed = three();
  listed.admission = Admission::kListed;
  EXPECT_EQ(source_of(kDispute, listed), "");
  for (const std::uint8_t conn : {1, 2, 3, 4}) {
    const wire::Order admit{wire::OrderVerb::kAdmit, base::to_hex(key(conn)), 0, ""};
    note(on(ConnMessage{ConnId{2000} + conn, admit, Shown{{99}, "", 0, true}}));
  }
  for (ConnId conn = 1; conn <= 4; ++conn) note(say(conn, wire::Heartbeat{}));
  EXPECT_EQ(source_, "");
  EXPECT_NE(told(1).find("a and e are both named"), std::string::npos) << told(1);
}

// Of its processes one is enough, be their key file one.
TEST_F(BirthTest, what_one_shard_claims_no_other_takes_back) {
  for (const std::uint8_t keys_of : {1, 2}) {
    keys_of_ = keys_of;
    EXPECT_EQ(source_of({{"e", 1, 1, true, 0, 2},
                         {"e", 1, 1, true, 1, 2},
                         {"a", 1, 2, true, 0, 2},
                         {"a", 1, 2, false, 1, 2},
                         {"b", 1, 3, false, 0, 2},
                         {"b", 1, 3, false, 1, 2},
                         {"c", 1, 4, false, 0, 2},
                         {"c", 1, 4, false, 1, 2}}),
              "");
    EXPECT_NE(told(3).find("a and e are both named"), std::string::npos) << told(3);
  }
}

TEST_F(BirthTest, nor_before_there_is_a_dispute) {
  MasterOptions any = options();
  any.start_peers = 1;
  const std::vector<Asks> all = {{"a", 1, 2, true, 0, 2, 3},
                                 {"a", 1, 2, false, 1, 2},
                                 {"e", 1, 1, true, 0, 2},
                                 {"e", 1, 1, true, 1, 2}};
  EXPECT_EQ(source_of({all[0]}, any), "");
  alive_ = {1};
  wait(10 * base::kSecond);  // its call is over
  for (std::size_t i = 1; i < all.size(); ++i) {
    enter(i, all[i]);
    note(say(i + 1, asks(all[i]), its(i)));
  }
  EXPECT_EQ(source_, "");
}

TEST_F(BirthTest, of_a_site_that_is_gone_a_claim_ends_in_time) {
  EXPECT_EQ(source_of(kDispute), "");
  note(on(ConnClosed{2}));
  alive_ = {1, 3, 4};
  wait(121 * base::kSecond);
  note(say(1, asks(kDispute[0])));
  EXPECT_EQ(source_, "e");
}

// As on many hosts: they are one site, however many they are.
TEST_F(BirthTest, a_source_of_many_processes_disputes_with_nobody) {
  MasterOptions one = options();
  one.start_peers = 1;
  std::vector<Asks> all;
  for (std::uint32_t shard = 0; shard < 130; ++shard) all.push_back({"a", 1, 1, true, shard, 130});
  EXPECT_EQ(source_of(all, one), "a/129");
}

TEST_F(BirthTest, a_claim_is_of_all_that_its_site_brings) {
  for (const bool first : {true, false}) {
    for (const std::uint8_t keys_of : {1, 2}) {
      keys_of_ = keys_of;
      EXPECT_EQ(
          source_of({{first ? "e" : "a", 1, 2, true, 0, 2},
                     {first ? "e" : "a", 1, first ? std::uint8_t{1} : std::uint8_t{5}, false, 1, 2},
                     {first ? "a" : "e", 1, 2, true, 0, 2},
                     {first ? "a" : "e", 1, first ? std::uint8_t{5} : std::uint8_t{1}, false, 1, 2},
                     {"b", 1, 3, false, 0, 2},
                     {"b", 1, 3, false, 1, 2}}),
          "");
      EXPECT_NE(told(1).find("a and e are both named"), std::string::npos) << told(1);
    }
  }
}

// The liar copies what it knows of the first shard before the second has come.
TEST_F(BirthTest, a_source_of_which_a_part_has_asked_is_waited_for) {
  const std::vector<Asks> all = {{"a", 1, 2, true, 0, 2},  {"e", 1, 2, true, 0, 2},
                                 {"e", 1, 1, true, 1, 2},  {"b", 1, 3, false, 0, 2},
                                 {"b", 1, 3, false, 1, 2}, {"c", 1, 3, false, 0, 2},
                                 {"c", 1, 3, false, 1, 2}};
  EXPECT_EQ(source_of(all), "");
  alive_ = {1, 2, 3, 4, 5, 6, 7};
  EXPECT_NE(told(4).find("waits for all shards of the source a"), std::string::npos) << told(4);
  note_lines(wait(options().restore_after - base::kSecond));
  EXPECT_EQ(source_, "");
  const Asks late{"a", 1, 5, false, 1, 2};
  enter(7, late);
  note(say(8, asks(late), its(7)));
  EXPECT_EQ(source_, "");
  EXPECT_NE(told(1).find("a and e are both named"), std::string::npos) << told(1);
  EXPECT_EQ(source_of(all), "");
  note_lines(wait(options().restore_after + base::kSecond));
  EXPECT_EQ(source_, "e/1") << "not for ever";
}

// … though its own call has ended meanwhile.
TEST_F(BirthTest, so_it_is_when_the_call_of_that_part_has_ended) {
  EXPECT_EQ(source_of({{"a", 1, 2, true, 0, 2, 2}}), "");
  alive_ = {1};
  wait(4 * base::kSecond);
  const std::vector<Asks> others = {{"e", 1, 2, true, 0, 2},  {"e", 1, 1, true, 1, 2},
                                    {"b", 1, 3, false, 0, 2}, {"b", 1, 3, false, 1, 2},
                                    {"c", 1, 4, false, 0, 2}, {"c", 1, 4, false, 1, 2}};
  for (std::size_t i = 0; i < others.size(); ++i) {
    enter(i + 1, others[i]);
    note(say(i + 2, asks(others[i]), its(i + 1)));
  }
  EXPECT_EQ(source_, "");
  EXPECT_NE(told(2).find("waits for all shards of the source a"), std::string::npos) << told(2);
}

// Two that say another value again and again, and never bring the rest.
TEST_F(BirthTest, halves_that_change_keep_a_state_from_beginning_no_longer) {
  EXPECT_EQ(source_of({{"x", 1, 1, true, 0, 2},
                       {"y", 1, 2, true, 0, 2},
                       {"a", 1, 3, true},
                       {"b", 1, 4},
                       {"c", 1, 5}}),
            "");
  alive_ = {1, 2, 3, 4, 5};
  for (std::uint8_t k = 0; k < 10 && source_.empty(); ++k) {
    note_lines(wait(20 * base::kSecond));
    for (const ConnId conn : {1, 2}) {
      const char* site = conn == 1 ? "x" : "y";
      note(say(conn, asks({site, 1, std::uint8_t(10 + k), false, 0, 2}), its(conn - 1)));
      note(say(conn, asks({site, 1, std::uint8_t(30 + k), true, 0, 2}), its(conn - 1)));
    }
    note(say(3, asks({"a", 1, 3, true}), its(2)));
  }
  EXPECT_NE(told(3).find("are both named"), std::string::npos) << told(3);
  EXPECT_EQ(source_of({{"x", 1, 1, true, 0, 2}, {"a", 1, 3, true}, {"b", 1, 3}, {"c", 1, 3}}), "a")
      << "most have it";
}

// What a site's other shard says when the dispute is on already.
TEST_F(BirthTest, a_word_that_comes_into_a_dispute_is_disputed) {
  EXPECT_EQ(source_of({{"a", 1, 2, true, 0, 2},
                       {"e", 1, 1, true, 0, 2},
                       {"a", 1, 5, true, 1, 2},
                       {"e", 1, 5, true, 1, 2},
                       {"b", 1, 3, false, 0, 2},
                       {"b", 1, 3, false, 1, 2},
                       {"c", 1, 4, false, 0, 2},
                       {"c", 1, 4, false, 1, 2}}),
            "");
  for (const ConnId conn : {1, 3}) note(on(ConnClosed{conn}));
  alive_ = {2, 4, 5, 6, 7, 8};
  wait(10 * base::kSecond);
  asks_for_a_moment(9, {"a", 1, 9, false, 1, 2});  // a thief of its name
  note(say(2, asks({"e", 1, 2, true, 0, 2}), its(1)));
  note(say(4, asks({"e", 1, 9, true, 1, 2}), its(3)));
  EXPECT_EQ(source_, "");
}

// Under one name after the other.
TEST_F(BirthTest, one_key_disputes_with_itself_about_nothing) {
  EXPECT_EQ(source_of({{"b", 1, 3}}), "");
  for (std::uint16_t k = 0; k < base::kPeersMax + 9; ++k) {
    says(50 + k, base::cat("z", k).c_str(), key(77), static_cast<std::uint8_t>(k), true);
  }
  says(3, base::cat("z", base::kPeersMax + 8).c_str(), key(77), 1, false);
  comes(4, "a", key(4));
  note(say(4, asks({"a", 1, 2, true}), key(4)));
  comes(5, "c", key(5));
  note(say(5, asks({"c", 1, 4}), key(5)));
  EXPECT_EQ(source_, "a") << "it took back what it said last: " << told(4);
}

// It shows through a process that said nothing.
TEST_F(BirthTest, a_dispute_is_of_all_that_its_sites_say) {
  EXPECT_EQ(source_of({{"e", 1, 2, true, 0, 2},
                       {"e", 1, 1, true, 1, 2},
                       {"a", 1, 2, true, 0, 2},
                       {"a", 1, 5, false, 1, 2},
                       {"b", 1, 3, false, 0, 2},
                       {"b", 1, 3, false, 1, 2},
                       {"c", 1, 4, false, 0, 2},
                       {"c", 1, 4, false, 1, 2}}),
            "");
  for (const ConnId conn : {3, 4}) note(on(ConnClosed{conn}));
  alive_ = {1, 2, 5, 6, 7, 8};
  wait(10 * base::kSecond);
  asks_for_a_moment(9, {"a", 1, 2, false, 0, 2});  // a thief of its name
  for (const std::size_t i : {0, 1}) {
    note(say(i + 1, asks({"e", 1, i == 0 ? std::uint8_t{2} : std::uint8_t{1}, true}), its(i)));
  }
  EXPECT_EQ(source_, "");
}

// Two strangers who differ, with leaves that few have.
TEST_F(BirthTest, a_dispute_about_other_leaves_keeps_nothing_from_beginning) {
  EXPECT_EQ(
      source_of({{"x", 9, 1, true}, {"y", 9, 2, true}, {"a", 1, 3}, {"b", 1, 3}, {"c", 1, 3}}),
      "a");
}

// One that is refused, and whose user reads that for minutes before the process ends.
TEST_F(BirthTest, a_claim_ends_two_minutes_after_its_process_went) {
  EXPECT_EQ(source_of(kDispute), "");
  alive_ = {1, 2, 3, 4};
  wait(125 * base::kSecond);
  note(on(ConnClosed{2}));
  alive_ = {1, 3, 4};
  wait(100 * base::kSecond);
  note(say(1, asks(kDispute[0])));
  EXPECT_EQ(source_, "");
  wait(25 * base::kSecond);
  note(say(1, asks(kDispute[0])));
  EXPECT_EQ(source_, "e");
}

// Each start has other values, as of a fresh initialization: with itself it disputes nothing for
// longer than with the other one.
TEST_F(BirthTest, a_source_that_starts_again_and_again_begins_when_the_other_is_gone) {
  EXPECT_EQ(source_of(kDispute), "");
  note(on(ConnClosed{1}));
  alive_ = {3, 4};
  for (std::uint8_t k = 0; k < 13 && source_.empty(); ++k) {
    note(on(ConnClosed{k == 0 ? ConnId{2} : ConnId{9} + k}));
    wait(20 * base::kSecond);
    const std::uint8_t its = 10 + k;
    comes(its, "a", key(its));
    note(say(its, asks({"a", 1, its, true}), key(its)));
  }
  EXPECT_EQ(source_, "a");
}

TEST_F(BirthTest, who_is_banned_or_kicked_claims_nothing) {
  const wire::Order orders[] = {{wire::OrderVerb::kBan, base::to_hex(key(1)), 0, ""},
                                {wire::OrderVerb::kKick, "e", 0, ""}};
  for (const wire::Order& order : orders) {
    EXPECT_EQ(source_of(kDispute), "");
    note(on(ConnMessage{2000, order, Shown{{99}, "", 0, true}}));
    note(say(2, asks(kDispute[1])));
    EXPECT_EQ(source_, "a");
  }
}

TEST_F(BirthTest, one_key_is_one_site_before_a_state_begins_too) {
  keys_of_ = 3;
  EXPECT_EQ(source_of({{"e1", 1, 1}, {"e2", 1, 1}, {"e3", 1, 1}}), "")
      << "nor does it begin one alone";
  EXPECT_NE(told(2).find("is the key of e1: give each a key file"), std::string::npos) << told(2);
  EXPECT_EQ(source_of({{"e1", 1, 1}, {"e2", 1, 1}, {"e3", 1, 1}, {"a", 1, 2}, {"b", 1, 3}}), "")
      << "it counts once, and so do these with one key";
}

// A key file that was copied to another site; the process that said so has gone meanwhile.
TEST_F(BirthTest, a_key_takes_back_at_another_site_nothing) {
  EXPECT_EQ(source_of(kDispute), "");
  note(on(ConnClosed{2}));
  alive_ = {1, 3, 4};
  wait(10 * base::kSecond);
  says(5, "d", key(2), 1, false);
  note(say(1, asks(kDispute[0])));
  EXPECT_EQ(source_, "");
}

// The processes of a site that came back under another name, one after the other.
TEST(Claims, a_key_that_moves_all_its_words_keeps_each) {
  constexpr std::uint32_t kAll = base::kLivesOfKeyMax;
  Claims claims;
  const auto said = [&](const std::string& site, std::uint32_t shard) {
    return Said{site, shard, kAll, {1}, {{7, 7}, {shard, 1}}, shard == 0};
  };
  for (const std::string site : {"old", "new"}) {
    for (std::uint32_t shard = 0; shard < kAll; ++shard) {
      EXPECT_TRUE(claims.note(said(site, shard), base::kSecond));
    }
    ASSERT_EQ(claims.sites().size(), 1U) << site;
    EXPECT_EQ(claims.sites().at(site).size(), kAll) << site;
  }
}

}  // namespace
}  // namespace jccl::protocol
