// bench-faults-peer: one peer of benchmarks/faults.py, made to be killed, stopped and cut off. Sums
// one array of f32 over and over, in place or with a shared state that joiners fetch, and says
// after each round when it ended, on the clock that all processes of the machine share. Leaves on
// SIGTERM, and when an operator drains it.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "base/text.h"
#include "peer/communicator.h"

namespace jccl::bench {
namespace {

using peer::Communicator;
using peer::Leaf;

std::atomic<bool> g_stop{false};

struct Settings {
  peer::ConnectOptions connect;
  std::uint64_t elements = 0, state_elements = 0;
  std::int64_t pause_ms = 0;  // between rounds
  std::uint64_t every = 0;    // element of the state each round changes; 0: the first alone
};

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::string plain(std::string text) {
  for (char& c : text) {
    if (c == '"' || c == '\\' || static_cast<unsigned char>(c) < 32) c = ' ';
  }
  return text;
}

void say(const char* what, const base::Status& status, std::uint64_t n, std::uint32_t world,
         std::uint32_t attempts, std::int64_t begun, bool right) {
  const std::int64_t now = now_ns();
  std::printf(
      "{\"what\":\"%s\",\"code\":\"%s\",\"n\":%llu,\"world\":%u,\"attempts\":%u,"
      "\"at_ns\":%lld,\"ns\":%lld,\"right\":%s,\"text\":\"%s\"}\n",
      what, std::string(base::name_of(status.code)).c_str(), static_cast<unsigned long long>(n),
      world, attempts, static_cast<long long>(now), static_cast<long long>(now - begun),
      right ? "true" : "false", plain(status.text).c_str());
  std::fflush(stdout);
}

class Peer {
 public:
  Peer(Communicator& comm, const Settings& settings)
      : comm_(comm), settings_(settings), state_(settings.state_elements) {}

  void run() {
    std::vector<float> x(settings_.elements);
    const Leaf leaf{codec::Dtype::kF32, x.size(), x.data(), x.data(), "x", {}};
    while (!g_stop) {
      if (!synced_ && !sync()) continue;
      std::fill(x.begin(), x.end(), 1.0F);
      peer::RoundOptions options;
      options.tag = "faults";
      options.op = collective::Op::kSum;
      if (stateful()) options.state = peer::marks_of({state()});
      const std::int64_t begun = now_ns();
      const peer::RoundResult r = comm_.run({leaf}, options);
      const float due = r.status.ok() ? static_cast<float>(r.world) : 1.0F;
      const bool right = std::all_of(x.begin(), x.end(), [&](float v) { return v == due; });
      say("round", r.status, r.n, r.world, r.attempts, begun, right);
      finish(r);
      if (settings_.pause_ms > 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(settings_.pause_ms));
      }
    }
  }

 private:
  Leaf state() {
    return {codec::Dtype::kF32, state_.size(), state_.data(), state_.data(), "s", {}};
  }
  bool stateful() const { return settings_.state_elements > 0; }

  bool sync() {
    if (!stateful()) return synced_ = true;
    const std::int64_t begun = now_ns();
    const peer::SyncResult r = comm_.sync_state({state()}, {.tag = "faults"});
    synced_ = r.status.ok();
    say("sync", r.status, r.revision, 0, 0, begun, synced_);
    return synced_;
  }

  void finish(const peer::RoundResult& r) {
    if (!r.status.ok()) {
      synced_ = !stateful();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    } else if (stateful()) {
      const std::size_t step = settings_.every > 0 ? settings_.every : state_.size();
      for (std::size_t i = 0; i < state_.size(); i += step) state_[i] += 1;
      const peer::SyncResult p = comm_.publish({state()}, {.tag = "faults"});
      synced_ = p.status.ok() || p.status.code == base::Code::kResynced;
    }
  }

  Communicator& comm_;
  const Settings& settings_;
  std::vector<float> state_;
  bool synced_ = false;
};

bool read(int argc, char** argv, Settings* out) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--master")
      out->connect.master = value;
    else if (flag == "--site")
      out->connect.site = value;
    else if (flag == "--bind")
      out->connect.bind = value;
    else if (flag == "--advertise")
      out->connect.advertise = {value};
    else if (flag == "--bytes")
      out->elements = std::strtoull(value.c_str(), nullptr, 10) / sizeof(float);
    else if (flag == "--state-bytes")
      out->state_elements = std::strtoull(value.c_str(), nullptr, 10) / sizeof(float);
    else if (flag == "--changes-every")
      out->every = std::strtoull(value.c_str(), nullptr, 10);
    else if (flag == "--pause-ms")
      out->pause_ms = std::atoll(value.c_str());
    else
      return false;
  }
  return argc % 2 == 1 && out->elements > 0;
}

int run(int argc, char** argv) {
  Settings settings;
  if (!read(argc, argv, &settings)) {
    std::fputs(
        "usage: bench-faults-peer --master HOST:PORT --bytes N [--state-bytes N] [--changes-every "
        "N]"
        " [--site NAME] [--bind A] [--advertise A] [--pause-ms N]\n",
        stderr);
    return 2;
  }
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGTERM, [](int) { g_stop = true; });
  auto comm = Communicator::connect(settings.connect);
  if (!comm.ok()) {
    std::fprintf(stderr, "%s\n", peer::describe(comm.status()).c_str());
    return 1;
  }
  // Leaving does not wait for the others' next call.
  std::thread leaver([&] {
    while (!g_stop && comm.value()->attributes().drain.empty()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    g_stop = true;
    say("leave", {}, 0, 0, 0, now_ns(), true);
    comm.value()->close();
  });
  Peer(*comm.value(), settings).run();
  leaver.join();
  return 0;
}

}  // namespace
}  // namespace jccl::bench

int main(int argc, char** argv) { return jccl::bench::run(argc, argv); }
