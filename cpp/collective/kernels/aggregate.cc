// Goes through a segment by blocks: decodes a block of every contribution into rows, and works on
// those. Norms and centres are formed in f64 also for f32 leaves, so that no finite value
// overflows.
#include "collective/kernels/aggregate.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/planted.h"
#include "codec/kernels/isa.h"
#include "collective/kernels/kernels.h"
#include "collective/kernels/ranks.h"

namespace jccl::collective {
namespace {

using codec::Dtype;

constexpr int kClipIterations = 3;

const RankTables& rank_tables() {
#if defined(__x86_64__)
  switch (codec::active_isa()) {
    case codec::Isa::kV4:
      return kRanksV4;
    case codec::Isa::kV3:
      return kRanksV3;
    case codec::Isa::kBaseline:
      break;
  }
#endif
  return kRanksBaseline;
}

// The middle one, or the mean of the two in the middle. Infinities are allowed, NaN is not.
double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t high = values.size() / 2, low = (values.size() - 1) / 2;
  return low == high ? values[low] : (values[low] + values[high]) / 2;
}

// One block of all contributions, decoded.
class Block {
 public:
  Block(const Contributions& all, std::size_t at, std::size_t count, AggregateScratch* scratch)
      : loops_(all.dtype == Dtype::kF64 ? rank_tables().f64 : rank_tables().f32),
        size_(all.dtype == Dtype::kF64 ? sizeof(double) : sizeof(float)),
        count_(count),
        scratch_(scratch) {
    const std::size_t n = all.encoded.size();
    rows_ = {scratch->rows(n * kAggregateBlock * size_), n, kAggregateBlock};
    const std::size_t offset = codec::encoded_bytes(all.codec, all.dtype, at);
    for (std::size_t i = 0; i < n; ++i) {
      accumulate(Op::kSum, all.dtype, all.codec, true, all.encoded[i] + offset, count, 1, row(i));
    }
  }

  void mean_of_ranks(std::size_t drop) {
    void* tile = scratch_->sorted(rows_.n * kSortTile * size_);
    loops_.mean_of_ranks(rows_, drop, count_, tile, scratch_->centre());
  }

  void start_at_zero() { std::fill_n(scratch_->centre(), count_, 0.0); }

  // Moves the centre by the mean of all differences to it, none longer than `times` the median of
  // their lengths. What is infinitely far away does not pull.
  void clip(double times) {
    const std::vector<double> lengths = distances();
    const double radius = times * median_of(lengths);
    double* sum = scratch_->sum();
    std::fill_n(sum, count_, 0.0);
    for (std::size_t i = 0; i < rows_.n; ++i) {
      if (!std::isfinite(lengths[i])) continue;
      const bool inside = lengths[i] <= radius || JCCL_PLANTED("outliers-not-clipped");
      const double factor = inside ? 1 : radius / lengths[i];
      loops_.pull(row(i), scratch_->centre(), factor, count_, sum);
    }
    loops_.step(sum, static_cast<double>(rows_.n), count_, scratch_->centre());
  }

  void write(void* out) const { loops_.narrow(scratch_->centre(), count_, out); }

 private:
  std::uint8_t* row(std::size_t i) const {
    auto* first = static_cast<std::uint8_t*>(const_cast<void*>(rows_.first));
    return first + i * rows_.stride * size_;
  }

  std::vector<double> distances() const {
    std::vector<double> lengths;
    for (std::size_t i = 0; i < rows_.n; ++i) {
      const double squared = loops_.squared_distance(row(i), scratch_->centre(), count_);
      lengths.push_back(std::isnan(squared) ? INFINITY : std::sqrt(squared));
    }
    return lengths;
  }

  const RankLoops& loops_;
  const std::size_t size_, count_;
  Rows rows_;
  AggregateScratch* const scratch_;
};

void aggregate_block(const Aggregator& aggregator, std::size_t n, Block& block) {
  const std::size_t to_median = (n - 1) / 2;
  switch (aggregator.id) {
    case AggregatorId::kTrimmedMean:
      return block.mean_of_ranks(trimmed(aggregator.parameter, n));
    case AggregatorId::kMedian:
      return block.mean_of_ranks(JCCL_PLANTED("median-is-mean") ? 0 : to_median);
    case AggregatorId::kCenteredClip:
      block.mean_of_ranks(to_median);
      for (int i = 0; i < kClipIterations; ++i) block.clip(aggregator.parameter);
      return;
    case AggregatorId::kNormLimit:
      block.start_at_zero();
      return block.clip(aggregator.parameter);
    case AggregatorId::kMean:
      break;
  }
  JCCL_CHECK(false);
}

}  // namespace

// Of three or more at least one: a share that drops nobody would protect nobody, and how many
// contribute may fall in the middle of a run.
std::size_t trimmed(double share, std::size_t n) {
  const auto dropped = static_cast<std::size_t>(share * static_cast<double>(n));
  return n >= 3 && !JCCL_PLANTED("trims-nobody-of-three") ? std::max<std::size_t>(dropped, 1)
                                                          : dropped;
}

void aggregate(const Aggregator& aggregator, const Contributions& contributions,
               AggregateScratch* scratch, void* acc) {
  const std::size_t n = contributions.encoded.size();
  JCCL_CHECK(n > 0 && is_robust(aggregator) && codec::is_float(contributions.dtype));
  const codec::FloatMode mode;
  for (std::size_t at = 0; at < contributions.count; at += kAggregateBlock) {
    const std::size_t count = std::min(kAggregateBlock, contributions.count - at);
    Block block(contributions, at, count, scratch);
    aggregate_block(aggregator, n, block);
    block.write(static_cast<std::uint8_t*>(acc) + accumulator_bytes(contributions.dtype, at));
  }
}

}  // namespace jccl::collective
