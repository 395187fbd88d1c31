// Contributions that come encoded already, by somebody else's encoder (a device's): whether they
// are what a codec could have written. An encoder need not choose the same codes as codec.h, since
// owners decode what they get and every peer gets the owner's result; but its scales must be those
// of ALGORITHMS.md, so that decoding is exact and finite. Refuses stat2 and the sparse codecs,
// whose blocks have no scale, and "none". Pure; runs on any thread.
#pragma once

#include "codec/codec.h"

namespace jccl::codec {

// kInvalid, saying which block is wrong, and for a size that is not encoded_bytes(). A scale of NaN
// or Inf passes: it says that the values weren't finite, which is the guard's to answer.
base::Status check_encoded(const Codec& codec, Dtype dtype, const std::uint8_t* in,
                           std::size_t bytes, std::size_t count);

// The part of it that needs no bytes: whether the codec takes encoded values, and the size.
base::Status check_encoded_size(const Codec& codec, Dtype dtype, std::size_t bytes,
                                std::size_t count);

// Bytes of a codec that another peer sent, one segment: whether an encoder could have written them.
// Decoding takes any bytes; this is for whoever would add them up. Any codec but "none", on any
// block boundary. `finite`: values that aren't are refused, too. Without it a block that holds some
// is passed over, since nobody says what its codes are then. kCorrupt, saying which block is wrong.
base::Status check_received(const Codec& codec, const std::uint8_t* in, std::size_t count,
                            bool finite);

// Whether all values are finite, of bytes that check_encoded() passed. Starts on a block.
bool finite_encoded(const Codec& codec, const std::uint8_t* in, std::size_t count);

}  // namespace jccl::codec
