#include "net/credentials.h"

#include <gtest/gtest.h>

#include <string>

namespace jccl::net {
namespace {

const std::string kRun = "000102030405060708090a0b0c0d0e0f";
const std::string kSecret = "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff";

TEST(CredentialsTest, a_token_is_read_and_written_back) {
  for (const std::string& fingerprint : {std::string("0"), std::string(64, 'a')}) {
    const std::string text = "jccl1." + kRun + "." + fingerprint + "." + kSecret;
    const Result<Token> token = parse_token(text);
    ASSERT_TRUE(token.ok()) << token.status().text;
    EXPECT_EQ(to_text(token.value()), text);
    EXPECT_EQ(token.value().secret[0], 0xf0);
  }
}

TEST(CredentialsTest, malformed_tokens_are_refused_without_repeating_the_secret) {
  for (const std::string& text :
       {std::string(), "jccl2." + kRun + ".0." + kSecret, "jccl1." + kRun + ".0",
        "jccl1." + kRun + ".0." + kSecret + ".x", "jccl1." + kRun + ".1." + kSecret,
        "jccl1." + kRun + "0.0." + kSecret, "jccl1." + kRun + ".0." + kSecret.substr(1),
        "jccl1." + std::string(32, 'g') + ".0." + kSecret,
        "jccl1." + kRun + ".0." + std::string(32, 'F')}) {
    const Result<Token> token = parse_token(text);
    ASSERT_FALSE(token.ok()) << text;
    EXPECT_EQ(token.status().code, Code::kAuth);
    EXPECT_EQ(token.status().text.find("f0f1"), std::string::npos);
  }
}

TEST(CredentialsTest, new_tokens_differ) {
  const Token a = new_token().value();
  const Token b = new_token().value();
  EXPECT_NE(a.run, b.run);
  EXPECT_NE(a.secret, b.secret);
  EXPECT_EQ(parse_token(to_text(a)).value(), a);
  EXPECT_NE(random_u64().value(), random_u64().value());
}

TEST(CredentialsTest, the_key_depends_on_secret_and_run_and_is_stable) {
  Token token = parse_token("jccl1." + kRun + ".0." + kSecret).value();
  const Credentials first = Credentials::from(token);
  EXPECT_TRUE(first.tls);
  EXPECT_EQ(first.shared.key, Credentials::from(token).shared.key);
  // HKDF-SHA256, salt = run id, info = "jccl1 tls external psk": computed with another library.
  EXPECT_EQ(first.shared.key[0], 0xd9);
  EXPECT_EQ(first.shared.key[31], 0x5a);
  token.run[0] ^= 1;
  EXPECT_NE(first.shared.key, Credentials::from(token).shared.key);
  token.run[0] ^= 1;
  token.secret[15] ^= 1;
  EXPECT_NE(first.shared.key, Credentials::from(token).shared.key);
}

TEST(CredentialsTest, off_loopback_a_token_is_needed_unless_waived) {
  const Address far{"10.0.0.1", 1};
  const Address every{"", 1};
  const Address near{"127.0.0.1", 1};
  EXPECT_TRUE(check_exposure(near, false, false).ok());
  EXPECT_TRUE(check_exposure(far, true, false).ok());
  EXPECT_TRUE(check_exposure(far, false, true).ok());
  for (const Address& address : {far, every, Address{"example.org", 1}}) {
    const Status status = check_exposure(address, false, false);
    EXPECT_EQ(status.code, Code::kAuth);
    EXPECT_NE(status.text.find("token"), std::string::npos);
    EXPECT_NE(status.text.find("--insecure"), std::string::npos);
  }
}

}  // namespace
}  // namespace jccl::net
