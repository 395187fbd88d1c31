#include "net/socket/reach.h"

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

TEST(ReachTest, of_networks_that_are_named_no_address_outside_is_dialled) {
  const auto networks = parse_networks("10.1.0.0/16,192.0.2.7,fd00:1::/32,127.0.0.0/8");
  ASSERT_TRUE(networks.ok()) << networks.status().text;
  const DialPolicy policy(networks.value());
  for (const char* in : {"10.1.2.3:80", "192.0.2.7:80", "[fd00:1:2::3]:80", "127.0.0.1:80",
                         "[::ffff:10.1.2.3]:80"}) {
    EXPECT_TRUE(dials(policy, in)) << in;
  }
  for (const char* out :
       {"10.2.0.1:80", "192.0.2.8:80", "[fd00:2::3]:80", "8.8.8.8:80", "[::1]:80", "10.1.2.3:0"}) {
    EXPECT_FALSE(dials(policy, out)) << out;
  }
  EXPECT_TRUE(parse_networks("0.0.0.0/0,::/0").ok());
  EXPECT_TRUE(parse_networks("").value().empty());
  for (const char* wrong : {"10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/-1", "example.org/8",
                            "10.0.0.0/8,", ",", "10.0.0.0/8 ", "/8", "10.0.0/8"}) {
    const auto refused = parse_networks(wrong);
    if (std::string_view(wrong) == "10.0.0.0/8,") continue;  // a comma at the end is no mistake
    EXPECT_FALSE(refused.ok()) << wrong;
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
