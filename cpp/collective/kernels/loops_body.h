// The source of all variants of the reduction loops; a loops_*.cc defines JCCL_LOOPS and includes
// it. As in codec/kernels/kernels_body.h nothing here may call an inline function with external
// linkage: the linker would keep one copy for all variants, maybe one this processor cannot run.
#include <cstddef>
#include <cstdint>

#include "collective/kernels/loops.h"

namespace jccl::collective {
namespace {

// An element at any address; may alias anything, like a char.
template <typename T>
struct __attribute__((packed, may_alias)) Loose {
  T v;
};

__extension__ typedef __int128 Wide;
__extension__ typedef unsigned __int128 UnsignedWide;

// --- floats ---------------------------------------------------------------------------------

template <typename T>
inline T tidied(T v) {  // every NaN becomes the positive quiet one: processors differ in theirs
  return v == v ? v : static_cast<T>(__builtin_nan(""));
}

struct Add {
  template <typename T>
  static T of(T a, T b) {
    return a + b;
  }
};
struct Min {  // NaN if either is; the first of two zeros
  template <typename T>
  static T of(T a, T b) {
    return (b < a || b != b) ? b : a;
  }
};
struct Max {
  template <typename T>
  static T of(T a, T b) {
    return (b > a || b != b) ? b : a;
  }
};
struct Prod {
  template <typename T>
  static T of(T a, T b) {
    return a * b;
  }
};

template <typename T, typename Way>
void combine(const void* x, std::size_t count, void* acc) {
  const auto* __restrict in = static_cast<const Loose<T>*>(x);
  auto* __restrict out = static_cast<Loose<T>*>(acc);
#pragma omp simd
  for (std::size_t i = 0; i < count; ++i) out[i].v = Way::of(out[i].v, in[i].v);
}

template <typename T>
void add_scaled(const void* x, std::size_t count, double weight, void* acc) {
  const auto* __restrict in = static_cast<const Loose<T>*>(x);
  auto* __restrict out = static_cast<Loose<T>*>(acc);
  const T w = static_cast<T>(weight);
#pragma omp simd
  for (std::size_t i = 0; i < count; ++i) out[i].v = out[i].v + w * in[i].v;
}

template <typename T>
void scale(const void* x, std::size_t count, double weight, void* out) {
  const auto* in = static_cast<const Loose<T>*>(x);
  auto* y = static_cast<Loose<T>*>(out);
  const T w = static_cast<T>(weight);
#pragma omp simd
  for (std::size_t i = 0; i < count; ++i) y[i].v = w * in[i].v;
}

// Whether x / d and x · (1/d) are the same for every x: d is a power of two and both it and its
// inverse are normal numbers. A product costs a fifth of a quotient.
inline bool has_exact_inverse(float d) {
  const auto bits = __builtin_bit_cast(std::uint32_t, d);
  return (bits & 0x7FFFFF) == 0 && bits >= 0x00800000 && bits <= 0x7E800000;
}
inline bool has_exact_inverse(double d) {
  const auto bits = __builtin_bit_cast(std::uint64_t, d);
  return (bits & 0xFFFFFFFFFFFFF) == 0 && bits >= 0x0010000000000000 && bits <= 0x7FD0000000000000;
}

template <typename T>
void divide(const void* x, std::size_t count, double by, void* out) {
  const auto* in = static_cast<const Loose<T>*>(x);
  auto* y = static_cast<Loose<T>*>(out);
  const T d = static_cast<T>(by);
  if (has_exact_inverse(d)) {
    const T inverse = 1 / d;
#pragma omp simd
    for (std::size_t i = 0; i < count; ++i) y[i].v = tidied(in[i].v * inverse);
    return;
  }
#pragma omp simd
  for (std::size_t i = 0; i < count; ++i) y[i].v = tidied(in[i].v / d);
}

// A weight of 1 multiplies here where the long way does not: x · 1 is x but for the bits of a NaN,
// and those are tidied. Likewise a divisor of 1.
template <typename T, bool kScaled, bool kDivides>
void sum2_loop(const Sum2& terms, std::size_t count, void* out) {
  const auto* a = static_cast<const Loose<T>*>(terms.a);
  const auto* b = static_cast<const Loose<T>*>(terms.b);
  auto* y = static_cast<Loose<T>*>(out);
  const T wa = static_cast<T>(terms.wa);
  const T wb = static_cast<T>(terms.wb);
  const T d = static_cast<T>(terms.by);
  const T inverse = 1 / d;
#pragma omp simd
  for (std::size_t i = 0; i < count; ++i) {
    const T sum = kScaled ? wa * a[i].v + wb * b[i].v : a[i].v + b[i].v;
    y[i].v = tidied(kDivides ? sum / d : sum * inverse);
  }
}

template <typename T>
void sum2(const Sum2& terms, std::size_t count, void* out) {
  const bool scaled = terms.wa != 1 || terms.wb != 1;
  const bool divides = !has_exact_inverse(static_cast<T>(terms.by));
  if (scaled && divides) return sum2_loop<T, true, true>(terms, count, out);
  if (scaled) return sum2_loop<T, true, false>(terms, count, out);
  if (divides) return sum2_loop<T, false, true>(terms, count, out);
  sum2_loop<T, false, false>(terms, count, out);
}

template <typename T>
void tidy(const void* x, std::size_t count, void* out) {
  const auto* in = static_cast<const Loose<T>*>(x);
  auto* y = static_cast<Loose<T>*>(out);
#pragma omp simd
  for (std::size_t i = 0; i < count; ++i) y[i].v = tidied(in[i].v);
}

// --- int8 blocks, decoded and added in one pass -----------------------------------------------

constexpr std::size_t kBlock = 256;

template <bool kScaled>
inline void add_block(const std::uint8_t* __restrict in, std::size_t count, float weight,
                      Loose<float>* __restrict acc) {
  const float scale = reinterpret_cast<const Loose<float>*>(in)->v;
  const std::uint8_t* __restrict codes = in + 4;
#pragma omp simd
  for (std::size_t i = 0; i < count; ++i) {
    const float v = static_cast<float>(static_cast<std::int8_t>(codes[i])) * scale;
    acc[i].v = acc[i].v + (kScaled ? weight * v : v);
  }
}

template <bool kScaled>
inline void add_blocks(const std::uint8_t* in, std::size_t count, float weight, void* acc) {
  auto* out = static_cast<Loose<float>*>(acc);
  for (; count >= kBlock; count -= kBlock, out += kBlock, in += 4 + kBlock) {
    add_block<kScaled>(in, kBlock, weight, out);
  }
  if (count > 0) add_block<kScaled>(in, count, weight, out);
}

void add_int8(const std::uint8_t* in, std::size_t count, void* acc) {
  add_blocks<false>(in, count, 1, acc);
}

void add_int8_scaled(const std::uint8_t* in, std::size_t count, double weight, void* acc) {
  add_blocks<true>(in, count, static_cast<float>(weight), acc);
}

// --- integers -----------------------------------------------------------------------------------

// T: the leaf's type; A: the accumulator's, same sign; U: as wide as A and unsigned, so that sums
// and products wrap without undefined behaviour.
template <typename A, typename U>
inline A joined(Op op, A a, A b) {
  switch (op) {
    case Op::kSum:
    case Op::kMean:
      return static_cast<A>(static_cast<U>(a) + static_cast<U>(b));
    case Op::kMin:
      return b < a ? b : a;
    case Op::kMax:
      return b > a ? b : a;
    case Op::kProd:
      return static_cast<A>(static_cast<U>(a) * static_cast<U>(b));
  }
  return a;
}

template <typename X, typename A, typename U, Op kOp>
void join(const Loose<X>* __restrict x, std::size_t count, Loose<A>* __restrict acc) {
#pragma omp simd
  for (std::size_t i = 0; i < count; ++i) {
    acc[i].v = joined<A, U>(kOp, acc[i].v, static_cast<A>(x[i].v));
  }
}

template <typename X, typename A, typename U>
void join_all(Op op, const void* x, std::size_t count, void* acc) {
  const auto* in = static_cast<const Loose<X>*>(x);
  auto* out = static_cast<Loose<A>*>(acc);
  switch (op) {
    case Op::kSum:
    case Op::kMean:
      return join<X, A, U, Op::kSum>(in, count, out);
    case Op::kMin:
      return join<X, A, U, Op::kMin>(in, count, out);
    case Op::kMax:
      return join<X, A, U, Op::kMax>(in, count, out);
    case Op::kProd:
      return join<X, A, U, Op::kProd>(in, count, out);
  }
}

template <typename T, typename A, typename U>
struct Integers {
  static void combine(Op op, bool first, const void* x, std::size_t count, void* acc) {
    if (!first) return join_all<T, A, U>(op, x, count, acc);
    const auto* __restrict in = static_cast<const Loose<T>*>(x);
    auto* __restrict out = static_cast<Loose<A>*>(acc);
#pragma omp simd
    for (std::size_t i = 0; i < count; ++i) out[i].v = static_cast<A>(in[i].v);
  }

