#include "net/reach.h"

#include <gtest/gtest.h>

namespace jccl::net {
namespace {

Reach reach(const char* text) { return reach_of(endpoint_of(text)); }

TEST(ReachTest, addresses_are_told_apart_by_who_can_be_there) {
  for (const char* text :
       {"0.0.0.0:80", "0.1.2.3:80", "169.254.169.254:80", "224.0.0.1:80", "239.1.1.1:80",
        "240.0.0.1:80", "255.255.255.255:80", "[::]:80", "[fe80::1]:80", "[fec0::1]:80",
        "[ff02::1]:80", "[::ffff:169.254.1.1]:80", "[::7f00:1]:80", "8.8.8.8:0", "127.0.0.1:0",
        "not an address", "name.example:80"}) {
    EXPECT_EQ(reach(text), Reach::kNowhere) << text;
  }
  for (const char* text : {"127.0.0.1:80", "127.8.8.8:80", "[::1]:80", "[::ffff:127.0.0.1]:80"}) {
    EXPECT_EQ(reach(text), Reach::kLoopback) << text;
  }
  for (const char* text :
       {"10.0.0.1:80", "172.16.0.1:80", "172.31.255.1:80", "192.168.1.1:80", "100.64.0.1:80",
        "[fc00::1]:80", "[fd12::1]:80", "[::ffff:10.1.1.1]:80"}) {
    EXPECT_EQ(reach(text), Reach::kPrivate) << text;
  }
  for (const char* text : {"8.8.8.8:80", "172.32.0.1:80", "172.15.0.1:80", "192.169.0.1:80",
                           "100.128.0.1:80", "[2001:db8::1]:80", "[64:ff9b::1]:80"}) {
    EXPECT_EQ(reach(text), Reach::kGlobal) << text;
  }
}

bool dials(const DialPolicy& policy, const char* text) {
  return policy.check(endpoint_of(text)).ok();
}

TEST(ReachTest, who_is_dialled_depends_on_where_the_master_is_and_on_the_own_networks) {
  const std::vector<Endpoint> home = {endpoint_of("192.168.1.7:1"), endpoint_of("127.0.0.1:1")};
  const struct {
    DialPolicy policy;
    bool loopback, other_private, own_private;
  } cases[] = {
      {DialPolicy(), false, false, false},
      {DialPolicy(endpoint_of("127.0.0.1:29400"), {}), true, true, true},
      {DialPolicy(endpoint_of("[::1]:29400"), home), true, true, true},
      {DialPolicy(endpoint_of("10.0.0.1:29400"), {}), false, true, true},
      {DialPolicy(endpoint_of("8.8.8.8:29400"), {}), false, false, false},
      {DialPolicy(endpoint_of("8.8.8.8:29400"), home), false, false, true},
  };
  for (const auto& at : cases) {
    EXPECT_EQ(dials(at.policy, "127.0.0.1:80"), at.loopback);
    EXPECT_EQ(dials(at.policy, "10.9.9.9:80"), at.other_private);
    EXPECT_EQ(dials(at.policy, "192.168.200.1:80"), at.own_private);
    EXPECT_TRUE(dials(at.policy, "8.8.4.4:80"));
    EXPECT_FALSE(dials(at.policy, "169.254.169.254:80"));
    EXPECT_FALSE(dials(at.policy, "8.8.4.4:0"));
  }
}

TEST(ReachTest, a_network_is_what_one_party_has_all_addresses_of) {
  EXPECT_EQ(network_of("10.0.0.1:1"), network_of("10.0.0.1:9"));
  EXPECT_NE(network_of("10.0.0.1:1"), network_of("10.0.0.2:1"));
  EXPECT_EQ(network_of("[2001:db8::1]:1"), network_of("[2001:db8::ffff:2]:1"));
  EXPECT_NE(network_of("[2001:db8::1]:1"), network_of("[2001:db8:0:1::1]:1"));
}

TEST(ReachTest, this_machine_has_a_loopback_address) {
  bool found = false;
  for (Endpoint one : own_endpoints()) found = found || is_loopback(one);
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace jccl::net
