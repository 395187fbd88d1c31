// Who is answered what.
#include "page/request.h"

#include <gtest/gtest.h>

namespace jccl::page {
namespace {

using base::Code;

Request get(std::string_view target) {
  Request request;
  request.method = "GET";
  request.target = target;
  request.host = "127.0.0.1:9090";
  return request;
}

Gate here() { return {{"127.0.0.1", 9090}}; }

Gate guarded() {
  return {{"0.0.0.0", 9090}, [](std::string_view text) -> base::Result<std::string> {
            if (text == "good") return std::string("o-0-0-0-1");
            return base::Status{Code::kAuth, "no token of this run"};
          }};
}

TEST(RequestTest, each_path_has_its_route_and_the_others_are_named) {
  EXPECT_EQ(decide(get("/"), here()).route, Route::kIndex);
  EXPECT_EQ(decide(get("/page.css"), here()).route, Route::kStyle);
  EXPECT_EQ(decide(get("/page.js"), here()).route, Route::kScript);
  EXPECT_EQ(decide(get("/healthz"), here()).route, Route::kHealth);
  EXPECT_EQ(decide(get("/metrics?x=1"), here()).route, Route::kMetrics);
  EXPECT_EQ(decide(get("/api/v1/status"), here()).route, Route::kStatus);
  EXPECT_EQ(decide(get("/events"), here()).route, Route::kEvents);
  for (const char* path : {"", "//", "/../etc/passwd", "/page.js/", "/%2e", "http://x/", "*"}) {
    EXPECT_EQ(decide(get(path), here()).code, 404U) << path;
  }
  EXPECT_NE(decide(get("/x"), here()).text.find("/metrics"), std::string::npos);
}

TEST(RequestTest, only_get_and_head_without_a_body_are_answered) {
  Request request = get("/");
  request.method = "HEAD";
  EXPECT_EQ(decide(request, here()).code, 200U);
  EXPECT_TRUE(decide(request, here()).head);
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "CONNECT", "get", ""}) {
    request.method = method;
    EXPECT_EQ(decide(request, here()).code, 405U) << method;
  }
  request = get("/");
  request.has_body = true;
  EXPECT_EQ(decide(request, here()).code, 413U);
}

TEST(RequestTest, a_name_that_leads_here_from_elsewhere_is_refused) {
  Request request = get("/api/v1/status");
  for (const char* host : {"127.0.0.1", "127.0.0.1:80", "localhost", "LOCALHOST:1", "[::1]:9090",
                           "[::1]", "192.0.2.7:9090"}) {
    request.host = host;
    EXPECT_EQ(decide(request, here()).code, 200U) << host;
  }
  for (const char* host :
       {"evil.example", "evil.example:9090", "localhost.evil.example", "", "127.0.0.1.evil.example",
        "[::1", "[evil.example]", "[::1]x", "::1", "localhost:80x", "localhost:"}) {
    request.host = host;
    EXPECT_EQ(decide(request, here()).code, 421U) << host;
  }
  EXPECT_TRUE(is_own_host("Master.Example:80", {"master.example", 80}));
  EXPECT_FALSE(is_own_host("", {"", 80}));
  request.host = "localhost";
  request.hosts = 2;
  EXPECT_EQ(decide(request, here()).code, 400U);
  request.hosts = 0;
  EXPECT_EQ(decide(request, here()).code, 400U);
}

TEST(RequestTest, a_page_of_another_site_gets_no_data) {
  Request request = get("/metrics");
  request.fetch_site = "cross-site";
  EXPECT_EQ(decide(request, here()).code, 403U);
  request.target = "/";
  EXPECT_EQ(decide(request, here()).code, 200U) << "a link that leads here";
}

TEST(RequestTest, off_loopback_whoever_looks_shows_a_token_with_each_request) {
  for (const char* path : {"/api/v1/status", "/metrics", "/events", "/metrics?token=good"}) {
    Request request = get(path);
    request.host = "any.name.example";
    EXPECT_EQ(decide(request, guarded()).code, 401U) << path;
    for (const char* shown :
         {"good", "Bearer", "Bearer ", "Basic good", "Bearer bad", "Bearer good "}) {
      request.authorization = shown;
      EXPECT_EQ(decide(request, guarded()).code, 401U) << path << shown;
    }
    for (const char* shown : {"Bearer good", "bearer good"}) {
      request.authorization = shown;
      const Decision decision = decide(request, guarded());
      EXPECT_EQ(decision.code, 200U) << path;
      EXPECT_EQ(decision.token, "o-0-0-0-1");
    }
  }
  EXPECT_NE(decide(get("/metrics"), guarded()).text.find("jccl token --role observer"),
            std::string::npos);
  for (const char* path : {"/", "/page.js", "/page.css", "/healthz"}) {
    EXPECT_EQ(decide(get(path), guarded()).code, 200U) << "holds nothing of the run: " << path;
  }
}

TEST(RequestTest, events_go_on_after_the_last_that_was_heard) {
  Request request = get("/events?x=2&after=7");
  EXPECT_EQ(decide(request, here()).after, 7U);
  EXPECT_TRUE(decide(request, here()).resumes);
  request = get("/events");
  EXPECT_FALSE(decide(request, here()).resumes);
  request.last_event_id = "12";
  EXPECT_EQ(decide(request, here()).after, 12U);
  for (const char* nonsense : {"-1", "x", "1x", "99999999999999999999", " 1"}) {
    request.last_event_id = nonsense;
    EXPECT_EQ(decide(request, here()).after, 0U) << nonsense;
  }
}

}  // namespace
}  // namespace jccl::page
