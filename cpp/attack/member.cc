#include "attack/member.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "codec/dtype.h"
#include "collective/op.h"
#include "exchange/stress_oracle.h"

namespace jccl::attack {

using base::Code;
using peer::Leaf;
using peer::RoundResult;

namespace {

constexpr base::Duration kDeadline = 20 * base::kSecond;
constexpr std::size_t kSeenMax = 4096;
constexpr std::size_t kStatesMax = 64;

}  // namespace

bool Board::agrees(const std::string& tag, std::uint64_t n, const std::vector<double>& weights) {
  std::lock_guard lock(mutex_);
  if (seen_.size() >= kSeenMax) seen_.erase(seen_.begin());
  return seen_.try_emplace({tag, n}, weights).first->second == weights;
}

bool Board::agrees(std::uint64_t revision, const std::vector<std::int32_t>& state) {
  std::lock_guard lock(mutex_);
  if (states_.size() >= kStatesMax) states_.erase(states_.begin());
  return states_.try_emplace(revision, state).first->second == state;
}

Member::Member(std::shared_ptr<peer::Communicator> comm, std::string tag, std::uint64_t number,
               std::uint64_t elements, Board* board, std::string plan)
    : comm_(std::move(comm)),
      tag_(std::move(tag)),
      number_(number),
      elements_(elements),
      board_(board),
      plan_(std::move(plan)),
      rng_(number),
      state_(elements) {}

std::vector<Leaf> Member::leaves() {
  return {{codec::Dtype::kI32, state_.size(), state_.data(), state_.data(), "state", {}}};
}

bool Member::step() {
  std::vector<float> values;
  if (!has_state()) {
    last_ = reduce(&values).status;
  } else if (synchronise()) {
    const RoundResult result = reduce(&values);
    last_ = result.status;
    synced_ = base::holds_result(last_.code);
    if (synced_) {
      advance(values);
      stands_at(result.n);
      if (forges_) ++state_[0];
      publish();
    }
  }
  return last_.code != Code::kBanned && last_.code != Code::kClosed && last_.code != Code::kAuth &&
         comm_->attributes().run != base::RunId{};
}

bool Member::synchronise() {
  if (synced_) return true;
  peer::SyncOptions options;
  options.tag = tag_, options.deadline = kDeadline;
  const auto result = comm_->sync_state(leaves(), options);
  synced_ = result.status.ok() || result.status.code == Code::kResynced;
  if (!synced_) note(last_ = result.status);
  if (synced_) stands_at(result.revision);
  return synced_;
}

// A state that somebody forged would be another one.
void Member::stands_at(std::uint64_t revision) {
  if (board_ != nullptr && !board_->agrees(revision, state_)) ++tally_.wrong;
}

void Member::publish() {
  peer::SyncOptions options;
  options.tag = tag_, options.deadline = kDeadline;
  const auto published = comm_->publish(leaves(), options);
  synced_ = published.status.ok() || published.status.code == Code::kResynced;
  if (!synced_) note(published.status);
}

RoundResult Member::reduce(std::vector<float>* values) {
  const double weight = exchange::stress::weight_of(number_, calls_++, rng_);
  *values = exchange::stress::input_of<float>(weight, elements_);
  peer::RoundOptions options;
  options.tag = tag_;
  options.op = collective::Op::kSum;
  options.weight = weight;
  options.deadline = kDeadline;
  options.fingerprint = {7, 7};
  options.plan = plan_;
  if (has_state()) options.state = peer::marks_of(leaves());
  const Leaf leaf{codec::Dtype::kF32, elements_, values->data(), values->data(), "x", {}};
  const auto begun = std::chrono::steady_clock::now();
  if (borrower_ != nullptr) borrower_->lends(tag_, values->data(), values->size());
  RoundResult result = comm_->run({leaf}, options);
  if (borrower_ != nullptr) borrower_->lends(tag_, nullptr, 0);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begun;
  judge(result, weight, *values);
  if (base::holds_result(result.status.code)) {
    std::lock_guard lock(tally_.mutex);
    tally_.took_ms.push_back(took.count());
  }
  return result;
}

void Member::judge(const RoundResult& result, double weight, const std::vector<float>& values) {
  if (!base::holds_result(result.status.code)) {
    // A call that failed leaves its input as it was.
    if (values != exchange::stress::input_of<float>(weight, elements_)) ++tally_.wrong;
    return note(result.status);
  }
  ++tally_.rounds;
  const bool right = values == exchange::stress::result_of<float>({}, result.weights, elements_);
  const bool alike = board_ == nullptr || board_->agrees(tag_, result.n, result.weights);
  if (!right || !alike) ++tally_.wrong;
  if (std::count(result.weights.begin(), result.weights.end(), weight) == 0) ++tally_.left_out;
}

void Member::note(const base::Status& status) {
  ++tally_.failed;
  std::lock_guard lock(tally_.mutex);
  ++tally_.codes[std::string(base::name_of(status.code))];
  tally_.last = peer::describe(status);
}

void Member::advance(const std::vector<float>& result) {
  for (std::size_t k = 0; k < state_.size(); ++k) {
    state_[k] = static_cast<std::int32_t>((state_[k] * 31LL + std::lround(result[k])) % 65521);
  }
}

}  // namespace jccl::attack
