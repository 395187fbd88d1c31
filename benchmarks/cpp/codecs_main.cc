// bench-codecs: how fast one core encodes, decodes, adds and finishes, per instruction set, beside
// memcpy of the same bytes, which takes turns with every loop. One JSON object per line. Rates are
// in leaf bytes (f32) per second of this thread's CPU time: on a loaded machine that still holds,
// but for the memory bus.
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/text.h"
#include "codec/guard.h"
#include "codec/kernels/isa.h"
#include "collective/kernels/aggregate.h"
#include "collective/kernels/kernels.h"

namespace jccl::bench {
namespace {

using codec::Codec;
using codec::Dtype;

struct Setting {
  std::size_t floats = 0;
  std::string place;      // "dram", "l2"
  std::size_t turns = 5;  // of loop and memcpy
  double turn_s = 0.02;   // at least so long
};

struct Memory {
  std::vector<float> in, other, acc;
  std::vector<std::uint8_t> bytes;
  collective::AggregateScratch scratch;
};

double now_s() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

const char* name_of(codec::Isa isa) {
  if (isa == codec::Isa::kV4) return "v4";
  return isa == codec::Isa::kV3 ? "v3" : "baseline";
}

// Bytes per second of one turn of a loop that handles `bytes` each time.
double rate(const std::function<void()>& loop, double bytes, double turn_s) {
  const double begin = now_s();
  double end = begin;
  int times = 0;
  while (end - begin < turn_s) {
    loop();
    ++times;
    end = now_s();
  }
  return times * bytes / (end - begin);
}

struct Line {
  std::string codec, what;
  double traffic = 0;  // bytes that cross the memory bus per byte of leaf; a store counts twice
  std::function<void()> loop;
};

void measure(const Setting& setting, codec::Isa isa, Memory& m, const Line& line) {
  const double bytes = 4.0 * static_cast<double>(setting.floats);
  const auto copy = [&] { std::memcpy(m.acc.data(), m.in.data(), 4 * setting.floats); };
  std::vector<double> rates, copies, ratios;
  for (std::size_t turn = 0; turn <= setting.turns; ++turn) {
    const double copied = rate(copy, bytes, setting.turn_s);
    const double done = rate(line.loop, bytes, setting.turn_s);
    if (turn == 0) continue;  // warm-up
    rates.push_back(done);
    copies.push_back(copied);
    ratios.push_back(done / copied);
  }
  std::printf(
      "{\"isa\":\"%s\",\"place\":\"%s\",\"codec\":\"%s\",\"what\":\"%s\",\"bytes\":%.0f,"
      "\"GBps\":%.3f,\"memcpy_GBps\":%.3f,\"of_memcpy\":%.4f,\"traffic\":%.4f}\n",
      name_of(isa), setting.place.c_str(), line.codec.c_str(), line.what.c_str(), bytes,
      median(rates) * 1e-9, median(copies) * 1e-9, median(ratios), line.traffic);
  std::fflush(stdout);
}

// Robust aggregators of eight contributions, an eighth of `in` each: of the bytes that are added.
void add_robust_lines(std::size_t n, Memory& m, std::vector<Line>& lines) {
  constexpr std::size_t kPeers = 8;
  for (const char* name : {"trimmed_mean", "median", "centered_clip", "norm_limit"}) {
    const auto aggregator = collective::aggregator_from_name(name);
    collective::Contributions all{Dtype::kF32, Codec{}, {}, n / kPeers};
    for (std::size_t i = 0; i < kPeers; ++i) {
      all.encoded.push_back(reinterpret_cast<const std::uint8_t*>(m.in.data() + i * all.count));
    }
    const auto loop = [&m, all, aggregator] {
      collective::aggregate(*aggregator, all, &m.scratch, m.acc.data());
    };
    lines.push_back({"none", base::cat(name, " of 8"), 1 + 2.0 / kPeers, loop});
  }
}

std::vector<Line> lines_of(const Codec& codec, std::size_t n, Memory& m) {
  using collective::Op;
  const std::string name(codec::name_of(codec));
  const auto* in = m.in.data();
  auto* acc = m.acc.data();
  auto* bytes = m.bytes.data();
  if (!codec::is_lossy(codec)) {
    const auto sum2 = [=, &m] {
      if (!collective::reduce2(Op::kMean, Dtype::kF32, in, 1, m.other.data(), 1, n, 2, acc)) {
        std::abort();
      }
    };
    const auto guard = [=] {
      if (!codec::all_finite(Dtype::kF32, in, n)) std::abort();
    };
    const auto* x = reinterpret_cast<const std::uint8_t*>(in);
    const auto add = [=] {
      collective::accumulate(Op::kSum, Dtype::kF32, Codec{}, false, x, n, 1, acc);
    };
    std::vector<Line> lines = {
        {name, "guard", 1, guard}, {name, "add", 3, add}, {name, "sum2", 4, sum2}};
    add_robust_lines(n, m, lines);
    return lines;
  }
  const double packed =
      static_cast<double>(codec::encoded_bytes(codec, Dtype::kF32, n)) / (4.0 * n);
  const auto encode = [=] {
    if (!codec::encode_checked(codec, Dtype::kF32, in, n, bytes, {1, 0})) std::abort();
  };
  const auto decode = [=] { codec::decode(codec, Dtype::kF32, bytes, n, acc); };
  const auto add = [=] {
    collective::accumulate(Op::kSum, Dtype::kF32, codec, false, bytes, n, 1, acc);
  };
  const auto finish = [=, &m] {
    collective::finish(Op::kMean, Dtype::kF32, codec, m.in.data(), n, 3, bytes, {1, 0});
  };
  return {{name, "encode", 1 + 2 * packed, encode},
          {name, "decode", packed + 2, decode},
          {name, "decode-add", packed + 2, add},
          {name, "finish", 1 + 2 * packed, finish}};
}

void run(const Setting& setting, const std::vector<Codec>& codecs, codec::Isa isa) {
  codec::force_isa(isa);
  Memory m{std::vector<float>(setting.floats),
           std::vector<float>(setting.floats),
           std::vector<float>(setting.floats),
           std::vector<std::uint8_t>(4 * setting.floats + 64),
           {}};
  std::uint32_t state = 1;  // values of a wide bell: products of two uniforms
  for (float& v : m.in) {
    state = state * 1664525 + 1013904223;
    const float a = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-31F;
    state = state * 1664525 + 1013904223;
    v = a * static_cast<float>(state >> 8) * 0x1p-24F;
  }
  m.other = m.in;
  for (const Codec& codec : codecs) {
    for (const Line& line : lines_of(codec, setting.floats, m)) {
      // What is added to goes on growing otherwise.
      if (line.what == "decode-add" || line.what == "add") std::fill(m.acc.begin(), m.acc.end(), 0);
      measure(setting, isa, m, line);
    }
  }
}

std::vector<Codec> codecs_from(std::string list) {
  std::vector<Codec> codecs;
  for (list += ','; !list.empty();) {
    const std::size_t comma = list.find(',');
    const auto codec = codec::codec_from_name(list.substr(0, comma));
    if (!codec) {
      std::fprintf(stderr, "bench-codecs: unknown codec in %s\n", list.c_str());
      std::exit(2);
    }
    codecs.push_back(*codec);
    list.erase(0, comma + 1);
  }
  return codecs;
}

}  // namespace
}  // namespace jccl::bench

// bench-codecs PLACE MIB TURNS TURN_S ISA CODECS: MIB of f32 per array, fractions allowed.
int main(int count, char** arguments) {
  using namespace jccl;
  if (count != 7) {
    std::fprintf(stderr, "bench-codecs PLACE MIB TURNS TURN_S ISA CODEC,CODEC,…\n");
    return 2;
  }
  bench::Setting setting;
  setting.place = arguments[1];
  setting.floats = static_cast<std::size_t>(std::atof(arguments[2]) * (1 << 18));
  setting.turns = static_cast<std::size_t>(std::max(1, std::atoi(arguments[3])));
  setting.turn_s = std::atof(arguments[4]);
  for (const codec::Isa isa : codec::available_isas()) {
    if (std::string(arguments[5]) != bench::name_of(isa)) continue;
    bench::run(setting, bench::codecs_from(arguments[6]), isa);
    return 0;
  }
  std::fprintf(stderr, "bench-codecs: this processor has no %s\n", arguments[5]);
  return 3;
}
