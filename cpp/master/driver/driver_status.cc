// What a master answers to whoever asks how the run is.
#include "base/planted.h"
#include "base/text.h"
#include "master/driver/driver.h"
#include "master/etcd/etcd_where.h"
#include "wire/serialize.h"

namespace jccl::master {

using base::cat;
using base::Status;

void Master::Driver::answer_status(ConnId id) {
  Conn& conn = conns_[id];
  const Audience audience = conn.shown.may_order ? Audience::kOperator : Audience::kAnybody;
  Rendering& kept = audience == Audience::kOperator ? status_ : status_for_anybody_;
  const std::string& text =
      kept.get([&] { return status_now(audience); }, [this] { return loop_.now(); });
  const Status sent =
      conn.stream->send(wire::encode(wire::StatusReply{{text.begin(), text.end()}}));
  if (!sent.ok()) log(cat("status answer not sent: ", sent.text));
  retire(id, true);
}

std::string Master::Driver::status_now(Audience audience) {
  DriverFacts facts;
  facts.run = run_text_;
  facts.address = address_;
  facts.store =
      JCCL_PLANTED("status-shows-password") ? config_.store : without_password(config_.store);
  facts.start_peers = config_.start_peers;
  facts.min_peers = config_.min_peers;
  facts.silence_s = static_cast<double>(config_.silence) / 1e9;
  facts.straggler = config_.straggler;
  facts.audit = config_.audit;
  facts.max_rate = config_.max_rate;
  facts.uptime_s = uptime_s();
  facts.journal_sequence = journal_sequence_;
  facts.connections = conns_.size();
  facts.memory_held = memory_->bytes;
  facts.memory_max = memory_->max;
  facts.answers_made = status_.made() + status_for_anybody_.made();
  facts.strangers_closed = strangers_closed_;
  facts.failure = failure().text;
  facts.tls = credentials_.tls;
  facts.group = group_;
  for (const auto& [name, group] : groups_) {
    facts.groups.push_back(
        {name, group->machine_->sites(), group->conns_.size(), group->journal_sequence_});
  }
  if (listener_ != nullptr) {
    const net::ListenerStats stats = listener_->stats();
    facts.pending = stats.pending;
    facts.strangers_closed += stats.refused + stats.late + stats.excess + stats.over_quota;
  }
  return status_object(machine_->view(machine_time()), facts, planner_, audience);
}

std::string Master::Driver::status() {
  std::string text;
  const bool asked = loop_.call([this, &text] { text = status_now(Audience::kOperator); });
  return asked ? text : std::string("{}");
}

}  // namespace jccl::master
