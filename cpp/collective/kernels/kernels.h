// The arithmetic of a reduction, per segment of a chunk. Floats of up to 32 bits accumulate in f32,
// f64 in f64, integers exactly (8 and 16 bits in 32, 32 in 64, 64 in 128); in the order of the
// calls, so that the same calls give the same bits on every processor. ALGORITHMS.md has the
// formulas. Refuses (JCCL_CHECK) what collective/op.h refuses. Pure; any thread; no alignment
// needed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/codec.h"
#include "collective/op.h"

namespace jccl::collective {

std::size_t accumulator_bytes(codec::Dtype dtype, std::size_t count);

// first: acc := weight·decode(encoded); else: acc := acc (op) weight·decode(encoded).
// A weight of exactly 1 does not multiply. `encoded` and `acc` must not overlap.
void accumulate(Op op, codec::Dtype dtype, const codec::Codec& codec, bool first,
                const std::uint8_t* encoded, std::size_t count, double weight, void* acc);

// acc := acc (op) partial, both in accumulator form.
void add_partial(Op op, codec::Dtype dtype, const void* partial, std::size_t count, void* acc);

// Divides by `weight_sum` if the op is mean, turns every NaN into the one canonical NaN, encodes.
// `weight_sum` is the sum of the weights in f64 in adding order; for integers the number of
// contributors. `acc` is left as it is, unless `encoded_out` is `acc` itself, which is allowed when
// the leaf is f32 or f64 and travels as it is. `noise`: of the result, if the codec is stochastic.
void finish(Op op, codec::Dtype dtype, const codec::Codec& codec, void* acc, std::size_t count,
            double weight_sum, std::uint8_t* encoded_out, const codec::Noise& noise = {});

// The whole of a sum or mean of two in one pass: the same bytes as accumulate(first) of `a`,
// accumulate of `b` and finish, for leaves of f32 and f64 that travel as they are. Also the last
// step of more: `a` is then the accumulator so far, with weight 1. `out` may be `a` or `b`.
// false, and nothing is done: not supported, take the long way.
[[nodiscard]] bool reduce2(Op op, codec::Dtype dtype, const void* a, double wa, const void* b,
                           double wb, std::size_t count, double weight_sum, void* out);

}  // namespace jccl::collective
