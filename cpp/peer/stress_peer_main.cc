// jccl-stress-peer: a peer that reduces for ever and checks every result against an oracle, made
// to be killed (tests/stress). One thread per mode, so that tags never wait for each other:
//   f32-in     in place, fp32, sum           int4-out   out of place, int4, mean
//   f32-out    out of place, fp32, mean      async      staged: the input changes after the start
//   int8-in    in place, int8, mean          multi      three arrays of two dtypes, asynchronous
//   fed        out of place, int8, mean; the input comes in parts while the round runs
//   state      in place, sum, into a shared state that is published and that joiners fetch
//   anchor-C   likewise, a mean under codec C that moves an anchor by Nesterov's step, as DiLoCo's
// Each call draws a weight w from 1..997 and contributes g(w, k): the reported weights then say
// exactly what every result must be. One JSON line per call goes to the log, and one per revision.
// JCCL_FAIL arms a failpoint (net/fail_at.h).
#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "base/text.h"
#include "collective/kernels.h"
#include "collective/plan.h"
#include "net/fail_at.h"
#include "peer/communicator.h"
#include "snapshot/digest.h"

namespace {

using jccl::base::cat;
using jccl::codec::Codec;
using jccl::codec::CodecId;
using jccl::codec::Dtype;
using jccl::collective::Op;
using jccl::peer::Communicator;
using jccl::peer::Leaf;
using jccl::peer::RoundOptions;
using jccl::peer::RoundResult;
using jccl::peer::SyncResult;

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
  std::uint64_t elements = 65536;
  std::uint64_t seed = 1;
  std::uint32_t start_peers = 1;
  double deadline_s = 30;
};

// Small integers, so that fp32 sums are exact whatever the order.
std::int32_t g(double weight, std::uint64_t k) {
  jccl::base::Rng rng(static_cast<std::uint64_t>(weight) * 0x9E3779B97F4A7C15ULL + k);
  return static_cast<std::int32_t>(rng.next() % 17) - 8;
}

template <typename T>
std::vector<T> input_of(double weight, std::uint64_t count) {
  std::vector<T> values(count);
  for (std::uint64_t k = 0; k < count; ++k) values[k] = static_cast<T>(g(weight, k));
  return values;
}

// What the documented encode–add–encode formula gives for these contributions, in this order. In a
// ring, which is left when links failed, only the result is encoded.
template <typename T>
std::vector<T> oracle(Op op, Dtype dtype, const Codec& codec, const std::vector<double>& weights,
                      std::uint64_t count, bool ring = false) {
  const Codec given = ring ? Codec{} : codec;
  const Codec result = jccl::collective::result_codec(codec, weights.size());
  std::vector<std::uint8_t> acc(jccl::collective::accumulator_bytes(dtype, count));
  std::vector<std::uint8_t> encoded(
      std::max(jccl::codec::encoded_bytes(CodecId::kNone, dtype, count),
               jccl::codec::encoded_bytes(result, dtype, count)));
  double sum = 0;
  bool first = true;
  for (double w : weights) {
    const std::vector<T> x = input_of<T>(w, count);
    jccl::codec::encode(given, dtype, x.data(), count, encoded.data());
    jccl::collective::accumulate(op, dtype, given, first, encoded.data(), count, w, acc.data());
    sum += w;
    first = false;
  }
  jccl::collective::finish(op, dtype, result, acc.data(), count, sum, encoded.data());
  std::vector<T> out(count);
  jccl::codec::decode(result, dtype, encoded.data(), count, out.data());
  return out;
}

class Log {
 public:
  explicit Log(const std::string& path) : file_(std::fopen(path.c_str(), "a")) {}
  void line(const std::string& text) {
    std::lock_guard lock(mutex_);
    std::fprintf(file_, "%s\n", text.c_str());
    std::fflush(file_);
  }

 private:
  std::FILE* file_;
  std::mutex mutex_;
};

std::string list_of(const auto& values) {
  std::string text;
  for (const auto& v : values) text += cat(text.empty() ? "" : ",", static_cast<std::int64_t>(v));
  return "[" + text + "]";
}

