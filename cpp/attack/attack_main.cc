// jccl-attack: the parts of an attacked run, each a process (tests/attack).
//   rows      prints the table of attacks
//   master    serves a run and prints its status all the time
//   honest    three honest members, or as many as --honest says
//   hostile   one member that lies as --row says (names with commas: by turns), from its --after'th
//             round on; banned it comes back, and with the row fresh-keys as somebody else
//   flood     what connections of strangers cost a master, beside one that accepts and closes
// One JSON line each on standard output; the run's secret is in JCCL_TOKEN. Ends at SIGTERM.
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "attack/crowd.h"
#include "attack/detour.h"
#include "attack/flood.h"
#include "attack/frame_liar.h"
#include "attack/liar.h"
#include "attack/member.h"
#include "attack/rows.h"
#include "base/text.h"
#include "master/master.h"
#include "net/security/identity.h"
#include "peer/control_hook.h"
#include "peer/stress_log.h"

namespace jccl::attack {
namespace {

using base::cat;
using base::kMillisecond;
using peer::stress::milliseconds;
using peer::stress::quoted;

constexpr base::Duration kWelcomeMax = 8 * base::kSecond;
constexpr auto kReportEvery = std::chrono::milliseconds(200);
constexpr std::uint64_t kEarly = 2;  // faults; a third would be a ban
constexpr auto kBackAfter = std::chrono::milliseconds(100);

std::atomic<bool> g_stop{false};

struct Settings {
  std::string master, folder, rows = "none", straggler = "wait";
  std::string secret, plan;
  std::uint64_t honest = 3, elements = 1021, after = 20, seed = 1, step_ms = 20;
  std::uint64_t connections = 5000;
  double straggler_after_s = 10, audit = 0;
};

void say(const std::string& line) {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

const char* text(bool value) { return value ? "true" : "false"; }

int print_rows() {
  for (const RowInfo& row : all_rows()) {
    say(cat("{\"name\":\"", row.name, "\",\"does\":\"", row.does, "\",\"lies\":", text(row.lies),
            ",\"named\":", text(row.named), ",\"evict\":", text(row.evict),
            ",\"audit\":", text(row.audit), "}"));
  }
  return 0;
}

int serve(const Settings& s) {
  master::MasterConfig config;
  config.token = s.secret;
  config.start_peers = static_cast<std::uint32_t>(s.honest + 1);
  config.straggler = s.straggler;
  config.audit = s.audit;
  config.straggler_after = static_cast<base::Duration>(s.straggler_after_s * 1e9);
  config.history = s.folder + "/history.jsonl";
  config.store = cat("sqlite:", s.folder, "/journal.db");
  std::atomic<bool> failed{false};
  config.on_failure = [&](const base::Status&) { failed = true; };
  const auto master = master::Master::start(config);
  if (!master.ok()) {
    std::fprintf(stderr, "%s\n", master.status().text.c_str());
    return 1;
  }
  say(cat("{\"address\":\"", master.value()->address(), "\"}"));
  while (!g_stop && !failed) {
    say(cat("{\"t\":", milliseconds(), ",\"status\":", master.value()->status_json(), "}"));
    std::this_thread::sleep_for(kReportEvery);
  }
  return failed ? 1 : 0;
}

base::Result<std::shared_ptr<peer::Communicator>> connect(const Settings& s,
                                                          const std::string& site,
                                                          const std::string& token,
                                                          const std::string& key_file,
                                                          bool elsewhere = false) {
  peer::ConnectOptions options;
  options.master = s.master;
  options.token = token;
  options.site = site;
  options.key_file = key_file;
  if (std::getenv("JCCL_TEST_IO_THREADS") != nullptr) options.io_threads = true;
  if (elsewhere) options.advertise = {"10.0.0.1:4711", "169.254.169.254:80", "127.0.0.1:22"};
  return peer::Communicator::connect(options);
}

void work(Member& member, const Settings& s) {
  while (!g_stop && member.step()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(s.step_ms));  // it computes
  }
}

// Two for each communicator: one a tag.
std::vector<std::unique_ptr<Member>> members_of(const std::shared_ptr<peer::Communicator>& comm,
                                                std::uint64_t number, const Settings& s,
                                                Board* board) {
  std::vector<std::unique_ptr<Member>> members;
  for (const char* tag : kTags) {
    members.push_back(std::make_unique<Member>(comm, tag, 2 * number + members.size(), s.elements,
                                               board, s.plan));
  }
  return members;
}

std::string report_of(Member& member, const std::string& site,
                      const std::shared_ptr<peer::Communicator>& comm) {
  Tally& tally = member.tally();
  std::string codes, last, took;
  {
    std::lock_guard lock(tally.mutex);
    for (const double ms : std::exchange(tally.took_ms, {})) {
      took += cat(took.empty() ? "" : ",", ms);
    }
    for (const auto& [code, count] : tally.codes) {
      codes += cat(codes.empty() ? "\"" : ",\"", code, "\":", count);
    }
    last = tally.last;
  }
  return cat("{\"t\":", milliseconds(), ",\"site\":\"", site, "\",\"tag\":\"", member.tag(),
             "\",\"rounds\":", tally.rounds.load(), ",\"wrong\":", tally.wrong.load(),
             ",\"left_out\":", tally.left_out.load(), ",\"failed\":", tally.failed.load(),
             ",\"life\":\"", base::to_hex(comm->attributes().incarnation), "\",\"codes\":{", codes,
             "},\"took_ms\":[", took, "],\"last\":", quoted(last), "}");
}

// Newcomers of the honest, from another address than the hostile: whether they are welcome,
// whatever else goes on.
void visit(const Settings& s) {
  const Detour detour(s.master);
  std::uint64_t guests = 0, kept_out = 0;
  while (!g_stop) {
    peer::ConnectOptions options;
    options.master = detour.address(), options.token = s.secret;
    options.connect_timeout = kWelcomeMax;
    const auto comm = peer::Communicator::connect(options);
    ++guests, kept_out += !comm.ok() && !g_stop;
    say(cat("{\"guests\":", guests, ",\"kept_out\":", kept_out,
            ",\"text\":", quoted(comm.ok() ? "" : comm.status().text), "}"));
    if (comm.ok()) comm.value()->close();
    std::this_thread::sleep_for(kReportEvery);
  }
}

int be_honest(const Settings& s) {
  Board board;
  std::vector<std::shared_ptr<peer::Communicator>> comms;
  std::vector<std::unique_ptr<Member>> members;
  for (std::size_t i = 0; i < s.honest; ++i) {
    auto comm = connect(s, cat("honest-", i + 1), s.secret, "");
    if (!comm.ok()) return std::fprintf(stderr, "%s\n", comm.status().text.c_str()), 1;
    comms.push_back(comm.value());
    for (auto& member : members_of(comm.value(), i + 1, s, &board)) {
      members.push_back(std::move(member));
    }
  }
  std::vector<std::thread> threads;
  for (auto& member : members) threads.emplace_back([&] { work(*member, s); });
  threads.emplace_back([&] { visit(s); });
  while (!g_stop) {
    std::this_thread::sleep_for(kReportEvery);
    for (std::size_t i = 0; i < members.size(); ++i) {
      const std::size_t of = i / std::size(kTags);
      say(report_of(*members[i], cat("honest-", of + 1), comms[of]));
    }
  }
  for (auto& comm : comms) comm->close();
  for (std::thread& thread : threads) thread.join();
  return 0;
}

// ---- the hostile member ------------------------------------------------------------------------

struct Plan {
  std::vector<Row> rows;
  bool fresh_keys = false;
  bool early = false;      // a fresh key before the ban
  bool elsewhere = false;  // comes back with addresses of others
  bool forges = false;
  std::vector<Crowd> crowds;
};

const std::map<Row, std::vector<Crowd>>& crowds_of_rows() {
  static const std::map<Row, std::vector<Crowd>> crowds = {
      {Row::kChurn, std::vector<Crowd>(4, come_and_go)},
      {Row::kStatusFlood, std::vector<Crowd>(4, ask_for_status)},
      {Row::kHoldLeave, {hold_and_leave}},
      {Row::kHoldFresh, {hold_until_evicted}},
      {Row::kHoard, {hoard}},
      {Row::kHalfSite, {half_a_site}},
      {Row::kImpostor, {impersonate}},
      {Row::kFormer, {ask_after_leaving}},
      {Row::kUnread, {ask_and_not_read}},
      {Row::kUnreadNone, {ask_for_none}},
      {Row::kMadeUpLinks, {make_up_links}},
      {Row::kSameLife, {take_lives}},
      {Row::kCrowded, {observe}},
      {Row::kStatusCrowd, {observe_less, ask_for_status, ask_for_status}},
      {Row::kNames, {drive_terminals}},
      {Row::kOneByte, {say_one_byte}},
  };
  return crowds;
}

bool read_plan(const std::string& names, Plan* plan) {
  for (std::size_t at = 0; at <= names.size();) {
    const std::size_t end = std::min(names.find(',', at), names.size());
    const auto row = row_named(names.substr(at, end - at));
    if (!row) return false;
    at = end + 1;
    plan->early = plan->early || row->row == Row::kFreshKeysEarly;
    plan->fresh_keys = plan->fresh_keys || plan->early || row->row == Row::kFreshKeys;
    plan->elsewhere = plan->elsewhere || row->row == Row::kElsewhere;
    plan->forges = plan->forges || row->row == Row::kWeightless;
    const auto crowds = crowds_of_rows().find(row->row);
    if (crowds != crowds_of_rows().end()) {
      plan->crowds.insert(plan->crowds.end(), crowds->second.begin(), crowds->second.end());
    }
    if (row->row != Row::kMixture) plan->rows.push_back(row->row);
    for (const RowInfo& one : all_rows()) {
      if (row->row == Row::kMixture && one.lies && !one.audit) plan->rows.push_back(one.row);
    }
  }
  return true;
}

class Hostile {
 public:
  Hostile(const Settings& s, const Plan& plan, Liar& liar, FrameLiar& frames)
      : s_(s),
        plan_(plan),
        liar_(liar),
        frames_(frames),
        token_(plan.fresh_keys ? token_for_all(s.secret) : token_for_one(s.secret)) {}

