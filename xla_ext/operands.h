// Between XLA's operand lists and the communicator's leaves: dtypes, paths, status words, and what
// a payload is when a round did not commit. Used by the CPU handlers; runs on XLA's threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "encoded_leaves.h"
#include "peer/communicator.h"
#include "registry.h"
#include "xla/ffi/api/ffi.h"

namespace jccl::xla_ext {

std::optional<codec::Dtype> dtype_of(xla::ffi::DataType type);

std::optional<View> operand(const xla::ffi::RemainingArgs& args, std::size_t at);
std::optional<View> result(const xla::ffi::RemainingRets& rets, std::size_t at);

template <typename T>
T attribute(const xla::ffi::Dictionary& attributes, std::string_view name, T fallback) {
  const auto held = attributes.get<T>(name);
  return held.has_value() ? held.value() : fallback;
}
std::string text_attribute(const xla::ffi::Dictionary& attributes, std::string_view name);
std::span<const std::int64_t> words_attribute(const xla::ffi::Dictionary& attributes,
                                              std::string_view name);
std::optional<EncodedLeaves> encoded_leaves(const xla::ffi::Dictionary& attributes);

// First `count` operands and results as leaves; nullopt if a type is not one of ours.
struct Payload {
  std::vector<View> in, out;
  EncodedLeaves encoded = {};
  std::vector<peer::Leaf> leaves(const std::string& paths) const;
  std::vector<Shape> shapes() const;
  void keep_input() const;  // out <- in's values; what does not fit in's size is zeroed
  void clear() const;       // zeros, where inputs didn't come
  // XLA allocates results anew for every execution. Backed by huge pages, large ones cost 512
  // times fewer page faults when they are first written.
  void expect_writes() const;
};
// Operands, of calls that give no results of their kind: `out` has no memory.
std::optional<Payload> inputs(const xla::ffi::RemainingArgs& args, std::size_t count,
                              EncodedLeaves encoded = {}, std::size_t first = 0);
std::optional<Payload> payload(const xla::ffi::RemainingArgs& args, std::size_t first_arg,
                               const xla::ffi::RemainingRets& rets, std::size_t first_ret,
                               std::size_t count, EncodedLeaves encoded = {});

// Operand u32[…, 2]: two words for each leaf of a state, of several parts one after another.
// nullopt: it is none.
std::optional<peer::StateMarks> marks_operand(const xla::ffi::RemainingArgs& args, std::size_t at,
                                              std::uint32_t part = 0, std::uint32_t parts = 1);

// The outputs of the call hold the round's result: also for a peer whose own contribution was left
// out by the guard, or as too slow.
using base::holds_result;

// (code, world, epoch, attempts)
void put_status(const View& status, base::Code code, std::uint64_t world = 0,
                std::uint64_t epoch = 0, std::uint64_t attempts = 0);
void put_status(const View& status, const peer::RoundResult& result);
// The fourth status word of a publish: 1 if what it was given was edited, 2 if the run went back.
std::int32_t how_replaced(const peer::SyncResult& result);

}  // namespace jccl::xla_ext
