// Part of kernels_body.h: the `kept` largest magnitudes of each block of 4096, ties to the lower
// index, as u16 indexes in ascending order and then their f32 values; or (topk2) as indexes of 12
// bits and then two bits a value (body_stat2.h). A block that this would not make smaller, for
// topk2 one that has no more than `kept`, travels as all of its values. Most elements are never
// looked at one by one: the `kept`-th largest of the runs' maxima is at most the `kept`-th largest
// element, so only runs that reach it hold candidates.
namespace jccl::codec {
namespace {

constexpr std::size_t kSelectBlock = 4096;
constexpr std::size_t kRun = 16;
constexpr std::size_t kRuns = kSelectBlock / kRun;

struct Selection {
  std::int32_t run_max[kRuns];
  std::int32_t magnitudes[kSelectBlock];  // of the candidates
  std::uint16_t indexes[kSelectBlock];
};

inline std::size_t count_from(const std::int32_t* __restrict values, std::size_t count,
                              std::int32_t least) {
  std::int32_t found = 0;
#pragma omp simd reduction(+ : found)
  for (std::size_t i = 0; i < count; ++i) found += values[i] >= least ? 1 : 0;
  return static_cast<std::size_t>(found);
}

// The largest value that at least `wanted` of them reach, or a smaller one that just `wanted` do;
// wanted <= count.
inline std::int32_t threshold(const std::int32_t* values, std::size_t count, std::size_t wanted,
                              std::int32_t most) {
  std::int64_t reached = 0;
  std::int64_t missed = std::int64_t{most} + 1;
  while (missed - reached > 1) {
    const std::int64_t middle = (reached + missed) / 2;
    const std::size_t found = count_from(values, count, static_cast<std::int32_t>(middle));
    if (found >= wanted) reached = middle;
    if (found < wanted) missed = middle;
    if (found == wanted) break;
  }
  return static_cast<std::int32_t>(reached);
}

// Gives the largest magnitude.
inline std::int32_t find_maxima(const F32* __restrict x, std::size_t count, Selection* s) {
  std::int32_t all = 0;
  for (std::size_t run = 0; run * kRun < count; ++run) {
    const std::size_t n = count - run * kRun < kRun ? count - run * kRun : kRun;
    s->run_max[run] = largest_magnitude(x + run * kRun, n);
    all = s->run_max[run] > all ? s->run_max[run] : all;
  }
  return all;
}

// Elements of at least `least`, ascending.
inline std::size_t find_candidates(const F32* x, std::size_t count, std::int32_t least,
                                   Selection* s) {
  std::size_t found = 0;
  for (std::size_t run = 0; run * kRun < count; ++run) {
    if (s->run_max[run] < least) continue;
    const std::size_t end = run * kRun + kRun < count ? run * kRun + kRun : count;
    for (std::size_t i = run * kRun; i < end; ++i) {
      const std::int32_t magnitude = bits_of(x[i].v) & kMagnitude;
      s->indexes[found] = static_cast<std::uint16_t>(i);
      s->magnitudes[found] = magnitude;
      found += magnitude >= least ? 1 : 0;
    }
  }
  return found;
}

std::int32_t encode_top_k_block(const F32* x, std::size_t count, std::size_t kept, Selection* s,
                                std::uint8_t* out) {
  const std::int32_t most = find_maxima(x, count, s);
  const std::size_t runs = (count + kRun - 1) / kRun;
  const std::int32_t least = kept <= runs ? threshold(s->run_max, runs, kept, most) : 0;
  const std::size_t found = find_candidates(x, count, least, s);
  const std::int32_t last = threshold(s->magnitudes, found, kept, most);
  const std::size_t above = last == kMagnitude ? 0 : count_from(s->magnitudes, found, last + 1);
  std::size_t ties = kept - above;
  auto* indexes = reinterpret_cast<U16*>(out);
  auto* values = reinterpret_cast<U32*>(out + 2 * kept);
  std::size_t entries = 0;
  for (std::size_t c = 0; c < found; ++c) {
    const bool tied = s->magnitudes[c] == last;
    if (s->magnitudes[c] < last || (tied && ties == 0)) continue;
    ties -= tied ? 1 : 0;
    indexes[entries].v = s->indexes[c];
    values[entries].v = static_cast<std::uint32_t>(bits_of(x[s->indexes[c]].v));
    ++entries;
  }
  return most;
}

// Entries that do not make it smaller: f32 values of all.
inline bool is_dense(std::size_t count, std::size_t kept) {
  return kept >= count || 6 * kept >= 4 * count;
}

std::uint32_t encode_top_k(const LoopSettings& with, const void* in, std::size_t count,
                           std::uint8_t* out) {
  const auto* x = static_cast<const F32*>(in);
  Selection selection;
  std::int32_t all_max = 0;
  for (std::size_t at = 0; at < count; at += kSelectBlock) {
    const std::size_t n = count - at < kSelectBlock ? count - at : kSelectBlock;
    std::int32_t most = 0;
    if (is_dense(n, with.kept)) {
      auto* y = reinterpret_cast<F32*>(out);
#pragma omp simd reduction(max : most)
      for (std::size_t i = 0; i < n; ++i) {
        const std::int32_t magnitude = bits_of(x[at + i].v) & kMagnitude;
        most = magnitude > most ? magnitude : most;
        y[i].v = x[at + i].v;
      }
      out += 4 * n;
    } else {
      most = encode_top_k_block(x + at, n, with.kept, &selection, out);
      out += 6 * with.kept;
    }
    all_max = most > all_max ? most : all_max;
  }
  return static_cast<std::uint32_t>(all_max);
}

// Bytes from the wire may hold any index: those beyond the block are passed over.
void decode_top_k(const LoopSettings& with, const std::uint8_t* in, std::size_t count, void* out) {
  auto* y = static_cast<U32*>(out);
  for (std::size_t at = 0; at < count; at += kSelectBlock, y += kSelectBlock) {
    const std::size_t n = count - at < kSelectBlock ? count - at : kSelectBlock;
    const auto* dense = reinterpret_cast<const U32*>(in);
    if (is_dense(n, with.kept)) {
      for (std::size_t i = 0; i < n; ++i) y[i].v = dense[i].v;
      in += 4 * n;
      continue;
    }
    const auto* indexes = reinterpret_cast<const U16*>(in);
    const auto* values = reinterpret_cast<const U32*>(in + 2 * with.kept);
    for (std::size_t i = 0; i < n; ++i) y[i].v = 0;
    for (std::size_t e = 0; e < with.kept; ++e) {
      if (indexes[e].v < n) y[indexes[e].v].v = values[e].v;
    }
    in += 6 * with.kept;
  }
}

// ---- the same with values of two bits --------------------------------------------------

constexpr std::size_t kPackedMax = kCodecs[static_cast<std::size_t>(CodecId::kTopK2)].kept_max;

constexpr std::size_t packed_bytes(std::size_t indexes) { return (3 * indexes + 1) / 2; }

// Index e in the lower 12 bits of 3 bytes if e is even, else in the upper; of an odd number the
// last has 2 bytes.
inline void pack_indexes(const U16* in, std::size_t count, std::uint8_t* out) {
  for (std::size_t e = 0; e < count; e += 2, out += 3) {
    const std::uint32_t other = e + 1 < count ? in[e + 1].v : 0U;
    const std::uint32_t both = in[e].v | other << 12;
    out[0] = static_cast<std::uint8_t>(both);
    out[1] = static_cast<std::uint8_t>(both >> 8);
    if (e + 1 < count) out[2] = static_cast<std::uint8_t>(both >> 16);
  }
}

inline std::size_t index_at(const std::uint8_t* packed, std::size_t e) {
  const std::uint8_t* at = packed + e / 2 * 3;
  if (e % 2 == 0) return at[0] | (at[1] & 15U) << 8;
  return at[1] >> 4 | static_cast<std::size_t>(at[2]) << 4;
}

std::uint32_t encode_top_k_2(const LoopSettings& with, const void* in, std::size_t count,
                             std::uint8_t* out) {
  const auto* x = static_cast<const F32*>(in);
  Selection selection;
  std::uint8_t exact[6 * kPackedMax];
  std::int32_t all_max = 0;
  for (std::size_t at = 0; at < count; at += kSelectBlock) {
    const std::size_t n = count - at < kSelectBlock ? count - at : kSelectBlock;
    std::int32_t most = 0;
    if (n <= with.kept) {
      most = encode_stats(x + at, n, out);
      out += stat_bytes(n);
    } else {
      most = encode_top_k_block(x + at, n, with.kept, &selection, exact);
      pack_indexes(reinterpret_cast<const U16*>(exact), with.kept, out);
      out += packed_bytes(with.kept);
      encode_stats(reinterpret_cast<const F32*>(exact + 2 * with.kept), with.kept, out);
      out += stat_bytes(with.kept);
    }
    all_max = most > all_max ? most : all_max;
  }
  return static_cast<std::uint32_t>(all_max);
}

void decode_top_k_2(const LoopSettings& with, const std::uint8_t* in, std::size_t count,
                    void* out) {
  auto* y = static_cast<U32*>(out);
  U32 values[kPackedMax];
  for (std::size_t at = 0; at < count; at += kSelectBlock, y += kSelectBlock) {
    const std::size_t n = count - at < kSelectBlock ? count - at : kSelectBlock;
    if (n <= with.kept) {
      decode_stats(in, n, y);
      in += stat_bytes(n);
      continue;
    }
    decode_stats(in + packed_bytes(with.kept), with.kept, values);
    for (std::size_t i = 0; i < n; ++i) y[i].v = 0;
    for (std::size_t e = 0; e < with.kept; ++e) {
      const std::size_t index = index_at(in, e);
      if (index < n) y[index].v = values[e].v;
    }
    in += packed_bytes(with.kept) + stat_bytes(with.kept);
  }
}

}  // namespace
}  // namespace jccl::codec
