// Marks of leaves, over several threads where it pays, and the words for a state that differs.
#include "peer/snapshots/own_state.h"

#include <algorithm>
#include <system_error>
#include <thread>
#include <utility>

#include "base/planted.h"
#include "base/text.h"
#include "peer/call.h"

namespace jccl::peer {
namespace {

using base::cat;
using base::Code;
using base::Status;

constexpr std::uint64_t kMarkPiece = std::uint64_t{4} << 20;  // bytes, whole elements of any dtype
constexpr std::size_t kMarkThreads = 8;

struct Piece {
  std::size_t leaf = 0;
  std::uint64_t first = 0, count = 0;  // elements
};

std::vector<Piece> pieces_of(const std::vector<Leaf>& leaves) {
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const std::uint64_t step = kMarkPiece / codec::size_of(leaves[i].dtype);
    for (std::uint64_t at = 0; at < leaves[i].count; at += step) {
      if (JCCL_PLANTED("piece-of-a-leaf-unmarked") && at > 0) break;
      pieces.push_back({i, at, std::min(step, leaves[i].count - at)});
    }
  }
  return pieces;
}

// Every `stride`th piece, from `first` on.
StateMarks sum_of(const std::vector<Leaf>& leaves, const std::vector<Piece>& pieces,
                  std::size_t first, std::size_t stride, const TooLate& too_late) {
  StateMarks sums(leaves.size());
  for (std::size_t i = first; i < pieces.size(); i += stride) {
    if (too_late()) break;
    const Leaf& leaf = leaves[pieces[i].leaf];
    const std::size_t size = codec::size_of(leaf.dtype);
    const auto* bytes = static_cast<const std::uint8_t*>(leaf.in) + pieces[i].first * size;
    sums[pieces[i].leaf] +=
        snapshot::mark_of({bytes, pieces[i].count * size}, size, pieces[i].first);
  }
  return sums;
}

}  // namespace

StateMarks marks_of(const std::vector<Leaf>& leaves) {
  return *marks_in_time(leaves, [] { return false; });
}

std::optional<StateMarks> marks_in_time(const std::vector<Leaf>& leaves, const TooLate& too_late) {
  const std::vector<Piece> pieces = pieces_of(leaves);
  const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
  const std::size_t ways =
      std::min({cores, kMarkThreads, std::max<std::size_t>(1, pieces.size() / 4)});
  std::vector<StateMarks> sums(ways);
  std::vector<std::thread> others;
  for (std::size_t i = 1; i < ways; ++i) {
    try {
      others.emplace_back([&, i] { sums[i] = sum_of(leaves, pieces, i, ways, too_late); });
    } catch (const std::system_error&) {  // the machine has no thread to give
      sums[i] = sum_of(leaves, pieces, i, ways, too_late);
    }
  }
  sums[0] = sum_of(leaves, pieces, 0, ways, too_late);
  for (std::thread& other : others) other.join();
  if (too_late()) return std::nullopt;
  for (std::size_t i = 1; i < ways; ++i) {
    for (std::size_t leaf = 0; leaf < leaves.size() && !JCCL_PLANTED("marks-of-one-thread"); ++leaf)
      sums[0][leaf] += sums[i][leaf];
  }
  return std::move(sums[0]);
}

void OwnState::become(std::uint64_t revision, const std::vector<Leaf>& leaves, StateMarks marks) {
  known_ = true;
  revision_ = revision;
  marks_ = std::move(marks);
  leaves_.clear();
  types_.clear();
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    leaves_.push_back(leaf_text(leaves[i], i));
    types_.emplace_back(leaves[i].dtype, leaves[i].count);
  }
}

void OwnState::settled() { mistake_.clear(); }

Status OwnState::never_synchronised(const base::Tag& tag) {
  return mistaken({Code::kInvalid,
                   cat("call jccl.sync_state first: the shared state of '", tag,
                       "' was never synchronised by this peer, so that its rounds would average "
                       "over states that differ; nothing was sent")});
}

Status OwnState::admit(const base::Tag& tag, bool is_handed) {
  if (!known_)
    return is_handed && !JCCL_PLANTED("unsynchronised-taken") ? never_synchronised(tag) : Status{};
  if (is_handed || JCCL_PLANTED("state-left-out")) return {};
  return mistaken({Code::kInvalid, cat("tag '", tag,
                                       "' has shared state: pass it as state=, so that an edited "
                                       "state is noticed and kept out of the result")});
}

Status OwnState::compare(const base::Tag& tag, const StateMarks& handed,
                         const std::vector<Leaf>* leaves) {
  std::string differs = difference(handed);
  if (differs.empty() && leaves != nullptr) differs = other_type(*leaves);
  if (differs.empty()) return {};
  return mistaken(
      {Code::kResync, cat("the state of '", tag, "' differs from revision ", revision_,
                          ", which this peer published or adopted: ", differs,
                          "; this call is in no result. Call jccl.sync_state(state) to take the "
                          "run's")});
}

Status OwnState::check_before(const base::Tag& tag, const StateMarks& handed) {
  const std::string differs = difference(handed);
  if (differs.empty()) return {};
  const Status status{
      Code::kResync,
      cat("the state of '", tag,
          "' was changed since this peer published or "
          "adopted revision ",
          revision_, ": ", differs, "; it is not published, and the run's newest takes its place")};
  return mistake_.empty() ? mistaken(status) : status;  // else the round's call said so
}

std::string OwnState::difference(const StateMarks& handed) const {
  if (handed.size() > marks_.size() ||
      (handed.size() != marks_.size() && !JCCL_PLANTED("leaf-count-not-compared"))) {
    return cat(handed.size(), " leaves instead of ", marks_.size());
  }
  std::size_t count = 0, first = 0;
  for (std::size_t i = handed.size(); i-- > 0;) {
    if (JCCL_PLANTED("first-leaf-compared") && i > 0) continue;
    const bool half = JCCL_PLANTED("second-word-of-marks-not-compared");
    if (handed[i] == marks_[i] || (half && handed[i].first == marks_[i].first)) continue;
    ++count;
    first = i;
  }
  if (count == 0) return {};
  return cat("leaf ", leaves_[first], count == 1 ? "" : cat(" and ", count - 1, " more"));
}

// Zeros are zeros in every dtype, to the marks.
std::string OwnState::other_type(const std::vector<Leaf>& leaves) const {
  for (std::size_t i = 0; i < std::min(leaves.size(), types_.size()); ++i) {
    const bool same = types_[i] == std::pair(leaves[i].dtype, leaves[i].count);
    if (same || JCCL_PLANTED("type-not-compared")) continue;
    return cat("leaf ", leaves_[i], " has another type or size now");
  }
  return {};
}

// Said once, until the state is right again.
Status OwnState::mistaken(Status status) {
  if (status.text != mistake_ || JCCL_PLANTED("mistake-said-each-time")) unsaid_ = status.text;
  mistake_ = status.text;
  return status;
}

std::string OwnState::new_mistake() { return std::exchange(unsaid_, {}); }

}  // namespace jccl::peer
