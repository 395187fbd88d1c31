// What one member, or somebody on the way to become one, may say without harm to the others: each
// case once ended the master, the run or a round.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/limits.h"
#include "protocol/hostile_rig.h"

namespace jccl::protocol {
namespace {

TEST_F(HostileMember, two_hundred_syncs_with_one_deadline_end_together) {
  run_of_three();
  alive_ = {1, 2, 3};
  for (int i = 0; i < 120; ++i) {
    for (ConnId conn = 1; conn <= 2; ++conn) {
      wire::Sync sync;
      sync.tag = std::to_string(conn) + "t" + std::to_string(i);
      sync.deadline = base::kSecond;
      (void)say(conn, sync);
    }
  }
  wait(2 * base::kSecond);
  for (const PeerView& peer : master_->view(now_).peers) EXPECT_TRUE(peer.admitted);
  commit("grads", 2);
}

TEST_F(HostileMember, a_site_that_is_larger_than_the_room_left_is_turned_away_with_the_reason) {
  MasterOptions small = options();
  small.members_max = 8;
  begin(small);
  join({"a"});
  (void)say(1, ready("grads"));
  std::vector<wire::Reject> rejects;
  for (std::uint32_t shard = 0; shard < 8; ++shard) {
    wire::Hello one = hello(1000 + shard, "big");
    one.shard = shard;
    one.shards = 8;
    const auto at_once = sent<wire::Reject>(join(10 + shard, one));
    rejects.insert(rejects.end(), at_once.begin(), at_once.end());
    const auto told = sent<wire::Reject>(say(10 + shard, ready("other")));
    rejects.insert(rejects.end(), told.begin(), told.end());
  }
  ASSERT_EQ(rejects.size(), 8U);
  EXPECT_EQ(rejects[0].code, base::Code::kLimit);
  EXPECT_NE(rejects[0].text.find("no room for the 8 of big"), std::string::npos);
}

// Incarnations are no secret: whoever had read one could take a member's session.
TEST_F(HostileMember, a_life_is_its_keys) {
  join({"a"});
  (void)say(1, ready("grads"));
  const wire::PublicKey another{66};
  const auto told = say(9, hello(100, "a"), another);
  EXPECT_EQ(sent<wire::Evicted>(told).size(), 1U);
  EXPECT_EQ(told.close, std::vector<ConnId>{9});
  EXPECT_FALSE(sent<wire::HeartbeatAck>(say(1, wire::Heartbeat{})).empty());
  (void)on(ConnClosed{1});
  EXPECT_FALSE(sent<wire::Evicted>(say(10, hello(100, "a"), another)).empty()) << "nor when lost";
  EXPECT_FALSE(sent<wire::Welcome>(say(11, hello(100, "a"))).empty());
}

// A connection that broke without a word is replaced at once: its key says who comes back.
TEST_F(HostileMember, who_has_the_key_has_its_life_at_once) {
  join({"a"});
  const auto told = say(9, hello(100, "a"));
  EXPECT_FALSE(sent<wire::Welcome>(told).empty());
  EXPECT_EQ(told.close, std::vector<ConnId>{1});
}

TEST_F(HostileMember, a_seat_is_its_keys_until_its_session_was_lost_for_its_grace) {
  join({"a", "b"});
  (void)say(2, ready("grads"));
  (void)say(1, ready("grads"));
  (void)on(ConnClosed{1});
  const wire::PublicKey own = key_of(hello(100, "a"));
  const auto refused = sent<wire::Refuse>(say(9, hello(777, "a")));
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_EQ(refused[0].code, base::Code::kLinkLost) << "which ends no communicator";
  EXPECT_NE(refused[0].text.find("is taken by the key 6400"), std::string::npos);
  EXPECT_FALSE(sent<wire::Welcome>(say(10, hello(778, "a"), own)).empty()) << "from a key file";
  (void)on(ConnClosed{10});
  wait(options().reset_grace + base::kMillisecond);
  EXPECT_FALSE(sent<wire::Welcome>(say(11, hello(779, "a"))).empty());
}

// Who has not called yet was put out by whoever said another number of shards.
TEST_F(HostileMember, a_seat_is_kept_against_another_number_of_shards) {
  join({"a"});
  wire::Hello other = hello(777, "a");
  other.shard = 1, other.shards = 2;
  EXPECT_FALSE(sent<wire::Refuse>(say(9, other)).empty());
  EXPECT_FALSE(sent<wire::HeartbeatAck>(say(1, wire::Heartbeat{})).empty());
  (void)say(1, ready("grads"));
  (void)on(ConnClosed{1});
  EXPECT_FALSE(sent<wire::Refuse>(say(10, other)).empty()) << "in its grace";
  EXPECT_FALSE(sent<wire::Welcome>(say(11, hello(100, "a"))).empty());
}

// Numbers of lives to come can be guessed: whoever said one, and left, fenced it.
TEST_F(HostileMember, nobody_fences_the_lives_of_another_key) {
  const wire::PublicKey attacker{66};
  (void)say(9, hello(101, "z"), attacker);
  (void)say(9, wire::Resume{});
  (void)say(9, wire::Leave{});
  EXPECT_FALSE(sent<wire::Welcome>(say(1, hello(101, "a"))).empty());
  EXPECT_FALSE(sent<wire::Evicted>(say(10, hello(101, "z"), attacker)).empty());
}

TEST_F(HostileMember, who_fetches_hears_the_newest_link_secret_and_of_nobody) {
  join({"a", "b"});
  wire::Sync sync;
  sync.tag = "model", sync.digest = {5, 5}, sync.deadline = 600 * base::kSecond;
  wire::Hello holder = hello(500, "holder");
  holder.addresses = {"here:1"};
  (void)join(5, holder);
  for (const ConnId conn : {1, 2, 5}) (void)say(conn, sync);
  sync.digest = {6, 6};
  (void)join(9, hello(900, "late"));
  const auto offers = sent<wire::SyncReply>(say(9, sync));
  ASSERT_FALSE(offers.empty());
  ASSERT_EQ(offers.back().verdict, wire::SyncVerdict::kFetch);
  for (const MasterSend& one : on(EvictSite{"b"}).send) {
    const auto* roster = std::get_if<wire::Roster>(&one.message);
    if (one.conn != 9 || roster == nullptr) continue;
    EXPECT_TRUE(roster->members.empty());
    EXPECT_GT(roster->links.generation, offers.back().links.generation);
    return;
  }
  FAIL() << "not told";
}

TEST_F(HostileMember, two_processes_with_one_key_do_not_put_each_other_out) {
  join({"a"});
  (void)say(1, ready("grads"));
  const auto refused = sent<wire::Refuse>(say(9, hello(777, "a"), key_of(hello(100, "a"))));
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_EQ(refused[0].code, base::Code::kLinkLost);
}

// After a restart of the master, too: the journal knows the keys.
TEST_F(HostileMember, keys_are_journaled) {
  std::vector<wire::Record> journal;
  wire::Member member{1, 100, "a", 0, 1, {}, key_of(hello(100, "a"))};
  journal.emplace_back(wire::RunRecord{options().run, wire::kVersion});
  journal.emplace_back(wire::EpochRecord{1, 2, {member}, "admitted a"});
  begin(options(), plan, journal);
  EXPECT_FALSE(sent<wire::Evicted>(say(8, hello(100, "a"), {66})).empty());
  EXPECT_FALSE(sent<wire::Refuse>(say(9, hello(777, "a"))).empty());
  EXPECT_FALSE(sent<wire::Welcome>(say(10, hello(100, "a"))).empty());
}

// All who made a revision are gone. Whoever says the number of one of them says nothing.
TEST_F(HostileMember, a_later_life_has_the_key_of_the_earlier) {
  constexpr wire::Incarnation kLife = 0x10001, kLater = 0x10002;
  const wire::PublicKey own{1};
  std::vector<wire::Record> journal;
  journal.emplace_back(wire::RunRecord{options().run, wire::kVersion});
  journal.emplace_back(wire::EpochRecord{1, 2, {{1, kLife, "a", 0, 1, {}, own}}, "admitted a"});
  journal.emplace_back(wire::BirthRecord{"model", "a", {kLife}, {{5, 5}}, {{}}, ""});
  wire::CommitRecord commit;
  commit.attempt = {1, 1}, commit.round = {"model", 1}, commit.contributors = {{1, 1.0}};
  commit.world = 1, commit.is_state = true, commit.state = {5, 5};
  journal.emplace_back(commit);
  journal.emplace_back(wire::EpochRecord{2, 2, {}, "a was lost"});
  for (const bool its_own : {false, true}) {
    begin(options(), plan, journal);
    wire::Hello later = hello(kLater, "a");
    later.addresses = {"here:1"};
    (void)say(1, later, its_own ? own : wire::PublicKey{66});
    (void)say(1, wire::Resume{{}, {{"model", 1, {6, 6}}}});
    (void)join(2, hello(0x20077, "b"));
    wire::Sync sync;
    sync.tag = "model", sync.deadline = 600 * base::kSecond;
    std::vector<wire::SyncReply> told = sent<wire::SyncReply>(say(2, sync));
    alive_ = {1, 2};
    wait(2 * options().silence);
    const auto again = sent<wire::SyncReply>(say(2, sync));
    told.insert(told.end(), again.begin(), again.end());
    const bool offered = std::any_of(told.begin(), told.end(), [](const wire::SyncReply& reply) {
      return reply.verdict == wire::SyncVerdict::kFetch && reply.digest == wire::Digest{6, 6};
    });
    EXPECT_EQ(offered, its_own);
  }
}

TEST_F(HostileMember, who_is_no_member_hears_of_nobody) {
  run_of_three();
  const auto rosters = sent<wire::Roster>(join(9, hello(777, "z")));
  ASSERT_EQ(rosters.size(), 1U);
  EXPECT_TRUE(rosters[0].members.empty());
  EXPECT_EQ(rosters[0].links.generation, 0U);
  EXPECT_EQ(rosters[0].tags.size(), 1U);
  const auto whole = sent<wire::Roster>(say(9, ready("grads", 2)));
  ASSERT_FALSE(whole.empty());
  EXPECT_EQ(whole.back().members.size(), 4U);
  EXPECT_NE(whole.back().links.generation, 0U);
}

TEST_F(HostileMember, who_left_does_not_have_the_next_link_secret) {
  join({"a", "b"});
  (void)say(2, ready("grads"));
  const auto before = sent<wire::Roster>(say(1, ready("grads")));
  ASSERT_FALSE(before.empty());
  const auto after = sent<wire::Roster>(on(EvictSite{"b"}));
  ASSERT_FALSE(after.empty());
  EXPECT_GT(after.back().links.generation, before.back().links.generation);
}

TEST_F(HostileMember, a_short_deadline_ends_only_the_wait_of_who_named_it) {
  run_of_three();
  alive_ = {1, 2, 3};
  (void)say(1, ready("grads", 2));
  wire::Ready hurry = ready("grads", 2);
  hurry.deadline = base::kMillisecond;
  (void)say(2, hurry);
  wait(100 * base::kMillisecond);
  EXPECT_EQ(master_->view(now_).tags.at(0).phase, "forming") << "a waits on";
  (void)say(2, ready("grads", 2));
  const auto last = say(3, hurry);  // all are READY, and one has no time
  ASSERT_EQ(sent<wire::Reject>(last).size(), 1U);
  EXPECT_EQ(sent<wire::Reject>(last)[0].code, base::Code::kDeadline);
  EXPECT_TRUE(sent<wire::Start>(last).empty());
  EXPECT_EQ(sent<wire::Start>(say(3, ready("grads", 2))).size(), 3U);
}

TEST_F(HostileMember, weights_that_overflow_a_sum_are_refused) {
  join({"a"});
  for (const double weight : {1e300, 1e13, 1e-13, -1.0, std::nan("")}) {
    wire::Ready bad = ready("grads");
    bad.weight = weight;
    const auto rejects = sent<wire::Reject>(say(1, bad));
    ASSERT_EQ(rejects.size(), 1U) << weight;
    EXPECT_EQ(rejects[0].code, base::Code::kInvalid);
  }
}

TEST_F(HostileMember, a_plan_hint_that_differs_from_the_others_is_refused_and_the_others_wait) {
  run_of_three();
  (void)say(1, ready("grads", 2));
  (void)say(2, ready("grads", 2));
  wire::Ready bent = ready("grads", 2);
  bent.hint = {3};
  const auto effects = say(3, bent);
  ASSERT_EQ(sent<wire::Reject>(effects).size(), 1U);
  EXPECT_EQ(effects.send.at(0).conn, 3U);
  EXPECT_EQ(sent<wire::Reject>(effects)[0].code, base::Code::kInvalid);
  EXPECT_EQ(sent<wire::Start>(say(3, ready("grads", 2))).size(), 3U);
}

TEST_F(HostileMember, who_moves_its_data_and_never_says_done_is_the_straggler) {
  MasterOptions strict = options();
  strict.start_peers = 3;
  strict.straggler = Straggler::kEvict;
  strict.straggler_after = 2 * base::kSecond;
  begin(strict);
  join({"a", "b", "c"});
  alive_ = {1, 2, 3};
  for (ConnId conn = 1; conn <= 2; ++conn) (void)say(conn, ready("grads"));
  const auto starts = sent<wire::Start>(say(3, ready("grads")));
  ASSERT_EQ(starts.size(), 3U);
  (void)say(1, wire::Done{starts[0].attempt, {7, 7}});
  (void)say(2, wire::Done{starts[0].attempt, {7, 7}});
  wait(5 * base::kSecond);
  std::vector<std::string> members;
  for (const PeerView& peer : master_->view(now_).peers) {
    if (peer.admitted) members.push_back(peer.member.site);
  }
  EXPECT_EQ(members, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(committed("grads"), 1U);
}

TEST_F(HostileMember, a_wish_for_many_first_peers_is_bounded_and_ends_with_its_life) {
  wire::Hello greedy = hello(100, "greedy");
  greedy.start_peers = std::numeric_limits<std::uint32_t>::max();
  EXPECT_EQ(sent<wire::Refuse>(say(1, greedy)).at(0).code, base::Code::kInvalid);
  greedy.start_peers = 1000;
  (void)join(2, greedy);
  (void)join(3, hello(300, "a"));
  EXPECT_TRUE(sent<wire::Start>(say(3, ready("grads"))).empty());
  EXPECT_NE(master_->view(now_).tags.at(0).waiting_for.find("greedy asks for this many"),
            std::string::npos);
  EXPECT_EQ(sent<wire::Start>(on(ConnClosed{2})).size(), 1U);
}

TEST_F(HostileMember, one_peer_cannot_take_all_tags_and_gives_them_back) {
  join({"a", "b"});
  const auto refused = [&](ConnId conn, bool source) {
    std::size_t count = 0;
    for (std::size_t i = 0; i < base::kTagsMax; ++i) {
      wire::Sync sync;
      sync.tag = "t" + std::to_string(conn) + "-" + std::to_string(i);
      sync.deadline = base::kSecond;
      sync.source = source;
      for (const auto& reply : sent<wire::SyncReply>(say(conn, sync))) {
        count += reply.verdict == wire::SyncVerdict::kRefused && reply.code == base::Code::kLimit;
      }
    }
    return count;
  };
  EXPECT_EQ(refused(2, false), base::kTagsMax / 2);
  (void)on(ConnClosed{2});
  EXPECT_LE(master_->view(now_).tags.size(), base::kTagsMax);
  // Nor in two lives of one key, as states are born that stay.
  for (const ConnId process : {ConnId{50}, ConnId{51}}) {
    const wire::PublicKey key = key_of(hello(7, "c"));
    wire::Hello shard = hello(process, "c");
    shard.shard = static_cast<std::uint32_t>(process - 50), shard.shards = 2;
    (void)say(process, shard, key);
    (void)say(process, wire::Resume{}, key);
    EXPECT_EQ(refused(process, true), process == 50 ? base::kTagsMax / 2 : base::kTagsMax);
  }
  EXPECT_LE(master_->view(now_).tags.size(), base::kTagsMax);
}

TEST_F(HostileMember, idle_observers_make_room_for_who_comes) {
  MasterOptions small = options();
  small.sites_max = 4;
  begin(small);
  join({"a", "b", "c", "d"});
  (void)say(1, ready("grads"));
  EXPECT_FALSE(sent<wire::Refuse>(say(50, hello(5000, "e"))).empty()) << "they have just come";
  now_ += 11 * base::kSecond;
  for (ConnId conn = 1; conn <= 4; ++conn) (void)say(conn, wire::Heartbeat{});
  const auto effects = say(51, hello(5001, "e"));
  EXPECT_EQ(sent<wire::Welcome>(effects).size(), 1U);
  EXPECT_EQ(effects.close, std::vector<ConnId>{2}) << "the oldest that asks for nothing";
}

TEST_F(HostileMember, names_and_tags_are_one_line) {
  for (const char* site : {"a\nb", "a\x1b[31m", "a\x7f", "a\u0085", "a\u202eb", "a\u2066"}) {
    ++last_;
    const auto refuses = sent<wire::Refuse>(say(last_, hello(last_, site)));
    ASSERT_EQ(refuses.size(), 1U);
    EXPECT_EQ(refuses[0].code, base::Code::kInvalid);
  }
  join({"[/red] ä 火"});
  EXPECT_EQ(sent<wire::Reject>(say(last_, ready("a\nb"))).at(0).code, base::Code::kInvalid);
}

// Of a run with a state at revision 1, made by `makers` and received by the others of three.
class HostileStateMember : public HostileMember {
 protected:
  static constexpr wire::Digest kRight{1, 1}, kForged{6, 6};

  void commit_of_state(ConnId makers, ConnId sites = 3) {
    MasterOptions all = options();
    all.start_peers = static_cast<std::uint32_t>(sites);
    begin(all);
    join({"a", "b", "c"});
    if (sites == 4) join({"d"});
    for (ConnId conn = 1; conn <= sites; ++conn) {
      wire::Sync sync;
      sync.tag = "model";
      sync.digest = {9, 9};
      sync.deadline = 1000 * base::kSecond;
      (void)say(conn, sync);
    }
    std::vector<wire::Start> starts;
    for (ConnId conn = 1; conn <= sites; ++conn) {
      starts = sent<wire::Start>(say(conn, call(1, {9, 9}, conn <= makers ? 1 : 0)));
    }
    ASSERT_EQ(starts.size(), sites);
    EXPECT_TRUE(starts[0].has_state);
    EXPECT_EQ(starts[0].revision, 0U);
    EXPECT_EQ(starts[0].state, (wire::Digest{9, 9}));
    for (ConnId conn = 1; conn <= sites; ++conn)
      (void)say(conn, wire::Done{starts[0].attempt, {7, 7}});
    ASSERT_EQ(committed("model"), 1U);
  }
  static wire::Ready call(std::uint64_t n, wire::Digest state, double weight = 1) {
    wire::Ready ready = HostileMember::ready("model", n);
    ready.has_state = true;
    ready.revision = n - 1;
    ready.state = state;
    ready.weight = weight;
    return ready;
  }
  static std::vector<wire::StateRecord> decided(const MasterEffects& effects) {
    std::vector<wire::StateRecord> found;
    for (const wire::Record& record : effects.journal) {
      if (const auto* state = std::get_if<wire::StateRecord>(&record)) found.push_back(*state);
    }
    return found;
  }
};

TEST_F(HostileStateMember, the_first_word_about_a_revision_decides_nothing) {
  commit_of_state(3);
  EXPECT_TRUE(decided(say(3, wire::Published{{"model", 1, kForged}})).empty());
  EXPECT_TRUE(decided(say(1, wire::Published{{"model", 1, kRight}})).empty()) << "one against one";
  const auto records = decided(say(2, wire::Published{{"model", 1, kRight}}));
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0].digests, std::vector<wire::Digest>{kRight});
  EXPECT_FALSE(records[0].weak);
  const auto rejects = sent<wire::Reject>(say(3, call(2, kForged)));
  ASSERT_EQ(rejects.size(), 1U);
  EXPECT_EQ(rejects[0].code, base::Code::kResync);
}

// Whatever it says first, or later: most have decided. Of two sides alike nobody says who is wrong.
TEST_F(HostileStateMember, who_is_outvoted_about_a_revision_is_named) {
  commit_of_state(3);
  const auto named = [](const MasterEffects& effects) {
    std::string sites;
    for (const auto& line : effects.history) {
      if (line.kind == "fault") sites += line.fields.at(0).second;
    }
    return sites;
  };
  EXPECT_EQ(named(say(3, wire::Published{{"model", 1, kForged}})), "");
  EXPECT_EQ(named(say(1, wire::Published{{"model", 1, kRight}})), "");
  EXPECT_EQ(named(say(2, wire::Published{{"model", 1, kRight}})), "c") << "now it is decided";
  EXPECT_EQ(named(say(3, wire::Published{{"model", 1, kForged}})), "") << "once";
  EXPECT_EQ(named(say(2, wire::Published{{"model", 1, kForged}})), "b") << "afterwards, too";
}

TEST_F(HostileStateMember, who_only_received_a_result_has_no_say_about_what_follows_from_it) {
  commit_of_state(2);
  EXPECT_TRUE(decided(say(3, wire::Published{{"model", 1, kForged}})).empty());
  EXPECT_TRUE(decided(say(1, wire::Published{{"model", 1, kRight}})).empty()) << "of two, both";
  const auto records = decided(say(2, wire::Published{{"model", 1, kRight}}));
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0].digests, std::vector<wire::Digest>{kRight});
}

