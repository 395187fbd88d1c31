// What an operator orders of a run: who goes, who may come, which token is taken no more. Pure; one
// event at a time.
#include <utility>

#include "base/planted.h"
#include "base/text.h"
#include "protocol/durations.h"
#include "protocol/master/master_state.h"
#include "wire/order_verbs.h"

namespace jccl::protocol {

using base::cat;
using base::Code;
using base::Status;

namespace {

std::string verb_name(wire::OrderVerb verb) {
  for (const auto& [name, one] : wire::kOrderVerbs) {
    if (one == verb) return std::string(name);
  }
  return {};
}

wire::OrderReply refusal(Code code, std::string text) { return {code, std::move(text)}; }

}  // namespace

void OperatorOrders::on_order(ConnId conn, const wire::Order& order, const Shown& shown) {
  if (conduct().is_revoked(shown.token) && !JCCL_PLANTED("revoked-operators-order")) {
    const Status revoked = revoked_status(shown.token);
    return refuse(conn, revoked.code, revoked.text);
  }
  if (!shown.may_order && !JCCL_PLANTED("anybody-gives-orders")) {
    return refuse(conn, Code::kAuth,
                  "orders take the run's secret, or a token with the role admin");
  }
  if (order.verb == wire::OrderVerb::kDump && order.span == bounded(order.span)) {
    note("order", {{"verb", verb_name(order.verb)},
                   {"by", base::to_hex(shown.key)},
                   {"token", shown.token},
                   {"text", order.reason}});
    all().fx_.record.emplace_back(conn, order.reason);
    return close(conn);
  }
  const wire::OrderReply reply = carry_out(order);
  note("order", {{"verb", verb_name(order.verb)},
                 {"subject", order.subject},
                 {"by", base::to_hex(shown.key)},  // of one process of an operator
                 {"token", shown.token},           // by its name; empty: the run's secret
                 {"text", reply.text}});
  send(conn, reply);
  close(conn);
}

wire::OrderReply OperatorOrders::carry_out(const wire::Order& order) {
  if (order.span != bounded(order.span)) {
    return refusal(Code::kInvalid, "a ban's time is 0 (for good) to ten years");
  }
  if (order.verb == wire::OrderVerb::kKick) return kick(order);
  if (order.verb == wire::OrderVerb::kDrain) return drain(order);
  if (order.verb == wire::OrderVerb::kRevoke) return revoke(order);
  return order_of_key(order);
}

wire::OrderReply OperatorOrders::kick(const wire::Order& order) {
  const std::string why = order.reason.empty() ? "" : cat(": ", order.reason);
  state_birth().take_claims_back(order.subject);
  if (membership().member_sites().count(order.subject) == 0) {
    return kick_candidate(order.subject, cat(order.subject, " was sent away by an operator", why));
  }
  seats().keep_seat(order.subject);
  connections().evict(order.subject, cat(order.subject, " was evicted by an operator", why),
                      "evict");
  return {Code::kOk, cat(order.subject, " is evicted; it may come back: see ban")};
}

// It was never let in, so it has no claim to the name: that may be what the order is about.
wire::OrderReply OperatorOrders::kick_candidate(const std::string& site, const std::string& why) {
  std::vector<wire::Incarnation> processes;
  for (const ProcessRecord* process : connections().shards_of(site))
    processes.push_back(process->incarnation);
  if (processes.empty() || JCCL_PLANTED("candidates-not-kicked")) {
    return refusal(Code::kInvalid,
                   cat("no member has the site ", site, ", and nobody waits outside with it"));
  }
  for (const wire::Incarnation incarnation : processes)
    connections().drop_observer(incarnation, why);
  return {Code::kOk, cat(site, " was no member and is sent away; it may come back: see ban")};
}

// The site goes by itself, as nobody but its program knows when that costs the others nothing.
wire::OrderReply OperatorOrders::drain(const wire::Order& order) {
  const std::vector<ProcessRecord*> shards = connections().shards_of(order.subject);
  if (shards.empty()) {
    return refusal(Code::kInvalid, cat("nobody has the site ", order.subject));
  }
  for (ProcessRecord* process : shards) {
    process->drain =
        cat("drained by an operator", order.reason.empty() ? "" : cat(": ", order.reason));
    if (process->connected() && process->resumed) send(*process, wire::Drain{process->drain});
  }
  return {Code::kOk, cat(order.subject, " is asked to leave, and does so between two rounds")};
}

wire::OrderReply OperatorOrders::order_of_key(const wire::Order& order) {
  wire::PublicKey key{};
  if (!base::from_hex(order.subject, key)) {
    return refusal(Code::kInvalid, cat("'", order.subject, "' is no key of 64 hex digits"));
  }
  if (order.verb == wire::OrderVerb::kAdmit) {
    if (!ledger().let_in(key)) journal(wire::AdmitRecord{key});
    connections().processes_changed_ = true;
    const bool all = options().admission == Admission::kAuto;
    if (const Ban* held = conduct().ban_of(key);
        held != nullptr && !JCCL_PLANTED("the-banned-may-come-in")) {
      return {Code::kOk, cat("the key ", brief_key(key), "… may come in when its ban is over: ",
                             wording().ban_text(key, held->until_unix_ms, held->reason))};
    }
    return {Code::kOk, cat("the key ", brief_key(key), "… may come in",
                           all ? ", as all newcomers may: this run has --admission auto" : "")};
  }
  if (order.verb == wire::OrderVerb::kBan) {
    conduct().ban(key, order.span, order.reason.empty() ? "by an operator" : order.reason, "");
    return {Code::kOk,
            cat("the key ", brief_key(key), "… is banned ",
                order.span == 0 ? "for good" : cat("for ", order.span / base::kSecond, " s"))};
  }
  const Ban* held = conduct().ban_of(key);
  if (held == nullptr) {
    return refusal(Code::kInvalid, cat("the key ", brief_key(key), "… is not banned"));
  }
  journal(wire::BanRecord{key, 0, held->site, order.reason});
  return {Code::kOk, cat("the key ", brief_key(key), "… is pardoned")};
}

wire::OrderReply OperatorOrders::revoke(const wire::Order& order) {
  if (order.subject.empty()) return refusal(Code::kInvalid, "name the token");
  const bool known = ledger().tokens().count(order.subject) > 0;
  journal(wire::TokenRecord{order.subject, true, {}, 0});
  const std::size_t left = conduct().expel(
      [&](const ProcessRecord& process) {
        return process.token == order.subject && !JCCL_PLANTED("the-revoked-stay-in");
      },
      cat("the token ", order.subject, " was revoked"),
      [](const std::string& site) { return cat("the token of ", site, " was revoked"); });
  return {Code::kOk, cat("the token ", order.subject, " is taken no more; ",
                         known ? cat("sites that left: ", left) : "nobody had joined by it")};
}

}  // namespace jccl::protocol
