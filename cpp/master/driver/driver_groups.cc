// Groups of a run: each is a run of its own, with a machine, a journal and members of its own, on
// the port, the loop and by the rights of the run. Opened for the first peer that asks for it, and
// closed when it has been deserted for a while; its journal stays, and opens with it again.
#include <algorithm>

#include "base/planted.h"
#include "base/text.h"
#include "master/driver/driver.h"
#include "master/sqlite_store.h"
#include "wire/serialize.h"

namespace jccl::master {

using base::cat;
using base::Code;
using base::Result;
using base::Status;

namespace {

constexpr base::Duration kLookMin = 10 * base::kMillisecond;
constexpr std::size_t kRecorderShare = 16;  // of the run's: there may be many groups

MasterConfig config_of(const MasterConfig& run, const std::string& group) {
  MasterConfig config = run;
  // What is said of the sites of the run is not of those of a group.
  if (!JCCL_PLANTED("group-waits-for-the-run")) config.start_peers = config.min_peers = 1;
  config.source.clear();
  config.http.clear();
  if (!run.history.empty()) config.history = file_of_group(run.history, group);
  if (const auto path = sqlite_path(run.store)) {
    config.store = cat("sqlite:", file_of_group(*path, group));
  }
  config.record_bytes /= kRecorderShare;
  config.on_failure = nullptr;
  return config;
}

}  // namespace

Master::Driver::Driver(Driver& run, const std::string& group)
    : run_driver_(&run),
      group_(group),
      config_(config_of(run.config_, group)),
      straggler_(run.straggler_),
      credentials_(run.credentials_),
      peer_networks_(run.peer_networks_),
      bind_(run.bind_),
      run_(run.run_),
      run_known_(true),
      address_(run.address_),
      loop_(run.loop_),
      recorder_(config_.record.empty() ? 0 : config_.record_bytes),
      memory_(run.memory_) {}

Status Master::Driver::open_group() {
  started_ = last_time_ = loop_.now();
  auto history = History::open(config_.history, config_.history_bytes_max, started_,
                               [this](const std::string& line) { log(line); });
  if (!history.ok()) return history.status();
  history_ = std::move(history.value());
  StoreOptions options;
  options.make_private = true;
  options.log = [this](const std::string& line) { log(line); };
  auto store = run_driver_->store_->of_group(group_, options);
  if (!store.ok()) return store.status();
  store_ = std::move(store.value());
  if (const Status read = read_journal(); !read.ok()) return read;
  protocol::MasterEffects first = recorder_.start(*machine_, started_);
  if (const Status durable = append(first.journal); !durable.ok()) return durable;
  first.journal.clear();
  begin(std::move(first));
  return {};
}

// Whether one more may be opened.
Status Master::Driver::room_for_group() const {
  if (config_.max_groups == 0) {
    return {Code::kLimit, "this run has no groups: its master was started with --max-groups 0"};
  }
  if (groups_.size() >= config_.max_groups && !JCCL_PLANTED("groups-without-number")) {
    return {Code::kLimit, cat("this run has ", groups_.size(), " open groups, as many as it may ",
                              "(--max-groups): one has to be left by all of its peers first")};
  }
  return {};
}

// Who may join the run may open a group; who asks for the status or gives an order opens none.
Result<Master::Driver*> Master::Driver::group_for(const Conn& conn, const wire::Message& first) {
  const auto found = groups_.find(conn.group);
  if (found != groups_.end()) return found->second.get();
  if (!std::holds_alternative<wire::Hello>(first) && !JCCL_PLANTED("group-by-a-question")) {
    std::string open;
    for (const auto& [name, driver] : groups_) open += cat(open.empty() ? "" : ", ", name);
    return Status{Code::kInvalid, cat("no group ", conn.group, " is open in this run; open are: ",
                                      open.empty() ? "none" : open)};
  }
  if (const Status room = room_for_group(); !room.ok()) return room;
  auto driver = std::make_unique<Driver>(*this, conn.group);
  if (const Status opened = driver->open_group(); !opened.ok()) {
    return Status{opened.code, cat("group ", conn.group, ": ", opened.text)};
  }
  log(cat("group ", conn.group, ": opened, at row ", driver->journal_sequence_, " of its journal"));
  if (groups_timer_ == 0) close_deserted_groups();
  return groups_.emplace(conn.group, std::move(driver)).first->second.get();
}

void Master::Driver::hand_over(ConnId id, wire::Message first) {
  Conn& conn = conns_.at(id);
  const auto group = group_for(conn, first);
  if (!group.ok()) {
    const Status& no = group.status();
    (void)conn.stream->send(wire::encode(wire::Refuse{no.code, no.text}));
    return retire(id, true);
  }
  net::Accepted accepted;
  accepted.adopt_by = conn.adopt_by;
  accepted.network = std::move(conn.network);
  accepted.pending = std::move(conn.pending);
  const std::unique_ptr<net::FramedStream> framed = std::move(conn.stream);
  conns_.erase(id);
  accepted.stream = framed->take();
  if (accepted.stream == nullptr) return;
  Driver& driver = *group.value();
  driver.first_word(driver.on_accepted(std::move(accepted)), std::move(first));
}

bool Master::Driver::is_deserted() const {
  return conns_.empty() && closing_.empty() && inbox_.empty() && machine_->is_deserted();
}

void Master::Driver::close_deserted_groups() {
  const base::Time now = loop_.now();
  for (auto at = groups_.begin(); at != groups_.end();) {
    Driver& group = *at->second;
    const bool deserted = group.is_deserted() && !JCCL_PLANTED("groups-stay-open");
    group.deserted_since_ = deserted ? std::min(group.deserted_since_, now) : base::kNever;
    if (!deserted || now - group.deserted_since_ < config_.group_linger) {
      ++at;
      continue;
    }
    log(cat("group ", at->first, ": closed, as all have left; its journal stays"));
    at = groups_.erase(at);
    bound_members();
  }
  groups_timer_ = loop_.run_after(std::clamp(config_.group_linger / 2, kLookMin, base::kSecond),
                                  [this] { close_deserted_groups(); });
}

// Whom the run has put out is put out of its groups, too; who comes back to one is refused there as
// the run refuses it.
void Master::Driver::tell_groups(const std::vector<wire::Record>& records) {
  if (groups_.empty() || JCCL_PLANTED("groups-keep-the-banned")) return;
  for (const wire::Record& record : records) {
    const auto* ban = std::get_if<wire::BanRecord>(&record);
    const auto* token = std::get_if<wire::TokenRecord>(&record);
    if ((ban == nullptr || ban->until_unix_ms == 0) && (token == nullptr || !token->revoked)) {
      continue;
    }
    for (const auto& [name, group] : groups_) {
      group->put_out([&](const protocol::PeerView& peer) {
        return ban != nullptr ? peer.member.key == ban->key : peer.token == token->token;
      });
    }
  }
}

void Master::Driver::put_out(const std::function<bool(const protocol::PeerView&)>& whom) {
  std::vector<ConnId> gone;
  for (const protocol::PeerView& peer : machine_->view(machine_time()).peers) {
    if (!whom(peer)) continue;
    if (peer.admitted) enqueue(protocol::EvictSite{peer.member.site});
    for (const auto& [id, conn] : conns_) {
      if (!peer.admitted && conn.life == peer.member.incarnation) gone.push_back(id);
    }
  }
  for (const ConnId id : gone) {
    retire(id, false);
    enqueue(protocol::ConnClosed{id});
  }
}

std::vector<Master::Driver*> Master::Driver::all_drivers() {
  std::vector<Driver*> all{this};
  for (const auto& [name, group] : groups_) all.push_back(group.get());
  return all;
}

void Master::Driver::bound_members() {
  Driver& run = run_driver_ == nullptr ? *this : *run_driver_;
  std::size_t members = 0;
  for (const Driver* driver : run.all_drivers()) members += driver->members_.size();
  memory_->max = config_.limits.memory_bytes + members * config_.limits.member_bytes;
}

void Master::Driver::halt() {
  conns_.clear();
  closing_.clear();
  probes_.clear();
  inbox_.clear();
  for (net::TimerId* timer : {&alarm_, &held_timer_, &sweep_timer_, &groups_timer_}) {
    loop_.cancel(std::exchange(*timer, 0));
  }
}

}  // namespace jccl::master
