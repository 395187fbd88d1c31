#include "net/security/credentials.h"

#include <gtest/gtest.h>

#include <string>

namespace jccl::net {
namespace {

const std::string kRun = "000102030405060708090a0b0c0d0e0f";
const std::string kKey(64, 'a');
const std::string kName = "p-0-0-0-0011aabb";
const std::string kSecret(64, 'f');

RunSecret run_secret() {
  RunSecret secret;
  EXPECT_TRUE(base::from_hex(kRun, std::span<std::uint8_t>(secret.run)));
  secret.seed.fill(1);
  secret.root.fill(0xf0);
  return secret;
}

TEST(CredentialsTest, a_token_is_read_and_written_back) {
  const std::string text = "jccl2." + kRun + "." + kKey + "." + kName + "." + kSecret;
  const Result<Token> token = parse_token(text);
  ASSERT_TRUE(token.ok()) << token.status().text;
  EXPECT_EQ(to_text(token.value()), text);
  const RunSecret secret = run_secret();
  EXPECT_EQ(parse_run_secret(to_text(secret)).value(), secret);
}

TEST(CredentialsTest, malformed_tokens_are_refused_without_repeating_the_secret) {
  const std::string head = "jccl2." + kRun + "." + kKey + ".";
  for (const std::string& text :
       {std::string(), "jccl1." + kRun + ".0." + kSecret, head + kName,
        head + kName + "." + kSecret + ".x", "jccl2." + kRun + ".0." + kName + "." + kSecret,
        "jccl2." + kRun + "0." + kKey + "." + kName + "." + kSecret,
        head + kName + "." + kSecret.substr(1), head + kName + "." + kSecret + "f",
        head + "x-0-0-0-0011aabb." + kSecret, head + "p-0-x-0-0011aabb." + kSecret,
        head + "p-x-0-0-0011aabb." + kSecret, head + "p-4294967296-0-0-0011aabb." + kSecret,
        head + "p-0-0-0011aabb." + kSecret, head + "p-0-0-0-0-0011aabb." + kSecret,
        head + "p-0-0-1-0011aabb." + kSecret, head + "p-0-0-0-001." + kSecret,
        head + kName + "." + std::string(64, 'F')}) {
    const Result<Token> token = parse_token(text);
    ASSERT_FALSE(token.ok()) << text;
    EXPECT_EQ(token.status().code, Code::kAuth);
    EXPECT_EQ(token.status().text.find("ffff"), std::string::npos);
  }
  const auto refused = parse_run_secret("jccl2run." + kRun + "." + kSecret);
  EXPECT_EQ(refused.status().code, Code::kAuth);
  EXPECT_EQ(refused.status().text.find("ffff"), std::string::npos);
  const auto token = parse_run_secret(head + kName + "." + kSecret);
  EXPECT_NE(token.status().text.find("a master needs the run's own secret"), std::string::npos);
}

TEST(CredentialsTest, new_secrets_and_the_tokens_of_one_differ) {
  const RunSecret a = new_run_secret().value(), b = new_run_secret().value();
  EXPECT_NE(a.run, b.run);
  EXPECT_NE(a.seed, b.seed);
  EXPECT_NE(a.root, b.root);
  const Token one = parse_token(to_text(a)).value(), other = parse_token(to_text(a)).value();
  EXPECT_NE(one.name, other.name);
  EXPECT_NE(one.secret, other.secret);
  EXPECT_EQ(one.run_key, other.run_key);
  EXPECT_NE(random_u64().value(), random_u64().value());
}

TEST(CredentialsTest, the_key_depends_on_root_run_and_name_and_is_stable) {
  RunSecret secret = run_secret();
  const TokenRights rights = parse_rights(kName).value();
  const Token first = make_token(secret, rights);
  EXPECT_TRUE(Credentials::from(first).tls);
  EXPECT_EQ(first, make_token(secret, rights));
  // HKDF-SHA256, salt = run id, info = "jccl2 token p-0-0-0-0011aabb": computed with another
  // library.
  EXPECT_EQ(base::to_hex(std::span<const std::uint8_t>(first.secret)),
            "8ceee7cf4a087dda8a3286ac88f498101d70de01cb46b1b7bdde7e672d50ab1e");
  TokenRights another = rights;
  another.role = TokenRole::kObserver;
  EXPECT_NE(first.secret, make_token(secret, another).secret);
  secret.run[0] ^= 1;
  EXPECT_NE(first.secret, make_token(secret, rights).secret);
  secret.run[0] ^= 1;
  secret.root[15] ^= 1;
  EXPECT_NE(first.secret, make_token(secret, rights).secret);
}

TEST(CredentialsTest, a_master_takes_the_tokens_of_its_run_until_they_expire) {
  const RunSecret secret = run_secret();
  const Credentials master = Credentials::of_master(secret);
  TokenRights rights = new_rights().value();
  const auto takes = [&](const Token& token) {
    const auto known = master.find(token.name);
    return known && known->key == token.secret;
  };
  EXPECT_TRUE(takes(make_token(secret, rights)));
  rights.expires_unix_s = 4'000'000'000;
  EXPECT_TRUE(takes(make_token(secret, rights)));
  rights.expires_unix_s = 1'000'000'000;
  EXPECT_FALSE(takes(make_token(secret, rights)));
  // Who writes a later time into its name has another secret than the name's.
  Token forged = make_token(secret, rights);
  forged.name.replace(forged.name.find("1000000000"), 10, "4000000000");
  ASSERT_TRUE(master.find(forged.name)) << forged.name;
  EXPECT_FALSE(takes(forged));
  EXPECT_FALSE(master.find("nonsense"));
  EXPECT_TRUE(may_lead(*Credentials::from(make_token(secret, rights)).run_key, secret.run,
                       master.identity->key(), master.certificate));
}

TEST(CredentialsTest, a_token_admits_to_what_its_name_says) {
  TokenRights rights = parse_rights(kName).value();
  EXPECT_TRUE(admits(to_text(rights), "eu").ok());
  EXPECT_TRUE(admits("", "eu").ok()) << "on loopback there is none";
  rights.site_digest = site_digest("eu");
  EXPECT_TRUE(admits(to_text(rights), "eu").ok());
  EXPECT_EQ(admits(to_text(rights), "us").code, Code::kAuth);
  rights.role = TokenRole::kAdmin;
  EXPECT_TRUE(admits(to_text(rights), "eu").ok()) << "to restore a state";
  rights.role = TokenRole::kObserver;
  EXPECT_EQ(admits(to_text(rights), "eu").code, Code::kAuth);
}

TEST(CredentialsTest, a_token_is_for_its_site_until_it_expires) {
  TokenRights rights = new_rights().value();
  const std::string eu = site_digest("eu");
  EXPECT_FALSE(is_for(to_text(rights), eu)) << "of any site";
  rights.site_digest = eu;
  EXPECT_TRUE(is_for(to_text(rights), eu));
  EXPECT_FALSE(is_for(to_text(rights), site_digest("us")));
  rights.expires_unix_s = 4'000'000'000;
  EXPECT_TRUE(is_for(to_text(rights), eu));
  rights.expires_unix_s = 1'000'000'000;
  EXPECT_FALSE(is_for(to_text(rights), eu));
  EXPECT_FALSE(is_for("", eu));
}

TEST(CredentialsTest, each_generation_of_links_has_a_secret_of_its_own) {
  const base::RunId run{1};
  std::array<std::uint8_t, 32> root{2}, other{3};
  EXPECT_NE(link_secret(run, root, 1), link_secret(run, root, 2));
  EXPECT_NE(link_secret(run, root, 1), link_secret(run, other, 1));
  EXPECT_NE(link_key(run, 1, link_secret(run, root, 1)).key,
            link_key(run, 2, link_secret(run, root, 2)).key);
  // HKDF-SHA256, salt = run id, info = "jccl1 links 1": computed with another library.
  const auto secret = link_secret(run, root, 1);
  EXPECT_EQ(base::to_hex(std::span<const std::uint8_t>(secret)),
            "3bb9d1bb4cdecddb418c76ff97faf96c");
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
