// An operator's order is in effect within one heartbeat, counted, whatever else happens or does
// not.
#include <functional>

#include "protocol/hostile_rig.h"

namespace jccl::protocol {
namespace {

class OrdersTest : public HostileMember {
 protected:
  static wire::PublicKey key(ConnId member) { return key_of(hello(100 * member, "")); }
  // Members 1 and 2 by one token, 3 by another.
  static Shown shown(ConnId member) { return {key(member), member == 3 ? "its" : "theirs"}; }
  void come(ConnId conn, const std::string& site) {
    (void)on(ConnMessage{conn, hello(100 * conn, site), shown(conn)});
    (void)on(ConnMessage{conn, wire::Resume{}, shown(conn)});
  }
  void begin_with(MasterOptions options) {
    options.start_peers = 2;
    begin(options);
    come(1, "a"), come(2, "b"), come(3, "c");
    for (ConnId conn = 1; conn <= 3; ++conn) (void)say(conn, ready("grads"));
  }
  void order(wire::OrderVerb verb, const std::string& subject) {
    note(on(ConnMessage{1000, wire::Order{verb, subject, base::kSecond, ""}, {{99}, "", 0, true}}));
  }
  void note(const MasterEffects& effects) {
    for (const auto& message : effects.send) {
      const bool out = std::holds_alternative<wire::Evicted>(message.message) ||
                       std::holds_alternative<wire::Refuse>(message.message);
      told_ = told_ || (message.conn == 3 && out);
    }
  }
  bool is_member(const std::string& site) const {
    for (const PeerView& peer : master_->view(now_).peers) {
      if (peer.member.site == site && peer.admitted) return true;
    }
    return false;
  }
  int heartbeats_until(const std::function<bool()>& holds) {
    int count = 0;
    for (; count < 10 && !holds(); ++count) {
      now_ += options().heartbeat;
      for (ConnId conn = 1; conn <= 3; ++conn) note(say(conn, wire::Heartbeat{}));
      note(on(Tick{}));
    }
    return count;
  }
  void expect_it_goes_by(wire::OrderVerb verb, const std::string& subject) {
    begin_with(options());
    ASSERT_TRUE(is_member("c"));
    order(verb, subject);
    EXPECT_LE(heartbeats_until([this] { return told_ && !is_member("c"); }), 1);
    EXPECT_TRUE(is_member("a") && is_member("b"));
  }
  bool told_ = false;
};

TEST_F(OrdersTest, who_is_kicked_is_out_within_one_heartbeat) {
  expect_it_goes_by(wire::OrderVerb::kKick, "c");
}

TEST_F(OrdersTest, who_is_banned_is_out_within_one_heartbeat) {
  expect_it_goes_by(wire::OrderVerb::kBan, base::to_hex(key(3)));
}

TEST_F(OrdersTest, who_is_in_by_a_revoked_token_is_out_within_one_heartbeat) {
  expect_it_goes_by(wire::OrderVerb::kRevoke, "its");
}

TEST_F(OrdersTest, who_is_admitted_is_in_within_one_heartbeat) {
  MasterOptions listed = options();
  listed.admission = Admission::kListed;
  listed.listed = {key(1), key(2)};
  begin_with(listed);
  EXPECT_EQ(heartbeats_until([this] { return is_member("c"); }), 10);
  order(wire::OrderVerb::kAdmit, base::to_hex(key(3)));
  EXPECT_LE(heartbeats_until([this] { return is_member("c"); }), 1);
}

}  // namespace
}  // namespace jccl::protocol
