// The turn of the driver: a batch of events into the machine, its effects out. All records of one
// turn go into one durable append; nothing is sent before it returns. The append runs on the
// loop's thread: it is one write of about half a millisecond, and everything that could be done
// meanwhile waits for it anyway.
#include <algorithm>

#include "base/failpoint.h"
#include "base/planted.h"
#include "base/text.h"
#include "master/driver/driver.h"
#include "master/outward.h"
#include "protocol/recorder/recorded_faults.h"
#include "wire/serialize.h"

namespace jccl::master {

using base::cat;
using base::Code;
using base::Status;

namespace {

constexpr base::Duration kStall = 100 * base::kMillisecond;
constexpr base::Duration kAfterStall = 50 * base::kMillisecond;
// Nothing of a turn is told before all of its records are durable, so a turn may be written in
// parts; etcd takes 1.5 MiB at once.
constexpr std::size_t kAppendBytesMax = 1 << 20;
constexpr base::Duration kHeldInterval = 100 * base::kMillisecond;
constexpr base::Duration kProbeMax = 500 * base::kMillisecond;

constexpr std::size_t kOriginsMax = 4 * base::kPeersMax;
// What a peer sends for a round, and more: rounds that commit are never held back.
constexpr std::uint32_t kBackPerCommit = 16;

using base::Failpoint;
static_assert(std::is_same_v<std::variant_alternative_t<3, wire::Record>, wire::CommitRecord>);
constexpr std::size_t kRecordsWithFailpoints = 5;  // what operators order takes the same way

// Two failpoints for each of these types of record, in the order of the variant.
void at_records(const std::vector<wire::Record>& records, bool appended) {
  if (base::failpoint_hook == nullptr) return;
  for (const wire::Record& record : records) {
    if (record.index() >= kRecordsWithFailpoints) continue;
    const std::size_t first = static_cast<std::size_t>(Failpoint::kMasterRunAppending);
    base::failpoint(static_cast<Failpoint>(first + 2 * record.index() + (appended ? 1 : 0)));
  }
}

// Reached when the message has been written: the write waits in the loop, and this behind it.
void at_told(net::Loop& loop, const wire::Message& message) {
  if (base::failpoint_hook == nullptr) return;
  const auto* outcome = std::get_if<wire::Outcome>(&message);
  const bool commit = outcome != nullptr && outcome->verdict == wire::Verdict::kCommitted;
  const auto post = [&](Failpoint point) { loop.post([point] { base::failpoint(point); }); };
  if (std::holds_alternative<wire::Welcome>(message)) post(Failpoint::kMasterWelcomeTold);
  if (std::holds_alternative<wire::Roster>(message)) post(Failpoint::kMasterRosterTold);
  if (std::holds_alternative<wire::Start>(message)) post(Failpoint::kMasterStartTold);
  if (commit) post(Failpoint::kMasterCommitTold);
}

template <typename T>
void move_all(std::vector<T>& from, std::vector<T>& to) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

}  // namespace

// The machine's clock stands still while this process does: a master that was stopped, swapped out
// or waiting for its disk has no evidence that its peers were silent.
base::Time Master::Driver::machine_time() {
  base::Time now = loop_.now() - stalled_;
  if (alarm_due_ != base::kNever && now > alarm_due_ + kStall) {
    const base::Time resumed = std::max(alarm_due_, last_time_);
    stalled_ += now - resumed;
    now = resumed;
    after_stall_ = true;
  }
  last_time_ = std::max(now, last_time_);
  return last_time_;
}

void Master::Driver::enqueue(protocol::MasterEvent event) {
  inbox_.push_back(std::move(event));
  if (pump_posted_) return;
  pump_posted_ = true;  // events of one turn of the loop share one durable append
  loop_.post(while_here([this] { pump(); }));
}

void Master::Driver::pump() {
  pump_posted_ = false;
  while (!inbox_.empty() && failure().ok()) {
    protocol::MasterEffects batch = take_batch();
    const Status durable = append(batch.journal);
    if (!durable.ok() && !JCCL_PLANTED("failed-append-goes-on")) return fail(durable);
    if (const Status held = store_->held(); !held.ok()) return fail(held);
    carry_out(std::move(batch));
  }
}

protocol::MasterEffects Master::Driver::take_batch() {
  protocol::MasterEffects batch;
  doomed_.clear();
  const base::Time now = machine_time();
  for (; !inbox_.empty(); inbox_.pop_front()) {
    const protocol::MasterEvent& event = inbox_.front();
    const auto* message = std::get_if<protocol::ConnMessage>(&event);
    if (message != nullptr && doomed_.count(message->conn) > 0) continue;
    if (message != nullptr) mark_round(message->message);
    merge(recorder_.on(*machine_, event, now), &batch);
  }
  return batch;
}

void Master::Driver::merge(protocol::MasterEffects effects, protocol::MasterEffects* batch) {
  doomed_.insert(effects.close.begin(), effects.close.end());
  arm(effects.wake);
  move_all(effects.journal, batch->journal);
  move_all(effects.send, batch->send);
  move_all(effects.close, batch->close);
  move_all(effects.probe, batch->probe);
  move_all(effects.history, batch->history);
  move_all(effects.record, batch->record);
  // At once: the plan of a later event of this batch may rest on them.
  if (JCCL_PLANTED("measures-after-the-plan")) return;
  for (auto& [peer, measured] : effects.measured) planner_.note(peer, std::move(measured));
}

Status Master::Driver::append(const std::vector<wire::Record>& records) {
  if (records.empty()) return {};
  at_records(records, false);
  std::vector<wire::Row> rows;
  std::size_t bytes = 0;
  const auto write = [&] {
    const Status status = store_->append(rows);
    if (status.ok()) journal_sequence_ = rows.back().sequence;
    rows.clear();
    bytes = 0;
    return status;
  };
  for (const auto& record : records) {
    if (const auto* epoch = std::get_if<wire::EpochRecord>(&record)) know_members(*epoch);
    wire::Row row = writer_.append(record);
    if (!rows.empty() && bytes + row.payload.size() > kAppendBytesMax) {
      if (const Status status = write(); !status.ok()) return status;
    }
    bytes += row.payload.size();
    rows.push_back(std::move(row));
  }
  const Status status = write();
  at_records(records, true);
  return status;
}

void Master::Driver::carry_out(protocol::MasterEffects effects) {
  committed_.clear();
  for (const auto& record : effects.journal) {
    const auto* commit = std::get_if<wire::CommitRecord>(&record);
    if (commit != nullptr) committed_.insert(commit->attempt);
  }
  for (const auto& message : effects.send) send(message);
  for (const auto& [id, why] : effects.record) answer_dump(id, why);
  for (const ConnId id : effects.close) {
    if (conns_.count(id) == 0) continue;
    retire(id, true);
    enqueue(protocol::ConnClosed{id});
  }
  for (const auto& [incarnation, addresses] : effects.probe) start_probe(incarnation, addresses);
  for (const auto& line : effects.history) log_trouble(line);
  tell_page(effects.history);
  const Status written = history_->write(effects.history, loop_.now());
  if (!written.ok()) log(written.text);
  if (const std::string what = protocol::fault_in(effects); !what.empty()) record_fault(what);
  tell_groups(effects.journal);
}

// Who was given up, and why, is for the log too, not only for the history.
void Master::Driver::log_trouble(const protocol::HistoryLine& line) {
  static constexpr std::string_view kTold[] = {"evict", "cut",  "skip",  "ban",      "order",
                                               "fault", "held", "audit", "convicted"};
  if (std::find(std::begin(kTold), std::end(kTold), line.kind) == std::end(kTold)) return;
  std::string text = line.kind;
  for (const auto& [key, value] : line.fields) text += cat(" ", key, "=", value);
  if (line.kind != "fault" && line.kind != "held") return log(text);
  // Fresh keys make as many as they like. The history has each, and a ban says all of its key's.
  if (const auto some = faults_.pass(text, loop_.now())) log(*some);
}

void Master::Driver::send(const protocol::MasterSend& message) {
  const auto found = conns_.find(message.conn);
  if (found == conns_.end()) return;  // it ended meanwhile; the machine is about to hear of it
  net::FramedStream& stream = *found->second.stream;
  if (std::holds_alternative<wire::Welcome>(message.message)) {
    stream.authenticated();
    if (origins_.size() >= kOriginsMax) origins_.erase(origins_.begin());
    if (stream.stream() != nullptr) {
      origins_[found->second.life] = net::endpoint_of(stream.stream()->remote_text());
    }
  }
  const auto* outcome = std::get_if<wire::Outcome>(&message.message);
  if (outcome != nullptr && !JCCL_PLANTED("refund-left-out") &&
      committed_.count(outcome->attempt) > 0) {
    found->second.messages.refund(config_.limits.messages, kBackPerCommit);
  }
  const auto* ask = std::get_if<wire::AuditAsk>(&message.message);
  if (ask != nullptr) {  // two answers a cell
    found->second.messages.refund(config_.limits.messages,
                                  2 * static_cast<std::uint32_t>(ask->cells.size()));
  }
  const base::Bytes bytes = encoded(message.message);
  const Status sent = stream.send(bytes);
  at_told(loop_, message.message);
  if (!sent.ok() && sent.code != Code::kClosed) {
    return close_unread(message.conn,
                        cat(wire::name_of(message.message), " could not be queued: ", sent.text));
  }
}

// The machine says which link secret it means; only who sends it knows it.
base::Bytes Master::Driver::encoded(const wire::Message& message) {
  const auto* roster = std::get_if<wire::Roster>(&message);
  const auto* reply = std::get_if<wire::SyncReply>(&message);
  const std::uint64_t generation = roster != nullptr  ? roster->links.generation
                                   : reply != nullptr ? reply->links.generation
                                                      : 0;
  if (generation == 0) return wire::encode(message);
  if (newest_links_.generation != generation) {
    newest_links_ = {generation, net::link_secret(run_, link_root_, generation)};
  }
  wire::Message whole = message;
  if (auto* to = std::get_if<wire::Roster>(&whole)) to->links = newest_links_;
  if (auto* to = std::get_if<wire::SyncReply>(&whole)) to->links = newest_links_;
  return wire::encode(whole);
}

void Master::Driver::close_unread(ConnId id, const std::string& why) {
  const bool greeted = conns_.at(id).greeted;
  if (const auto line = faults_.pass(cat("connection closed, ", why), loop_.now())) log(*line);
  retire(id, false);
  if (greeted) enqueue(protocol::ConnClosed{id});
}

void Master::Driver::know_members(const wire::EpochRecord& epoch) {
  members_.clear();
  for (const wire::Member& member : epoch.members) members_[member.incarnation] = member.key;
  bound_members();
}

// Of what a member makes it hold so much is the member's: a Roster for everybody must not put
// somebody out because strangers have left little room.
std::size_t Master::Driver::beyond_its_own(const Conn& conn) const {
  const std::size_t held = conn.stream->held_bytes();
  const auto member = members_.find(conn.life);
  const bool its = member != members_.end() && member->second == conn.shown.key &&
                   !JCCL_PLANTED("members-own-nothing");
  return its ? held - std::min(held, config_.limits.member_bytes) : held;
}

// The greediest key goes first, by its greediest connection: who opens many is no better off.
void Master::Driver::bound_memory() {
  bounding_ = false;
  while (memory_->bytes > memory_->max) {
    struct Holder {
      Driver* of;
      ConnId id;
      wire::PublicKey key;
      std::size_t bytes;
    };
    std::vector<Holder> holders;
    std::map<wire::PublicKey, std::size_t> of_key;
    for (Driver* driver : all_drivers()) {
      for (const auto& [id, conn] : driver->conns_) {
        holders.push_back({driver, id, conn.shown.key, driver->beyond_its_own(conn)});
        of_key[conn.shown.key] += holders.back().bytes;
      }
    }
    const auto weight = [&](const Holder& one) {
      return std::pair(JCCL_PLANTED("greedy-by-connection") ? one.bytes : of_key[one.key],
                       one.bytes);
    };
    const auto greediest =
        std::max_element(holders.begin(), holders.end(),
                         [&](const Holder& a, const Holder& b) { return weight(a) < weight(b); });
    // What was counted may be free by now.
    if (greediest == holders.end() || greediest->bytes == 0) return;
    const Driver& of = *greediest->of;
    const net::ByteStream* stream = of.conns_.at(greediest->id).stream->stream();
    greediest->of->close_unread(
        greediest->id, cat(stream == nullptr ? "a peer" : stream->remote_text(), " with the key ",
                           base::to_hex(greediest->key).substr(0, 16), "… makes this hold ",
                           of_key[greediest->key], " of ", memory_->bytes, " bytes, ", memory_->max,
                           " are allowed for all"));
  }
}

// Of members that are not back since this master started nothing is known but the journal's word:
// they are asked where this master itself may be.
net::DialPolicy Master::Driver::policy_for(wire::Incarnation incarnation) const {
  if (!peer_networks_.empty()) return net::DialPolicy(peer_networks_);
  const auto origin = origins_.find(incarnation);
  if (origin != origins_.end()) return {origin->second, {}};
  const std::vector<net::Endpoint> own = net::own_endpoints();
  const bool here = is_wildcard(bind_.host) || net::is_loopback(bind_);
  return {net::endpoint_of(here ? "127.0.0.1:1" : address_), own};
}

void Master::Driver::start_probe(wire::Incarnation incarnation,
                                 const std::vector<std::string>& addresses) {
  std::vector<net::Address> listeners;
  for (const auto& text : addresses) {
    const auto address = net::parse_address(text);
    if (address.ok()) listeners.push_back(address.value());
  }
  const std::uint64_t id = next_probe_++;
  probes_[id] = net::probe(loop_, std::move(listeners), policy_for(incarnation), kProbeMax,
                           [this, id, incarnation](bool refused) {
                             loop_.post(while_here([this, id] { probes_.erase(id); }));
                             enqueue(protocol::ProbeAnswer{incarnation, refused});
                           });
}

void Master::Driver::arm(base::Time wake) {
  if (wake >= alarm_due_) return;
  loop_.cancel(alarm_);
  alarm_due_ = wake;
  const base::Duration wait = std::max<base::Duration>(0, wake - (loop_.now() - stalled_));
  const base::Duration late = JCCL_PLANTED("alarms-come-late") ? 900 * base::kMillisecond : 0;
  alarm_ = loop_.run_after(wait + late, [this] { on_alarm(); });
}

void Master::Driver::on_alarm() {
  after_stall_ = false;
  machine_time();
  if (after_stall_ && !put_off_) {  // first read what arrived while nobody looked; once
    put_off_ = true;
    alarm_ = loop_.run_after(kAfterStall, [this] { on_alarm(); });
    return;
  }
  put_off_ = false;
  alarm_due_ = base::kNever;
  enqueue(protocol::Tick{});
}

// A master that was paused or cut off from its store must notice it also when nobody asks anything.
void Master::Driver::watch_store() {
  if (const Status held = store_->held(); !held.ok() && !JCCL_PLANTED("store-not-watched"))
    return fail(held);
  held_timer_ = loop_.run_after(kHeldInterval, [this] { watch_store(); });
}

// Never retried: after a failed write nobody knows what the disk holds. A new start reads it.
void Master::Driver::fail(Status status) {
  if (run_driver_ != nullptr) {
    return run_driver_->fail({status.code, cat("group ", group_, ": ", status.text)});
  }
  const bool fenced = status.code == Code::kEvicted;
  {
    const std::lock_guard lock(failure_guard_);
    failure_ = {status.code,
                cat(fenced ? "fenced" : "the journal failed", ", the master stops: ", status.text)};
  }
  listener_.reset();
  for (Driver* driver : all_drivers()) driver->halt();
  log(failure_.text);
  record_fault(failure_.text);
  for (Driver* driver : all_drivers()) driver->store_.reset();  // it is for the next master
  if (config_.on_failure) config_.on_failure(failure_);
}

}  // namespace jccl::master
