// Opening and closing of a master, its listener and its connections.
#include "master/driver/driver.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/failpoint.h"
#include "base/planted.h"
#include "base/text.h"
#include "master/auditor.h"
#include "master/etcd/etcd_where.h"
#include "master/outward.h"
#include "wire/serialize.h"

namespace jccl::master {

using base::cat;
using base::Code;
using base::Status;

namespace {

constexpr base::Duration kSweepInterval = 100 * base::kMillisecond;

protocol::HistoryLine opening_line(const std::string& run, const std::string& address,
                                   const std::string& store, std::uint64_t sequence) {
  return {"master",
          {{"run", run},
           {"address", address},
           {"store", store},
           {"journal", std::to_string(sequence)},
           {"pid", std::to_string(::getpid())},
           {"unix_ms", std::to_string(unix_milliseconds())}}};
}

}  // namespace

Master::Driver::Driver(MasterConfig config)
    : config_(std::move(config)),
      own_loop_(std::make_unique<net::Loop>()),
      loop_(*own_loop_),
      recorder_(config_.record.empty() ? 0 : config_.record_bytes) {}

Master::Driver::~Driver() {
  if (group_.empty()) {
    stop();
  } else {
    halt();
  }
}

protocol::MasterOptions Master::Driver::machine_options() const {
  protocol::MasterOptions options;
  options.run = run_;
  options.start_peers = config_.start_peers;
  options.min_peers = config_.min_peers;
  options.silence = config_.silence;
  options.heartbeat = config_.heartbeat > 0 ? config_.heartbeat : config_.silence / 6;
  options.reset_grace = config_.reset_grace;
  options.restart_grace = config_.restart_grace;
  options.restore_after = config_.restore_after;
  options.straggler = straggler_;
  options.straggler_after = config_.straggler_after;
  options.admission = admission_;
  options.source = config_.source;
  options.weight_max = config_.weight_max;
  options.max_rate = static_cast<std::uint64_t>(config_.max_rate);
  options.audit = config_.audit;
  options.listed = listed_;
  options.unix_ahead = unix_milliseconds() * base::kMillisecond - started_;
  return options;
}

// Another master may be active: then this waits, its port taken but refusing whoever dials it.
Status Master::Driver::open_journal() {
  auto port = net::Reservation::open(bind_);
  if (!port.ok()) return port.status();
  reserved_ = std::move(port.value());
  bind_.port = reserved_->port();
  if (JCCL_PLANTED("port-not-reserved")) reserved_.reset();
  set_address(bind_.port);
  StoreOptions options;
  options.address = address_;
  options.insecure = config_.insecure;
  options.make_private = true;
  options.log = [this](const std::string& line) { log(line); };
  options.keep_waiting = config_.keep_waiting;
  auto store = open_store(config_.store, options);
  if (!store.ok()) return store.status();
  store_ = std::move(store.value());
  started_ = last_time_ = loop_.now();  // waiting was no part of this master's life
  return {};
}

Status Master::Driver::recover() {
  if (const Status opened = open_journal(); !opened.ok()) return opened;
  return read_journal();
}

Status Master::Driver::read_journal() {
  auto rows = store_->load();
  if (!rows.ok()) return rows.status();
  auto chain = wire::walk(rows.value(), run_known_ ? &run_ : nullptr);
  if (!chain.ok()) {
    return {chain.status().code,
            cat("journal ", without_password(config_.store), ": ", chain.status().text)};
  }
  const std::size_t kept = rows.value().size() - chain.value().cut_rows;
  if (chain.value().cut_rows > 0 && !JCCL_PLANTED("torn-row-stays-in-the-file")) {
    const Status cut = store_->truncate(kept);
    if (!cut.ok()) return cut;
    log(cat("journal ", without_password(config_.store), ": a torn record after ", kept,
            " was cut off"));
  }
  writer_ = chain.value().writer;
  journal_sequence_ = kept;
  const auto& records = chain.value().records;
  if (!records.empty()) {
    run_ = std::get<wire::RunRecord>(records.front()).run;
  } else if (!run_known_) {
    const auto fresh = net::new_run_id();
    if (!fresh.ok()) return fresh.status();
    run_ = fresh.value();
  }
  if (config_.token.empty() && group_.empty()) credentials_ = net::Credentials::plain(run_);
  const auto has_token = [](const wire::Record& record) {
    return std::holds_alternative<wire::TokenRecord>(record);
  };
  if (config_.token.empty() && !JCCL_PLANTED("token-run-in-clear") &&
      std::any_of(records.begin(), records.end(), has_token)) {
    return {Code::kAuth, cat("journal ", without_password(config_.store),
                             " is of a run with tokens: give the run's secret (--token-file). "
                             "Without it every process that reaches this port could join")};
  }
  run_text_ = base::to_hex(run_);
  auto options = machine_options();
  auto root = net::random_bytes<32>();
  if (!root.ok()) return root.status();
  link_root_ = root.value();
  protocol::Advisors advisors = recorder_.heard(
      {[this](const protocol::PlanRequest& request) { return planner_.plan(request); }, auditor()});
  options.auditor = std::move(advisors.auditor);
  machine_ = std::make_unique<protocol::MasterMachine>(options, std::move(advisors.planner),
                                                       records, started_);
  return open_recordings();
}

Status Master::Driver::listen() {
  net::ListenerOptions options;
  options.handshake_max = config_.hello_max;
  options.quotas = config_.limits.unproved;
  auto listener = net::Listener::open(loop_, bind_, credentials_, options,
                                      [this](net::Accepted a) { on_accepted(std::move(a)); });
  if (!listener.ok()) return listener.status();
  listener_ = std::move(listener.value());
  memory_->over = [this] {  // not from within the stream that may have to go
    if (std::exchange(bounding_, true) || JCCL_PLANTED("unread-not-bounded")) return;
    loop_.post([this] { bound_memory(); });
  };
  reserved_.reset();
  set_address(listener_->port());
  return {};
}

void Master::Driver::set_address(std::uint16_t port) {
  net::Address shown = bind_;
  shown.port = port;
  if (is_wildcard(shown.host)) shown.host = outward_host();
  address_ = net::to_text(shown);
}

// The port comes before the new epoch: a master that can't serve must leave no trace in the
// journal.
Status Master::Driver::open() {
  started_ = loop_.now();
  last_time_ = started_;
  Status status = read_config();
  if (!status.ok()) return status;
  auto history = History::open(config_.history, config_.history_bytes_max, started_,
                               [this](const std::string& line) { log(line); });
  if (!history.ok()) return history.status();
  history_ = std::move(history.value());
  if (status = open_page(); !status.ok()) return status;
  status = recover();
  if (!status.ok()) return status;
  base::failpoint(base::Failpoint::kMasterRecovered);
  status = listen();
  if (status.ok() && page_ != nullptr) status = page_->listen();
  if (!status.ok()) return status;
  protocol::MasterEffects first = recorder_.start(*machine_, started_);
  status = append(first.journal);
  if (!status.ok()) return status;
  first.journal.clear();
  loop_.start();
  loop_.call([this, &first] {
    begin(std::move(first));
    watch_store();
  });
  if (page_ != nullptr) {
    const std::int64_t since_ms = (loop_.now() - started_) / base::kMillisecond;
    page_->start({run_text_, started_, unix_milliseconds() - since_ms});
  }
  return {};
}

void Master::Driver::begin(protocol::MasterEffects first) {
  // Its two times, of this run and of the world, are of one moment: so not before the disk.
  first.history.insert(
      first.history.begin(),
      opening_line(run_text_, address_, without_password(config_.store), journal_sequence_));
  arm(first.wake);
  carry_out(std::move(first));
}

double Master::Driver::uptime_s() const {
  return static_cast<double>(loop_.now() - started_) / 1e9;
}

void Master::Driver::stop() {
  if (stopped_) return;
  stopped_ = true;
  if (page_ != nullptr) page_->stop();  // it asks the loop
  loop_.stop();
  groups_.clear();
  probes_.clear();
  conns_.clear();
  closing_.clear();
  listener_.reset();
  store_.reset();
  history_.reset();
}

Master::Driver::ConnId Master::Driver::on_accepted(net::Accepted accepted) {
  const ConnId id = next_conn_++;
  net::FramedOptions options;
  options.sent_bytes_max = base::kRosterBytesMax;
  options.queue_bytes_max = config_.limits.unread_bytes;
  options.hello_by = accepted.adopt_by;
  options.pending = std::move(accepted.pending);
  options.memory = memory_;
  Conn& conn = conns_[id];
  conn.network = std::move(accepted.network);
  conn.group = accepted.stream->remote().group;
  if (group_.empty() && !conn.group.empty()) {
    conn.adopt_by = accepted.adopt_by;
    conn.pending = options.pending;
  }
  conn.shown = shown_by(*accepted.stream);
  conn.stream =
      std::make_unique<net::FramedStream>(loop_, std::move(accepted.stream), std::move(options));
  conn.stream->start([this, id](base::ByteView bytes) { on_frame(id, bytes); },
                     [this, id](const Status& status) { on_closed(id, status); });
  return id;
}

void Master::Driver::on_frame(ConnId id, base::ByteView bytes) {
  const auto found = conns_.find(id);
  if (found == conns_.end()) return;
  auto message = wire::decode(bytes);
  if (!message.ok()) return drop_stranger(id, message.status().text);
  Conn& conn = found->second;
  if (conn.greeted) {
    hold_back(id, conn.messages.charge(config_.limits.messages, loop_.now()));
    return enqueue(protocol::ConnMessage{id, std::move(message.value()), conn.shown});
  }
  const bool asks = std::holds_alternative<wire::StatusAsk>(message.value());
  const net::Rate& rate = asks ? config_.limits.questions : config_.limits.hellos;
  const base::Duration wait =
      JCCL_PLANTED("hellos-not-charged")
          ? 0
          : (asks ? questions_ : hellos_).charge(conn.network, rate, loop_.now());
  if (wait == 0) return first_word(id, std::move(message.value()));
  conn.stream->pause();
  loop_.run_after(wait, [this, id, first = std::move(message.value())] { first_word(id, first); });
}

void Master::Driver::first_word(ConnId id, wire::Message message) {
  const auto found = conns_.find(id);
  if (found == conns_.end()) return;
  Conn& conn = found->second;
  const auto* hello = std::get_if<wire::Hello>(&message);
  const bool asks = std::holds_alternative<wire::StatusAsk>(message);
  if (const Status no = objection(conn, message); !no.ok()) {
    (void)conn.stream->send(wire::encode(wire::Refuse{no.code, no.text}));
    return retire(id, true);
  }
  if (conn.group != group_) return hand_over(id, std::move(message));
  if (asks) return answer_status(id);
  if (hello != nullptr) conn.life = hello->incarnation;
  conn.greeted = true;
  conn.stream->resume();
  enqueue(protocol::ConnMessage{id, std::move(message), conn.shown});
}

// What keeps a connection out by its first message, before the machine hears of it.
Status Master::Driver::objection(const Conn& conn, const wire::Message& first) {
  const std::string& token = conn.shown.token;
  const bool elsewhere = conn.group != group_ && !JCCL_PLANTED("groups-know-no-bans");
  if (elsewhere && machine_->is_revoked(token)) return protocol::revoked_status(token);
  if (const auto* hello = std::get_if<wire::Hello>(&first)) {
    Status fits = net::admits(token, hello->site);
    if (fits.ok() && elsewhere) fits = machine_->objects_to(*hello, conn.shown);
    if (!fits.ok() || token.empty() || conn.shown.may_order) return fits;
    const std::string site = net::site_digest(hello->site);
    if (net::is_for(token, site)) return {};
    return machine_->reserved(hello->site, conn.shown.key,
                              [&](const std::string& name) { return net::is_for(name, site); });
  }
  if (std::holds_alternative<wire::StatusAsk>(first)) {
    const bool revoked = machine_->is_revoked(token) && !JCCL_PLANTED("status-by-a-revoked-token");
    return revoked ? protocol::revoked_status(token) : Status();
  }
  if (std::holds_alternative<wire::Order>(first) || JCCL_PLANTED("first-word-of-any-kind")) {
    return {};
  }
  ++strangers_closed_;
  const net::ByteStream* stream = conn.stream->stream();
  const std::string who = stream == nullptr ? "a peer" : stream->remote_text();
  const std::string text = cat("begins with ", wire::name_of(first));
  if (const auto line = valve_.pass(cat("closed ", who, ": ", text), loop_.now())) log(*line);
  return {Code::kInvalid, cat("this connection ", text,
                              ": it begins with Hello, StatusAsk or Order. After a loss a "
                              "peer says Hello anew, and Resume when it has been welcomed")};
}

// Where there are no tokens, who is on this machine runs the master.
protocol::Shown Master::Driver::shown_by(const net::ByteStream& stream) const {
  protocol::Shown shown{stream.remote().key, stream.remote().secret};
  if (const auto rights = net::parse_rights(shown.token)) {
    shown.uses = rights->uses;
    shown.may_order = rights->role == net::TokenRole::kAdmin;
  } else if (!credentials_.tls) {
    const auto address = net::parse_address(stream.remote_text());
    shown.may_order = address.ok() && net::is_loopback(address.value());
  }
  return shown;
}

// One that causes more than its share is read on later: what it sends meanwhile waits with it.
void Master::Driver::hold_back(ConnId id, base::Duration wait) {
  if (wait == 0 || JCCL_PLANTED("messages-not-charged")) return;
  conns_.at(id).stream->pause();
  loop_.run_after(wait, while_here([this, id] {
                    const auto found = conns_.find(id);
                    if (found != conns_.end()) found->second.stream->resume();
                  }));
}

void Master::Driver::on_closed(ConnId id, const Status& status) {
  const auto found = conns_.find(id);
  if (found == conns_.end()) return;
  const bool greeted = found->second.greeted;
  conns_.erase(found);
  if (greeted && !JCCL_PLANTED("closed-conn-not-told")) enqueue(protocol::ConnClosed{id});
  if (status.code == Code::kLinkLost) return;  // who leaves in silence is not worth a line
  if (!greeted && !JCCL_PLANTED("strangers-not-counted")) ++strangers_closed_;
  const std::string who = greeted ? "peer" : "stranger";
  if (const auto line = valve_.pass(cat(who, " closed: ", status.text), loop_.now())) log(*line);
}

// Bytes that are no message of ours: the connection ends, whoever it was.
void Master::Driver::drop_stranger(ConnId id, const std::string& why) {
  const auto found = conns_.find(id);
  JCCL_CHECK(found != conns_.end());
  const net::ByteStream* stream = found->second.stream->stream();
  const std::string who = stream == nullptr ? "a peer" : stream->remote_text();
  const bool greeted = found->second.greeted;
  ++strangers_closed_;
  if (const auto line = valve_.pass(cat("closed ", who, ": ", why), loop_.now())) log(*line);
  retire(id, false);
  if (greeted) enqueue(protocol::ConnClosed{id, true});
}

void Master::Driver::retire(ConnId id, bool last_words) {
  const auto found = conns_.find(id);
  if (found == conns_.end()) return;
  auto stream = std::move(found->second.stream);
  conns_.erase(found);
  if (!last_words) return;
  stream->finish();
  closing_.push_back(std::move(stream));
  if (sweep_timer_ == 0) sweep_timer_ = loop_.run_after(kSweepInterval, [this] { sweep(); });
}

void Master::Driver::sweep() {
  sweep_timer_ = 0;
  std::erase_if(closing_, [](const auto& stream) { return stream->stream() == nullptr; });
  if (!closing_.empty()) {
    sweep_timer_ = loop_.run_after(kSweepInterval, [this] { sweep(); });
  }
}

void Master::Driver::evict(std::string site) {
  loop_.post([this, site = std::move(site)] { enqueue(protocol::EvictSite{site}); });
}

Status Master::Driver::failure() const {
  if (run_driver_ != nullptr) return run_driver_->failure();
  const std::lock_guard lock(failure_guard_);
  return failure_;
}

// Names and texts in it may be anybody's.
void Master::Driver::log(const std::string& text) {
  const std::string line =
      base::printable(group_.empty() ? text : cat("group ", group_, ": ", text));
  if (config_.log) return config_.log(line);
  std::fprintf(stderr, "jccl-master: %s\n", line.c_str());
}

}  // namespace jccl::master
