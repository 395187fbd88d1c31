// bench-peer: one peer of a benchmark, on the C++ API; see kHelp in options.cc. The caller's thread
// is this one; the communicator has its own two.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <thread>

#include "batch.h"
#include "master/master.h"
#include "options.h"

namespace jccl::bench {
namespace {

int report(const base::Status& status) {
  std::fprintf(stderr, "bench-peer: %s\n", peer::describe(status).c_str());
  return status.code == base::Code::kInvalid ? 2 : 1;
}

base::Result<std::unique_ptr<master::Master>> start_master(const Options& options) {
  master::MasterConfig config;
  config.bind = options.with_master;
  config.token = options.connect.token;
  config.insecure = options.connect.insecure;
  config.start_peers = options.peers;
  return master::Master::start(config);
}

// The master in this process ends with it: the other peers leave first.
void await_leaving(const peer::Communicator& comm) {
  const std::int64_t end = clock_ns() + 5 * base::kSecond;
  while (comm.attributes().world > 1 && clock_ns() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

int measure(Bench& bench, const Batch& batch, std::uint64_t* wrong) {
  const Measured measured = bench.run(batch);
  if (!measured.status.ok()) return report(measured.status);
  std::printf("%s\n", to_json(batch, measured).c_str());
  std::fflush(stdout);
  *wrong += measured.wrong;
  return 0;
}

int run_all(peer::Communicator& comm, const Options& options) {
  Bench bench(comm, options.peers);
  std::uint64_t wrong = 0;
  if (options.stepped) {
    for (std::string line; std::getline(std::cin, line);) {
      const auto batch = read_batch(line, options.batch);
      if (!batch.ok()) return report(batch.status());
      if (const int code = measure(bench, batch.value(), &wrong); code != 0) return code;
    }
  } else {
    for (const std::uint64_t size : options.sizes) {
      Batch batch = options.batch;
      batch.bytes = size;
      if (const base::Status bad = check(batch); !bad.ok()) return report(bad);
      if (const int code = measure(bench, batch, &wrong); code != 0) return code;
    }
  }
  if (wrong != 0) {
    std::fprintf(stderr, "bench-peer: %llu elements are wrong\n",
                 static_cast<unsigned long long>(wrong));
    return 3;
  }
  return 0;
}

int run(int argc, char** argv) {
  Options options;
  const base::Status parsed = read_options(argc, argv, &options);
  if (!parsed.ok()) return report(parsed);
  if (options.help) {
    std::fputs(kHelp, stdout);
    return 0;
  }
  std::signal(SIGPIPE, SIG_IGN);
  std::unique_ptr<master::Master> master;
  if (!options.with_master.empty()) {
    auto started = start_master(options);
    if (!started.ok()) return report(started.status());
    master = std::move(started.value());
    std::fprintf(stderr, "JCCL_MASTER=%s\n", master->address().c_str());
    if (options.connect.master.empty()) options.connect.master = master->address();
  }
  auto comm = peer::Communicator::connect(options.connect);
  if (!comm.ok()) return report(comm.status());
  const int code = run_all(*comm.value(), options);
  if (master && code == 0) await_leaving(*comm.value());
  comm.value()->close();
  return code;
}

}  // namespace
}  // namespace jccl::bench

int main(int argc, char** argv) { return jccl::bench::run(argc, argv); }
