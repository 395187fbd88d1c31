// jccl-stress-peer: a peer that reduces for ever and checks every result against an oracle, made
// to be killed (tests/stress). One thread per mode, so that tags never wait for each other:
//   f32-in     in place, fp32, sum           int4-out   out of place, int4, mean
//   f32-out    out of place, fp32, mean      async      staged: the input changes after the start
//   int8-in    in place, int8, mean          multi      three arrays of two dtypes, asynchronous
//   fed        out of place, int8, mean; the input comes in parts while the round runs
//   state      in place, sum, into a shared state that is published and that joiners fetch
//   anchor-C   likewise, a mean under codec C that moves an anchor by Nesterov's step, as DiLoCo's
//   alone      f32-in on a tag that nobody else calls: nothing but its deadline ends such a call
// Each call has a weight of its own and contributes values that follow from it (stress_oracle.h):
// the reported weights then say exactly what every result must be, and a journal whose calls it
// counted. Of the tags without a state one call in sixteen has a short deadline. One JSON line per
// call goes to the log, and one per revision. JCCL_FAIL arms a failpoint (net/fail_at.h).
#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "base/text.h"
#include "exchange/stress_oracle.h"
#include "net/fail_at.h"
#include "peer/communicator.h"
#include "peer/stress_log.h"
#include "snapshot/digest.h"

namespace {

using jccl::base::cat;
using jccl::codec::CodecId;
using jccl::codec::Dtype;
using jccl::collective::Op;
using jccl::exchange::stress::input_of;
using jccl::exchange::stress::result_of;
using jccl::peer::Communicator;
using jccl::peer::Leaf;
using jccl::peer::RoundOptions;
using jccl::peer::RoundResult;
using jccl::peer::SyncResult;
using jccl::peer::stress::exact;
using jccl::peer::stress::list_of;
using jccl::peer::stress::Log;
using jccl::peer::stress::milliseconds;
using jccl::peer::stress::quoted;
using jccl::peer::stress::Starvation;

std::atomic<bool> g_stop{false};

struct Settings {
  std::string master = "127.0.0.1:29400";
  std::string log;
  std::string token;
  std::string site;
  std::string bind, advertise, plan;
  std::string modes = "f32-in,f32-out,int8-in,int4-out,async,multi,fed";
  std::uint64_t chunk_bytes = 256 * 1024;
  std::uint32_t shard = 0, shards = 1;
  std::uint64_t elements = 65521;
  std::uint64_t seed = 1;
  std::uint64_t number = 1;  // of this process in its run
  std::uint32_t start_peers = 1;
  double deadline_s = 30;
  int pause_ms = 0;  // between two calls of a tag
};

// Each shard of a site reduces with the same shard of the other sites; ids follow the shards.
std::vector<double> weights_of(const RoundResult& r, const Settings& s) {
  std::vector<double> own;
  for (std::size_t i = s.shard; i < r.weights.size(); i += s.shards) own.push_back(r.weights[i]);
  return own;
}

jccl::base::ByteView bytes_of(const auto& values) {
  return {reinterpret_cast<const std::uint8_t*>(values.data()), values.size() * sizeof(values[0])};
}

struct Mode {
  std::string tag;
  bool in_place = false;
  Op op = Op::kSum;
  CodecId codec = CodecId::kNone;
  enum Kind { kOne, kStaged, kFed, kSeveral, kAlone, kState, kAnchor } kind = kOne;
};

const std::vector<Mode> kFewModes = {{"f32-in", true, Op::kSum, CodecId::kNone, Mode::kOne},
                                     {"f32-out", false, Op::kMean, CodecId::kNone, Mode::kOne},
                                     {"int8-in", true, Op::kMean, CodecId::kInt8, Mode::kOne},
                                     {"int4-out", false, Op::kMean, CodecId::kInt4, Mode::kOne},
                                     {"async", false, Op::kSum, CodecId::kNone, Mode::kStaged},
                                     {"fed", false, Op::kMean, CodecId::kInt8, Mode::kFed},
                                     {"multi", true, Op::kSum, CodecId::kNone, Mode::kSeveral},
                                     {"alone", true, Op::kSum, CodecId::kNone, Mode::kAlone},
                                     {"state", true, Op::kSum, CodecId::kNone, Mode::kState}};

std::vector<Mode> all_modes() {
  std::vector<Mode> modes = kFewModes;
  for (int number = 0; number <= jccl::codec::kCodecNumberMax; ++number) {
    const auto codec = static_cast<CodecId>(number);
    modes.push_back({cat("anchor-", name_of(codec)), true, Op::kMean, codec, Mode::kAnchor});
  }
  return modes;
}

// What all threads of this process use.
struct Peer {
  Communicator& comm;
  const Settings& s;
  Log& log;
  Starvation& starvation;
};

// One call, timed from outside.
struct Call {
  Call(const Peer& of, const Mode& what, double w, double seconds)
      : peer(of), mode(what), weight(w), deadline_ms(seconds * 1e3) {}

