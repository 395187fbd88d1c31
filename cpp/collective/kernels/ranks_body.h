// The source of all variants of the robust aggregators' loops; a ranks_*.cc defines JCCL_RANKS and
// includes it. As in loops_body.h nothing here may call an inline function with external linkage.
#include <cstddef>
#include <cstdint>

#include "collective/kernels/ranks.h"

namespace jccl::collective {
namespace {

// An element at any address; may alias anything, like a char.
template <typename T>
struct __attribute__((packed, may_alias)) Loose {
  T v;
};

template <typename T>
struct KeyOf;
template <>
struct KeyOf<float> {
  using Type = std::int32_t;
};
template <>
struct KeyOf<double> {
  using Type = std::int64_t;
};

// Integers in the order of the floats, by their bits; its own inverse.
template <typename K>
inline K flipped(K bits) {
  constexpr K kMagnitude = static_cast<K>(~(K{1} << (8 * sizeof(K) - 1)));
  return bits ^ ((bits >> (8 * sizeof(K) - 1)) & kMagnitude);
}

// One comparator of the network, for all columns of a tile.
template <typename K>
inline void order(K* __restrict low, K* __restrict high, std::size_t count) {
#pragma omp simd
  for (std::size_t i = 0; i < count; ++i) {
    const K a = low[i], b = high[i];
    low[i] = b < a ? b : a;
    high[i] = b < a ? a : b;
  }
}

// Batcher's merge exchange (Knuth, The Art of Computer Programming 3, 5.2.2, algorithm M): sorts
// any number of rows by comparators that do not depend on the values.
template <typename K>
void sort_rows(K* tile, std::size_t n, std::size_t count) {
  if (n < 2) return;
  std::size_t top = 1;
  while (2 * top < n) top *= 2;
  for (std::size_t p = top; p > 0; p /= 2) {
    std::size_t q = top, r = 0, d = p;
    for (;;) {
      for (std::size_t i = 0; i + d < n; ++i) {
        if ((i & p) == r) order(tile + i * kSortTile, tile + (i + d) * kSortTile, count);
      }
      if (q == p) break;
      d = q - p;
      q /= 2;
      r = p;
    }
  }
}

template <typename T>
void mean_of_ranks(const Rows& rows, std::size_t drop, std::size_t count, void* memory,
                   double* out) {
  using K = typename KeyOf<T>::Type;
  auto* tile = static_cast<K*>(memory);
  const auto kept = static_cast<double>(rows.n - 2 * drop);
  for (std::size_t at = 0; at < count; at += kSortTile) {
    const std::size_t m = count - at < kSortTile ? count - at : kSortTile;
    for (std::size_t row = 0; row < rows.n; ++row) {
      const T* from = static_cast<const T*>(rows.first) + row * rows.stride + at;
      K* to = tile + row * kSortTile;
#pragma omp simd
      for (std::size_t i = 0; i < m; ++i) to[i] = flipped(__builtin_bit_cast(K, from[i]));
    }
    sort_rows(tile, rows.n, m);
    double* sums = out + at;
    for (std::size_t row = drop; row < rows.n - drop; ++row) {
      const K* from = tile + row * kSortTile;
      const bool first = row == drop, last = row + drop + 1 == rows.n;
#pragma omp simd
      for (std::size_t i = 0; i < m; ++i) {
        const auto v = static_cast<double>(__builtin_bit_cast(T, flipped(from[i])));
        const double sum = first ? v : sums[i] + v;
        sums[i] = last ? sum / kept : sum;
      }
    }
  }
}

template <typename T>
double squared_distance(const void* x, const double* centre, std::size_t count) {
  const auto* in = static_cast<const T*>(x);
  double lanes[16] = {};
  std::size_t i = 0;
  for (; i + 16 <= count; i += 16) {
#pragma omp simd
    for (std::size_t lane = 0; lane < 16; ++lane) {
      const double d = static_cast<double>(in[i + lane]) - centre[i + lane];
      lanes[lane] = lanes[lane] + d * d;
    }
  }
  for (std::size_t lane = 0; i + lane < count; ++lane) {
    const double d = static_cast<double>(in[i + lane]) - centre[i + lane];
    lanes[lane] = lanes[lane] + d * d;
  }
  for (std::size_t half = 8; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] = lanes[lane] + lanes[lane + half];
  }
  return lanes[0];
}

template <typename T>
void pull(const void* x, const double* __restrict centre, double factor, std::size_t count,
          double* __restrict sum) {
  const auto* in = static_cast<const T*>(x);
#pragma omp simd
  for (std::size_t i = 0; i < count; ++i) {
    sum[i] = sum[i] + factor * (static_cast<double>(in[i]) - centre[i]);
  }
}

void step(const double* __restrict sum, double n, std::size_t count, double* __restrict centre) {
#pragma omp simd
  for (std::size_t i = 0; i < count; ++i) centre[i] = centre[i] + sum[i] / n;
}

template <typename T>
void narrow(const double* centre, std::size_t count, void* out) {
  auto* y = static_cast<Loose<T>*>(out);
#pragma omp simd
  for (std::size_t i = 0; i < count; ++i) y[i].v = static_cast<T>(centre[i]);
}

template <typename T>
struct Ranks {
  static constexpr RankLoops kTable = {mean_of_ranks<T>, squared_distance<T>, pull<T>, step,
                                       narrow<T>};
};

}  // namespace

extern const RankTables JCCL_RANKS;
constinit const RankTables JCCL_RANKS = {Ranks<float>::kTable, Ranks<double>::kTable};

}  // namespace jccl::collective
