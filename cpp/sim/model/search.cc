#include "sim/model/search.h"

#include <atomic>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "base/check.h"
#include "base/planted.h"

namespace jccl::sim::model {
namespace {

constexpr std::uint64_t kReportEvery = 1 << 18;

// Fingerprints by open addressing; any number of threads.
class Seen {
 public:
  explicit Seen(std::uint64_t states_max) {
    while (2 * size_ < 3 * states_max) size_ *= 2;
    slots_.reset(static_cast<std::atomic<std::uint64_t>*>(std::calloc(size_, 8)));
    JCCL_CHECK(slots_ != nullptr);
  }
  bool insert(std::uint64_t print) {  // false: it was there
    print |= print == 0;
    for (std::uint64_t at = print & (size_ - 1);; at = (at + 1) & (size_ - 1)) {
      std::uint64_t there = slots_.get()[at].load(std::memory_order_relaxed);
      if (there == 0 && slots_.get()[at].compare_exchange_strong(there, print)) return true;
      if (there == print) return false;
    }
  }

 private:
  struct Free {
    void operator()(std::atomic<std::uint64_t>* slots) const { std::free(slots); }
  };
  std::uint64_t size_ = 1 << 16;
  std::unique_ptr<std::atomic<std::uint64_t>, Free> slots_;
};

struct Node {  // how a world was reached
  std::shared_ptr<const Node> from;
  Choice choice;
  std::uint32_t depth = 0;
};

struct Reached {
  std::shared_ptr<const Node> node;
  World world;
};

// What one thread has still to look at; others take from it when they have nothing.
struct Edge {
  std::mutex mutex;
  std::deque<Reached> worlds;
};

std::uint64_t print_of(const World& world) {
  const base::Digest digest = world.digest();
  return digest.low ^ digest.high * 0x9E3779B97F4A7C15ULL;
}

class Search {
 public:
  Search(const Scope& scope, const Limits& limits)
      : scope_(scope),
        limits_(limits),
        planted_(base::planted_in_thread),
        seen_(limits.states_max),
        edges_(std::max(1U, limits.threads)) {}

  Found run() {
    World first(scope_);
    seen_.insert(print_of(first));
    count(first);
    edges_[0].worlds.push_back({std::make_shared<Node>(), std::move(first)});
    while (!over_ && !edges_[0].worlds.empty() && edges_[0].worlds.size() < limits_.edge_max) {
      Reached next = std::move(edges_[0].worlds.front());
      edges_[0].worlds.pop_front();
      expand(next, edges_[0]);
    }
    left_ = edges_[0].worlds.size();
    std::vector<std::thread> threads;
    for (std::size_t t = 1; t < edges_.size(); ++t) {
      threads.emplace_back([this, t] {
        base::planted_in_thread = planted_;
        work(t);
      });
    }
    work(0);
    for (std::thread& thread : threads) thread.join();
    found_.states = states_, found_.transitions = transitions_;
    for (std::size_t i = 0; i < kLayers; ++i) found_.layers[i] = layers_[i];
    return std::move(found_);
  }

 private:
  // Depth first from the own edge; worlds in hand or at an edge are counted by left_.
  void work(std::size_t own) {
    while (!over_ && left_ > 0) {
      std::optional<Reached> next = take(edges_[own], true);
      for (std::size_t t = 0; t < edges_.size() && !next.has_value(); ++t) {
        next = take(edges_[t], false);
      }
      if (!next.has_value()) {
        std::this_thread::yield();
        continue;
      }
      expand(*next, edges_[own]);
      --left_;
    }
  }

  static std::optional<Reached> take(Edge& edge, bool newest) {
    const std::lock_guard lock(edge.mutex);
    if (edge.worlds.empty()) return std::nullopt;
    std::optional<Reached> one(std::move(newest ? edge.worlds.back() : edge.worlds.front()));
    newest ? edge.worlds.pop_back() : edge.worlds.pop_front();
    return one;
  }

