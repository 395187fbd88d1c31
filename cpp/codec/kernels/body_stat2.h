// Part of kernels_body.h: two bits an element by the statistics of its block: a sign, and whether
// the magnitude reaches the block's root mean square. Each half is sent as its own mean, so a
// block carries two magnitudes, bf16. Also what the values of sparse blocks travel as.
// All sums are in f64, in 16 lanes and then a fixed tree, so that every processor has their bits.
namespace jccl::codec {
namespace {

constexpr std::size_t kStatLanes = 16;

struct StatLanes {
  double v[kStatLanes] = {};
  double sum() {
    for (std::size_t step = kStatLanes / 2; step > 0; step /= 2) {
      for (std::size_t l = 0; l < step; ++l) v[l] += v[l + step];
    }
    return v[0];
  }
};

// The root mean square of a block.
inline float stat_threshold(const float* __restrict magnitude, std::size_t count) {
  StatLanes squares;
  for (std::size_t at = 0; at < kStatBlock; at += kStatLanes) {
#pragma omp simd
    for (std::size_t l = 0; l < kStatLanes; ++l) {
      const double v = static_cast<double>(magnitude[at + l]);
      squares.v[l] += v * v;
    }
  }
  return static_cast<float>(__builtin_sqrt(squares.sum() / static_cast<double>(count)));
}

// A mean as bf16: finite stays finite, and what is above 0 stays so.
inline std::uint16_t stat_magnitude(double sum, std::int32_t count) {
  if (count == 0) return 0;
  const double mean = sum / static_cast<double>(count);
  const std::uint16_t rounded = bf16_of(bits_of(static_cast<float>(mean)));
  if (rounded == 0 && mean > 0) return 1;
  return rounded == 0x7F80 && mean < 0x1p128 ? std::uint16_t{0x7F7F} : rounded;
}

inline std::int32_t encode_stat_block(const F32* __restrict x, std::size_t count,
                                      std::uint8_t* __restrict out) {
  float magnitude[kStatBlock] = {};  // what a short block lacks adds 0 to the lower half's sum
  for (std::size_t i = 0; i < count; ++i) magnitude[i] = float_of(bits_of(x[i].v) & kMagnitude);
  const float least = stat_threshold(magnitude, count);
  StatLanes above, below;
  std::int32_t reached = 0;
  for (std::size_t at = 0; at < kStatBlock; at += kStatLanes) {
#pragma omp simd reduction(+ : reached)
    for (std::size_t l = 0; l < kStatLanes; ++l) {
      const double v = static_cast<double>(magnitude[at + l]);
      const bool reaches = magnitude[at + l] >= least && at + l < count;
      above.v[l] += reaches ? v : 0.0;
      below.v[l] += reaches ? 0.0 : v;
      reached += reaches ? 1 : 0;
    }
  }
  std::uint16_t small = stat_magnitude(below.sum(), static_cast<std::int32_t>(count) - reached);
  const std::uint16_t large = stat_magnitude(above.sum(), reached);
  // Of two halves that came out alike there is one: the same values again are the same bytes.
  const float split = small == large ? 0.0F : least;
  if (small == large) small = 0;
  auto* head = reinterpret_cast<U16*>(out);
  head[0].v = small;
  head[1].v = large;
  std::uint8_t* __restrict codes = out + kStatHead;
  const std::size_t bytes = (count + 3) / 4;
  for (std::size_t i = 0; i < bytes; ++i) codes[i] = 0;
  for (std::size_t part = 0; part * bytes < count; ++part) {
    const std::size_t at = part * bytes;
    const std::size_t n = count - at < bytes ? count - at : bytes;
#pragma omp simd
    for (std::size_t i = 0; i < n; ++i) {
      const std::int32_t sign = (bits_of(x[at + i].v) >> 30) & 2;
      const std::int32_t code = sign | (magnitude[at + i] >= split ? 1 : 0);
      codes[i] = static_cast<std::uint8_t>(codes[i] | code << (2 * part));
    }
  }
  return largest_magnitude(x, count);
}

inline void decode_stat_block(const std::uint8_t* __restrict in, std::size_t count,
                              U32* __restrict y) {
  const auto* head = reinterpret_cast<const U16*>(in);
  const std::uint32_t small = static_cast<std::uint32_t>(head[0].v) << 16;
  const std::uint32_t large = static_cast<std::uint32_t>(head[1].v) << 16;
  const std::uint8_t* __restrict codes = in + kStatHead;
  const std::size_t bytes = (count + 3) / 4;
  for (std::size_t part = 0; part * bytes < count; ++part) {
    const std::size_t at = part * bytes;
    const std::size_t n = count - at < bytes ? count - at : bytes;
#pragma omp simd
    for (std::size_t i = 0; i < n; ++i) {
      const std::uint32_t code = static_cast<std::uint32_t>(codes[i]) >> (2 * part);
      y[at + i].v = ((code & 1) != 0 ? large : small) ^ (code & 2) << 30;
    }
  }
}

// Of any number of elements; gives the largest magnitude.
inline std::int32_t encode_stats(const F32* x, std::size_t count, std::uint8_t* out) {
  std::int32_t all_max = 0;
  for (std::size_t at = 0; at < count; at += kStatBlock) {
    const std::size_t n = count - at < kStatBlock ? count - at : kStatBlock;
    const std::int32_t most = encode_stat_block(x + at, n, out);
    all_max = most > all_max ? most : all_max;
    out += stat_bytes(n);
  }
  return all_max;
}

inline void decode_stats(const std::uint8_t* in, std::size_t count, U32* y) {
  for (std::size_t at = 0; at < count; at += kStatBlock) {
    const std::size_t n = count - at < kStatBlock ? count - at : kStatBlock;
    decode_stat_block(in, n, y + at);
    in += stat_bytes(n);
  }
}

std::uint32_t encode_stat2(const LoopSettings&, const void* in, std::size_t count,
                           std::uint8_t* out) {
  return static_cast<std::uint32_t>(encode_stats(static_cast<const F32*>(in), count, out));
}

void decode_stat2(const LoopSettings&, const std::uint8_t* in, std::size_t count, void* out) {
  decode_stats(in, count, static_cast<U32*>(out));
}

}  // namespace
}  // namespace jccl::codec