TEST_F(HostileStateMember, a_word_that_is_taken_back_does_not_count_anew) {
  commit_of_state(3);
  (void)say(3, wire::Published{{"model", 1, kForged}});
  (void)say(1, wire::Published{{"model", 1, kRight}});
  EXPECT_TRUE(decided(say(1, wire::Published{{"model", 1, kForged}})).empty());
  EXPECT_EQ(decided(say(2, wire::Published{{"model", 1, kRight}})).size(), 1U);
}

TEST_F(HostileStateMember, without_a_majority_no_round_starts_and_all_hear_both_sides) {
  commit_of_state(2);
  (void)say(1, wire::Published{{"model", 1, kRight}});
  (void)say(2, wire::Published{{"model", 1, kForged}});
  (void)say(1, call(2, kRight));
  (void)say(2, call(2, kForged));
  const auto rejects = sent<wire::Reject>(say(3, call(2, kRight)));
  ASSERT_EQ(rejects.size(), 3U);
  EXPECT_EQ(rejects[0].code, base::Code::kDisputed);
  EXPECT_NE(rejects[0].text.find("a holds "), std::string::npos);
  EXPECT_NE(rejects[0].text.find("b holds "), std::string::npos);
  EXPECT_EQ(master_->view(now_).tags.at(0).phase, "disputed");
  const auto left = on(EvictSite{"b"});
  EXPECT_TRUE(sent<wire::Start>(left).empty());
  (void)say(1, call(2, kRight));
  EXPECT_EQ(sent<wire::Start>(say(3, call(2, kRight))).size(), 2U);
}

