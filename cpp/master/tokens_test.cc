// Tokens as the master program sees them: revoked ones, and a run that has some.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "master/ask.h"
#include "master/master.h"
#include "master/store.h"
#include "master/test_folder.h"
#include "net/security/credentials.h"
#include "wire/samples.h"

namespace jccl::master {
namespace {

using base::Code;

class TokensTest : public FolderTest {
 protected:
  MasterConfig config() const {
    MasterConfig config;
    config.bind = "127.0.0.1:0";
    config.log = [](const std::string&) {};
    return config;
  }
  base::Status start(const std::string& admission) {
    MasterConfig listed = config();
    listed.admission = admission;
    return Master::start(listed).status();
  }
};

TEST_F(TokensTest, a_revoked_token_reads_no_status) {
  const std::string secret = new_token_text().value();
  MasterConfig with = config();
  with.token = secret;
  const auto master = Master::start(with);
  ASSERT_TRUE(master.ok()) << master.status().text;
  AskOptions by_secret{.master = master.value()->address(), .token = secret};
  for (const char* role : {"observer", "admin"}) {
    AskOptions by_token = by_secret;
    by_token.token = make_token_text({secret, role, 0, 0, ""}).value();
    EXPECT_TRUE(ask_status(by_token).ok());
    wire::Order revoke;
    revoke.verb = wire::OrderVerb::kRevoke;
    revoke.subject = net::parse_token(by_token.token).value().name;
    ASSERT_TRUE(give_order(by_secret, revoke).ok());
    for (const auto& answer : {ask_status(by_token), give_order(by_token, revoke)}) {
      EXPECT_EQ(answer.status().code, Code::kBanned) << role;
      EXPECT_NE(answer.status().text.find("revoked"), std::string::npos) << answer.status().text;
    }
  }
}

TEST_F(TokensTest, a_run_with_tokens_is_not_served_without) {
  const std::string where = "sqlite:" + (folder_ / "run.db").string();
  {
    wire::ChainWriter writer;
    const auto store = open_store(where);
    ASSERT_TRUE(store.value()
                    ->append({writer.append(wire::RunRecord{wire::sample_run(), wire::kVersion}),
                              writer.append(wire::TokenRecord{"p-0-0-0-01020304", false, {9}, 0})})
                    .ok());
  }
  MasterConfig without = config();
  without.store = where;
  const base::Status status = Master::start(without).status();
  EXPECT_EQ(status.code, Code::kAuth);
  EXPECT_NE(status.text.find("--token-file"), std::string::npos) << status.text;
}

TEST_F(TokensTest, a_list_of_keys_is_read_as_people_write_it_or_refused) {
  const std::string path = (folder_ / "keys").string();
  const std::string how = "list:" + path;
  const std::string key(64, 'A');
  std::ofstream(path) << "# ours\n\n  " << key << "  eu-west\r\n" << key << "\t# again\n";
  EXPECT_TRUE(start(how).ok()) << start(how).text;
  std::ofstream(path) << "  not a key\n";
  EXPECT_EQ(start(how).code, Code::kInvalid);
  EXPECT_NE(start(how).text.find("line 1"), std::string::npos) << start(how).text;
  std::ofstream(path) << "# nobody yet\n";
  EXPECT_EQ(start(how).code, Code::kInvalid);
  EXPECT_NE(start(how).text.find("is empty"), std::string::npos) << start(how).text;
  for (const std::string& none : {folder_.string(), path + ".none"}) {
    EXPECT_EQ(start("list:" + none).code, Code::kIo) << none;
  }
}

}  // namespace
}  // namespace jccl::master
