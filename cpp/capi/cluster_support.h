// For tests: a master and n communicators in one process, each driven from a thread of its own.
// Waits are polls under a generous deadline; nothing depends on how fast the machine is.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/text.h"
#include "master/eventually.h"
#include "master/master.h"
#include "peer/communicator.h"

namespace jccl::capi::test {

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

using base::cat;
using base::Code;
using base::Duration;
using base::kMillisecond;
using base::kSecond;
using codec::CodecId;
using codec::Dtype;
using collective::Op;
using peer::Collective;
using peer::Communicator;
using peer::ConnectOptions;
using peer::Handle;
using peer::Leaf;
using peer::RoundOptions;
using peer::RoundResult;
using peer::SyncOptions;
using peer::SyncResult;

using master::eventually;
using master::kPatience;

struct ClusterOptions {
  master::MasterConfig master;
  ConnectOptions peer;
  bool start_together = true;  // the first round waits for all
};

class Cluster {
 public:
  explicit Cluster(std::size_t n, ClusterOptions options = {}) : options_(std::move(options)) {
    if (options_.start_together) {
      options_.master.start_peers = static_cast<std::uint32_t>(std::max<std::size_t>(n, 1));
    }
    if (!options_.master.log) options_.master.log = [this](const std::string& line) { note(line); };
    start_master();
    if (!master_) return;
    for (std::size_t i = 0; i < n; ++i) add();
  }
  ~Cluster() {
    on_all([](std::size_t, Communicator& comm) { comm.close(); });
    peers_.clear();
    master_.reset();
    if (testing::Test::HasFailure()) {
      std::lock_guard lock(mutex_);
      for (const std::string& line : log_) std::fprintf(stderr, "master: %s\n", line.c_str());
    }
  }

  // Options of a further peer; the address of this cluster's master is filled in.
  ConnectOptions peer_options() const {
    ConnectOptions o = options_.peer;
    if (o.master.empty()) o.master = address_;
    if (o.token.empty()) o.token = options_.master.token;
    // ctest runs these tests once more like this.
    if (std::getenv("JCCL_TEST_IO_THREADS") != nullptr) o.io_threads = true;
    return o;
  }
  Communicator* add() { return add(peer_options()); }
  Communicator* add(const ConnectOptions& options) {
    auto comm = Communicator::connect(options);
    EXPECT_TRUE(comm.ok()) << comm.status().text;
    if (!comm.ok()) return nullptr;
    peers_.push_back(std::move(comm.value()));
    return peers_.back().get();
  }
  void remove(std::size_t i) { peers_.erase(peers_.begin() + static_cast<std::ptrdiff_t>(i)); }

  // A restarted master listens where the first one did.
  void start_master() {
    master::MasterConfig config = options_.master;
    if (!address_.empty()) config.bind = address_;
    auto started = master::Master::start(config);
    EXPECT_TRUE(started.ok()) << started.status().text;
    if (!started.ok()) return;
    master_ = std::move(started.value());
    address_ = master_->address();
  }
  void stop_master() { master_.reset(); }

  master::Master& master() { return *master_; }
  const std::string& address() const { return address_; }
  std::size_t size() const { return peers_.size(); }
  Communicator& operator[](std::size_t i) { return *peers_[i]; }
  std::shared_ptr<Communicator> share(std::size_t i) { return peers_[i]; }

  void on_all(const std::function<void(std::size_t, Communicator&)>& fn) {
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      threads.emplace_back([&, i] { fn(i, *peers_[i]); });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  void note(const std::string& line) {
    std::lock_guard lock(mutex_);
    log_.push_back(line);
  }

  ClusterOptions options_;
  std::mutex mutex_;
  std::vector<std::string> log_;
  std::string address_;
  std::unique_ptr<master::Master> master_;
  std::vector<std::shared_ptr<Communicator>> peers_;
};

template <typename T>
constexpr Dtype dtype_of();
template <>
constexpr Dtype dtype_of<float>() {
  return Dtype::kF32;
}
template <>
constexpr Dtype dtype_of<double>() {
  return Dtype::kF64;
}
template <>
constexpr Dtype dtype_of<std::int8_t>() {
  return Dtype::kI8;
}
template <>
constexpr Dtype dtype_of<std::int32_t>() {
  return Dtype::kI32;
}
template <>
constexpr Dtype dtype_of<std::int64_t>() {
  return Dtype::kI64;
}
template <>
constexpr Dtype dtype_of<std::uint8_t>() {
  return Dtype::kU8;
}

template <typename T>
Leaf leaf_of(const std::vector<T>& in, std::vector<T>& out, const std::string& path = "x") {
  Leaf leaf;
  leaf.dtype = dtype_of<T>();
  leaf.count = in.size();
  leaf.in = in.data();
  leaf.out = out.data();
  leaf.path = path;
  return leaf;
}

inline RoundOptions sum_of(const std::string& tag) {
  RoundOptions o;
  o.tag = tag;
  o.op = Op::kSum;
  o.deadline = 30 * kSecond;
  return o;
}

// A round with one float per element, equal to `value`; the sum's first element.
struct SmallRound {
  RoundResult result;
  float value = 0;
};
inline SmallRound small_round(Communicator& comm, const RoundOptions& options, float value,
                              std::size_t count = 64) {
  std::vector<float> x(count, value);
  SmallRound out;
  out.result = comm.run({leaf_of(x, x)}, options);
  out.value = x[0];
  for (float v : x) EXPECT_EQ(v, x[0]);
  return out;
}

// Rounds until `done` holds. True if it did before the patience ended.
inline bool rounds_until(Communicator& comm, const RoundOptions& options, float value,
                         const std::function<bool(const SmallRound&)>& done) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (std::chrono::steady_clock::now() < end) {
    if (done(small_round(comm, options, value))) return true;
  }
  return false;
}

inline void expect_rounds(Cluster& cluster, int rounds = 5) {
  const float world = static_cast<float>(cluster.size());
  cluster.on_all([&](std::size_t p, Communicator& comm) {
    for (int i = 0; i < rounds; ++i) {
      const SmallRound r = small_round(comm, sum_of("x"), static_cast<float>(p), 20000);
      ASSERT_TRUE(r.result.status.ok()) << r.result.status.text;
      EXPECT_EQ(r.value, world * (world - 1) / 2);
    }
  });
}

}  // namespace jccl::capi::test