TEST_F(HostileStateMember, beside_one_who_is_behind_a_forged_state_stops_nobody) {
  commit_of_state(4, 4);
  wire::Sync behind;
  behind.tag = "model";
  behind.digest = {9, 9};
  behind.deadline = 1000 * base::kSecond;
  (void)say(4, behind);
  alive_ = {1, 2, 3, 4};
  (void)say(1, wire::Published{{"model", 1, kRight}});
  (void)say(3, wire::Published{{"model", 1, kForged}});
  (void)say(2, wire::Published{{"model", 1, kRight}});
  wait(2 * options().silence);
  const auto rejects = sent<wire::Reject>(say(3, call(2, kForged)));
  ASSERT_EQ(rejects.size(), 1U) << "two of three that have a say have said so";
  EXPECT_EQ(rejects[0].code, base::Code::kResync);
  EXPECT_TRUE(sent<wire::Reject>(say(1, call(2, kRight))).empty());
}

TEST_F(HostileMember, one_sync_in_a_run_without_state_locks_nobody_out) {
  run_of_three();
  alive_ = {1, 2, 3};
  wire::Sync sync;
  sync.tag = "evil";
  sync.deadline = base::kSecond;
  (void)say(3, sync);
  join({"late"});
  (void)say(1, ready("grads", 2));
  (void)say(2, ready("grads", 2));
  EXPECT_TRUE(sent<wire::Reject>(say(4, ready("grads", 2))).empty());
  EXPECT_EQ(sent<wire::Start>(say(3, ready("grads", 2))).size(), 4U);
}

TEST_F(HostileMember, a_newcomer_on_a_tag_of_its_own_keeps_nobody_waiting) {
  run_of_three();
  join({"late"});
  (void)say(4, ready("typo"));
  commit("grads", 2);
  commit("another", 1);
  EXPECT_NE(master_->view(now_).peers.at(3).waiting_for.find("typo waits for READY of a, b, c"),
            std::string::npos);
}

}  // namespace
}  // namespace jccl::protocol