  int run() {
    std::vector<std::thread> crowd;
    for (std::uint64_t key = 0; !g_stop; key += plan_.fresh_keys) {
      if (!live(key, &crowd)) std::this_thread::sleep_for(kBackAfter);
    }
    for (std::thread& thread : crowd) thread.join();
    say(cat("{\"event\":\"end\",\"t\":", milliseconds(),
            ",\"lies\":", liar_.told() + frames_.told(), ",\"crowd\":", crowd_count_.load(),
            ",\"answered\":", answered_.load(), "}"));
    return 0;
  }

 private:
  // One communicator, until it is banned. False: it could not join.
  bool live(std::uint64_t key, std::vector<std::thread>* crowd) {
    const std::string site = key == 0 ? "hostile" : cat("hostile-", key);
    const std::string file = cat(s_.folder, "/key-", key);
    if (!net::Identity::open(file).ok()) return false;
    liar_.is(site);
    const bool elsewhere = armed_ && plan_.elsewhere;
    const auto comm = connect(s_, site, token_, file, elsewhere);
    if (!comm.ok()) return refused(comm.status()), false;
    say_key(file);
    crowd_count_ += elsewhere;
    const std::uint64_t caught = liar_.caught();
    auto members = members_of(comm.value(), s_.honest + 1 + key, s_, nullptr);
    for (auto& member : members) member->lend_to(&frames_);
    if (armed_ && plan_.forges) members[1]->forge();
    std::thread other([&] { work(*members[1], s_); });
    while (!g_stop && members[0]->step()) {
      if (!armed_ && members[0]->tally().rounds >= s_.after) {
        begin(crowd);
        if (plan_.forges) members[1]->forge();
        if (plan_.elsewhere) break;
      }
      if (plan_.early && liar_.caught() >= caught + kEarly) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(s_.step_ms));
    }
    if (!g_stop) refused(members[0]->last());
    comm.value()->close();
    other.join();
    return true;
  }

