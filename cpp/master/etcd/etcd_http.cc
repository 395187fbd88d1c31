// Asio on an io_context of its own, run until the one operation under way has ended; Beast reads
// the answers' form. Its own reading and writing of messages is not used: it takes a minute to
// compile. etcd's JSON gateway maps gRPC's codes to HTTP's; which of them are final is told by
// refused().
#include "master/etcd/etcd_http.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/json.hpp>
#include <optional>

#include "base/planted.h"
#include "base/text.h"

namespace jccl::master {

base::Time boot_now() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return now.tv_sec * base::kSecond + now.tv_nsec;
}

namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using base::cat;
using base::Code;
using base::Result;
using base::Status;
using boost::system::error_code;

constexpr base::Duration kPauseMin = 20 * base::kMillisecond;
constexpr base::Duration kPauseMax = 250 * base::kMillisecond;
constexpr base::Duration kTryMin = 50 * base::kMillisecond;

using Plain = asio::ip::tcp::socket;
using Tls = asio::ssl::stream<Plain>;
using Parser = http::response_parser<http::string_body>;

struct Reply {
  unsigned code = 0;
  std::string body;
};

// The words of {"error":"…","message":"…"}; else the beginning of whatever came.
std::string message_of(const std::string& body) {
  error_code bad;
  const auto json = boost::json::parse(body, bad);
  if (!bad && json.is_object()) {
    for (const char* name : {"message", "error"}) {
      const auto* text = json.as_object().if_contains(name);
      if (text != nullptr && text->is_string()) return std::string(text->as_string());
    }
  }
  return cat("'", body.substr(0, 80), "'");
}

// What etcd says of a request for good, whoever is asked. Everything else may pass: no leader, too
// many requests, a member that is starting.
std::optional<Status> refused(const Reply& reply) {
  const std::string text = cat("etcd refused: ", message_of(reply.body));
  if (reply.code == 401 || reply.code == 403) return Status{Code::kAuth, text};
  const bool full = text.find("space exceeded") != std::string::npos;
  if (reply.code >= 400 && reply.code < 500 && reply.code != 408 && (reply.code != 429 || full)) {
    return Status{Code::kInvalid, text};
  }
  return full ? std::optional(Status{Code::kInvalid, text}) : std::nullopt;
}

class Client final : public EtcdHttp {
 public:
  explicit Client(const EtcdWhere& where)
      : where_(where), try_max_(std::max(kTryMin, where.lease / 5)) {}

  Status set_up_tls();
  Result<std::string> post(const std::string& path, const std::string& body, base::Time deadline,
                           const Accept& accept) override;

 private:
  const net::Address& endpoint() const { return where_.endpoints[at_]; }
  Status connect(base::Time by);
  Status connect_to(const net::Endpoint& endpoint, base::Time by);
  Status shake(base::Time by);
  Result<Reply> exchange(const std::string& path, const std::string& body, base::Time by);
  Result<Reply> exchange_once(const std::string& path, const std::string& body, base::Time by);
  Status log_in(base::Time by);
  template <typename Stream>
  Status exchange_on(Stream& stream, const std::string& path, const std::string& body,
                     base::Time by, Reply* reply);
  template <typename Stream>
  error_code read_on(Stream& stream, base::Time by, Parser* parser);
  template <typename Begin>
  error_code run(Begin begin, base::Time by);
  Plain& lowest() { return tls_ ? tls_->next_layer() : *plain_; }
  bool connected() const { return plain_ != nullptr || tls_ != nullptr; }
  void drop() { plain_.reset(), tls_.reset(), left_over_.clear(); }
  Status lost(std::string_view what, const error_code& error) const {
    // An alert may come after the handshake: in TLS 1.3 the client's part of it is judged last.
    const bool alert = error.category() == asio::error::get_ssl_category();
    return {alert ? Code::kAuth : Code::kLinkLost,
            cat(net::to_text(endpoint()), ": ", what, ": ",
                error == asio::error::timed_out ? "no answer" : error.message())};
  }

  const EtcdWhere where_;
  const base::Duration try_max_;
  asio::io_context io_{1};
  std::optional<asio::ssl::context> context_;
  std::size_t at_ = 0;  // which endpoint is dialled next, or connected
  std::unique_ptr<Plain> plain_;
  std::unique_ptr<Tls> tls_;
  std::array<char, 65536> heard_;
  std::string left_over_;  // heard, and not yet a whole line of an answer
  std::string token_;      // of etcd's user; empty: not logged in
};

