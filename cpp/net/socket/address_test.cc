#include "net/socket/address.h"

#include <gtest/gtest.h>

#include <string>

#include "net/test_support.h"

namespace jccl::net {
namespace {

TEST(AddressTest, every_form_is_read_and_written_back) {
  for (const std::string text :
       {"host:1", "10.0.0.7:4711", "[::1]:80", ":9000", "a-b.c_d:65535", "localhost:0"}) {
    const Result<Address> address = parse_address(text);
    ASSERT_TRUE(address.ok()) << text;
    EXPECT_EQ(to_text(address.value()), text);
  }
  EXPECT_EQ(parse_address("[fe80::2]:7").value().host, "fe80::2");
}

TEST(AddressTest, malformed_addresses_are_refused_with_the_form_to_use) {
  for (const std::string text :
       {"", "host", "host:", "host:x", "host:65536", "host:-1", "host: 1", "::1:80", "[::1:80",
        "[::1]", "[hello]:1", "ho st:1", "a/b:1", "host:1 ", "[]:1"}) {
    const Result<Address> address = parse_address(text);
    ASSERT_FALSE(address.ok()) << text;
    EXPECT_EQ(address.status().code, Code::kInvalid);
    EXPECT_NE(address.status().text.find("host:port"), std::string::npos);
  }
  EXPECT_FALSE(parse_address(std::string(500, 'a') + ":1").ok());
}

TEST(AddressTest, lists_keep_their_order_and_are_bounded) {
  const auto list = parse_addresses("a:1,[::1]:2,:3");
  ASSERT_TRUE(list.ok());
  EXPECT_EQ(to_text(list.value()), "a:1,[::1]:2,:3");
  EXPECT_FALSE(parse_addresses("a:1,,b:2").ok());
  EXPECT_FALSE(parse_addresses("a:1,").ok());
  EXPECT_FALSE(parse_addresses("a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1").ok());
}

TEST(AddressTest, loopback_is_told_from_everything_else) {
  for (const char* text :
       {"localhost:1", "127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"}) {
    EXPECT_TRUE(is_loopback(parse_address(text).value())) << text;
  }
  for (const char* text : {":1", "0.0.0.0:1", "[::]:1", "10.0.0.1:1", "126.0.0.1:1", "128.0.0.1:1",
                           "host:1", "localhost.example.org:1", "[::ffff:10.0.0.1]:1", "[::2]:1"}) {
    EXPECT_FALSE(is_loopback(parse_address(text).value())) << text;
  }
}

TEST(AddressTest, a_mapped_ipv4_endpoint_is_written_as_ipv4) {
  const auto endpoints = resolve_now(Address{"::ffff:127.0.0.1", 80});
  ASSERT_TRUE(endpoints.ok());
  EXPECT_EQ(to_text(endpoints.value().at(0)), "127.0.0.1:80");
}

TEST(AddressTest, an_unknown_name_is_reported_and_does_not_hold_the_loop) {
  Loop loop;
  loop.start();
  Status status;
  bool done = false;
  bool other_ran = false;
  loop.call([&] {
    resolve(loop, Address{"no-such-host.invalid", 1}, [&](Result<std::vector<Endpoint>> result) {
      status = result.status();
      done = true;
    });
    loop.post([&] { other_ran = true; });
  });
  loop.call([&] { EXPECT_TRUE(other_ran); });
  ASSERT_TRUE(test::eventually(loop, [&] { return done; }, 120 * base::kSecond));
  EXPECT_EQ(status.code, Code::kIo);
  EXPECT_NE(status.text.find("no-such-host.invalid"), std::string::npos);
  loop.stop();
}

}  // namespace
}  // namespace jccl::net
