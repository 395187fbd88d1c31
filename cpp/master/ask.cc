#include "master/ask.h"

#include <future>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/text.h"
#include "net/link/frames.h"
#include "net/security/credentials.h"
#include "net/security/group_name.h"
#include "net/socket/address.h"
#include "net/socket/dial.h"
#include "net/socket/loop.h"
#include "wire/serialize.h"

namespace jccl::master {

using base::Code;
using base::Result;
using base::Status;

namespace {

// One question over one connection. Lives on its loop's thread from begin() to the answer.
class Question {
 public:
  Question(net::Loop& loop, wire::Message question, std::promise<Result<std::string>> answer)
      : loop_(loop), question_(std::move(question)), answer_(std::move(answer)) {}

  void begin(std::vector<net::Address> addresses, const net::Credentials& credentials,
             const std::string& group, base::Duration time_max) {
    net::DialOptions options;
    options.group = group;
    options.time_max = time_max;
    if (addresses.size() > 1) {  // one serves; the machine of another may be dead
      options.connect_max = time_max / static_cast<base::Duration>(addresses.size() + 1);
      options.handshake_max = options.connect_max;
    }
    loop_.run_after(
        time_max, [this] { finish(Status{Code::kDeadline, "the master did not answer in time"}); });
    dial_ = net::dial(loop_, std::move(addresses), credentials, options,
                      [this](Result<std::unique_ptr<net::ByteStream>> stream) {
                        if (!stream.ok()) return finish(unreachable(stream.status()));
                        ask(std::move(stream.value()));
                      });
  }

 private:
  static Status unreachable(const Status& status) {
    const bool nobody = status.code == Code::kLinkLost || status.code == Code::kDeadline;
    return {nobody ? Code::kMasterLost : status.code, status.text};
  }

  void ask(std::unique_ptr<net::ByteStream> stream) {
    stream_ = std::make_unique<net::FramedStream>(loop_, std::move(stream));
    stream_->authenticated();  // the dialling side has proved who it talks to, or needs no proof
    stream_->start([this](base::ByteView bytes) { heard(bytes); },
                   [this](const Status& status) { finish(unreachable(status)); });
    const Status sent = stream_->send(wire::encode(question_));
    if (!sent.ok()) finish(sent);
  }

  void heard(base::ByteView bytes) {
    const auto message = wire::decode(bytes);
    if (!message.ok()) return finish(message.status());
    if (const auto* reply = std::get_if<wire::StatusReply>(&message.value())) {
      return finish(std::string(reply->json.begin(), reply->json.end()));
    }
    if (const auto* reply = std::get_if<wire::OrderReply>(&message.value())) {
      if (reply->code == Code::kOk) return finish(reply->text);
      return finish(Status{reply->code, reply->text});
    }
    if (const auto* refuse = std::get_if<wire::Refuse>(&message.value())) {
      return finish(Status{refuse->code, refuse->text});
    }
    finish(Status{Code::kVersion, base::cat("the master answered with another message: ",
                                            wire::name_of(message.value()))});
  }

  void finish(Result<std::string> answer) {
    if (std::exchange(answered_, true)) return;
    answer_.set_value(std::move(answer));
  }

  net::Loop& loop_;
  wire::Message question_;
  std::promise<Result<std::string>> answer_;
  bool answered_ = false;
  std::unique_ptr<net::Dial> dial_;
  std::unique_ptr<net::FramedStream> stream_;
};

Result<std::string> ask(const AskOptions& options, wire::Message message) {
  if (const Status named = net::check_group_name(options.group); !named.ok()) return named;
  auto addresses = net::parse_addresses(options.master);
  if (!addresses.ok()) return addresses.status();
  net::Credentials credentials = net::Credentials::plain({});
  if (!options.token.empty()) {
    // Of the run's secret it is an operator's.
    const auto token = net::parse_token(options.token, net::TokenRole::kAdmin);
    if (!token.ok()) return token.status();
    credentials = net::Credentials::from(token.value());
  }
  for (const net::Address& address : addresses.value()) {
    const Status safe = net::check_exposure(address, !options.token.empty(), options.insecure);
    if (!safe.ok()) return safe;
  }
  std::promise<Result<std::string>> promise;
  auto answer = promise.get_future();
  net::Loop loop;
  Question question(loop, std::move(message), std::move(promise));
  loop.start();
  loop.post(
      [&] { question.begin(addresses.value(), credentials, options.group, options.time_max); });
  Result<std::string> out = answer.get();
  loop.stop();  // from here on nothing runs on it, and the question may be destroyed here
  return out;
}

}  // namespace

Result<std::string> ask_status(const AskOptions& options) {
  return ask(options, wire::StatusAsk{});
}

Result<std::string> give_order(const AskOptions& options, const wire::Order& order) {
  const Status fits = wire::check(order);
  if (!fits.ok()) return Status{Code::kInvalid, fits.text};
  return ask(options, order);
}

Result<std::string> new_token_text() {
  const auto token = net::new_run_secret();
  if (!token.ok()) return token.status();
  return net::to_text(token.value());
}

Result<std::string> make_token_text(const TokenOptions& options) {
  const auto secret = net::parse_run_secret(options.run_secret);
  if (!secret.ok()) return secret.status();
  auto rights = net::new_rights();
  if (!rights.ok()) return rights.status();
  if (options.role == "observer") {
    rights.value().role = net::TokenRole::kObserver;
  } else if (options.role == "admin") {
    rights.value().role = net::TokenRole::kAdmin;
  } else if (options.role != "peer") {
    return Status{Code::kInvalid,
                  base::cat("unknown role '", options.role, "'; use peer, observer or admin")};
  }
  const bool joins = rights.value().role == net::TokenRole::kPeer;
  if (!joins && (!options.site.empty() || options.uses > 0)) {
    return Status{Code::kInvalid, base::cat("a token of role ", options.role,
                                            " cannot join a run; leave out site and uses")};
  }
  rights.value().uses = options.uses;
  rights.value().expires_unix_s = options.expires_unix_s;
  if (!options.site.empty()) rights.value().site_digest = net::site_digest(options.site);
  return net::to_text(net::make_token(secret.value(), rights.value()));
}

}  // namespace jccl::master