Status Client::set_up_tls() {
  if (!where_.tls) return {};
  context_.emplace(asio::ssl::context::tls_client);
  error_code bad;
  const auto unusable = [&](const std::string& file) {
    return Status{Code::kInvalid, cat("etcd's TLS: ", file, " can't be used: ", bad.message())};
  };
  context_->set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_tlsv1 |
                            asio::ssl::context::no_tlsv1_1,
                        bad);
  context_->set_verify_mode(asio::ssl::verify_peer, bad);
  if (where_.ca.empty()) {
    context_->set_default_verify_paths(bad);
  } else {
    context_->load_verify_file(where_.ca, bad);
  }
  if (bad) return unusable(where_.ca.empty() ? "the system's CA list" : where_.ca);
  if (where_.cert.empty()) return {};
  context_->use_certificate_chain_file(where_.cert, bad);
  if (bad) return unusable(where_.cert);
  context_->use_private_key_file(where_.key, asio::ssl::context::pem, bad);
  return bad ? unusable(where_.key) : Status{};
}

// One operation, begun by `begin(handler)`, to its end; at `by` its socket is closed.
template <typename Begin>
error_code Client::run(Begin begin, base::Time by) {
  std::optional<error_code> result;
  begin([&result](const error_code& error, auto&&...) { result = error; });
  io_.restart();
  io_.run_for(
      std::chrono::nanoseconds(std::max<base::Duration>(base::kMillisecond, by - boot_now())));
  if (result) return *result;
  error_code ignored;
  lowest().close(ignored);
  io_.run();
  return asio::error::timed_out;
}

Status Client::connect(base::Time by) {
  const auto endpoints = net::resolve_now(endpoint());
  if (!endpoints.ok()) {
    return {Code::kLinkLost, cat(net::to_text(endpoint()), ": ", endpoints.status().text)};
  }
  Status status{Code::kLinkLost, cat(net::to_text(endpoint()), ": no address")};
  for (const net::Endpoint& one : endpoints.value()) {
    Status tried = connect_to(one, by);
    if (tried.ok()) return tried;
    // Whom TLS refused is told, not that another address of the name has no server.
    if (status.code != Code::kAuth) status = std::move(tried);
    drop();
  }
  return status;
}

Status Client::connect_to(const net::Endpoint& endpoint, base::Time by) {
  asio::ip::tcp::endpoint target;
  if (endpoint.size > target.capacity()) return {Code::kLinkLost, "no such address family"};
  std::memcpy(target.data(), &endpoint.storage, endpoint.size);
  target.resize(endpoint.size);
  drop();
  if (where_.tls) {
    tls_ = std::make_unique<Tls>(io_, *context_);
  } else {
    plain_ = std::make_unique<Plain>(io_);
  }
  const error_code error =
      run([&](auto handler) { lowest().async_connect(target, std::move(handler)); }, by);
  if (error) return lost("connect", error);
  error_code ignored;
  lowest().set_option(asio::ip::tcp::no_delay(true), ignored);
  return where_.tls ? shake(by) : Status{};
}

Status Client::shake(base::Time by) {
  const std::string& host = endpoint().host;
  error_code bad;
  asio::ip::make_address(host, bad);
  if (bad) SSL_set_tlsext_host_name(tls_->native_handle(), host.c_str());  // a name, no literal
  if (!JCCL_PLANTED("name-of-etcd-not-verified"))
    tls_->set_verify_callback(asio::ssl::host_name_verification(host), bad);
  const error_code error = run(
      [&](auto handler) {
        tls_->async_handshake(asio::ssl::stream_base::client, std::move(handler));
      },
      by);
  if (!error) return {};
  return lost("TLS handshake", error);
}

template <typename Stream>
Status Client::exchange_on(Stream& stream, const std::string& path, const std::string& body,
                           base::Time by, Reply* reply) {
  const std::string token = token_.empty() ? "" : cat("Authorization: ", token_, "\r\n");
  const std::string request =
      cat("POST ", path, " HTTP/1.1\r\nHost: ", net::to_text(endpoint()), "\r\n", token,
          "Content-Type: application/json\r\nContent-Length: ", body.size(), "\r\n\r\n", body);
  error_code error = run(
      [&](auto handler) { asio::async_write(stream, asio::buffer(request), std::move(handler)); },
      by);
  if (error) return lost("send", error);
  Parser parser;
  parser.body_limit(kAnswerBytesMax);
  error = read_on(stream, by, &parser);
  if (error == http::error::body_limit) {
    return {Code::kLimit, cat(net::to_text(endpoint()), ": the answer is too large")};
  }
  if (error) return lost("read", error);
  reply->code = parser.get().result_int();
  const bool last = parser.get().need_eof() || !parser.get().keep_alive() || !left_over_.empty();
  reply->body = std::move(parser.get().body());
  if (last) drop();
  return {};
}

template <typename Stream>
error_code Client::read_on(Stream& stream, base::Time by, Parser* parser) {
  parser->eager(true);
  while (!parser->is_done()) {
    std::size_t size = 0;
    error_code error = run(
        [&](auto handler) {
          stream.async_read_some(asio::buffer(heard_),
                                 [&size, handler](const error_code& why, std::size_t more) mutable {
                                   size = more;
                                   handler(why);
                                 });
        },
        by);
    if (error == asio::error::eof && parser->got_some()) {
      error = {};
      parser->put_eof(error);
      if (!error) return error;
    }
    if (error) return error;
    left_over_.append(heard_.data(), size);
    left_over_.erase(0, parser->put(asio::buffer(left_over_), error));
    if (error && error != http::error::need_more) return error;
  }
  return {};
}

