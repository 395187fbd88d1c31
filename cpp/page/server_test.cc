// The server over real sockets, with clients that are slow, greedy or hostile, and a master that
// answers or does not.
#include "page/server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/text.h"

namespace jccl::page {
namespace {

using base::cat;
constexpr int kPatienceMs = 30'000;  // never waited for in full

base::Time clock_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

class Client {
 public:
  explicit Client(std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0;
  }
  ~Client() { ::close(fd_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool connected() const { return connected_; }
  void say(const std::string& text) { (void)::send(fd_, text.data(), text.size(), MSG_NOSIGNAL); }
  // Until the other side closes, or `until` was heard.
  const std::string& hear(const std::string& until = "") {
    char room[4096];
    const base::Time end = clock_now() + kPatienceMs * base::kMillisecond;
    std::size_t from = 0;  // `until` is not before it: streams are long, and read fast or cut off
    while (clock_now() < end && (until.empty() || heard_.find(until, from) == std::string::npos)) {
      from = heard_.size() - std::min(heard_.size(), until.size());
      pollfd wait{fd_, POLLIN, 0};
      if (::poll(&wait, 1, kPatienceMs) != 1) break;
      const ssize_t size = ::recv(fd_, room, sizeof room, 0);
      if (size <= 0) {
        closed_ = true;
        break;
      }
      heard_.append(room, static_cast<std::size_t>(size));
    }
    return heard_;
  }
  bool closed() const { return closed_; }

 private:
  int fd_;
  bool connected_ = false, closed_ = false;
  std::string heard_;
};

class ServerTest : public ::testing::Test {
 protected:
  void open(ServerOptions options = {}) {
    options.gate.bind = {"127.0.0.1", 0};
    options.want = [this](const std::set<std::string>& tokens) {
      ++asked_;
      if (!answers_) return;
      Snapshot snapshot{std::make_shared<const std::string>(R"({"run":"ab","peers":[]})"),
                        clock_now(),
                        failed_,
                        tokens,
                        {}};
      if (revoked_) snapshot.revoked = tokens;
      server_->publish(std::move(snapshot));
    };
    auto opened = Server::open(std::move(options));
    ASSERT_TRUE(opened.ok()) << opened.status().text;
    server_ = std::move(opened.value());
    ASSERT_TRUE(server_->listen().ok());
    server_->start({"ab", clock_now(), 1'700'000'000'000});
  }
  static std::string request(const std::string& path, const std::string& more = "") {
    return cat("GET ", path, " HTTP/1.1\r\nHost: localhost\r\n", more, "\r\n");
  }
  std::string ask(const std::string& path, const std::string& more = "") {
    Client client(server_->port());
    client.say(request(path, more));
    return client.hear();
  }
  static ServerOptions with_tokens() {
    ServerOptions options;
    options.gate.token_of = [](std::string_view text) { return std::string(text); };
    return options;
  }
  void note(const std::string& site) { server_->note({{1, "evict", {{"site", site}}, false}}); }

  std::atomic<int> asked_ = 0;
  std::atomic<bool> answers_ = true, failed_ = false, revoked_ = false;
  std::unique_ptr<Server> server_;
};

bool is(const std::string& reply, unsigned code) {
  return reply.starts_with(cat("HTTP/1.1 ", code, " "));
}

TEST_F(ServerTest, every_route_is_answered_with_the_headers_that_keep_a_page_harmless) {
  open();
  for (const char* path :
       {"/", "/page.css", "/page.js", "/healthz", "/metrics", "/api/v1/status"}) {
    const std::string reply = ask(path);
    EXPECT_TRUE(is(reply, 200)) << path << reply;
    EXPECT_NE(reply.find("Content-Security-Policy: default-src 'self'"), std::string::npos);
    EXPECT_NE(reply.find("nosniff"), std::string::npos);
    EXPECT_EQ(reply.find("Access-Control"), std::string::npos);
  }
  EXPECT_NE(ask("/api/v1/status").find(R"("status":{"run":"ab","peers":[]}})"), std::string::npos);
  EXPECT_NE(ask("/metrics").find("\njccl_http_requests_total "), std::string::npos);
  EXPECT_TRUE(is(ask("/nothing"), 404));
  Client head(server_->port());
  head.say("HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_TRUE(head.hear().ends_with("\r\n\r\n")) << "without a body";
}

TEST_F(ServerTest, a_master_is_asked_a_few_times_a_second_however_many_ask) {
  open();
  const base::Time begun = clock_now();
  for (int n = 0; n < 60; ++n) EXPECT_TRUE(is(ask("/api/v1/status"), 200));
  const auto most = 2 + (clock_now() - begun) / Limits().pause;
  EXPECT_LE(asked_.load(), most);
}

TEST_F(ServerTest, a_master_that_does_not_answer_is_told_to_be_stuck) {
  ServerOptions options;
  options.limits.patience = 50 * base::kMillisecond;
  options.limits.stuck = 100 * base::kMillisecond;
  options.limits.fresh = base::kMillisecond;
  answers_ = false;
  open(std::move(options));
  EXPECT_TRUE(is(ask("/healthz"), 503));
  EXPECT_TRUE(is(ask("/api/v1/status"), 503));
  EXPECT_EQ(asked_, 1) << "not again before it answers";
  server_->publish({std::make_shared<const std::string>("{}"), clock_now(), false, {}, {}});
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  EXPECT_NE(ask("/healthz").find("has not answered for"), std::string::npos);
  EXPECT_TRUE(is(ask("/api/v1/status"), 200)) << "the last that is known, with its age";
}

TEST_F(ServerTest, a_master_that_has_failed_is_not_healthy) {
  failed_ = true;
  open();
  EXPECT_TRUE(is(ask("/healthz"), 503));
}

TEST_F(ServerTest, events_come_as_they_happen_and_a_client_that_returns_misses_none) {
  open();
  note("a");
  Client first(server_->port());
  first.say(request("/events"));
  first.hear("\"site\":\"a\"");
  note("b");
  EXPECT_NE(first.hear("\"site\":\"b\"").find("event: hello"), std::string::npos);
  Client second(server_->port());
  second.say(request("/events", "Last-Event-ID: 1\r\n"));
  const std::string& heard = second.hear("\"site\":\"b\"");
  EXPECT_EQ(heard.find("\"site\":\"a\""), std::string::npos);
  Client other_run(server_->port());
  other_run.say(request("/events?after=900"));
  EXPECT_NE(other_run.hear("\"site\":\"b\"").find("\"site\":\"a\""), std::string::npos);
}

TEST_F(ServerTest, who_has_heard_of_a_change_is_shown_what_is_after_it) {
  ServerOptions options;
  options.limits.fresh = options.limits.patience = 60 * base::kSecond;
  open(std::move(options));
  EXPECT_TRUE(is(ask("/api/v1/status"), 200));
  Client events(server_->port());
  events.say(request("/events"));
  events.hear("hello");
  note("a");
  events.hear("\"site\":\"a\"");
  const int before = asked_;
  EXPECT_NE(ask("/api/v1/status").find("\"last_event\":1,"), std::string::npos);
  EXPECT_EQ(asked_, before + 1);
  EXPECT_TRUE(is(ask("/metrics"), 200));
  EXPECT_EQ(asked_, before + 1) << "nothing new since then";
}

TEST_F(ServerTest, what_one_who_returns_has_missed_for_good_is_counted) {
  open();
  for (std::size_t n = 0; n < Story::kEventsMax + 5; ++n) note("x");
  Client client(server_->port());
  client.say(request("/events?after=2"));
  EXPECT_NE(client.hear("left_out").find("{\"left_out\":3}"), std::string::npos);
}

TEST_F(ServerTest, streams_are_few_and_the_next_is_refused) {
  ServerOptions options;
  options.limits.streams = 2;
  open(std::move(options));
  Client one(server_->port()), two(server_->port());
  for (Client* client : {&one, &two}) {
    client->say(request("/events"));
    client->hear("hello");
  }
  EXPECT_TRUE(is(ask("/events"), 503));
}

TEST_F(ServerTest, a_revoked_token_sees_nothing_more_and_its_stream_ends) {
  open(with_tokens());
  EXPECT_TRUE(is(ask("/metrics"), 401));
  EXPECT_TRUE(is(ask("/metrics", "Authorization: Bearer o1\r\n"), 200));
  Client stream(server_->port());
  stream.say(request("/events", "Authorization: Bearer o1\r\n"));
  stream.hear("hello");
  revoked_ = true;
  stream.hear();
  EXPECT_TRUE(stream.closed());
  const std::string reply = ask("/metrics", "Authorization: Bearer o1\r\n");
  EXPECT_TRUE(is(reply, 401)) << reply;
  EXPECT_NE(reply.find("revoked"), std::string::npos);
}

TEST_F(ServerTest, no_token_is_good_before_the_master_says_that_it_was_not_revoked) {
  ServerOptions options = with_tokens();
  options.limits.patience = 50 * base::kMillisecond;
  answers_ = false;
  open(std::move(options));
  server_->publish({std::make_shared<const std::string>("{}"), clock_now(), false, {"o2"}, {}});
  EXPECT_TRUE(is(ask("/metrics", "Authorization: Bearer o1\r\n"), 503));
}

TEST_F(ServerTest, a_head_that_does_not_end_is_cut_off) {
  ServerOptions options;
  options.limits.head_max = 200 * base::kMillisecond;
  open(std::move(options));
  Client slow(server_->port());
  slow.say("GET / HTTP/1.1\r\nHost: loc");
  EXPECT_EQ(slow.hear(), "");
  EXPECT_TRUE(slow.closed());
}

TEST_F(ServerTest, a_head_that_is_too_large_is_refused) {
  open();
  EXPECT_TRUE(is(ask("/", cat("X: ", std::string(10'000, 'x'), "\r\n")), 431));
  Client endless(server_->port());
  endless.say(cat("GET /", std::string(20'000, 'x')));
  EXPECT_TRUE(is(endless.hear(), 431));
}

TEST_F(ServerTest, what_is_no_http_is_refused) {
  open();
  for (const char* text : {"\x16\x03\x01\x02", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n",
                           "GET / HTTP/1.1\r\nHost : x\r\n\r\n", "\r\n\r\n\r\n\r\n\r\n"}) {
    Client client(server_->port());
    client.say(cat(text, "\r\n\r\n"));
    EXPECT_TRUE(is(client.hear(), 400)) << text << client.hear();
  }
  EXPECT_TRUE(is(ask("/", "Content-Length: 5\r\n"), 413));
  EXPECT_TRUE(is(ask("/", "Transfer-Encoding: chunked\r\n"), 413));
}

TEST_F(ServerTest, who_says_nothing_makes_room_for_who_asks) {
  ServerOptions options;
  options.limits.connections = 8;
  options.limits.accepts = {10'000, 10'000};
  open(std::move(options));
  std::vector<std::unique_ptr<Client>> idle;
  for (int n = 0; n < 200; ++n) idle.push_back(std::make_unique<Client>(server_->port()));
  EXPECT_TRUE(is(ask("/healthz"), 200));
  idle[0]->hear();
  EXPECT_TRUE(idle[0]->closed()) << "long before the end of its time";
  const std::string text = ask("/metrics");
  const std::size_t at = text.find("\njccl_http_connections ");
  ASSERT_NE(at, std::string::npos);
  EXPECT_LE(std::stoi(text.substr(at + 23)), 8);
}

TEST_F(ServerTest, a_stream_that_is_not_read_holds_nobody_up) {
  ServerOptions options;
  options.limits.pause = base::kMillisecond;
  open(std::move(options));
  Client deaf(server_->port());
  deaf.say(request("/events"));
  for (int n = 0; n < 20'000; ++n) {
    note(std::string(500, 'x'));
    if (n % 500 == 0) {
      EXPECT_TRUE(is(ask("/healthz"), 200));
    }
  }
  note("last");
  Client well(server_->port());
  well.say(request("/events"));
  well.hear("\"last\"");
  EXPECT_FALSE(well.closed());
}

TEST_F(ServerTest, it_ends_while_clients_wait) {
  answers_ = false;
  open();
  Client waits(server_->port()), silent(server_->port());
  waits.say(request("/metrics"));
  while (asked_ == 0) std::this_thread::yield();
  server_->stop();
  waits.hear();
  EXPECT_TRUE(waits.closed());
  server_->stop();
  server_->publish({});
  server_->note({});
}

TEST_F(ServerTest, a_port_in_use_is_named) {
  open();
  ServerOptions options;
  options.gate.bind = {"127.0.0.1", server_->port()};
  auto second = Server::open(std::move(options));
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.status().text.find("already in use"), std::string::npos);
}

}  // namespace
}  // namespace jccl::page
