#include "sim/model/search.h"

#include <unordered_set>

#include "base/text.h"

namespace jccl::sim::model {
namespace {

struct ByLow {
  std::size_t operator()(const base::Digest& digest) const { return digest.low; }
};

struct Node {  // how a world was reached
  std::uint32_t from = 0;
  Choice choice;
};

struct Reached {
  std::uint32_t node = 0;
  World world;
};

class Search {
 public:
  Search(const Scope& scope, const Limits& limits) : scope_(scope), limits_(limits) {}

  Found run() {
    World first(scope_);
    seen_.insert(first.digest());
    nodes_.push_back({});
    frontier_.push_back({0, std::move(first)});
    while (!frontier_.empty() && found_.promise.empty() && found_.whole) {
      std::vector<Reached> next;
      for (Reached& one : frontier_) {
        if (!expand(one, next)) break;
      }
      frontier_ = std::move(next);
      if (!frontier_.empty()) ++found_.depth;
      if (limits_.report != nullptr) limits_.report(found_.depth, seen_.size(), frontier_.size());
    }
    found_.states = seen_.size();
    return std::move(found_);
  }

 private:
  // False: the search is over.
  bool expand(Reached& at, std::vector<Reached>& next) {
    const base::Digest here = at.world.digest();
    bool quiet = true;
    for (const Choice& choice : at.world.choices()) {
      Choice one = choice;
      const bool faults = one.costs_fault();
      bool wrote = false;
      if (!step(at, one, next, here, &wrote, &quiet)) return false;
      for (one.death = 1; one.death <= 2 && wrote && !faults; ++one.death) {
        if (!at.world.may_fail()) break;
        if (!step(at, one, next, here, &wrote, &quiet)) return false;
      }
    }
    if (!quiet) return true;
    ++found_.quiet;
    at.world.check_quiet();
    return keeps_promises(at.world, at.node, {}, false);
  }

  bool step(const Reached& at, const Choice& choice, std::vector<Reached>& next,
            const base::Digest& here, bool* wrote, bool* quiet) {
    World world = at.world;
    *wrote = world.take(choice);
    ++found_.transitions;
    if (!keeps_promises(world, at.node, choice, true)) return false;
    const base::Digest digest = world.digest();
    const bool by_itself = !choice.costs_fault() && choice.step != Step::kTimer;
    if (by_itself && digest != here) *quiet = false;
    if (!seen_.insert(digest).second) return true;
    nodes_.push_back({at.node, choice});
    next.push_back({static_cast<std::uint32_t>(nodes_.size() - 1), std::move(world)});
    return found_.whole = seen_.size() < limits_.states_max;
  }

  bool keeps_promises(const World& world, std::uint32_t node, const Choice& last, bool step) {
    if (!world.history().failed()) return true;
    found_.promise = world.history().promise;
    found_.what = world.history().what;
    std::vector<Choice> path;
    if (step) path.push_back(last);
    for (; node != 0; node = nodes_[node].from) path.push_back(nodes_[node].choice);
    World again(scope_);
    for (auto it = path.rbegin(); it != path.rend(); ++it) {
      found_.trace.push_back(again.words(*it));
      again.take(*it);
    }
    return false;
  }

  Scope scope_;
  Limits limits_;
  Found found_;
  std::unordered_set<base::Digest, ByLow> seen_;
  std::vector<Node> nodes_;
  std::vector<Reached> frontier_;
};

}  // namespace

Found search(const Scope& scope, const Limits& limits) { return Search(scope, limits).run(); }

}  // namespace jccl::sim::model