  void begin(std::vector<std::thread>* crowd) {
    armed_ = true;
    say(cat("{\"event\":\"attack\",\"t\":", milliseconds(), "}"));
    liar_.arm();
    frames_.arm();
    const std::string file = s_.folder + "/key-holder";
    if (!plan_.crowds.empty()) say_key(file);
    for (const auto& one : plan_.crowds) {
      crowd->emplace_back([this, one, file] {
        // What its own work takes is no cost of the run's: of this thread and those it begins.
        (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), 19);
        one({s_.master, s_.secret, s_.elements, file, [this] { return liar_.known(); }, &answered_},
            g_stop, crowd_count_);
      });
    }
  }

  static void say_key(const std::string& file) {
    const auto identity = net::Identity::open(file);
    if (!identity.ok()) return;
    say(cat("{\"event\":\"key\",\"t\":", milliseconds(), ",\"key\":\"",
            base::to_hex(identity.value().key()), "\"}"));
  }

  void refused(const base::Status& status) {
    if (status.code == base::Code::kBanned && !banned_) {
      banned_ = true;
      say(cat("{\"event\":\"banned\",\"t\":", milliseconds(), ",\"text\":", quoted(status.text),
              "}"));
    }
  }

  const Settings& s_;
  const Plan& plan_;
  Liar& liar_;
  FrameLiar& frames_;
  const std::string token_;
  bool armed_ = false, banned_ = false;
  std::atomic<std::uint64_t> crowd_count_{0}, answered_{0};
};

