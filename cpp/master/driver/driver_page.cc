// The master's part of its page (--http): who may see it, snapshots when it asks, and events as
// they happen. Nothing of it waits for a client.
#include <openssl/crypto.h>

#include "base/planted.h"
#include "base/text.h"
#include "master/driver/driver.h"
#include "master/outward.h"

namespace jccl::master {

using base::cat;
using base::Code;
using base::Result;
using base::Status;

namespace {

// Over HTTP a token travels as it is: so none that may do more than look is taken.
Result<std::string> observer_of(const net::Credentials& credentials, std::string_view text) {
  const Status no{Code::kAuth,
                  "this is not a valid token of this run: make one with `jccl token --role "
                  "observer`"};
  if (!text.starts_with("jccl2.")) return no;  // the run's own secret is for masters
  const auto token = net::parse_token(text);
  if (!token.ok()) return no;
  const auto rights = net::parse_rights(token.value().name);
  const auto known = credentials.known(token.value().name);
  if (!rights || !known || token.value().run != credentials.run ||
      (CRYPTO_memcmp(known->key.data(), token.value().secret.data(), known->key.size()) != 0 &&
       !JCCL_PLANTED("page-takes-any-secret"))) {
    return no;
  }
  if (rights->role != net::TokenRole::kObserver && !JCCL_PLANTED("page-for-any-role")) {
    return Status{Code::kAuth,
                  "this token has more rights than to read the page, so it must not travel by "
                  "HTTP: make one with "
                  "`jccl token --role observer`"};
  }
  return token.value().name;
}

}  // namespace

Status Master::Driver::open_page() {
  if (config_.http.empty()) return {};
  auto bind = net::parse_address(config_.http);
  if (!bind.ok()) return {bind.status().code, cat("--http: ", bind.status().text)};
  const bool here = net::is_loopback(bind.value());
  if (!here && config_.token.empty() && !config_.insecure) {
    return {Code::kAuth,
            cat("refused: --http ", config_.http,
                " can be reached from other machines and this run has no token. Start the master "
                "with the run's secret (`jccl token`), so that observers show theirs, or choose "
                "127.0.0.1, or give --insecure where everyone on the network may read the run")};
  }
  page::ServerOptions options;
  options.gate.bind = bind.value();
  if (!here && !config_.token.empty()) {
    options.gate.token_of = [credentials = credentials_](std::string_view text) {
      return observer_of(credentials, text);
    };
  }
  options.limits = config_.http_limits;
  options.want = [this](std::set<std::string> tokens) {
    loop_.post([this, tokens = std::move(tokens)] { publish(tokens); });
  };
  auto opened = page::Server::open(std::move(options));
  if (!opened.ok()) return opened.status();
  page_ = std::move(opened.value());
  net::Address shown = bind.value();
  if (is_wildcard(shown.host)) shown.host = outward_host();
  shown.port = page_->port();
  http_address_ = net::to_text(shown);
  return {};
}

void Master::Driver::publish(const std::set<std::string>& tokens) {
  const std::uint64_t made = status_for_anybody_.made();
  const std::string& text = status_for_anybody_.get(
      [this] { return status_now(Audience::kAnybody); }, [this] { return loop_.now(); });
  if (status_for_anybody_.made() != made || page_status_.status == nullptr) {
    page_status_.status = std::make_shared<const std::string>(text);
    page_status_.at = loop_.now();
  }
  page_status_.failed = !failure().ok();
  page_status_.asked = tokens;
  page_status_.revoked.clear();
  for (const std::string& token : tokens) {
    if (machine_->is_revoked(token) && !JCCL_PLANTED("page-for-revoked-tokens")) {
      page_status_.revoked.insert(token);
    }
  }
  page_->publish(page_status_);
}

// Whoever is refused again and again makes few events, as in the history.
void Master::Driver::tell_page(const std::vector<protocol::HistoryLine>& lines) {
  if (page_ == nullptr || lines.empty()) return;
  std::vector<page::Event> events;
  const double t = uptime_s();
  for (const auto& line : page_valve_.pass(lines, loop_.now())) {
    events.push_back({t, line.kind, line.fields});
  }
  page_->note(std::move(events));
}

// A round's first call and its last results, which the history does not tell.
void Master::Driver::mark_round(const wire::Message& message) {
  if (page_ == nullptr) return;
  page::Event mark{uptime_s(), "", {}, true};
  if (const auto* ready = std::get_if<wire::Ready>(&message)) {
    mark.kind = "ready";
    mark.fields = {{"tag", ready->round.tag}};
  } else if (const auto* done = std::get_if<wire::Done>(&message)) {
    mark.kind = "done";
    mark.fields = {{"attempt", base::to_text(done->attempt)}};
  } else {
    return;
  }
  page_->note({std::move(mark)});
}

}  // namespace jccl::master