  void end() {
    ended = milliseconds();
    starved = peer.starvation.since(begun);
  }
  RoundOptions options() const {
    RoundOptions o;
    o.tag = mode.tag;
    o.op = mode.op;
    o.codec = mode.codec;
    o.weight = weight;
    o.plan = peer.s.plan;
    o.deadline = static_cast<jccl::base::Duration>(deadline_ms * 1e6);
    return o;
  }
  std::string times() const {
    return cat(",\"at\":", ended, ",\"ms\":", ended - begun, ",\"deadline\":", deadline_ms,
               ",\"lag\":", starved);
  }
  void note(const RoundResult& r, bool right, const jccl::base::Digest& digest,
            bool ring = false) const {
    const auto whole = [](auto id) { return cat(id); };
    peer.log.line(cat("{\"tag\":\"", mode.tag, "\",\"shard\":", peer.s.shard, ",\"n\":", r.n,
                      ",\"code\":\"", name_of(r.status.code), "\",\"world\":", r.world,
                      ",\"epoch\":", r.epoch, ",\"attempts\":", r.attempts,
                      ",\"weight\":", exact(weight), ",\"ids\":", list_of(r.contributors, whole),
                      ",\"weights\":", list_of(r.weights, exact), ",\"digest\":\"", to_hex(digest),
                      "\",\"right\":", right ? "true" : "false", times(),
                      ring ? ",\"ring\":true" : "",
                      r.status.ok() ? "" : cat(",\"text\":", quoted(r.status.text)), "}"));
  }

