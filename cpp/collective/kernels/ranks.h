// The inner loops of the robust aggregators, one table of them per instruction set. Internal to
// cpp/collective. Rows are aligned arrays of f32 or f64, `stride` elements from one to the next;
// what narrow() writes to needs no alignment. All call them under codec::FloatMode.
#pragma once

#include <cstddef>
#include <cstdint>

namespace jccl::collective {

// Columns that are sorted together, so that a tile of them stays in the first-level cache.
inline constexpr std::size_t kSortTile = 256;

struct Rows {
  const void* first = nullptr;
  std::size_t n = 0;
  std::size_t stride = 0;
};

struct RankLoops {
  // out[i] = mean of the values of column i from rank `drop` to rank n - drop, added from the
  // lowest up and divided once, in f64. Ascending: by value, -0 before +0, NaN beyond the
  // infinities by its sign. `tile`: n·kSortTile elements.
  void (*mean_of_ranks)(const Rows& rows, std::size_t drop, std::size_t count, void* tile,
                        double* out);
  // Σ (x - centre)², in f64: element i in lane i mod 16, the lanes in a fixed tree.
  double (*squared_distance)(const void* x, const double* centre, std::size_t count);
  // sum += factor · (x - centre), in f64.
  void (*pull)(const void* x, const double* centre, double factor, std::size_t count, double* sum);
  void (*step)(const double* sum, double n, std::size_t count, double* centre);  // centre += sum/n
  void (*narrow)(const double* centre, std::size_t count, void* out);  // rounded to nearest even
};

struct RankTables {
  RankLoops f32, f64;
};

extern const RankTables kRanksBaseline;
#if defined(__x86_64__)
extern const RankTables kRanksV3;
extern const RankTables kRanksV4;
#endif

}  // namespace jccl::collective
