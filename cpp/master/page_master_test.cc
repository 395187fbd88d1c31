// The page of a whole master: which tokens it takes, and that an address off loopback needs one.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "base/text.h"
#include "master/ask.h"
#include "master/master.h"
#include "net/security/credentials.h"

namespace jccl::master {
namespace {

using base::Code;

std::string http_get(const std::string& address, const std::string& path,
                     const std::string& token) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(net::parse_address(address).value().port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  const std::string request = base::cat("GET ", path, " HTTP/1.1\r\nHost: localhost\r\n",
                                        "Authorization: Bearer ", token, "\r\n\r\n");
  EXPECT_EQ(::send(fd, request.data(), request.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size()));
  std::string heard;
  char room[4096];
  for (ssize_t size; (size = ::recv(fd, room, sizeof room, 0)) > 0;) {
    heard.append(room, static_cast<std::size_t>(size));
  }
  ::close(fd);
  return heard;
}

MasterConfig config_with_page(const std::string& http) {
  MasterConfig config;
  config.bind = "127.0.0.1:0";
  config.http = http;
  config.log = [](const std::string&) {};
  return config;
}

TEST(PageMasterTest, observers_of_this_run_may_look_and_nobody_else) {
  MasterConfig config = config_with_page("0.0.0.0:0");
  config.token = new_token_text().value();
  const auto master = Master::start(config);
  ASSERT_TRUE(master.ok()) << master.status().text;
  const auto look = [&](const std::string& token) {
    return http_get(master.value()->http_address(), "/api/v1/status", token).substr(9, 3);
  };
  const auto made = [&](const std::string& role) {
    return make_token_text({config.token, role, 0, 0, ""}).value();
  };
  std::string observer = made("observer");
  EXPECT_EQ(look(observer), "200");
  for (const std::string& token :
       {config.token, made("peer"), made("admin"), std::string("x"),
        make_token_text({new_token_text().value(), "observer", 0, 0, ""}).value()}) {
    EXPECT_EQ(look(token), "401") << token;
  }
  wire::Order revoke;
  revoke.verb = wire::OrderVerb::kRevoke;
  revoke.subject = net::parse_token(observer).value().name;
  const AskOptions by_secret{.master = master.value()->address(), .token = config.token};
  observer.back() = observer.back() == '0' ? '1' : '0';
  EXPECT_EQ(look(observer), "401") << "with another secret";
  observer = made("observer");
  revoke.subject = net::parse_token(observer).value().name;
  EXPECT_EQ(look(observer), "200");
  ASSERT_TRUE(give_order(by_secret, revoke).ok());
  std::string told = look(observer);  // what was asked a moment before may still be shown
  for (int tries = 0; told == "200" && tries < 500; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    told = look(observer);
  }
  EXPECT_EQ(told, "401") << "revoked";
}

TEST(PageMasterTest, off_loopback_it_needs_a_token_or_an_explicit_wish) {
  for (const char* http : {"0.0.0.0:0", ":0", "192.0.2.1:0"}) {
    const auto refused = Master::start(config_with_page(http));
    EXPECT_EQ(refused.status().code, Code::kAuth) << http;
    EXPECT_NE(refused.status().text.find("jccl token"), std::string::npos);
  }
  MasterConfig wished = config_with_page("0.0.0.0:0");
  wished.insecure = true;
  const auto master = Master::start(wished);
  ASSERT_TRUE(master.ok()) << master.status().text;
  EXPECT_TRUE(http_get(master.value()->http_address(), "/healthz", "").starts_with("HTTP/1.1 200"));
  EXPECT_EQ(Master::start(config_with_page("nowhere")).status().code, Code::kInvalid);
}

}  // namespace
}  // namespace jccl::master
