// With whom and whose state a run begins, where one of those that ask brings another state, or came
// first.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "base/text.h"
#include "protocol/hostile_rig.h"

namespace jccl::protocol {
namespace {

class BirthTest : public HostileMember {
 public:
  // Each asks in this order with what is said of it; who is the source.
  struct Asks {
    const char* site;
    std::uint8_t leaves, values;
    bool source = false;
    std::uint32_t shard = 0, shards = 1;
    base::Duration for_s = 1000;
  };

 protected:
  static MasterOptions three() {
    MasterOptions options = HostileMember::options();
    options.start_peers = 3;
    return options;
  }
  static wire::PublicKey key(std::uint8_t conn) { return {conn, 7}; }
  std::string source_of(const std::vector<Asks>& all, const MasterOptions& options = three()) {
    begin(options);
    source_.clear();
    for (std::size_t i = 0; i < all.size(); ++i) enter(i, all[i]);
    for (std::size_t i = 0; i < all.size(); ++i) note(say(i + 1, asks(all[i]), its(i)));
    return source_;
  }
  void enter(std::size_t i, const Asks& one) {
    wire::Hello hello = HostileMember::hello(100 * (i + 1), one.site);
    hello.shard = one.shard, hello.shards = one.shards;
    (void)say(i + 1, hello, its(i));
    (void)say(i + 1, wire::Resume{}, its(i));
  }
  wire::PublicKey its(std::size_t i) const {
    return key(static_cast<std::uint8_t>(i / keys_of_ * keys_of_ + 1));
  }
  static wire::Sync asks(const Asks& one) {
    wire::Sync sync;
    sync.tag = "model";
    sync.descriptor = {one.leaves}, sync.digest = {one.values};
    sync.summary = base::cat("leaves ", int{one.leaves});
    sync.source = one.source;
    sync.deadline = one.for_s * base::kSecond;
    return sync;
  }
  // The last thing that the one on the connection was told of its Sync.
  std::string told(ConnId conn) const { return told_.count(conn) > 0 ? told_.at(conn) : ""; }
  void note(const MasterEffects& effects) {
    note_lines(effects.history);
    for (const MasterSend& one : effects.send) {
      if (const auto* reply = std::get_if<wire::SyncReply>(&one.message)) {
        told_[one.conn] = reply->text;
      }
    }
  }
  void note_lines(const std::vector<HistoryLine>& lines) {
    for (const HistoryLine& line : lines) {
      if (line.kind != "birth") continue;
      for (const auto& [field, value] : line.fields) source_ = field == "source" ? value : source_;
    }
  }
  void comes(ConnId conn, const char* site, const wire::PublicKey& its) {
    (void)say(conn, hello(100 * (conn + 1), site), its);
    (void)say(conn, wire::Resume{}, its);
  }
  // The process of connection 2 ends; ten seconds later there is one with its name and another key.
  void another_comes_as(const char* site) {
    note(on(ConnClosed{2}));
    alive_ = {1, 3, 4};
    wait(10 * base::kSecond);
    comes(5, site, key(5));
    alive_ = {1, 3, 4, 5};
  }
  // It says for a moment that it is the source, or that it is not.
  void says(ConnId conn, const char* site, std::uint8_t its, std::uint8_t values, bool source) {
    comes(conn, site, key(its));
    note(say(conn, asks({site, 1, values, source}), key(its)));
    (void)say(conn, wire::Leave{}, key(its));
    note(on(ConnClosed{conn}));
  }
  std::uint8_t keys_of_ = 1;  // so many in a row have one
  std::string source_;
  std::map<ConnId, std::string> told_;
};

// e on connection 1 says that it is the source, and a on 2, with other values.
const std::vector<BirthTest::Asks> kDispute = {
    {"e", 1, 1, true}, {"a", 1, 2, true}, {"b", 1, 3}, {"c", 1, 4}};

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
    says(5, "a", thief, 1, false);
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
  for (const bool one_key : {true, false}) {
    EXPECT_EQ(source_of({{"b", 1, 3}}), "");
    const auto all = [&](bool source) {
      for (std::uint8_t q = 0; q < 64; ++q) {
        says(200 + q, base::cat("z", int{q}).c_str(), one_key ? 77 : 100 + q, 1, source);
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
  for (const ConnId conn : {1, 4}) note(on(ConnClosed{conn}));
  alive_ = {2, 3};
  wait(50 * base::kSecond);
  EXPECT_EQ(source_, "") << "two ask";
  comes(5, "e", key(1));
  comes(6, "a", key(6));
  (void)say(3, wire::Leave{}, key(3));
  note(on(ConnClosed{3}));
  alive_ = {2, 5, 6};
  note(say(5, asks({"e", 1, 1, true}), key(1)));
  note(say(6, asks({"a", 1, 2, true}), key(6)));
  note(on(ConnClosed{6}));
  note(say(5, asks({"e", 1, 1}), key(5)));
  comes(7, "c", key(7));
  note(say(7, asks({"c", 1, 4}), key(7)));
  alive_ = {2, 5, 7};
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
  EXPECT_EQ(source_of({{"e", 1, 1, true, 0, 2}, {"a", 2, 2}, {"b", 2, 2}, {"c", 2, 2}}), "");
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
  EXPECT_EQ(source_of({{"a", 1, 1, true, 0, 2}, {"b", 2, 2}, {"c", 2, 2}, {"d", 2, 2}}), "");
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