int be_hostile(const Settings& s) {
  Plan plan;
  if (!read_plan(s.rows, &plan))
    return std::fprintf(stderr, "no such row: %s\n", s.rows.c_str()), 2;
  Liar liar(plan.rows, s.seed);
  peer::control_hook = &liar;
  FrameLiar frames(plan.rows, s.secret.empty());
  peer::frame_hook = &frames;
  return Hostile(s, plan, liar, frames).run();
}

bool parse(int argc, char** argv, Settings* s) {
  const std::map<std::string, std::function<void(const std::string&)>> flags = {
      {"--master", [&](const std::string& v) { s->master = v; }},
      {"--folder", [&](const std::string& v) { s->folder = v; }},
      {"--row", [&](const std::string& v) { s->rows = v; }},
      {"--straggler", [&](const std::string& v) { s->straggler = v; }},
      {"--straggler-after", [&](const std::string& v) { s->straggler_after_s = std::stod(v); }},
      {"--audit", [&](const std::string& v) { s->audit = std::stod(v); }},
      {"--plan", [&](const std::string& v) { s->plan = v; }},
      {"--honest", [&](const std::string& v) { s->honest = std::stoull(v); }},
      {"--elements", [&](const std::string& v) { s->elements = std::stoull(v); }},
      {"--after", [&](const std::string& v) { s->after = std::stoull(v); }},
      {"--step-ms", [&](const std::string& v) { s->step_ms = std::stoull(v); }},
      {"--connections", [&](const std::string& v) { s->connections = std::stoull(v); }},
      {"--seed", [&](const std::string& v) { s->seed = std::stoull(v); }}};
  for (int i = 2; i + 1 < argc; i += 2) {
    const auto flag = flags.find(argv[i]);
    if (flag == flags.end()) return false;
    flag->second(argv[i + 1]);
  }
  const char* secret = std::getenv("JCCL_TOKEN");
  if (secret != nullptr) s->secret = secret;
  return argc % 2 == 0;
}

int run(int argc, char** argv) {
  Settings s;
  const std::string role = argc > 1 ? argv[1] : "";
  if (parse(argc, argv, &s)) {
    std::signal(SIGTERM, [](int) { g_stop = true; });
    std::signal(SIGPIPE, SIG_IGN);
    if (role == "rows") return print_rows();
    if (role == "flood") return flood(s.secret, s.connections);
    if (role == "master") return serve(s);
    if (role == "honest") return be_honest(s);
    if (role == "hostile") return be_hostile(s);
  }
  std::fprintf(stderr,
               "usage: jccl-attack rows | flood [--connections N] | master|honest|hostile "
               "[--master HOST:PORT] [--folder DIR] [--honest N] "
               "[--row NAME,NAME] [--straggler HOW] [--straggler-after S] [--audit Q] [--plan "
               "NAME] [--elements N] "
               "[--after ROUNDS] [--step-ms N] [--seed N]\n");
  return 2;
}

}  // namespace
}  // namespace jccl::attack

int main(int argc, char** argv) { return jccl::attack::run(argc, argv); }