// etcd forgets tokens: after some minutes without use, when it restarts, when its rights change.
bool token_is_stale(const Reply& reply) {
  return reply.code != 200 && (reply.body.find("invalid auth token") != std::string::npos ||
                               reply.body.find("auth store is old") != std::string::npos);
}

Status Client::log_in(base::Time by) {
  const boost::json::object who{{"name", where_.user}, {"password", where_.password}};
  const auto reply = exchange_once("/v3/auth/authenticate", boost::json::serialize(who), by);
  if (!reply.ok()) return reply.status();
  const std::string at = cat(net::to_text(endpoint()), ": ");
  if (const auto final = refused(reply.value())) {
    return {Code::kAuth, cat(at, "for user ", where_.user, " ", final->text)};
  }
  error_code bad;
  const auto json = boost::json::parse(reply.value().body, bad);
  const auto* token = bad || !json.is_object() ? nullptr : json.as_object().if_contains("token");
  const bool text = token != nullptr && token->is_string() && !token->as_string().empty();
  // It becomes a header's value.
  const auto plain = [](char c) { return c > ' ' && c < 127; };
  if (reply.value().code != 200 || !text ||
      !std::all_of(token->as_string().begin(), token->as_string().end(), plain)) {
    return {Code::kLinkLost, cat(at, "gives no token: ", message_of(reply.value().body))};
  }
  token_ = token->as_string();
  return {};
}

Result<Reply> Client::exchange(const std::string& path, const std::string& body, base::Time by) {
  if (where_.user.empty()) return exchange_once(path, body, by);
  for (bool again = false;; again = true) {
    if (token_.empty()) {
      if (const Status status = log_in(by); !status.ok()) return status;
    }
    auto reply = exchange_once(path, body, by);
    if (again || !reply.ok() || !token_is_stale(reply.value())) return reply;
    token_.clear();
  }
}

Result<Reply> Client::exchange_once(const std::string& path, const std::string& body,
                                    base::Time by) {
  Reply reply;
  Status status = connected() ? Status{} : connect(by);
  if (status.ok()) {
    status = tls_ ? exchange_on(*tls_, path, body, by, &reply)
                  : exchange_on(*plain_, path, body, by, &reply);
  }
  if (!status.ok()) {
    drop();
    return status;
  }
  return reply;
}

Result<std::string> Client::post(const std::string& path, const std::string& body,
                                 base::Time deadline, const Accept& accept) {
  std::string tried;
  base::Duration pause = kPauseMin;
  Code code = Code::kLinkLost;
  for (std::size_t turn = 0;; ++turn) {
    const bool kept = connected();
    const base::Time begun = boot_now();
    const auto reply = exchange(path, body, std::min(deadline, boot_now() + try_max_));
    std::string why;
    if (reply.ok()) {
      const Reply& heard = reply.value();
      const Status taken = heard.code == 200 ? accept(heard.body) : Status{};
      if (heard.code == 200 && taken.ok()) return heard.body;
      if (const auto final = refused(heard); final && !JCCL_PLANTED("refusal-tried-for-ever"))
        return *final;
      why = cat(net::to_text(endpoint()), ": ",
                heard.code == 200 ? taken.text : cat(heard.code, " ", message_of(heard.body)));
      drop();
    } else {
      why = reply.status().text;
      code = reply.status().code;
      if (code == Code::kLimit) return reply.status();
      // A kept connection that was closed meanwhile says nothing of the endpoint.
      if (kept && turn == 0 && boot_now() - begun < kPauseMax) continue;
    }
    if (turn < where_.endpoints.size()) tried += cat(tried.empty() ? "" : "; ", why);
    at_ = (at_ + (JCCL_PLANTED("next-endpoint-not-tried") ? 0 : 1)) % where_.endpoints.size();
    const bool all_tried = (turn + 1) % where_.endpoints.size() == 0;
    const base::Time next = boot_now() + (all_tried ? pause : 0);
    if (next >= deadline || (code == Code::kAuth && all_tried)) {
      return Status{code, cat("etcd can't be reached (", tried, ")")};
    }
    if (!all_tried) continue;
    timespec nap{0, static_cast<long>(pause)};
    ::nanosleep(&nap, nullptr);
    pause = std::min(kPauseMax, 2 * pause);
  }
}

}  // namespace

Result<std::unique_ptr<EtcdHttp>> EtcdHttp::open(const EtcdWhere& where) {
  auto client = std::make_unique<Client>(where);
  if (const Status status = client->set_up_tls(); !status.ok()) return status;
  return std::unique_ptr<EtcdHttp>(std::move(client));
}

}  // namespace jccl::master
