// An attempt's view of its call: arrays, terms, how much of a streamed input has arrived, and
// whether the inputs were made from the run's state. Pure; an implementation reads safely what
// other threads change.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "codec/codec.h"
#include "codec/dtype.h"
#include "collective/aggregator.h"
#include "collective/layout.h"
#include "collective/op.h"
#include "collective/spec.h"

namespace jccl::exchange {

// One array of a call. `in` is read, `out` written only at commit: a call that fails, whatever its
// code, leaves it unchanged (but see Terms::out_private). They may be the same memory or not
// overlap at all. The memory must stay valid until the call ended.
struct Leaf {
  codec::Dtype dtype = codec::Dtype::kF32;
  std::uint64_t count = 0;
  const void* in = nullptr;
  void* out = nullptr;
  std::string path;                  // for messages, e.g. "params/dense/kernel"; may be empty
  std::vector<std::uint64_t> shape;  // if known: peers must agree on it, not only on the count
  // Instead of `in`: the contribution in the bytes of the round's codec, whoever encoded it (see
  // codec/encoded.h).
  const std::uint8_t* encoded = nullptr;
  std::uint64_t encoded_bytes = 0;
};
std::uint64_t input_bytes(const Leaf& leaf);                 // as it lies: values, or encoded
std::string leaf_text(const Leaf& leaf, std::size_t index);  // "params/w f32[3,4]"

using collective::Collective;
using collective::name_of;

struct Terms {
  Collective collective = Collective::kAllReduce;
  collective::Op op = collective::Op::kMean;
  codec::Codec codec;
  collective::Aggregator aggregator;
  double weight = 1.0;      // 0: receive only; a robust aggregator counts all others alike
  std::uint32_t slots = 0;  // of collectives that have some
  std::string plan;         // "" automatic, "fastest", "direct", "exchange", "ring"
  bool guard = true;        // leave this peer's contribution out if it holds NaN or Inf
  // No other code reads `out` before the call ended: results may be received straight into it.
  // After a failed round it holds the input; after an all_gather, or with a feed, anything.
  bool out_private = false;
};

// What plans cut of the leaves: all of each, or the block of one slot where inputs have slots (of
// which `count` is a multiple).
std::vector<collective::LeafSpec> specs_of(const std::vector<Leaf>& leaves, const Terms& terms);

// Inputs that come while the attempt runs: leaf after leaf, each from its first byte on.
class Incoming {
 public:
  virtual ~Incoming() = default;
  virtual std::uint64_t here() const = 0;  // bytes of all inputs that change no more
  virtual bool whole() const = 0;
  virtual std::optional<std::string> fault() const = 0;  // why the rest won't come
};

// Of the state that the values of a call were made from, with the revision that this peer holds.
enum class Comparison : std::uint8_t { kEqual = 1, kRuns, kDiffers };

class Call {
 public:
  virtual ~Call() = default;
  virtual const Terms& terms() const = 0;
  virtual const Incoming* incoming() const = 0;     // null: all inputs are here
  virtual Comparison comparison() const = 0;        // may change between any two lines
  virtual std::string difference() const = 0;       // kDiffers: what, in words
  virtual void note_sent(std::uint64_t bytes) = 0;  // of payload, also of copies
  virtual void note_received(std::uint64_t bytes) = 0;

  std::vector<Leaf> leaves;
  std::vector<collective::LeafSpec> specs;
  // Filled while its attempts run.
  base::Time started = 0, moved = 0;  // of the first START; the whole of a result is here
  std::string here;                   // what this peer alone knows of a failure; for its user
  bool delivered = false;             // outputs hold a committed result (also with kGuard)
  // At commit. reduce_scatter: which elements of the first leaf were written; all_to_all: the own
  // slot, and how many are filled.
  std::uint64_t scatter_first = 0, scatter_count = 0;
};
using CallRef = std::shared_ptr<Call>;

}  // namespace jccl::exchange
