// Cells of the contract of collectives, and what each must give: an oracle that knows nothing of
// chunks, kernels or plans and shares no code with the codecs (exchange/stress_oracle.h). No two
// peers have the same weight or values. Test-only.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/rng.h"
#include "capi/cluster_support.h"
#include "codec/reference.h"
#include "exchange/stress_oracle.h"

namespace jccl::capi::test::contract {

using Bytes = std::vector<std::uint8_t>;

inline constexpr Dtype kDtypes[] = {Dtype::kF32, Dtype::kF64, Dtype::kBf16, Dtype::kF16,
                                    Dtype::kI8,  Dtype::kI16, Dtype::kI32,  Dtype::kI64,
                                    Dtype::kU8,  Dtype::kU16, Dtype::kU32,  Dtype::kU64};
inline constexpr Op kOps[] = {Op::kSum, Op::kMean, Op::kMin, Op::kMax, Op::kProd};
inline constexpr CodecId kCodecs[] = {
    CodecId::kNone, CodecId::kBf16, CodecId::kFp16,  CodecId::kInt8, CodecId::kFp8,  CodecId::kInt4,
    CodecId::kE3m0, CodecId::kInt2, CodecId::kStat2, CodecId::kTopK, CodecId::kTopK2};

inline bool is_unsigned(Dtype dtype) { return dtype >= Dtype::kU8; }

inline void store(Dtype dtype, double value, std::uint8_t* to) {
  const auto put = [to](auto v) { std::memcpy(to, &v, sizeof v); };
  const auto whole = static_cast<std::int64_t>(value);
  switch (dtype) {
    case Dtype::kF32:
      return put(static_cast<float>(value));
    case Dtype::kF64:
      return put(value);
    case Dtype::kBf16:
      return put(codec::reference::bf16_of_f32(static_cast<float>(value)));
    case Dtype::kF16:
      return put(codec::reference::f16_of_f32(static_cast<float>(value)));
    case Dtype::kI8:
      return put(static_cast<std::int8_t>(whole));
    case Dtype::kI16:
      return put(static_cast<std::int16_t>(whole));
    case Dtype::kI32:
      return put(static_cast<std::int32_t>(whole));
    case Dtype::kI64:
      return put(whole);
    case Dtype::kU8:
      return put(static_cast<std::uint8_t>(whole));
    case Dtype::kU16:
      return put(static_cast<std::uint16_t>(whole));
    case Dtype::kU32:
      return put(static_cast<std::uint32_t>(whole));
    case Dtype::kU64:
      return put(static_cast<std::uint64_t>(whole));
  }
}

template <typename T>
T get(const std::uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

inline double load(Dtype dtype, const std::uint8_t* from) {
  switch (dtype) {
    case Dtype::kF32:
      return get<float>(from);
    case Dtype::kF64:
      return get<double>(from);
    case Dtype::kBf16:
      return codec::reference::f32_of_bf16(get<std::uint16_t>(from));
    case Dtype::kF16:
      return codec::reference::f32_of_f16(get<std::uint16_t>(from));
    case Dtype::kI8:
      return get<std::int8_t>(from);
    case Dtype::kI16:
      return get<std::int16_t>(from);
    case Dtype::kI32:
      return get<std::int32_t>(from);
    case Dtype::kI64:
      return static_cast<double>(get<std::int64_t>(from));
    case Dtype::kU8:
      return get<std::uint8_t>(from);
    case Dtype::kU16:
      return get<std::uint16_t>(from);
    case Dtype::kU32:
      return get<std::uint32_t>(from);
    case Dtype::kU64:
      return static_cast<double>(get<std::uint64_t>(from));
  }
  return 0;
}

struct Cell {
  Op op = Op::kSum;
  Dtype dtype = Dtype::kF32;
  CodecId codec = CodecId::kNone;
  std::string plan;
  bool in_place = false;
  bool weighted = false;
};

inline std::string text_of(const Cell& cell, std::size_t world, std::size_t count) {
  return cat(name_of(cell.op), " ", name_of(cell.dtype), " ", name_of(cell.codec), " plan '",
             cell.plan, "' world ", world, " count ", count, cell.in_place ? " in place" : "");
}

inline bool is_lossy(const Cell& cell) { return cell.codec != CodecId::kNone; }
inline bool is_weighted(const Cell& cell) {
  return codec::is_float(cell.dtype) && (cell.op == Op::kSum || cell.op == Op::kMean);
}
inline double weight_of(const Cell& cell, std::size_t peer) {
  return cell.weighted ? static_cast<double>(2 * peer + 1) : 1;
}

// Peer p's element k: integers, whose sums are exact in every dtype; under a codec larger ones, by
// turns, so that blocks differ in scale.
inline double value_at(const Cell& cell, std::size_t peer, std::size_t k) {
  base::Rng rng(peer * 7919 + k * 31 + static_cast<std::size_t>(cell.dtype));
  if (cell.op == Op::kProd) {
    const double v = static_cast<double>(1 + rng.below(2));
    return is_unsigned(cell.dtype) || rng.chance(0.5) ? v : -v;
  }
  if (is_unsigned(cell.dtype)) return static_cast<double>(rng.below(9));
  constexpr std::uint64_t kLargest[] = {100, 5, 25, 1};
  const std::uint64_t largest = is_lossy(cell) ? kLargest[k / 64 % 4] : 8;
  return static_cast<double>(rng.below(2 * largest + 1)) - static_cast<double>(largest);
}

inline Bytes input_of(const Cell& cell, std::size_t peer, std::size_t count) {
  const std::size_t size = codec::size_of(cell.dtype);
  Bytes bytes(count * size);
  for (std::size_t k = 0; k < count; ++k) {
    store(cell.dtype, value_at(cell, peer, k), bytes.data() + k * size);
  }
  return bytes;
}

// Of integers, and of min, max and prod.
inline double combined_at(const Cell& cell, std::size_t world, std::size_t k) {
  double total = value_at(cell, 0, k);
  for (std::size_t p = 1; p < world; ++p) {
    const double v = value_at(cell, p, k);
    if (cell.op == Op::kMin) total = std::min(total, v);
    if (cell.op == Op::kMax) total = std::max(total, v);
    if (cell.op == Op::kProd) total *= v;
    if (cell.op == Op::kSum || cell.op == Op::kMean) total += v;
  }
  return cell.op == Op::kMean ? std::trunc(total / static_cast<double>(world)) : total;
}

// Σ w·x, or that by Σ w, in the type T in which it is formed, added in the order of `peers`.
template <typename T>
std::vector<double> weighted(const Cell& cell, const std::vector<std::size_t>& peers,
                             std::size_t first, std::size_t last) {
  const std::size_t count = last - first;
  std::vector<T> sum(count);
  double all = 0;
  for (const std::size_t p : peers) {
    std::vector<float> x(count);
    for (std::size_t k = 0; k < count; ++k) x[k] = static_cast<float>(value_at(cell, p, first + k));
    if (is_lossy(cell) && cell.plan != "ring") {
      x = exchange::stress::travelled(cell.codec, exchange::stress::kKept, x);
    }
    for (std::size_t k = 0; k < count; ++k) {
      const T product = static_cast<T>(weight_of(cell, p)) * static_cast<T>(x[k]);
      sum[k] += product;
    }
    all += weight_of(cell, p);
  }
  if (cell.op == Op::kMean) {
    for (T& v : sum) v /= static_cast<T>(all);
  }
  if (!is_lossy(cell)) return {sum.begin(), sum.end()};
  const std::vector<float> out = exchange::stress::result_travelled(
      cell.codec, peers.size(), std::vector<float>(sum.begin(), sum.end()));
  return {out.begin(), out.end()};
}

// Elements [first, last), as a leaf of their own: so a scatter encodes each range.
inline std::vector<double> expected(const Cell& cell, const std::vector<std::size_t>& peers,
                                    std::size_t first, std::size_t last) {
  if (is_weighted(cell) && cell.dtype == Dtype::kF64) {
    return weighted<double>(cell, peers, first, last);
  }
  if (is_weighted(cell)) return weighted<float>(cell, peers, first, last);
  std::vector<double> values;
  for (std::size_t k = first; k < last; ++k) values.push_back(combined_at(cell, peers.size(), k));
  return values;
}

// Zeros may differ in their signs.
inline void check_result(const Cell& cell, const std::vector<std::size_t>& peers, const Bytes& out,
                         std::size_t first, std::size_t last) {
  const std::size_t size = codec::size_of(cell.dtype);
  const std::vector<double> wanted = expected(cell, peers, first, last);
  for (std::size_t k = first; k < last; ++k) {
    std::uint8_t bytes[8] = {};
    store(cell.dtype, wanted[k - first], bytes);
    ASSERT_EQ(load(cell.dtype, out.data() + k * size), load(cell.dtype, bytes)) << "element " << k;
  }
}

// Of f32, where the master chose the order of additions: whether it took a ring, which rounds no
// contribution.
inline bool is_of_ring(const Cell& cell, const std::vector<std::size_t>& peers, const Bytes& out) {
  const std::vector<double> direct = expected(cell, peers, 0, out.size() / 4);
  for (std::size_t k = 0; k < direct.size(); ++k) {
    if (load(cell.dtype, out.data() + 4 * k) != direct[k]) return !codec::is_sparse(cell.codec);
  }
  return false;
}

// Which peers contributed, in the order of their ids.
inline std::vector<std::size_t> in_order(const RoundResult& result,
                                         const std::vector<base::PeerId>& ids) {
  std::vector<std::size_t> peers;
  for (const base::PeerId id : result.contributors) {
    const auto at = std::find(ids.begin(), ids.end(), id) - ids.begin();
    EXPECT_LT(at, static_cast<std::ptrdiff_t>(ids.size())) << "nobody has id " << id;
    peers.push_back(static_cast<std::size_t>(at));
  }
  return peers;
}

inline std::vector<std::size_t> first_peers(std::size_t world) {
  std::vector<std::size_t> peers(world);
  for (std::size_t p = 0; p < world; ++p) peers[p] = p;
  return peers;
}

}  // namespace jccl::capi::test::contract
