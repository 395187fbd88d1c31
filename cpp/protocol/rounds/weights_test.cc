// Weights far above the others' of a round: whose call ends, and who goes on.
#include "protocol/hostile_rig.h"

namespace jccl::protocol {
namespace {

// A weight of 1e9 among ones is a mean of one contribution.
class WeightMax : public HostileMember {
 protected:
  MasterEffects call(ConnId conn, double weight, std::uint64_t n = 2) {
    wire::Ready one = ready("grads", n);
    one.weight = weight;
    return say(conn, one);
  }
};

TEST_F(WeightMax, a_weight_far_above_the_median_is_refused_in_words_and_the_others_go_on) {
  run_of_three();
  (void)call(1, 1);
  (void)call(3, 3e6);
  const auto effects = call(2, 2);
  const auto rejects = sent<wire::Reject>(effects);
  ASSERT_EQ(rejects.size(), 1U);
  EXPECT_EQ(rejects[0].code, base::Code::kInvalid);
  for (const char* part : {"3e+06 of c", "1e+06", "the round, 2:", "--weight-max"}) {
    EXPECT_NE(rejects[0].text.find(part), std::string::npos) << part << ": " << rejects[0].text;
  }
  const auto starts = sent<wire::Start>(effects);
  ASSERT_EQ(starts.size(), 2U);
  ASSERT_EQ(starts[0].contributors.size(), 2U);
  for (ConnId conn = 1; conn <= 2; ++conn) (void)say(conn, wire::Done{starts[0].attempt, {7, 7}});
  EXPECT_EQ(committed("grads"), 2U);
  EXPECT_NE(master_->view(now_).peers.at(2).faults.find("malformed calls"), std::string::npos);
  for (ConnId conn = 1; conn <= 2; ++conn) (void)call(conn, 1, 3);
  EXPECT_EQ(sent<wire::Start>(call(3, 1e6, 3)).size(), 3U) << "as much as is allowed";
}

TEST_F(WeightMax, of_two_the_heavier_hears_of_it_and_the_other_waits_for_it) {
  MasterOptions two = options();
  two.start_peers = 2;
  begin(two);
  join({"a", "b"});
  (void)call(1, 1, 1);
  const auto effects = call(2, 2e6, 1);
  ASSERT_EQ(sent<wire::Reject>(effects).size(), 1U);
  EXPECT_EQ(effects.send.at(0).conn, 2U);
  EXPECT_TRUE(sent<wire::Start>(effects).empty());
  EXPECT_EQ(sent<wire::Start>(call(2, 2, 1)).size(), 2U);
}

TEST_F(WeightMax, light_weights_of_fewer_than_half_refuse_nobody_else) {
  MasterOptions four = options();
  four.start_peers = 4;
  begin(four);
  join({"a", "b", "c", "d"});
  for (ConnId conn = 2; conn <= 4; ++conn) (void)call(conn, 1, 1);
  EXPECT_EQ(sent<wire::Start>(call(1, 1e-12, 1)).size(), 4U);
}

// The third receives. A tiny weight would make the other one's a fault, and its own the mean.
TEST_F(WeightMax, of_two_measures_neither_is_a_fault_and_the_last_round_decides) {
  run_of_three();  // all weigh 1
  for (std::uint64_t n = 2; n < 6; ++n) {
    (void)call(1, 1e-12, n);
    (void)call(3, 0, n);
    const auto starts = sent<wire::Start>(call(2, 1, n));
    ASSERT_EQ(starts.size(), 3U);
    for (ConnId conn = 1; conn <= 3; ++conn) (void)say(conn, wire::Done{starts[0].attempt, {7, 7}});
    ASSERT_EQ(committed("grads"), n);
  }
  (void)call(1, 1, 6);
  (void)call(3, 0, 6);
  const auto effects = call(2, 1e9, 6);
  ASSERT_EQ(sent<wire::Reject>(effects).size(), 1U);
  EXPECT_NE(sent<wire::Reject>(effects)[0].text.find("1e+09 of b is above"), std::string::npos);
  EXPECT_EQ(sent<wire::Start>(effects).size(), 2U) << "for the others go on";
  for (const PeerView& peer : master_->view(now_).peers) EXPECT_EQ(peer.faults, "");
}

TEST_F(WeightMax, without_a_last_round_the_others_wait_for_a_smaller_weight) {
  MasterOptions three = options();
  three.start_peers = 3;
  begin(three);
  join({"a", "b", "c"});
  for (int k = 0; k < 20; ++k) {
    (void)call(1, 1e-12, 1);
    (void)call(3, 0, 1);
    const auto effects = call(2, 1, 1);
    ASSERT_EQ(sent<wire::Reject>(effects).size(), 1U);
    EXPECT_TRUE(sent<wire::Start>(effects).empty());
  }
  EXPECT_EQ(master_->view(now_).peers.at(1).faults, "");
  EXPECT_EQ(sent<wire::Start>(call(2, 1e-7, 1)).size(), 3U);
}

TEST_F(WeightMax, announcements_are_no_weights_to_compare_with) {
  MasterOptions three = options();
  three.start_peers = 3;
  begin(three);
  join({"a", "b", "c"});
  (void)call(1, base::kWeightAnnounced, 1);
  (void)call(2, base::kWeightAnnounced, 1);
  const auto starts = sent<wire::Start>(call(3, 1 << 24, 1));
  ASSERT_EQ(starts.size(), 3U);
  for (ConnId conn = 1; conn <= 3; ++conn) (void)say(conn, wire::Done{starts[0].attempt, {7, 7}});
  (void)call(1, base::kWeightAnnounced, 2);
  (void)call(2, 32, 2);
  const auto effects = call(3, 1e9, 2);
  ASSERT_EQ(sent<wire::Reject>(effects).size(), 1U);
  EXPECT_NE(sent<wire::Reject>(effects)[0].text.find("1e+09 of c"), std::string::npos);
}

TEST_F(WeightMax, nothing_is_refused_where_the_master_was_told_so) {
  MasterOptions any = options();
  any.start_peers = 3, any.weight_max = 0;
  begin(any);
  join({"a", "b", "c"});
  (void)call(1, 1, 1);
  (void)call(2, 1, 1);
  EXPECT_EQ(sent<wire::Start>(call(3, 1e12, 1)).size(), 3U);
}

TEST_F(WeightMax, a_receiver_has_no_weight_that_counts) {
  run_of_three();
  (void)call(1, 0);
  (void)call(2, 1e-3);
  EXPECT_EQ(sent<wire::Start>(call(3, 1)).size(), 3U);
}

}  // namespace
}  // namespace jccl::protocol