  static void merge(Op op, const void* partial, std::size_t count, void* acc) {
    join_all<A, A, U>(op, partial, count, acc);
  }

  static void finish(Op op, const void* acc, std::size_t count, std::uint32_t contributors,
                     void* out) {
    const auto* __restrict in = static_cast<const Loose<A>*>(acc);
    auto* __restrict y = static_cast<Loose<T>*>(out);
    const A divisor = static_cast<A>(op == Op::kMean ? contributors : 1);
    if (divisor == 1) {
#pragma omp simd
      for (std::size_t i = 0; i < count; ++i) y[i].v = static_cast<T>(in[i].v);
      return;
    }
    for (std::size_t i = 0; i < count; ++i) y[i].v = static_cast<T>(in[i].v / divisor);
  }

  static constexpr IntegerLoops kTable = {combine, merge, finish, sizeof(A)};
};

}  // namespace

extern const Loops JCCL_LOOPS;
constinit const Loops JCCL_LOOPS = {
    {combine<float, Add>, add_scaled<float>, combine<float, Min>, combine<float, Max>,
     combine<float, Prod>, scale<float>, divide<float>, tidy<float>, sum2<float>},
    {combine<double, Add>, add_scaled<double>, combine<double, Min>, combine<double, Max>,
     combine<double, Prod>, scale<double>, divide<double>, tidy<double>, sum2<double>},
    {Integers<std::int8_t, std::int32_t, std::uint32_t>::kTable,
     Integers<std::int16_t, std::int32_t, std::uint32_t>::kTable,
     Integers<std::int32_t, std::int64_t, std::uint64_t>::kTable,
     Integers<std::int64_t, Wide, UnsignedWide>::kTable,
     Integers<std::uint8_t, std::uint32_t, std::uint32_t>::kTable,
     Integers<std::uint16_t, std::uint32_t, std::uint32_t>::kTable,
     Integers<std::uint32_t, std::uint64_t, std::uint64_t>::kTable,
     Integers<std::uint64_t, UnsignedWide, UnsignedWide>::kTable},
    add_int8,
    add_int8_scaled};

}  // namespace jccl::collective
