// A call as XLA's runtime for a device made it: where its buffers are there, and the same call for
// the host, whose views have no memory yet. Holds copies alone, since what XLA lends to a call is
// gone when the call was launched. Pure; any thread.
#pragma once

#include <memory>
#include <vector>

#include "host_call.h"

namespace jccl::xla_ext {

struct DeviceFrame {
  HostCall host;
  std::vector<std::uint64_t> operands_at, results_at;  // addresses on the device

  // nullptr if a buffer or an attribute is of a kind that no handler takes.
  static std::unique_ptr<DeviceFrame> copy(const XLA_FFI_CallFrame& frame);

  template <typename T>
  T attribute(const std::string& name, T fallback) const {
    const auto at = host.attributes.find(name);
    const T* held = at == host.attributes.end() ? nullptr : std::get_if<T>(&at->second);
    return held == nullptr ? fallback : *held;
  }
};

}  // namespace jccl::xla_ext
