// What a call allows its contributors, of which each member says what it likes: weights where they
// do not apply, and more contributors than it takes.
#include "protocol/hostile_rig.h"

namespace jccl::protocol {
namespace {

using base::Code;

class Contributors : public HostileMember {
 protected:
  void run_of(std::uint32_t members) {
    MasterOptions all = options();
    all.start_peers = members;
    begin(all);
    constexpr const char* kNames[] = {"a", "b", "c", "d"};
    for (std::uint32_t i = 0; i < members; ++i) join({kNames[i]});
    size_ = members;
  }
  // Of each member its weight, by connection. What the last of them brings.
  MasterEffects call(const std::vector<double>& weights, std::uint32_t most, bool unit) {
    MasterEffects last;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      wire::Ready one = ready("grads", committed("grads") + 1);
      one.weight = weights[i], one.contributors_max = most, one.unit_weights = unit;
      last = say(i + 1, one);
    }
    return last;
  }
  // Who hears that its call can't be, and why.
  static std::map<ConnId, Code> refused(const MasterEffects& effects) {
    std::map<ConnId, Code> conns;
    for (const MasterSend& one : effects.send) {
      const auto* reject = std::get_if<wire::Reject>(&one.message);
      if (reject != nullptr) conns[one.conn] = reject->code;
    }
    return conns;
  }
  std::string faults(std::size_t member) const {
    return master_->view(now_).peers.at(member - 1).faults;
  }
  void commit(const MasterEffects& effects, std::size_t contributors) {
    const auto starts = sent<wire::Start>(effects);
    ASSERT_FALSE(starts.empty());
    EXPECT_EQ(starts[0].contributors.size(), contributors);
    const std::uint64_t before = committed("grads");
    for (ConnId conn = 1; conn <= size_; ++conn)
      (void)say(conn, wire::Done{starts[0].attempt, {7, 7}});
    EXPECT_EQ(committed("grads"), before + 1);
  }
  std::size_t size_ = 0;
};

using Refused = std::map<ConnId, Code>;

TEST_F(Contributors,
       a_weight_where_weights_do_not_apply_is_its_senders_fault_and_the_others_go_on) {
  run_of(4);
  const auto effects = call({1, 1, 1, 2}, 0, true);
  EXPECT_EQ(refused(effects), (Refused{{4, Code::kInvalid}}));
  EXPECT_NE(sent<wire::Reject>(effects)[0].text.find("the weight 2 of d"), std::string::npos);
  commit(effects, 3);
  EXPECT_EQ(faults(4), "1 malformed calls");
  for (std::size_t honest = 1; honest <= 3; ++honest) EXPECT_EQ(faults(honest), "");
  commit(call({1, 1, 1, 1}, 0, true), 4);
  commit(call({1, 1, 1, 2}, 0, false), 4);
}

TEST_F(Contributors, of_two_the_one_with_such_a_weight_hears_of_it_and_the_other_waits) {
  run_of(2);
  const auto effects = call({1, 2}, 0, true);
  EXPECT_EQ(refused(effects), (Refused{{2, Code::kInvalid}}));
  EXPECT_TRUE(sent<wire::Start>(effects).empty());
  wire::Ready again = ready("grads");
  again.unit_weights = true;
  commit(say(2, again), 2);
}

TEST_F(Contributors, who_contributed_last_goes_before_who_did_not) {
  run_of(4);
  commit(call({0, 0, 1, 0}, 1, false), 1);
  const auto effects = call({1, 0, 1, 0}, 1, false);
  EXPECT_EQ(refused(effects), (Refused{{1, Code::kLimit}}));
  const std::string text = sent<wire::Reject>(effects)[0].text;
  for (const char* part : {"2 peers contribute", "at most 1", "c did so before a"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
  commit(effects, 1);
  for (std::size_t member = 1; member <= 4; ++member) EXPECT_EQ(faults(member), "");
  commit(call({1, 0, 0, 0}, 1, false), 1);  // the part may be another's, once it is free
  EXPECT_EQ(refused(call({1, 0, 1, 0}, 1, false)), (Refused{{3, Code::kLimit}}));
}

// Where it alone contributes the others would wait for nobody, and have no round.
TEST_F(Contributors, who_was_refused_is_in_again_when_nobody_else_contributes) {
  run_of(4);
  (void)call({0, 0, 1, 1}, 1, false);  // d is refused, and c goes
  (void)say(3, wire::Leave{});
  for (const ConnId conn : {1, 2, 4}) {
    wire::Ready one = ready("grads");
    one.weight = conn == 4, one.contributors_max = 1;
    const auto effects = say(conn, one);
    EXPECT_TRUE(refused(effects).empty());
    EXPECT_EQ(sent<wire::Start>(effects).size(), conn == 4 ? 3U : 0U);
  }
}

TEST_F(Contributors, nor_is_the_only_one_left_out_for_attempts_that_it_left) {
  run_of(4);
  alive_ = {1, 2, 3, 4};
  for (int again = 0; again < 3; ++again) {
    const auto starts = sent<wire::Start>(call({0, 0, 0, 1}, 1, false));
    ASSERT_EQ(starts.size(), 4U) << again;
    (void)say(4, wire::Fail{starts[0].attempt, Code::kAborted, 0, "interrupted"});
    wait(5 * base::kSecond);
  }
}

TEST_F(Contributors, among_equals_who_came_first_goes_first) {
  run_of(4);
  const auto effects = call({1, 1, 1, 1}, 3, false);
  EXPECT_EQ(refused(effects), (Refused{{4, Code::kLimit}}));
  commit(effects, 3);
}

TEST_F(Contributors, of_two_that_both_want_the_only_place_both_hear_of_it) {
  run_of(2);
  EXPECT_EQ(refused(call({1, 1}, 1, false)), (Refused{{1, Code::kLimit}, {2, Code::kLimit}}));
}

TEST_F(Contributors, min_peers_are_there_but_no_more_contribute_than_the_call_lets) {
  MasterOptions all = options();
  all.start_peers = 3, all.min_peers = 2;
  begin(all);
  join({"a", "b", "c"});
  size_ = 3;
  commit(call({0, 1, 0}, 1, false), 1);  // a broadcast of b
  EXPECT_EQ(sent<wire::Start>(call({0, 1, 0}, 0, false)).size(), 0U) << "of a sum one is too few";
}

TEST_F(Contributors, who_says_otherwise_what_the_call_allows_has_made_it_up) {
  for (const bool unit : {true, false}) {
    run_of(4);
    last_ = 0;
    (void)call({1, 1, 1}, 3, true);
    wire::Ready odd = ready("grads");
    odd.contributors_max = unit ? 3 : 4, odd.unit_weights = !unit;
    const auto effects = say(4, odd);
    EXPECT_EQ(refused(effects), (Refused{{4, Code::kInvalid}})) << unit;
    EXPECT_EQ(faults(4), "1 calls unlike the others'");
  }
}

}  // namespace
}  // namespace jccl::protocol