// Of the clock that all processes of a machine share.
std::int64_t milliseconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 32 ? ' ' : c;
  }
  return out + "\"";
}

// Each shard of a site reduces with the same shard of the other sites; ids follow the shards.
std::vector<double> weights_of(const RoundResult& r, const Settings& s) {
  std::vector<double> own;
  for (std::size_t i = s.shard; i < r.weights.size(); i += s.shards) own.push_back(r.weights[i]);
  return own;
}

std::string line_of(const std::string& tag, const RoundResult& r, bool right,
                    const jccl::base::Digest& digest, const Settings& s, bool ring = false) {
  return cat("{\"tag\":\"", tag, "\",\"shard\":", s.shard, ",\"n\":", r.n, ",\"code\":\"",
             name_of(r.status.code), "\",\"world\":", r.world, ",\"epoch\":", r.epoch,
             ",\"attempts\":", r.attempts, ",\"ids\":", list_of(r.contributors),
             ",\"weights\":", list_of(r.weights), ",\"digest\":\"", to_hex(digest),
             "\",\"right\":", right ? "true" : "false", ",\"ms\":", r.elapsed / 1000000,
             ",\"at\":", milliseconds(), ring ? ",\"ring\":true" : "",
             r.status.ok() ? "" : cat(",\"text\":", quoted(r.status.text)), "}");
}

jccl::base::ByteView bytes_of(const auto& values) {
  return {reinterpret_cast<const std::uint8_t*>(values.data()), values.size() * sizeof(values[0])};
}

struct Mode {
  std::string tag;
  bool in_place = false;
  Op op = Op::kSum;
  CodecId codec = CodecId::kNone;
  enum Kind { kOne, kStaged, kFed, kSeveral, kState, kAnchor } kind = kOne;
};

const std::vector<Mode> kFewModes = {{"f32-in", true, Op::kSum, CodecId::kNone, Mode::kOne},
                                     {"f32-out", false, Op::kMean, CodecId::kNone, Mode::kOne},
                                     {"int8-in", true, Op::kMean, CodecId::kInt8, Mode::kOne},
                                     {"int4-out", false, Op::kMean, CodecId::kInt4, Mode::kOne},
                                     {"async", false, Op::kSum, CodecId::kNone, Mode::kStaged},
                                     {"fed", false, Op::kMean, CodecId::kInt8, Mode::kFed},
                                     {"multi", true, Op::kSum, CodecId::kNone, Mode::kSeveral},
                                     {"state", true, Op::kSum, CodecId::kNone, Mode::kState}};

std::vector<Mode> all_modes() {
  std::vector<Mode> modes = kFewModes;
  for (int number = 0; number <= jccl::codec::kCodecNumberMax; ++number) {
    const auto codec = static_cast<CodecId>(number);
    modes.push_back({cat("anchor-", name_of(codec)), true, Op::kMean, codec, Mode::kAnchor});
  }
  return modes;
}

