// bench-fair: many tags of one communicator, each with a thread that does its rounds back to back,
// as fast as they come. Does any tag starve? Prints one JSON object: how many rounds each tag had
// done when the first one was through, and the times of its rounds. Every peer checks its results.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "base/text.h"
#include "pattern.h"
#include "peer/communicator.h"
#include "usage.h"

namespace jccl::bench {
namespace {

struct Lane {  // one tag
  Buffer in, out;
  std::vector<std::int64_t> times_ns;
  std::atomic<std::uint32_t> rounds{0};
  std::uint64_t wrong = 0;
  base::Status status;
};

struct Options {
  std::string master;
  std::uint32_t peers = 2, tags = 1, rounds = 10;
  std::size_t bytes = 4096, first_bytes = 0;  // of the first tag, if it is to be a big one
};

struct Race {
  Race(const Options& o, std::uint32_t lanes_count)
      : options(o), lanes(lanes_count), ready(lanes_count) {}
  const Options& options;
  std::vector<Lane> lanes;
  std::latch ready;  // every tag has done a round
  std::atomic<bool> over{false};
  std::vector<std::uint32_t> at_end;  // rounds of each tag when the first was through
};

void drive(peer::Communicator& comm, Race* race, std::uint32_t number) {
  Lane& lane = race->lanes[number];
  peer::RoundOptions round;
  round.tag = base::cat("lane", number);
  round.op = collective::Op::kSum;
  const std::size_t count = lane.in.size() / sizeof(float);
  peer::Leaf leaf;
  leaf.count = count;
  leaf.in = lane.in.data();
  leaf.out = lane.out.data();
  peer::RoundResult result = comm.run({leaf}, round);
  race->ready.arrive_and_wait();
  for (std::uint32_t i = 0; i < race->options.rounds && result.status.ok(); ++i) {
    const std::int64_t begun = clock_ns();
    result = comm.run({leaf}, round);
    lane.times_ns.push_back(clock_ns() - begun);
    ++lane.rounds;
  }
  lane.status = result.status;
  if (!race->over.exchange(true)) {
    for (const Lane& other : race->lanes) race->at_end.push_back(other.rounds);
  }
  if (!lane.status.ok()) return;
  lane.wrong = count_wrong(lane.out.floats(), count, result.contributors, false, *bound_of("none"));
}

std::string list_of(const std::vector<double>& values) {
  std::string text;
  for (const double v : values) text += base::cat(text.empty() ? "" : ",", v);
  return "[" + text + "]";
}

void print(const Options& options, const Race& race, double wall_s, double cpu_s,
           std::uint64_t wrong) {
  std::vector<double> done(race.at_end.begin(), race.at_end.end()), medians;
  for (const Lane& lane : race.lanes) {
    std::vector<std::int64_t> times = lane.times_ns;
    std::sort(times.begin(), times.end());
    medians.push_back(static_cast<double>(times[times.size() / 2]));
  }
  std::printf(
      "{\"tags\":%u,\"rounds\":%u,\"wall_s\":%.6f,\"cpu_s\":%.6f,\"wrong\":%llu,"
      "\"done_at_end\":%s,\"median_ns\":%s}\n",
      options.tags, options.rounds, wall_s, cpu_s, static_cast<unsigned long long>(wrong),
      list_of(done).c_str(), list_of(medians).c_str());
}

int failed(const base::Status& status) {
  std::fprintf(stderr, "bench-fair: %s\n", peer::describe(status).c_str());
  return 1;
}

int run(const Options& options) {
  peer::ConnectOptions connect;
  connect.master = options.master;
  connect.start_peers = options.peers;
  auto comm = peer::Communicator::connect(connect);
  if (!comm.ok()) return failed(comm.status());
  peer::RoundOptions barrier;
  barrier.tag = "barrier";
  barrier.collective = peer::Collective::kBarrier;
  const base::Status met = comm.value()->run({}, barrier).status;  // now this peer has its number
  if (!met.ok()) return failed(met);
  Race race(options, options.tags);
  for (Lane& lane : race.lanes) {
    const bool first = &lane == &race.lanes.front() && options.first_bytes > 0;
    lane.in = Buffer(first ? options.first_bytes : options.bytes);
    lane.out = Buffer(lane.in.size());
    fill_contribution(comm.value()->attributes().id, lane.in.floats(),
                      lane.in.size() / sizeof(float));
  }
  std::vector<std::thread> threads;
  const CpuTime before = cpu_now();
  const std::int64_t begun = clock_ns();
  for (std::uint32_t i = 0; i < options.tags; ++i) {
    threads.emplace_back(drive, std::ref(*comm.value()), &race, i);
  }
  for (std::thread& thread : threads) thread.join();
  const double wall_s = static_cast<double>(clock_ns() - begun) / 1e9;
  const CpuTime after = cpu_now();
  const std::int64_t cpu_ns = after.user_ns + after.system_ns - before.user_ns - before.system_ns;
  std::uint64_t wrong = 0;
  for (const Lane& lane : race.lanes) {
    if (!lane.status.ok()) return failed(lane.status);
    wrong += lane.wrong;
  }
  comm.value()->close();
  print(options, race, wall_s, static_cast<double>(cpu_ns) / 1e9, wrong);
  return wrong == 0 ? 0 : 3;
}

bool read(int argc, char** argv, Options* options) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const auto number = static_cast<std::uint32_t>(std::strtoul(argv[i + 1], nullptr, 10));
    if (name == "--master") {
      options->master = argv[i + 1];
    } else if (name == "--peers") {
      options->peers = number;
    } else if (name == "--tags") {
      options->tags = number;
    } else if (name == "--rounds") {
      options->rounds = number;
    } else if (name == "--size") {
      options->bytes = number;
    } else if (name == "--first-size") {
      options->first_bytes = number;
    } else {
      return false;
    }
  }
  return argc % 2 == 1 && !options->master.empty() && options->tags > 0 && options->bytes >= 4;
}

}  // namespace
}  // namespace jccl::bench

int main(int argc, char** argv) {
  jccl::bench::Options options;
  if (jccl::bench::read(argc, argv, &options)) return jccl::bench::run(options);
  std::fputs(
      "usage: bench-fair --master HOST:PORT [--peers N] [--tags N] [--rounds N]\n"
      "  [--size BYTES] [--first-size BYTES]\n",
      stderr);
  return 2;
}
