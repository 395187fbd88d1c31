// Calls that ask for a quorum: who can have whom left out. The usual way is in the scenarios quorum
// and quorum-of-state.
#include "protocol/hostile_rig.h"
#include "protocol/master/master_state.h"

namespace jccl::protocol {
namespace {

using base::Code;
using base::kMillisecond;
using base::kSecond;

constexpr base::Quorum kMost{750, kSecond};

class QuorumOfCalls : public HostileMember {
 protected:
  void run_of(std::size_t members, std::uint32_t min_peers = 1) {
    MasterOptions all = options();
    all.start_peers = static_cast<std::uint32_t>(members), all.min_peers = min_peers;
    begin(all);
    last_ = 0, alive_.clear();
    constexpr const char* kNames[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    for (std::size_t i = 0; i < members; ++i) {
      join({kNames[i]});
      alive_.push_back(last_);
    }
    // Who has never called the tag is not waited for.
    std::vector<wire::Start> starts;
    for (const ConnId conn : alive_) starts = sent<wire::Start>(call(conn, {}));
    ASSERT_EQ(starts.size(), members);
    for (const ConnId conn : alive_) (void)say(conn, wire::Done{starts[0].attempt, {7, 7}});
    ASSERT_EQ(committed("grads"), 1U);
  }
  MasterEffects call(ConnId conn, const base::Quorum& quorum) {
    wire::Ready one = ready(tag_, committed(tag_) + 1);
    one.quorum = quorum;
    return say(conn, one);
  }
  static std::size_t starts_of(const MasterEffects& effects) {
    return sent<wire::Start>(effects).size();
  }
  void finish(std::initializer_list<ConnId> conns) {
    const auto& running = master_->state().rounds_.at(tag_).running;
    ASSERT_TRUE(running.has_value());
    const wire::Attempt attempt = running->attempt();
    const std::uint64_t before = committed(tag_);
    for (const ConnId conn : conns) (void)say(conn, wire::Done{attempt, {7, 7}});
    ASSERT_EQ(committed(tag_), before + 1);
  }
  // The sites that were left out meanwhile.
  std::vector<std::string> left_out(base::Duration within) {
    std::vector<std::string> sites;
    for (const HistoryLine& line : wait(within)) {
      if (line.kind == "skip") sites.push_back(line.fields.front().second);
    }
    return sites;
  }
  wire::Tag tag_ = "grads";
};

using Sites = std::vector<std::string>;

TEST_F(QuorumOfCalls, who_is_late_is_left_out_once_the_grace_is_over) {
  run_of(4);
  for (const ConnId conn : {1, 2, 3}) (void)call(conn, kMost);
  EXPECT_EQ(left_out(990 * kMillisecond), Sites{});
  EXPECT_EQ(left_out(20 * kMillisecond), Sites{"d"});
}

TEST_F(QuorumOfCalls, one_that_lies_has_nobody_left_out) {
  for (const base::Quorum& made_up : {base::Quorum{501, 0}, kMost}) {
    run_of(4);
    (void)call(4, made_up);
    for (const ConnId conn : {1, 2}) (void)call(conn, {});
    EXPECT_EQ(left_out(20 * kSecond), Sites{});
  }
}

TEST_F(QuorumOfCalls, who_was_left_out_is_waited_for_where_the_rest_are_no_quorum) {
  run_of(5);
  for (const ConnId conn : {1, 2, 3}) (void)call(conn, {600, kSecond});
  EXPECT_EQ(left_out(1010 * kMillisecond), (Sites{"d", "e"}));
  finish({1, 2, 3});
  (void)say(3, wire::Leave{});
  for (const ConnId conn : {1, 2}) EXPECT_EQ(starts_of(call(conn, {600, kSecond})), 0U);
  EXPECT_EQ(left_out(20 * kSecond), Sites{}) << "two of four are no 0.6";
  EXPECT_EQ(committed("grads"), 2U);
}

TEST_F(QuorumOfCalls, calls_that_ask_for_none_wait_for_who_was_left_out_before) {
  run_of(4);
  for (const ConnId conn : {1, 2, 3}) (void)call(conn, kMost);
  EXPECT_EQ(left_out(1010 * kMillisecond), Sites{"d"});
  finish({1, 2, 3});
  for (const ConnId conn : {1, 2, 3}) EXPECT_EQ(starts_of(call(conn, {})), 0U);
  EXPECT_EQ(starts_of(call(4, {})), 4U);
}

TEST_F(QuorumOfCalls, who_is_still_away_is_out_of_the_next_round_of_a_quorum_at_once) {
  run_of(4);
  for (const ConnId conn : {1, 2, 3}) (void)call(conn, kMost);
  EXPECT_EQ(left_out(1010 * kMillisecond), Sites{"d"});
  finish({1, 2, 3});
  for (const ConnId conn : {1, 2}) EXPECT_EQ(starts_of(call(conn, kMost)), 0U);
  EXPECT_EQ(starts_of(call(3, kMost)), 3U);
}

TEST_F(QuorumOfCalls, the_first_round_of_a_tag_waits_for_all_that_have_called) {
  run_of(4);
  tag_ = "new";
  (void)call(4, kMost);
  (void)say(4, wire::Withdraw{{"new", 1}});  // to call again: its step is compiled first
  for (const ConnId conn : {1, 2, 3}) (void)call(conn, kMost);
  EXPECT_EQ(left_out(20 * kSecond), Sites{});
  EXPECT_EQ(starts_of(call(4, kMost)), 4U);
}

// Simulated seed 1014 with a hostile member: it asked when it was the only member.
TEST_F(QuorumOfCalls, what_one_asked_while_it_was_alone_binds_nobody) {
  run_of(4, 3);
  for (const ConnId conn : {2, 3, 4}) (void)say(conn, wire::Leave{});
  alive_ = {1, 5, 6, 7};
  (void)call(1, {501, 0});
  join({"e", "f", "g"});
  (void)call(6, {});
  (void)say(6, wire::Withdraw{{"grads", 2}});
  for (const ConnId conn : {5, 7}) EXPECT_EQ(starts_of(call(conn, {})), 0U);
  EXPECT_EQ(left_out(20 * kSecond), Sites{});
}

TEST_F(QuorumOfCalls, half_of_the_members_can_have_nobody_left_out) {
  run_of(4);
  for (const ConnId conn : {1, 2}) (void)call(conn, kMost);
  (void)call(3, {});
  EXPECT_EQ(left_out(20 * kSecond), Sites{});
}

TEST_F(QuorumOfCalls, who_says_another_one_is_refused_and_pays) {
  run_of(4);
  for (const ConnId conn : {1, 2, 3}) (void)call(conn, kMost);
  const auto refused = sent<wire::Reject>(call(4, {750, 2 * kSecond}));
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_EQ(refused[0].code, Code::kInvalid);
  EXPECT_EQ(master_->view(now_).peers.at(3).faults, "1 calls unlike the others'");
}

TEST_F(QuorumOfCalls, what_is_no_quorum_is_refused_and_pays) {
  for (const base::Quorum& none :
       {base::Quorum{500, 0}, base::Quorum{1000, 0}, base::Quorum{1, 0}, base::Quorum{0, 1},
        base::Quorum{750, -1}, base::Quorum{750, base::kGraceMax + 1}, base::Quorum{1U << 31, 0}}) {
    run_of(3);
    const auto refused = sent<wire::Reject>(call(1, none));
    ASSERT_EQ(refused.size(), 1U) << none.share;
    EXPECT_EQ(refused[0].code, Code::kInvalid);
    EXPECT_NE(master_->view(now_).peers.at(0).faults, "");
  }
}

TEST_F(QuorumOfCalls, one_that_goes_begins_the_grace_anew) {
  run_of(8);
  for (const ConnId conn : {1, 2, 3, 4, 5, 6}) (void)call(conn, kMost);
  EXPECT_EQ(left_out(900 * kMillisecond), Sites{});
  (void)say(6, wire::Withdraw{{"grads", 2}});
  EXPECT_EQ(left_out(900 * kMillisecond), Sites{}) << "five of eight are too few";
  (void)call(6, kMost);
  EXPECT_EQ(left_out(990 * kMillisecond), Sites{});
  EXPECT_EQ(left_out(20 * kMillisecond), (Sites{"g", "h"}));
}

}  // namespace
}  // namespace jccl::protocol
