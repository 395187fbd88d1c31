// Reads a request's target and header fields, and decides.
#include "page/request.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <utility>

#include "base/planted.h"

namespace jccl::page {
namespace {

using base::Code;

constexpr std::pair<std::string_view, Route> kRoutes[] = {{"/", Route::kIndex},
                                                          {"/page.css", Route::kStyle},
                                                          {"/page.js", Route::kScript},
                                                          {"/icon.svg", Route::kIcon},
                                                          {"/healthz", Route::kHealth},
                                                          {"/metrics", Route::kMetrics},
                                                          {"/api/v1/status", Route::kStatus},
                                                          {"/events", Route::kEvents}};

bool equal_in_any_case(std::string_view one, std::string_view other) {
  return std::equal(one.begin(), one.end(), other.begin(), other.end(), [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) ==
           std::tolower(static_cast<unsigned char>(b));
  });
}

bool is_literal(const std::string& host) {
  in6_addr room{};
  return ::inet_pton(AF_INET, host.c_str(), &room) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), &room) == 1;
}

std::optional<std::uint64_t> whole(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// `after` of "a=1&after=7".
std::string_view parameter(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::string_view one = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), one.size() + 1));
    if (one.starts_with(name) && one.size() > name.size() && one[name.size()] == '=') {
      return one.substr(name.size() + 1);
    }
  }
  return {};
}

Decision no(unsigned code, std::string text) {
  Decision out;
  out.code = code;
  out.text = std::move(text);
  return out;
}

// They hold nothing of the run: the page asks for its token, and shows it with what it asks next.
bool is_for_all(Route route) {
  return route == Route::kIndex || route == Route::kStyle || route == Route::kScript ||
         route == Route::kIcon || route == Route::kHealth;
}

base::Result<std::string> shown_token(const Request& request, const Gate& gate) {
  constexpr std::string_view kScheme = "Bearer ";
  const std::string_view given = request.authorization;
  if (given.size() <= kScheme.size() ||
      !equal_in_any_case(given.substr(0, kScheme.size()), kScheme)) {
    return base::Status{Code::kAuth,
                        "a token of role observer is needed: make one with `jccl token --role "
                        "observer`, and send it as 'Authorization: Bearer TOKEN'"};
  }
  return gate.token_of(given.substr(kScheme.size()));
}

}  // namespace

bool is_own_host(std::string_view host, const net::Address& bind) {
  if (JCCL_PLANTED("page-for-any-host")) return true;
  std::string name(host);
  if (name.starts_with('[')) {
    const std::size_t end = name.find(']');
    if (end == std::string::npos) return false;
    const std::string rest = name.substr(end + 1);
    if (!rest.empty() && (rest[0] != ':' || !whole(rest.substr(1)))) return false;
    name = name.substr(1, end - 1);
    return is_literal(name);
  }
  if (const std::size_t colon = name.rfind(':'); colon != std::string::npos) {
    if (!whole(std::string_view(name).substr(colon + 1))) return false;
    name.resize(colon);
  }
  return is_literal(name) || equal_in_any_case(name, "localhost") ||
         (!bind.host.empty() && equal_in_any_case(name, bind.host));
}

Decision decide(const Request& request, const Gate& gate) {
  Decision out;
  out.head = request.method == "HEAD";
  if (request.method != "GET" && !out.head && !JCCL_PLANTED("page-answers-any-method")) {
    return no(405, "this page answers only GET and HEAD. Give orders by the jccl command");
  }
  if (request.has_body) return no(413, "a request has no body here");
  if (request.hosts != 1) return no(400, "a request names one Host");
  // Who shows a token came here on purpose: no page of elsewhere has one.
  if (gate.token_of == nullptr && !is_own_host(request.host, gate.bind)) {
    return no(421, "the Host of this request is not this master: use its address, or localhost");
  }
  const std::string_view path = request.target.substr(0, request.target.find('?'));
  const auto* known = std::find_if(std::begin(kRoutes), std::end(kRoutes),
                                   [&](const auto& route) { return route.first == path; });
  if (known == std::end(kRoutes)) {
    return no(404, "this server has /, /api/v1/status, /events, /metrics and /healthz");
  }
  out.route = known->second;
  if (is_for_all(out.route)) return out;
  if (request.fetch_site == "cross-site") return no(403, "another site's page may not ask this");
  if (gate.token_of != nullptr && !JCCL_PLANTED("page-without-a-token")) {
    auto token = shown_token(request, gate);
    if (!token.ok()) return no(401, token.status().text);
    out.token = std::move(token.value());
  }
  if (out.route != Route::kEvents) return out;
  const std::string_view query =
      request.target.substr(std::min(path.size() + 1, request.target.size()));
  const std::string_view asked = parameter(query, "after");
  const auto after = whole(asked.empty() ? request.last_event_id : asked);
  out.after = after.value_or(0);
  out.resumes = after.has_value();
  return out;
}

}  // namespace jccl::page
