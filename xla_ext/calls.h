// What the handlers of rounds have in common: scalar operands, status and token results, and the
// options that a program gives as attributes. Runs on XLA's threads.
#pragma once

#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "operands.h"
#include "registry.h"

namespace jccl::xla_ext {

xla::ffi::Error malformed(const char* what);

// What handlers of rounds are given: the device, the execution, and all that the program says.
inline auto placed_binding() {
  return xla::ffi::Ffi::Bind()
      .Ctx<xla::ffi::DeviceOrdinal>()
      .Ctx<xla::ffi::RunId>()
      .RemainingArgs()
      .RemainingRets()
      .Attrs();
}

template <typename T>
std::optional<T> scalar(const xla::ffi::RemainingArgs& args, std::size_t at) {
  const auto view = operand(args, at);
  if (!view || view->count != 1 || codec::size_of(view->dtype) != sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, view->data, sizeof(T));
  return value;
}

std::optional<View> status_result(const xla::ffi::RemainingRets& rets, std::size_t at);
bool put_token(const xla::ffi::RemainingRets& rets, std::size_t at, std::uint32_t token);

// The code of a round, from its status operand s32[4]; kInvalid if it names none.
std::optional<base::Code> round_code(const xla::ffi::RemainingArgs& args, std::size_t at);
// 0, the communicator's own, unless it is above 0.
base::Duration deadline_of(std::int32_t deadline_ms);

// A fingerprint as programs write it, 32 hex digits; none if it is something else.
std::optional<base::Digest> digest_from(const std::string& hex);

// Operands of marks that a call has, 0 or 1, as its attribute `marks` says: of the tag's state, or
// where a revision is published of the one before it.
std::size_t marks_of_call(const xla::ffi::Dictionary& attributes);
// Operands of a round by which it hands in the tag's state: its marks, or, as the attribute `state`
// says, so many leaves.
std::size_t state_operands(const xla::ffi::Dictionary& attributes);
// False if they are not what that says.
bool read_state(const xla::ffi::RemainingArgs& args, std::size_t at,
                const xla::ffi::Dictionary& attributes, peer::RoundOptions* options);

base::Status options_from(const xla::ffi::Dictionary& attributes, double weight,
                          std::int32_t deadline_ms, peer::RoundOptions* options);

// A round that committed made a new revision. After any other outcome the state stands as it was,
// but this peer may have been left behind; without a revision of its own there is nothing to heal.
bool wants_publish(base::Code round, const peer::Communicator& comm, const base::Tag& tag);

// Handles of starts that failed: done() reports their code, so that one place checks the outcome.
std::uint64_t failed_start_of(base::Code code);
bool is_failed_start(std::uint64_t handle);
base::Status failed_start(std::uint64_t handle);

std::shared_ptr<Entry> entry_of(const xla::ffi::Dictionary& attributes);

}  // namespace jccl::xla_ext