RoundOptions options_of(const Mode& mode, double w, const Settings& s) {
  RoundOptions o;
  o.tag = mode.tag;
  o.op = mode.op;
  o.codec = mode.codec;
  o.weight = w;
  o.plan = s.plan;
  o.deadline = static_cast<jccl::base::Duration>(s.deadline_s * 1e9);
  return o;
}

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
void bring(const std::vector<float>& from, std::vector<float>* to, jccl::peer::Feed* feed) {
  const std::size_t part = from.size() / 16 + 1;
  for (std::size_t at = 0; at < from.size(); at += part) {
    const std::size_t end = std::min(at + part, from.size());
    std::copy(from.begin() + at, from.begin() + end, to->begin() + at);
    feed->advance(end * sizeof(float));
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

RoundResult reduce_one(Communicator& comm, const Mode& mode, double w, const Settings& s,
                       Log& log) {
  const std::vector<float> input = input_of<float>(w, s.elements);
  std::vector<float> in = input, out(s.elements, 7.0F);
  RoundOptions o = options_of(mode, w, s);
  const bool staged = mode.kind == Mode::kStaged, fed = mode.kind == Mode::kFed;
  Leaf leaf{Dtype::kF32, s.elements, in.data(), mode.in_place ? in.data() : out.data(), "x", {}};
  RoundResult r;
  if (staged) {
    const std::vector<void*> outs{out.data()};
    const auto spoil = [&] { std::fill(in.begin(), in.end(), -1.0F); };
    r = started(comm, {leaf}, o, true, &outs, spoil);
    if (r.n == 0 && in == input) out = input;  // refused: nothing was staged
  } else if (fed) {
    std::fill(in.begin(), in.end(), NAN);
    o.feed = std::make_shared<jccl::peer::Feed>(s.elements * sizeof(float));
    r = started(comm, {leaf}, o, false, nullptr, [&] { bring(input, &in, o.feed.get()); });
    if (!o.feed->whole()) in = input;  // refused
    if (!r.status.ok()) out = input;   // which is the caller's then
  } else {
    r = comm.run({leaf}, o);
  }
  const std::vector<float>& result = mode.in_place ? in : out;
  bool right, ring = false;
  if (r.status.ok()) {
    const auto expected = [&](bool as_ring) {
      return oracle<float>(mode.op, Dtype::kF32, mode.codec, weights_of(r, s), s.elements, as_ring);
    };
    right = result == expected(false);
    // The judge looks into the journal whether it was one.
    if (!right && mode.codec != CodecId::kNone) ring = right = result == expected(true);
  } else {
    // An abort is invisible.
    const bool as_input = mode.in_place || staged || fed;
    right = as_input ? result == input : result == std::vector<float>(s.elements, 7.0F);
  }
  right = right && (mode.in_place || staged || in == input);
  log.line(line_of(mode.tag, r, right, jccl::snapshot::digest_of(bytes_of(result)), s, ring));
  return r;
}

RoundResult reduce_several(Communicator& comm, const Mode& mode, double w, const Settings& s,
                           Log& log) {
  const std::uint64_t n = s.elements / 3 + 1;
  std::vector<float> a = input_of<float>(w, n);
  std::vector<double> b = input_of<double>(w, n);
  std::vector<float> c = input_of<float>(w, 5);
  const std::vector<Leaf> leaves = {{Dtype::kF32, n, a.data(), a.data(), "a", {}},
                                    {Dtype::kF64, n, b.data(), b.data(), "b", {}},
                                    {Dtype::kF32, 5, c.data(), c.data(), "c", {}}};
  const RoundResult r = started(comm, leaves, options_of(mode, w, s), false, nullptr, [] {});
  bool right;
  if (r.status.ok()) {
    right = a == oracle<float>(Op::kSum, Dtype::kF32, CodecId::kNone, weights_of(r, s), n) &&
            b == oracle<double>(Op::kSum, Dtype::kF64, CodecId::kNone, weights_of(r, s), n) &&
            c == oracle<float>(Op::kSum, Dtype::kF32, CodecId::kNone, weights_of(r, s), 5);
  } else {
    right = a == input_of<float>(w, n) && b == input_of<double>(w, n) && c == input_of<float>(w, 5);
  }
  const jccl::base::Digest digests[] = {jccl::snapshot::digest_of(bytes_of(a)),
                                        jccl::snapshot::digest_of(bytes_of(b)),
                                        jccl::snapshot::digest_of(bytes_of(c))};
  log.line(line_of(mode.tag, r, right, jccl::snapshot::combine(digests), s));
  return r;
}

// A state that depends on every round so far: element 0 counts them, the others mix results in; an
// anchor and its momentum take a step.
class State {
 public:
  State(Communicator& comm, const Mode& mode, const Settings& s, Log& log)
      : comm_(comm), mode_(mode), s_(s), log_(log), values_(s.elements) {
    if (mode.kind == Mode::kAnchor) anchor_.resize(s.elements), momentum_.resize(s.elements);
  }

  RoundResult step(double w) {
    if (!synced_) sync();
    std::vector<float> x = input_of<float>(w, s_.elements);
    RoundOptions options = options_of(mode_, w, s_);
    if (synced_) options.state = jccl::peer::marks_of(leaves());
    const RoundResult r =
        comm_.run({{Dtype::kF32, s_.elements, x.data(), x.data(), "x", {}}}, options);
    const auto expected = [&](bool ring) {
      return r.status.ok() ? oracle<float>(mode_.op, Dtype::kF32, mode_.codec, weights_of(r, s_),
                                           s_.elements, ring)
                           : input_of<float>(w, s_.elements);
    };
    const bool ring = r.status.ok() && x != expected(false);
    const bool right = x == expected(ring);
    log_.line(line_of(mode_.tag, r, right, jccl::snapshot::digest_of(bytes_of(x)), s_, ring));
    if (r.status.ok()) {
      advance(x);
      note(comm_.publish(leaves(), {mode_.tag, false, 0}));
    } else {
      synced_ = false;
    }
    return r;
  }

 private:
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
  void sync() { note(comm_.sync_state(leaves(), {mode_.tag, false, 0})); }
  void note(const SyncResult& r) {
    using jccl::base::Code;
    synced_ = r.status.ok() || r.status.code == Code::kResynced;
    const bool right = !synced_ || static_cast<std::uint64_t>(values_[0]) == r.revision;
    const jccl::base::Digest digests[] = {jccl::snapshot::digest_of(bytes_of(values_)),
                                          jccl::snapshot::digest_of(bytes_of(anchor_)),
                                          jccl::snapshot::digest_of(bytes_of(momentum_))};
    log_.line(cat("{\"tag\":\"", mode_.tag, ".revision\",\"n\":", r.revision, ",\"code\":\"",
                  synced_ ? "Ok" : name_of(r.status.code),
                  "\",\"replaced\":", r.replaced ? "true" : "false", ",\"digest\":\"",
                  to_hex(jccl::snapshot::combine(digests)),
                  "\",\"right\":", right ? "true" : "false", ",\"at\":", milliseconds(),
                  synced_ ? "" : cat(",\"text\":", quoted(r.status.text)), "}"));
    if (r.status.code == Code::kStateLost) std::_Exit(3);  // for good: loud and alone
  }

  Communicator& comm_;
  const Mode& mode_;
  const Settings& s_;
  Log& log_;
  std::vector<std::int32_t> values_;
  std::vector<float> anchor_, momentum_;
  bool synced_ = false;
};

void work(Communicator& comm, const Mode& mode, const Settings& s, std::uint64_t seed, Log& log) {
  jccl::base::Rng rng(seed);
  State state(comm, mode, s, log);
  while (!g_stop) {
    const double w = static_cast<double>(1 + rng.below(997));
    const RoundResult r = mode.kind >= Mode::kState     ? state.step(w)
                          : mode.kind == Mode::kSeveral ? reduce_several(comm, mode, w, s, log)
                                                        : reduce_one(comm, mode, w, s, log);
    if (comm.attributes().run == jccl::base::RunId{}) break;
    // A call that ends at once would end at once again.
    if (!r.status.ok()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
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
      {"--start-peers", [&](const std::string& v) { s->start_peers = small(v); }},
      {"--deadline", [&](const std::string& v) { s->deadline_s = std::stod(v); }}};
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
                 "[--seed S] [--start-peers N] [--deadline SECONDS] [--token T] "
                 "[--modes TAG,TAG] [--plan NAME] [--bind HOST:PORT] [--advertise HOST:PORT] "
                 "[--chunk-bytes N] [--site NAME --shard I --shards N]\n"
                 "JCCL_FAIL=FAILPOINT:COUNT:ACTION[:MS] in the environment: see net/fail_at.h\n");
    return 2;
  }
  std::signal(SIGTERM, [](int) { g_stop = true; });
  jccl::peer::ConnectOptions options;
  options.master = s.master;
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
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < modes.size(); ++i) {
    threads.emplace_back([&, i] { work(*comm.value(), modes[i], s, s.seed * 31 + i, log); });
  }
  while (!g_stop) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  comm.value()->close();
  for (std::thread& t : threads) t.join();
  return 0;
}
