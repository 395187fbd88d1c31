// Who hears that the run went back to an earlier state. See scenarios for what it is then.
#include "protocol/hostile_rig.h"

namespace jccl::protocol {
namespace {

class RestoreTest : public HostileMember {
 protected:
  static wire::Sync asks(std::uint64_t digest, base::Wish wish = base::Wish::kNone) {
    wire::Sync sync;
    sync.tag = "model", sync.digest = {digest, 0}, sync.restore = wish;
    sync.deadline = 1000 * base::kSecond;
    return sync;
  }
  // Round n of both members; the new state's digest is n.
  void round(std::uint64_t n) {
    wire::Ready call = ready("model", n);
    call.has_state = true;
    call.revision = n - 1, call.state = {n - 1, 0};
    (void)say(1, call);
    const auto starts = sent<wire::Start>(say(2, call));
    ASSERT_EQ(starts.size(), 2U);
    for (ConnId conn = 1; conn <= 2; ++conn) (void)say(conn, wire::Done{starts[0].attempt, {7, 7}});
    for (ConnId conn = 1; conn <= 2; ++conn) {
      (void)say(conn, wire::Published{{"model", n, {n, 0}}});
    }
    ASSERT_EQ(committed("model"), n);
  }
};

TEST_F(RestoreTest, members_and_who_asks_hear_of_it_and_nobody_else) {
  MasterOptions two = options();
  two.start_peers = 2;
  begin(two);
  join({"a", "b"});
  (void)say(1, asks(0));
  (void)say(2, asks(0));
  round(1);
  round(2);
  join({"bystander"});
  ConnMessage comes{4, hello(400, "operator"), {{4}}};
  comes.shown.may_order = true;
  (void)on(comes);
  (void)say(4, wire::Resume{});
  const MasterEffects effects = say(4, asks(1, base::Wish::kKnown));
  std::vector<ConnId> told;
  for (const MasterSend& one : effects.send) {
    if (std::holds_alternative<wire::Notice>(one.message)) told.push_back(one.conn);
  }
  EXPECT_EQ(told, (std::vector<ConnId>{1, 2, 4}));
}

// Of the last 1,024 the master knows what they were, and no further.
TEST_F(RestoreTest, what_was_decided_so_many_revisions_ago_is_known) {
  for (const std::uint64_t back : {1022, 1024}) {
    MasterOptions two = options();
    two.start_peers = 2;
    recorded_ = false;  // a thousand rounds
    begin(two);
    last_ = 0;
    join({"a", "b"});
    (void)say(1, asks(0));
    (void)say(2, asks(0));
    constexpr std::uint64_t kNewest = 1100;
    for (std::uint64_t n = 1; n <= kNewest; ++n) round(n);
    wire::Sync wish = asks(kNewest - back, base::Wish::kKnown);
    wish.revision = kNewest - back;
    ConnMessage comes{4, hello(400, "operator"), {{4}}};
    comes.shown.may_order = true;
    (void)on(comes);
    (void)say(4, wire::Resume{});
    (void)say(4, wish);
    EXPECT_EQ(committed("model"), back < 1024 ? kNewest + 1 : kNewest) << back;
  }
}

}  // namespace
}  // namespace jccl::protocol
