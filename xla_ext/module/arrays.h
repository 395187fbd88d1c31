// numpy arrays as leaves, without copies. Needs the GIL. Refuses (ValueError, TypeError, naming the
// leaf) what is not C-contiguous, not native-endian, not writable where written, or of a dtype the
// transport does not carry.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>
#include <vector>

#include "peer/communicator.h"

namespace jccl::xla_ext {

// "float32" and so on, ml_dtypes' "bfloat16" too.
inline constexpr std::pair<const char*, codec::Dtype> kDtypeNames[] = {
    {"float32", codec::Dtype::kF32},   {"float64", codec::Dtype::kF64},
    {"bfloat16", codec::Dtype::kBf16}, {"float16", codec::Dtype::kF16},
    {"int8", codec::Dtype::kI8},       {"int16", codec::Dtype::kI16},
    {"int32", codec::Dtype::kI32},     {"int64", codec::Dtype::kI64},
    {"uint8", codec::Dtype::kU8},      {"uint16", codec::Dtype::kU16},
    {"uint32", codec::Dtype::kU32},    {"uint64", codec::Dtype::kU64},
};

using Arrays = std::vector<pybind11::array>;

// `outs` null: results have no place yet. `slots` > 1: outputs hold that many inputs (all_gather).
std::vector<peer::Leaf> leaves_from(const Arrays& ins, const Arrays* outs,
                                    const std::vector<std::string>& paths, std::size_t slots);

// Likewise, but inputs marked in `encoded` are the bytes of what the outputs then hold as values.
std::vector<peer::Leaf> leaves_from(const Arrays& ins, const Arrays& outs,
                                    const std::vector<std::string>& paths, std::size_t slots,
                                    const std::vector<bool>& encoded);

// The memory of outputs, for a wait.
std::vector<void*> places_from(const Arrays& outs);

}  // namespace jccl::xla_ext
