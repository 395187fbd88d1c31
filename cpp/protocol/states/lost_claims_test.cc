// The holders of the newest state are gone, and a member that stays says, or lets it seem, that it
// may have it: those who ask hear that it is lost all the same, a while later.
#include "protocol/hostile_rig.h"

namespace jccl::protocol {
namespace {

using base::Code;
using base::kSecond;

class LostClaims : public HostileMember {
 protected:
  void SetUp() override {
    MasterOptions three = options();
    three.start_peers = 3;
    begin(three);
    join({"a", "b", "c"});
    alive_ = {3, 4};
    for (ConnId conn = 1; conn <= 3; ++conn) (void)say(conn, asks({1, 0}));
  }
  static wire::Sync asks(const base::Digest& digest, bool fetching = false,
                         std::uint64_t revision = 0) {
    wire::Sync sync;
    sync.tag = "model", sync.digest = digest;
    sync.fetching = fetching, sync.revision = revision;
    sync.deadline = 3600 * kSecond;
    return sync;
  }
  static wire::Ready state_ready() {
    wire::Ready call = ready("model");
    call.has_state = true;
    call.state = {1, 0};
    return call;
  }
  void the_others_leave() {
    for (ConnId conn = 1; conn <= 2; ++conn) (void)say(conn, wire::Leave{});
  }
  // A newcomer asks for the state of the run. When it hears that it is lost.
  template <typename Lie>
  base::Duration lost_after(Lie lie) {
    wire::Hello newcomer = hello(400, "d");
    newcomer.addresses = {"there"};
    (void)join(4, newcomer);
    const base::Time since = now_;
    const auto lost = [](const MasterEffects& effects) {
      for (const auto& reply : sent<wire::SyncReply>(effects)) {
        if (reply.code == Code::kStateLost) return true;
      }
      return false;
    };
    bool told = lost(say(4, asks({9, 9})));
    while (!told && now_ < since + 600 * kSecond) {
      now_ += kSecond;
      for (const ConnId conn : {3, 4}) told = told || lost(say(conn, wire::Heartbeat{}));
      told = told || lost(lie());
      told = told || lost(on(Tick{}));
    }
    return now_ - since;
  }
  // For others that bring an earlier one, and as long as for them.
  const base::Duration most_ = 2 * options().restore_after + 10 * kSecond;
};

TEST_F(LostClaims, by_who_says_again_and_again_that_it_fetches) {
  the_others_leave();
  (void)say(3, wire::Published{{"model", 0, {9, 0}}});  // it has the first state no more
  EXPECT_LT(lost_after([&] { return say(3, asks({1, 0}, true)); }), most_);
}

TEST_F(LostClaims, by_who_was_in_the_last_round_and_does_not_publish) {
  for (ConnId conn = 1; conn <= 2; ++conn) (void)say(conn, state_ready());
  const auto starts = sent<wire::Start>(say(3, state_ready()));
  ASSERT_EQ(starts.size(), 3U);
  for (ConnId conn = 1; conn <= 3; ++conn) (void)say(conn, wire::Done{starts[0].attempt, {7, 7}});
  for (ConnId conn = 1; conn <= 2; ++conn) (void)say(conn, wire::Published{{"model", 1, {5, 5}}});
  the_others_leave();
  EXPECT_LT(lost_after([&] { return say(3, wire::Heartbeat{}); }), most_);
}

}  // namespace
}  // namespace jccl::protocol