  const Peer& peer;
  const Mode& mode;
  const double weight, deadline_ms;
  const std::int64_t begun = milliseconds();
  std::int64_t ended = 0, starved = 0;
};

// Starts, lets `meanwhile` run, and waits.
RoundResult started(Communicator& comm, const std::vector<Leaf>& leaves, const RoundOptions& o,
                    bool stage, const std::vector<void*>* outs, const auto& meanwhile) {
  auto handle = comm.start(leaves, o, stage);
  if (handle.ok()) {
    meanwhile();
    return comm.wait(handle.value(), outs, jccl::peer::OnFailure::kInput);
  }
  RoundResult refused;
  refused.status = handle.status();
  return refused;
}

// In sixteen parts, as a device's copies come.
void bring(const std::vector<float>& from, std::vector<float>* to,
           jccl::peer::StreamedInput* feed) {
  const std::size_t part = from.size() / 16 + 1;
  for (std::size_t at = 0; at < from.size(); at += part) {
    const std::size_t end = std::min(at + part, from.size());
    std::copy(from.begin() + at, from.begin() + end, to->begin() + at);
    feed->advance(end * sizeof(float));
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

std::vector<float> expected(const Mode& mode, const RoundResult& r, const Settings& s, bool ring) {
  return result_of<float>({mode.op == Op::kMean, mode.codec, ring}, weights_of(r, s), s.elements);
}

RoundResult reduce_one(Call& call) {
  const Settings& s = call.peer.s;
  const Mode& mode = call.mode;
  const std::vector<float> input = input_of<float>(call.weight, s.elements);
  std::vector<float> in = input, out(s.elements, 7.0F);
  RoundOptions o = call.options();
  const bool staged = mode.kind == Mode::kStaged, fed = mode.kind == Mode::kFed;
  Leaf leaf{Dtype::kF32, s.elements, in.data(), mode.in_place ? in.data() : out.data(), "x", {}};
  RoundResult r;
  if (staged) {
    const std::vector<void*> outs{out.data()};
    const auto spoil = [&] { std::fill(in.begin(), in.end(), -1.0F); };
    r = started(call.peer.comm, {leaf}, o, true, &outs, spoil);
    if (r.n == 0 && in == input) out = input;  // refused: nothing was staged
  } else if (fed) {
    std::fill(in.begin(), in.end(), NAN);
    o.feed = std::make_shared<jccl::peer::StreamedInput>(s.elements * sizeof(float));
    r = started(call.peer.comm, {leaf}, o, false, nullptr,
                [&] { bring(input, &in, o.feed.get()); });
    if (!o.feed->whole()) in = input;  // refused
    if (!r.status.ok()) out = input;   // which is the caller's then
  } else {
    r = call.peer.comm.run({leaf}, o);
  }
  call.end();
  const std::vector<float>& result = mode.in_place ? in : out;
  bool right, ring = false;
  if (r.status.ok()) {
    right = result == expected(mode, r, s, false);
    // The judge looks into the journal whether it was one.
    if (!right && mode.codec != CodecId::kNone) ring = right = result == expected(mode, r, s, true);
  } else {
    // An abort is invisible.
    const bool as_input = mode.in_place || staged || fed;
    right = as_input ? result == input : result == std::vector<float>(s.elements, 7.0F);
  }
  right = right && (mode.in_place || staged || in == input);
  call.note(r, right, jccl::snapshot::digest_of(bytes_of(result)), ring);
  return r;
}

RoundResult reduce_several(Call& call) {
  const Settings& s = call.peer.s;
  const double w = call.weight;
  const std::uint64_t n = s.elements / 3 + 1;
  std::vector<float> a = input_of<float>(w, n);
  std::vector<double> b = input_of<double>(w, n);
  std::vector<float> c = input_of<float>(w, 5);
  const std::vector<Leaf> leaves = {{Dtype::kF32, n, a.data(), a.data(), "a", {}},
                                    {Dtype::kF64, n, b.data(), b.data(), "b", {}},
                                    {Dtype::kF32, 5, c.data(), c.data(), "c", {}}};
  const RoundResult r = started(call.peer.comm, leaves, call.options(), false, nullptr, [] {});
  call.end();
  bool right;
  if (r.status.ok()) {
    const std::vector<double> weights = weights_of(r, s);
    right = a == result_of<float>({}, weights, n) && c == result_of<float>({}, weights, 5) &&
            jccl::exchange::stress::nearly(b, result_of<double>({}, weights, n));
  } else {
    right = a == input_of<float>(w, n) && b == input_of<double>(w, n) && c == input_of<float>(w, 5);
  }
  const jccl::base::Digest digests[] = {jccl::snapshot::digest_of(bytes_of(a)),
                                        jccl::snapshot::digest_of(bytes_of(b)),
                                        jccl::snapshot::digest_of(bytes_of(c))};
  call.note(r, right, jccl::snapshot::combine(digests));
  return r;
}

// A state that depends on every round so far: element 0 counts them, the others mix results in; an
// anchor and its momentum take a step.
class State {
 public:
  State(const Peer& peer, const Mode& mode) : peer_(peer), mode_(mode), values_(peer.s.elements) {
    if (mode.kind == Mode::kAnchor)
      anchor_.resize(values_.size()), momentum_.resize(values_.size());
  }

  RoundResult step(Call& call) {
    std::vector<float> x = input_of<float>(call.weight, values_.size());
    RoundOptions options = call.options();
    if (synced_) options.state = jccl::peer::marks_of(leaves());
    const RoundResult r =
        peer_.comm.run({{Dtype::kF32, x.size(), x.data(), x.data(), "x", {}}}, options);
    call.end();
    const auto expect = [&](bool ring) {
      return r.status.ok() ? expected(mode_, r, peer_.s, ring)
                           : input_of<float>(call.weight, x.size());
    };
    bool right = x == expect(false), ring = false;
    if (r.status.ok() && !right) ring = right = x == expect(true);
    call.note(r, right, jccl::snapshot::digest_of(bytes_of(x)), ring);
    if (r.status.ok()) {
      advance(x);
      Call publishing(peer_, mode_, 0, peer_.s.deadline_s);
      note(publishing, peer_.comm.publish(leaves(), options_of(publishing)));
    } else {
      synced_ = false;
    }
    return r;
  }

  // Before a call, unless the last one left the newest revision here. False: it could not.
  bool sync() {
    if (synced_) return true;
    Call syncing(peer_, mode_, 0, peer_.s.deadline_s);
    note(syncing, peer_.comm.sync_state(leaves(), options_of(syncing)));
    return synced_;
  }

 private:
  static jccl::peer::SyncOptions options_of(const Call& call) {
    return {.tag = call.mode.tag, .deadline = call.options().deadline};
  }
  std::vector<Leaf> leaves() {
    return {{Dtype::kI32, values_.size(), values_.data(), values_.data(), "state", {}},
            {Dtype::kF32, anchor_.size(), anchor_.data(), anchor_.data(), "anchor", {}},
            {Dtype::kF32, momentum_.size(), momentum_.data(), momentum_.data(), "momentum", {}}};
  }
  void advance(const std::vector<float>& x) {
    values_[0] += 1;
    for (std::size_t k = 1; k < values_.size() && anchor_.empty(); ++k) {
      values_[k] = static_cast<std::int32_t>((values_[k] * 31LL + std::lround(x[k])) % 65521);
    }
    for (std::size_t k = 0; k < anchor_.size(); ++k) {
      momentum_[k] = 0.9F * momentum_[k] + x[k];
      anchor_[k] -= 0.7F * (x[k] + 0.9F * momentum_[k]);
    }
  }
  void note(Call& call, const SyncResult& r) {
    using jccl::base::Code;
    call.end();
    synced_ = r.status.ok() || r.status.code == Code::kResynced;
    const bool right = !synced_ || static_cast<std::uint64_t>(values_[0]) == r.revision;
    const jccl::base::Digest digests[] = {jccl::snapshot::digest_of(bytes_of(values_)),
                                          jccl::snapshot::digest_of(bytes_of(anchor_)),
                                          jccl::snapshot::digest_of(bytes_of(momentum_))};
    peer_.log.line(cat("{\"tag\":\"", mode_.tag, ".revision\",\"n\":", r.revision, ",\"code\":\"",
                       synced_ ? "Ok" : name_of(r.status.code),
                       "\",\"replaced\":", r.replaced ? "true" : "false", ",\"digest\":\"",
                       to_hex(jccl::snapshot::combine(digests)),
                       "\",\"right\":", right ? "true" : "false", call.times(),
                       synced_ ? "" : cat(",\"text\":", quoted(r.status.text)), "}"));
    if (r.status.code == Code::kStateLost) std::_Exit(3);  // for good: loud and alone
  }

  const Peer& peer_;
  const Mode& mode_;
  std::vector<std::int32_t> values_;
  std::vector<float> anchor_, momentum_;
  bool synced_ = false;
};

double deadline_of(const Mode& mode, const Settings& s, jccl::base::Rng& rng) {
  constexpr double kAlone[] = {0.4, 0.8, 1.5}, kShort[] = {0.3, 1.0};
  if (mode.kind == Mode::kAlone) return kAlone[rng.below(3)];
  // A state would be lost if the deadlines of all ended while the master is away.
  if (mode.kind < Mode::kAlone && rng.below(16) == 0) return kShort[rng.below(2)];
  return s.deadline_s;
}

// A call that ends at once would end at once again; a communicator that was refused stays so.
void give_in(const Peer& peer, const std::string& why) {
  const bool gone = peer.comm.attributes().run == jccl::base::RunId{};
  if (gone && !g_stop) {
    std::fprintf(stderr, "the communicator ended: %s\n", why.c_str());
    std::_Exit(4);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

void work(const Peer& peer, Mode mode, std::uint64_t seed) {
  const Settings& s = peer.s;
  jccl::base::Rng rng(seed);
  if (mode.kind == Mode::kAlone) mode.tag = cat("alone-", s.number % 64);
  State state(peer, mode);
  for (std::uint64_t number = 0; !g_stop; ++number) {
    const double weight = jccl::exchange::stress::weight_of(s.number, number, rng);
    if (mode.kind >= Mode::kState && !state.sync()) {
      give_in(peer, "synchronising failed");
      continue;
    }
    Call call(peer, mode, weight, deadline_of(mode, s, rng));
    const RoundResult r = mode.kind >= Mode::kState     ? state.step(call)
                          : mode.kind == Mode::kSeveral ? reduce_several(call)
                                                        : reduce_one(call);
    if (!r.status.ok()) give_in(peer, jccl::peer::describe(r.status));
    std::this_thread::sleep_for(std::chrono::milliseconds(s.pause_ms));
  }
}

bool parse(int argc, char** argv, Settings* s) {
  const auto small = [](const std::string& v) { return static_cast<std::uint32_t>(std::stoul(v)); };
  const std::map<std::string, std::function<void(const std::string&)>> flags = {
      {"--master", [&](const std::string& v) { s->master = v; }},
      {"--log", [&](const std::string& v) { s->log = v; }},
      {"--token", [&](const std::string& v) { s->token = v; }},
      {"--site", [&](const std::string& v) { s->site = v; }},
      {"--bind", [&](const std::string& v) { s->bind = v; }},
      {"--advertise", [&](const std::string& v) { s->advertise = v; }},
      {"--plan", [&](const std::string& v) { s->plan = v; }},
      {"--modes", [&](const std::string& v) { s->modes = v; }},
      {"--chunk-bytes", [&](const std::string& v) { s->chunk_bytes = std::stoull(v); }},
      {"--shard", [&](const std::string& v) { s->shard = small(v); }},
      {"--shards", [&](const std::string& v) { s->shards = small(v); }},
      {"--elements", [&](const std::string& v) { s->elements = std::stoull(v); }},
      {"--seed", [&](const std::string& v) { s->seed = std::stoull(v); }},
      {"--number", [&](const std::string& v) { s->number = std::stoull(v); }},
      {"--start-peers", [&](const std::string& v) { s->start_peers = small(v); }},
      {"--deadline", [&](const std::string& v) { s->deadline_s = std::stod(v); }},
      {"--pause-ms", [&](const std::string& v) { s->pause_ms = std::stoi(v); }}};
  for (int i = 1; i + 1 < argc; i += 2) {
    const auto flag = flags.find(argv[i]);
    if (flag == flags.end()) return false;
    flag->second(argv[i + 1]);
  }
  return argc % 2 == 1 && !s->log.empty();
}

std::vector<Mode> modes_of(const Settings& s) {
  std::vector<Mode> chosen;
  for (const Mode& mode : all_modes()) {
    if (cat(",", s.modes, ",").find(cat(",", mode.tag, ",")) != std::string::npos) {
      chosen.push_back(mode);
    }
  }
  return chosen;
}

}  // namespace

int main(int argc, char** argv) {
  Settings s;
  if (!parse(argc, argv, &s) || !jccl::net::FailAt::arm(std::getenv("JCCL_FAIL"))) {
    std::fprintf(stderr,
                 "usage: jccl-stress-peer --master HOST:PORT --log FILE [--elements N] "
                 "[--seed S] [--number N] [--start-peers N] [--deadline SECONDS] [--pause-ms N] "
                 "[--token T] "
                 "[--modes TAG,TAG] [--plan NAME] [--bind HOST:PORT] [--advertise HOST:PORT] "
                 "[--chunk-bytes N] [--site NAME --shard I --shards N]\n"
                 "JCCL_FAIL=FAILPOINT:COUNT:ACTION[:MS] in the environment: see net/fail_at.h\n");
    return 2;
  }
  std::signal(SIGTERM, [](int) { g_stop = true; });
  jccl::peer::ConnectOptions options;
  options.master = s.master;
  if (std::getenv("JCCL_TEST_IO_THREADS") != nullptr) options.io_threads = true;
  options.token = s.token;
  options.start_peers = s.start_peers;
  options.site = s.site;
  options.shard = s.shard;
  options.shards = s.shards;
  options.bind = s.bind;
  options.chunk_bytes = s.chunk_bytes;
  if (!s.advertise.empty()) options.advertise = {s.advertise};
  auto comm = Communicator::connect(options);
  if (!comm.ok()) {
    std::fprintf(stderr, "%s\n", jccl::peer::describe(comm.status()).c_str());
    return 1;
  }
  Log log(s.log);
  const std::vector<Mode> modes = modes_of(s);
  Starvation starvation(log);
  const Peer peer{*comm.value(), s, log, starvation};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < modes.size(); ++i) {
    threads.emplace_back([&, i] { work(peer, modes[i], s.seed * 31 + i); });
  }
  while (!g_stop) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  comm.value()->close();
  for (std::thread& t : threads) t.join();
  return 0;
}
