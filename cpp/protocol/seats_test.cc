// What a peer hears whose place is another's.
#include "protocol/hostile_rig.h"

namespace jccl::protocol {
namespace {

using base::kMillisecond;
using base::kSecond;

class SeatsTest : public HostileMember {
 protected:
  static wire::PublicKey key(ConnId member) { return key_of(hello(100 * member, "")); }
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

}  // namespace
}  // namespace jccl::protocol
