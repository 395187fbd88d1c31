// jccl-stress-peer: a peer that reduces for ever and checks every result against an oracle, made
// to be killed (tests/stress.py). One thread per tag, so that tags never wait for each other:
//   f32-in     in place, fp32, sum           int8-in   in place, int8, weighted mean
//   f32-out    out of place, fp32, mean      multi     three arrays of three dtypes, asynchronous
// Each call draws a weight w from 1..997 and contributes g(w, k): the reported weights then say
// exactly what every result must be. One JSON line per call goes to the log.
#include <csignal>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "base/text.h"
#include "collective/kernels.h"
#include "peer/communicator.h"
#include "snapshot/digest.h"

namespace {

using jccl::base::cat;
using jccl::codec::CodecId;
using jccl::codec::Dtype;
using jccl::collective::Op;
using jccl::peer::Communicator;
using jccl::peer::Leaf;
using jccl::peer::RoundOptions;
using jccl::peer::RoundResult;

std::atomic<bool> g_stop{false};

struct Settings {
  std::string master = "127.0.0.1:29400";
  std::string log;
  std::string token;
  std::string site;
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

// What the documented encode–add–encode formula gives for these contributions, in this order.
template <typename T>
std::vector<T> oracle(Op op, Dtype dtype, CodecId codec, const std::vector<double>& weights,
                      std::uint64_t count, bool unit_weights) {
  std::vector<std::uint8_t> acc(jccl::collective::accumulator_bytes(dtype, count));
  std::vector<std::uint8_t> encoded(jccl::codec::encoded_bytes(codec, dtype, count));
  double sum = 0;
  bool first = true;
  for (double w : weights) {
    const std::vector<T> x = input_of<T>(w, count);
    jccl::codec::encode(codec, dtype, x.data(), count, encoded.data());
    const double used = unit_weights ? 1.0 : w;
    jccl::collective::accumulate(op, dtype, codec, first, encoded.data(), count, used, acc.data());
    sum += used;
    first = false;
  }
  jccl::collective::finish(op, dtype, codec, acc.data(), count, sum, encoded.data());
  std::vector<T> out(count);
  jccl::codec::decode(codec, dtype, encoded.data(), count, out.data());
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

std::string line_of(const std::string& tag, const RoundResult& r, bool right,
                    const jccl::base::Digest& digest) {
  return cat("{\"tag\":\"", tag, "\",\"n\":", r.n, ",\"code\":\"", name_of(r.status.code),
             "\",\"world\":", r.world, ",\"epoch\":", r.epoch, ",\"attempts\":", r.attempts,
             ",\"ids\":", list_of(r.contributors), ",\"weights\":", list_of(r.weights),
             ",\"digest\":\"", to_hex(digest), "\",\"right\":", right ? "true" : "false",
             ",\"ms\":", r.elapsed / 1000000, "}");
}

jccl::base::ByteView bytes_of(const auto& values) {
  return {reinterpret_cast<const std::uint8_t*>(values.data()), values.size() * sizeof(values[0])};
}

struct Mode {
  std::string tag;
  bool in_place = false;
  Op op = Op::kSum;
  CodecId codec = CodecId::kNone;
  bool multi = false;
};

void reduce_floats(Communicator& comm, const Mode& mode, double w, const Settings& s, Log& log) {
  const std::vector<float> input = input_of<float>(w, s.elements);
  std::vector<float> in = input, out(s.elements, 7.0F);
  RoundOptions o;
  o.tag = mode.tag;
  o.op = mode.op;
  o.codec = mode.codec;
  o.weight = w;
  o.deadline = static_cast<jccl::base::Duration>(s.deadline_s * 1e9);
  Leaf leaf{Dtype::kF32, s.elements, in.data(), mode.in_place ? in.data() : out.data(), "x", {}};
  const RoundResult r = comm.run({leaf}, o);
  const std::vector<float>& result = mode.in_place ? in : out;
  bool right;
  if (r.status.ok()) {
    right = result == oracle<float>(mode.op, Dtype::kF32, mode.codec, r.weights, s.elements, false);
  } else {
    right = result == input;  // an abort is invisible
  }
  right = right && (mode.in_place || in == input);
  log.line(line_of(mode.tag, r, right, jccl::snapshot::digest_of(bytes_of(result))));
}

void reduce_several(Communicator& comm, const Mode& mode, double w, const Settings& s, Log& log) {
  const std::uint64_t n = s.elements / 3 + 1;
  std::vector<float> a = input_of<float>(w, n);
  std::vector<double> b = input_of<double>(w, n);
  std::vector<float> c = input_of<float>(w, 5);
  RoundOptions o;
  o.tag = mode.tag;
  o.op = Op::kSum;
  o.weight = w;
  o.deadline = static_cast<jccl::base::Duration>(s.deadline_s * 1e9);
  const std::vector<Leaf> leaves = {{Dtype::kF32, n, a.data(), a.data(), "a", {}},
                                    {Dtype::kF64, n, b.data(), b.data(), "b", {}},
                                    {Dtype::kF32, 5, c.data(), c.data(), "c", {}}};
  auto handle = comm.start(leaves, o);
  RoundResult r;
  if (handle.ok()) {
    r = comm.wait(handle.value());
  } else {
    r.status = handle.status();
  }
  bool right;
  if (r.status.ok()) {
    right = a == oracle<float>(Op::kSum, Dtype::kF32, CodecId::kNone, r.weights, n, false) &&
            b == oracle<double>(Op::kSum, Dtype::kF64, CodecId::kNone, r.weights, n, false) &&
            c == oracle<float>(Op::kSum, Dtype::kF32, CodecId::kNone, r.weights, 5, false);
  } else {
    right = a == input_of<float>(w, n) && b == input_of<double>(w, n) && c == input_of<float>(w, 5);
  }
  const jccl::base::Digest digests[] = {jccl::snapshot::digest_of(bytes_of(a)),
                                        jccl::snapshot::digest_of(bytes_of(b)),
                                        jccl::snapshot::digest_of(bytes_of(c))};
  log.line(line_of(mode.tag, r, right, jccl::snapshot::combine(digests)));
}

void work(Communicator& comm, const Mode& mode, const Settings& s, std::uint64_t seed, Log& log) {
  jccl::base::Rng rng(seed);
  while (!g_stop) {
    const double w = static_cast<double>(1 + rng.below(997));
    if (mode.multi) {
      reduce_several(comm, mode, w, s, log);
    } else {
      reduce_floats(comm, mode, w, s, log);
    }
    if (comm.attributes().run == jccl::base::RunId{}) break;
  }
}

bool parse(int argc, char** argv, Settings* s) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--master")
      s->master = value;
    else if (flag == "--log")
      s->log = value;
    else if (flag == "--token")
      s->token = value;
    else if (flag == "--site")
      s->site = value;
    else if (flag == "--shard")
      s->shard = static_cast<std::uint32_t>(std::stoul(value));
    else if (flag == "--shards")
      s->shards = static_cast<std::uint32_t>(std::stoul(value));
    else if (flag == "--elements")
      s->elements = std::stoull(value);
    else if (flag == "--seed")
      s->seed = std::stoull(value);
    else if (flag == "--start-peers")
      s->start_peers = static_cast<std::uint32_t>(std::stoul(value));
    else if (flag == "--deadline")
      s->deadline_s = std::stod(value);
    else
      return false;
  }
  return argc % 2 == 1 && !s->log.empty();
}

}  // namespace

int main(int argc, char** argv) {
  Settings s;
  if (!parse(argc, argv, &s)) {
    std::fprintf(stderr,
                 "usage: jccl-stress-peer --master HOST:PORT --log FILE [--elements N] "
                 "[--seed S] [--start-peers N] [--deadline SECONDS] [--token T] "
                 "[--site NAME --shard I --shards N]\n");
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
  auto comm = Communicator::connect(options);
  if (!comm.ok()) {
    std::fprintf(stderr, "%s\n", jccl::peer::describe(comm.status()).c_str());
    return 1;
  }
  Log log(s.log);
  const std::vector<Mode> modes = {{"f32-in", true, Op::kSum, CodecId::kNone, false},
                                   {"f32-out", false, Op::kMean, CodecId::kNone, false},
                                   {"int8-in", true, Op::kMean, CodecId::kInt8, false},
                                   {"multi", true, Op::kSum, CodecId::kNone, true}};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < modes.size(); ++i) {
    threads.emplace_back([&, i] { work(*comm.value(), modes[i], s, s.seed * 31 + i, log); });
  }
  while (!g_stop) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  comm.value()->close();
  for (std::thread& t : threads) t.join();
  return 0;
}
