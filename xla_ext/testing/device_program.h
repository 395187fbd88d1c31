// Calls as XLA makes them, without XLA: buffers, attributes and an execution context by hand, for
// the handlers of either platform. Memory of the fake devices is the host's, so both can be given
// the same call.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "handlers/handlers.h"
#include "host_call.h"
#include "registry.h"

namespace jccl::xla_ext::testing {

// Memory of a device (fake_cuda_alloc), with type and extents. It is there until fake_cuda_reset:
// a stream may come to it after the call that named it.
class Array {
 public:
  Array(codec::Dtype dtype, std::vector<std::uint64_t> extents);
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  static std::shared_ptr<Array> floats(const std::vector<float>& values);
  static std::shared_ptr<Array> ints(const std::vector<std::int32_t>& values);
  static std::shared_ptr<Array> bytes_of(const std::vector<std::uint8_t>& values);
  static std::shared_ptr<Array> scalar(float value);
  static std::shared_ptr<Array> scalar(std::int32_t value);
  static std::shared_ptr<Array> token(std::uint32_t value);
  static std::shared_ptr<Array> handle();
  static std::shared_ptr<Array> status() { return ints({-1, -1, -1, -1}); }

  const View& view() const { return view_; }
  std::size_t bytes() const { return view_.bytes(); }
  void* data() const { return view_.data; }
  template <typename T>
  std::vector<T> read() const {
    std::vector<T> out(bytes() / sizeof(T));
    std::memcpy(out.data(), data(), bytes());
    return out;
  }

 private:
  View view_;
};
using ArrayRef = std::shared_ptr<Array>;

using Attributes = std::map<std::string, HostAttribute>;
using Context = HostPlace;

// Empty, or the message of the ffi::Error.
std::string invoke(const Target* table, const std::string& target, const Context& context,
                   const std::vector<ArrayRef>& operands, const std::vector<ArrayRef>& results,
                   const Attributes& attributes);

XLA_FFI_Handler_Traits traits_of(XLA_FFI_Handler* handler);

// What `jccl/_ops.py` gives a round, besides communicator and tag.
Attributes round_attributes(const Entry& entry, const std::string& tag);

}  // namespace jccl::xla_ext::testing
