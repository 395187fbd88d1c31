#include "net/socket/dial.h"

#include <sys/socket.h>

#include "net/link/frames.h"
#include "net/test_support.h"

namespace jccl::net::test {
namespace {

// A port nobody listens on: bound, so that nobody else takes it, but not listening.
struct DeadPort {
  DeadPort() {
    fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const Endpoint any = resolve_now(Address{"127.0.0.1", 0}).value().at(0);
    EXPECT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&any.storage), any.size), 0);
    address = Address{"127.0.0.1", port_of(local_endpoint(fd))};
  }
  ~DeadPort() { ::close(fd); }
  int fd;
  Address address;
};

class DialTest : public NetTest {
 protected:
  // Ends by a free of everything on the loop's thread.
  ~DialTest() override {
    loop.call([&] {
      dialled = {};
      server.reset();
    });
  }
  void listen(const Credentials& credentials, ListenerOptions options = {}) {
    on([&] { server = std::make_unique<Server>(loop, credentials, options); });
  }
  void dial_and_wait(std::vector<Address> addresses, const Credentials& credentials,
                     DialOptions options = {}) {
    on([&] { dialled.start(loop, std::move(addresses), credentials, options); });
    ASSERT_TRUE(eventually([&] { return dialled.calls == 1; }));
  }
  std::unique_ptr<Server> server;
  Dialled dialled;
};

TEST_F(DialTest, addresses_are_tried_in_order_until_one_answers) {
  const DeadPort dead;
  listen(plain());
  dial_and_wait({dead.address, Address{"no-such-host.invalid", 1}, server->address}, plain());
  ASSERT_TRUE(dialled.status.ok()) << dialled.status.text;
  EXPECT_EQ(dialled.stream->remote_text(), to_text(server->address));
}

TEST_F(DialTest, the_error_lists_what_was_tried_and_why_each_failed) {
  const DeadPort first;
  const DeadPort second;
  dial_and_wait({first.address, second.address}, plain());
  EXPECT_EQ(dialled.status.code, Code::kLinkLost);
  for (const Address& address : {first.address, second.address}) {
    EXPECT_NE(dialled.status.text.find(to_text(address) + ": Connection refused"),
              std::string::npos)
        << dialled.status.text;
  }
}

// By name or number: what counts is what it resolves to.
TEST_F(DialTest, endpoints_that_are_not_allowed_are_passed_over_and_said_so) {
  listen(plain());
  DialOptions options;
  options.allow = [](const Endpoint& at) {
    return is_loopback(at) ? Status{Code::kInvalid, "not here"} : Status{};
  };
  dial_and_wait({server->address, Address{"localhost", server->address.port}}, plain(), options);
  EXPECT_EQ(dialled.status.code, Code::kIo) << dialled.status.text;
  EXPECT_NE(dialled.status.text.find("127.0.0.1:"), std::string::npos) << dialled.status.text;
  EXPECT_NE(dialled.status.text.find("not here"), std::string::npos) << dialled.status.text;
  on([&] { EXPECT_TRUE(server->accepted.empty()); });
}

TEST_F(DialTest, a_name_that_does_not_resolve_is_an_io_error) {
  dial_and_wait({Address{"no-such-host.invalid", 1}}, plain(), {.time_max = 120 * base::kSecond});
  EXPECT_EQ(dialled.status.code, Code::kIo) << dialled.status.text;
}

TEST_F(DialTest, an_empty_list_fails_at_once) {
  dial_and_wait({}, plain());
  EXPECT_EQ(dialled.status.code, Code::kIo);
}

TEST_F(DialTest, localhost_finds_a_listener_of_either_family) {
  on([&] { server = std::make_unique<Server>(loop, plain(), ListenerOptions{}, "::1"); });
  dial_and_wait({Address{"localhost", server->address.port}}, plain());
  EXPECT_TRUE(dialled.status.ok()) << dialled.status.text;
}

TEST_F(DialTest, the_same_token_on_both_sides_connects) {
  listen(tls());
  dial_and_wait({server->address}, tls());
  ASSERT_TRUE(dialled.status.ok()) << dialled.status.text;
  EXPECT_TRUE(dialled.stream->is_tls());
  EXPECT_TRUE(eventually([&] { return server->accepted.size() == 1; }));
}