  void expand(Reached& at, Edge& edge) {
    const std::uint64_t here = print_of(at.world);
    bool quiet = true;
    for (const Choice& choice : at.world.ample()) {
      Done done;
      if (!step(at, choice, edge, here, &done, &quiet)) return;
      if (choice.costs_fault() || !at.world.may_fail()) continue;
      if (!die_in(at, choice, edge, here, done)) return;
    }
    if (!quiet) return;
    at.world.check_quiet();
    keeps_promises(at.world, *at.node);
    const std::lock_guard lock(mutex_);
    ++found_.quiet;
    if (at.world.faults_left() == 0) ++found_.ends, found_.ends_sum += here;
  }

  // The master dies in a step in which it did this much.
  bool die_in(const Reached& at, Choice choice, Edge& edge, std::uint64_t here, const Done& done) {
    bool quiet = false;
    Done ignored;
    for (choice.death = 1; choice.death <= 2 && done.wrote; ++choice.death) {
      if (!step(at, choice, edge, here, &ignored, &quiet)) return false;
    }
    for (unsigned part = done.told & (done.told - 1U); part != 0; part = done.told & (part - 1)) {
      choice.death = static_cast<std::uint8_t>(3 + part);  // a part of them, not all
      if (!step(at, choice, edge, here, &ignored, &quiet)) return false;
    }
    return true;
  }

  // False: the search is over.
  bool step(const Reached& at, const Choice& choice, Edge& edge, std::uint64_t here, Done* done,
            bool* quiet) {
    World world = at.world;
    *done = world.take(choice);
    transitions_.fetch_add(1, std::memory_order_relaxed);
    if (world.history().failed()) {
      return keeps_promises(world, Node{at.node, choice, at.node->depth + 1});
    }
    const std::uint64_t print = print_of(world);
    const bool by_itself = !choice.costs_fault() && choice.step != Step::kTimer;
    if (by_itself && print != here) *quiet = false;
    if (!seen_.insert(print)) return !over_;
    count(world);
    auto node = std::make_shared<Node>(Node{at.node, choice, at.node->depth + 1});
    ++left_;
    const std::lock_guard lock(edge.mutex);
    edge.worlds.push_back({std::move(node), std::move(world)});
    return !over_;
  }

  void count(const World& world) {
    ++layers_[std::min<std::size_t>(world.faults_left(), kLayers - 1)];
    const std::uint64_t states = ++states_;
    if (limits_.report != nullptr && states % kReportEvery == 0) limits_.report(states);
    if (states < limits_.states_max) return;
    found_.whole = false;
    over_ = true;
  }

  bool keeps_promises(const World& world, const Node& last) {
    const std::lock_guard lock(mutex_);
    found_.depth = std::max<std::uint64_t>(found_.depth, last.depth);
    if (!world.history().failed()) return true;
    over_ = true;
    if (!found_.promise.empty()) return false;
    found_.promise = world.history().promise;
    found_.what = world.history().what;
    std::vector<Choice> path;
    for (const Node* node = &last; node->from != nullptr; node = node->from.get()) {
      path.push_back(node->choice);
    }
    World again(scope_);
    for (auto it = path.rbegin(); it != path.rend(); ++it) {
      found_.trace.push_back(again.words(*it));
      again.take(*it);
    }
    return false;
  }

  Scope scope_;
  Limits limits_;
  base::Planted planted_;
  Seen seen_;
  std::vector<Edge> edges_;
  std::atomic<std::uint64_t> states_{0}, transitions_{0}, left_{0};
  std::array<std::atomic<std::uint64_t>, kLayers> layers_{};
  std::atomic<bool> over_{false};
  std::mutex mutex_;  // of found_
  Found found_;
};

}  // namespace

Found search(const Scope& scope, const Limits& limits) { return Search(scope, limits).run(); }

}  // namespace jccl::sim::model
