// The FFI handlers called from host code, over arrays in host memory: what a Python callback does
// where XLA has no FFI. The frame that XLA would make is made here after xla/ffi/api/c_api.h, so
// both routes run the same handlers and differ in no bit. Refuses attributes of kinds no handler
// takes. Runs on the calling thread and blocks as the handler does.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "handlers/handlers.h"
#include "operands.h"
#include "peer/streamed_input.h"

namespace jccl::xla_ext {

using HostAttribute =
    std::variant<std::int32_t, std::int64_t, std::string, std::vector<std::int64_t>>;

// What XLA's context answers: the device among those that call, and which execution this is.
struct HostPlace {
  std::int32_t device = 0;
  std::int64_t execution = 0;
  void* stream = nullptr;  // of a device; the CPU has none
};

struct HostCall {
  std::vector<View> operands, results;
  std::map<std::string, HostAttribute> attributes;  // handlers rely on the order by name
  HostPlace place;
  std::shared_ptr<peer::StreamedInput>
      feed;  // of leaves that are still being copied; null: all are here
};

// How long the rest of a feed is waited for once its call is over: less than Parts::patience() adds
// to a deadline.
inline constexpr base::Duration kFeedMax = 10 * base::kSecond;

// The feed of the call that this thread carries out; null for calls of XLA.
std::shared_ptr<peer::StreamedInput> feed_of_call();

// kInvalid: no handler of that name, or its ffi::Error in words. `table`: the platform's, the CPU's
// if none is given.
base::Status call_handler(const std::string& target, HostCall call);
base::Status call_handler(const Target* table, const std::string& target, HostCall call);

}  // namespace jccl::xla_ext
