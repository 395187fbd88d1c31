// bench-ceiling: one of the two peers of exchange.h, measured like bench-peer (the same lines on
// standard input, the same JSON). Start it twice: --peer 0 and --peer 1.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>

#include "batch.h"
#include "exchange.h"
#include "options.h"
#include "pattern.h"
#include "usage.h"

namespace jccl::bench {
namespace {

constexpr char kUsage[] =
    "usage: bench-ceiling --peer 0|1 --port P [--connections N] <batches\n"
    "batches, one a line: size=67108864 codec=none|int8 iterations=5 warmup=1 concurrent=1\n";

struct Arrays {
  Buffer in, out;
};

void measure(Exchange& exchange, const Batch& b, int peer, Arrays* arrays, Measured* m) {
  const std::size_t bytes = b.bytes * b.concurrent, count = bytes / sizeof(float);
  const bool int8 = b.codec == codec::CodecId::kInt8;
  const std::int64_t resident =
      resident_bytes() - static_cast<std::int64_t>(arrays->in.size() + arrays->out.size());
  if (arrays->in.size() != bytes) {
    *arrays = {};
    *arrays = {Buffer(bytes), Buffer(bytes)};
    fill_contribution(static_cast<std::uint32_t>(peer), arrays->in.floats(), count);
  }
  reset_resident_peak();
  for (std::uint32_t i = 0; i < b.warmup + b.iterations; ++i) {
    if (i + 1 == b.warmup + b.iterations) std::memset(arrays->out.data(), 0xFF, bytes);
    exchange.meet();
    const CpuTime before = cpu_now();
    const std::int64_t begun = clock_ns();
    exchange.sum(arrays->in.floats(), arrays->out.floats(), count, int8);
    const std::int64_t ended = clock_ns();
    const CpuTime after = cpu_now();
    if (i < b.warmup) continue;
    m->begin_ns.push_back(begun);
    m->times_ns.push_back(ended - begun);
    m->user_ns.push_back(after.user_ns - before.user_ns);
    m->system_ns.push_back(after.system_ns - before.system_ns);
  }
  m->peer = static_cast<std::uint32_t>(peer);
  m->world = 2;
  m->attempts = 1;
  m->peak_bytes = resident_peak_bytes();
  m->extra_bytes = m->peak_bytes - resident - static_cast<std::int64_t>(2 * bytes);
  m->sent_bytes = m->received_bytes = codec::encoded_bytes(b.codec, codec::Dtype::kF32, count);
  const auto bound = bound_of(std::string(codec::name_of(b.codec)));
  m->wrong = count_wrong(arrays->out.floats(), count, {0, 1}, false, *bound);
}

int run(int argc, char** argv) {
  int peer = -1, port = 0, connections = 2;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--peer") peer = std::atoi(argv[i + 1]);
    if (name == "--port") port = std::atoi(argv[i + 1]);
    if (name == "--connections") connections = std::atoi(argv[i + 1]);
  }
  if (argc % 2 == 0 || peer < 0 || peer > 1 || port < 1 || connections < 1 || connections > 64) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  Exchange exchange(peer, port, connections);
  Arrays arrays;
  for (std::string line; std::getline(std::cin, line);) {
    const auto batch = read_batch(line, {});
    const bool known = batch.ok() && (batch.value().codec == codec::CodecId::kNone ||
                                      batch.value().codec == codec::CodecId::kInt8);
    if (!known) {
      std::fprintf(stderr, "bench-ceiling: %s\n",
                   batch.ok() ? "codec is none or int8" : batch.status().text.c_str());
      return 2;
    }
    Measured measured;
    measure(exchange, batch.value(), peer, &arrays, &measured);
    std::printf("%s\n", to_json(batch.value(), measured).c_str());
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace jccl::bench

int main(int argc, char** argv) { return jccl::bench::run(argc, argv); }