TEST_F(DialTest, a_wrong_secret_is_refused) {
  listen(tls());
  Token token = token_of(1);
  token.secret[3] ^= 1;
  dial_and_wait({server->address}, Credentials::from(token));
  EXPECT_EQ(dialled.status.code, Code::kAuth);
  EXPECT_NE(dialled.status.text.find("token"), std::string::npos) << dialled.status.text;
  EXPECT_TRUE(eventually([&] { return server->listener->stats().refused == 1; }));
  on([&] { EXPECT_TRUE(server->accepted.empty()); });
}

TEST_F(DialTest, an_expired_token_is_refused_as_such) {
  listen(tls());
  TokenRights rights = new_rights().value();
  rights.expires_unix_s = 1'000'000'000;
  dial_and_wait({server->address}, Credentials::from(make_token(secret_of(1), rights)));
  EXPECT_EQ(dialled.status.code, Code::kAuth);
  EXPECT_NE(dialled.status.text.find("has expired; ask for a new one"), std::string::npos)
      << dialled.status.text;
}

TEST_F(DialTest, a_token_of_another_run_is_refused) {
  listen(tls());
  dial_and_wait({server->address}, Credentials::from(token_of(2)));
  EXPECT_EQ(dialled.status.code, Code::kAuth) << dialled.status.text;
  on([&] { EXPECT_TRUE(server->accepted.empty()); });
}

TEST_F(DialTest, a_dialler_with_a_token_is_told_that_the_listener_has_none) {
  listen(plain());
  dial_and_wait({server->address}, tls());
  EXPECT_EQ(dialled.status.code, Code::kAuth) << dialled.status.text;
  EXPECT_TRUE(eventually([&] { return server->listener->stats().refused == 1; }));
}

TEST_F(DialTest, a_dialler_without_a_token_is_told_that_the_listener_needs_one) {
  listen(tls());
  dial_and_wait({server->address}, plain());
  EXPECT_EQ(dialled.status.code, Code::kAuth) << dialled.status.text;
  EXPECT_NE(dialled.status.text.find("requires a token"), std::string::npos) << dialled.status.text;
  on([&] { EXPECT_TRUE(server->accepted.empty()); });
}

TEST_F(DialTest, who_answers_with_another_key_than_expected_is_refused) {
  listen(tls());
  DialOptions options;
  options.expected = PublicKey{1};
  dial_and_wait({server->address}, tls(), options);
  EXPECT_EQ(dialled.status.code, Code::kAuth) << dialled.status.text;
  EXPECT_NE(dialled.status.text.find("has the key"), std::string::npos) << dialled.status.text;
}

TEST_F(DialTest, an_address_that_refuses_the_token_makes_the_whole_dial_an_auth_error) {
  const DeadPort dead;
  listen(plain());
  dial_and_wait({server->address, dead.address}, tls());
  EXPECT_EQ(dialled.status.code, Code::kAuth) << dialled.status.text;
}

TEST_F(DialTest, a_handshake_with_a_silent_side_ends_at_its_deadline) {
  int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const Endpoint any = resolve_now(Address{"127.0.0.1", 0}).value().at(0);
  ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&any.storage), any.size), 0);
  ASSERT_EQ(::listen(fd, 4), 0);
  const Address silent{"127.0.0.1", port_of(local_endpoint(fd))};
  dial_and_wait({silent}, tls(), {.handshake_max = 20 * base::kMillisecond});
  EXPECT_EQ(dialled.status.code, Code::kDeadline) << dialled.status.text;
  on([&] { dialled = {}; });
  dial_and_wait({silent}, tls(), {.time_max = 20 * base::kMillisecond});
  EXPECT_EQ(dialled.status.code, Code::kDeadline) << dialled.status.text;
  ::close(fd);
}

TEST_F(DialTest, a_cancelled_dial_never_calls_back) {
  listen(tls());
  bool turned = false;
  on([&] {
    dialled.start(loop, {server->address}, tls());
    dialled.handle.reset();
  });
  for (int i = 0; i < 20; ++i) {  // cancelled at different stages
    on([&] { dialled.start(loop, {server->address}, tls()); });
    for (int turn = 0; turn < i; ++turn) on([] {});
    on([&] { dialled.handle.reset(); });
    const int calls = dialled.calls;
    for (int turn = 0; turn < 5; ++turn) on([] {});
    EXPECT_EQ(dialled.calls, calls);
  }
  on([&] { turned = true; });
  EXPECT_TRUE(turned);
}

}  // namespace
}  // namespace jccl::net::test
