#include "testing/device_program.h"

#include "testing/fake_cuda.h"

namespace jccl::xla_ext::testing {
namespace {

template <typename T>
ArrayRef filled(codec::Dtype dtype, std::vector<std::uint64_t> extents, const T* values) {
  auto made = std::make_shared<Array>(dtype, std::move(extents));
  std::memcpy(made->data(), values, made->bytes());
  return made;
}

}  // namespace

Array::Array(codec::Dtype dtype, std::vector<std::uint64_t> extents)
    : view_{dtype, 1, nullptr, std::move(extents)} {
  for (const std::uint64_t extent : view_.shape) view_.count *= extent;
  view_.data = fake_cuda_alloc(view_.bytes());
}

ArrayRef Array::floats(const std::vector<float>& values) {
  return filled(codec::Dtype::kF32, {values.size()}, values.data());
}
ArrayRef Array::ints(const std::vector<std::int32_t>& values) {
  return filled(codec::Dtype::kI32, {values.size()}, values.data());
}
ArrayRef Array::bytes_of(const std::vector<std::uint8_t>& values) {
  return filled(codec::Dtype::kU8, {values.size()}, values.data());
}
ArrayRef Array::scalar(float value) { return filled(codec::Dtype::kF32, {}, &value); }
ArrayRef Array::scalar(std::int32_t value) { return filled(codec::Dtype::kI32, {}, &value); }
ArrayRef Array::token(std::uint32_t value) { return filled(codec::Dtype::kU32, {}, &value); }
ArrayRef Array::handle() {
  const std::uint32_t words[2] = {0, 0};
  return filled(codec::Dtype::kU32, {2}, words);
}

std::string invoke(const Target* table, const std::string& target, const Context& context,
                   const std::vector<ArrayRef>& operands, const std::vector<ArrayRef>& results,
                   const Attributes& attributes) {
  HostCall call;
  for (const ArrayRef& operand : operands) call.operands.push_back(operand->view());
  for (const ArrayRef& result : results) call.results.push_back(result->view());
  call.attributes = attributes;
  call.place = context;
  return call_handler(table, target, std::move(call)).text;
}

XLA_FFI_Handler_Traits traits_of(XLA_FFI_Handler* handler) {
  XLA_FFI_Api api{};
  api.struct_size = XLA_FFI_Api_STRUCT_SIZE;
  XLA_FFI_Metadata metadata{};
  metadata.struct_size = XLA_FFI_Metadata_STRUCT_SIZE;
  metadata.api_version.struct_size = XLA_FFI_Api_Version_STRUCT_SIZE;
  metadata.traits = ~XLA_FFI_Handler_Traits{0};
  XLA_FFI_Metadata_Extension extension{};
  extension.extension_base.struct_size = XLA_FFI_Metadata_Extension_STRUCT_SIZE;
  extension.extension_base.type = XLA_FFI_Extension_Metadata;
  extension.metadata = &metadata;
  XLA_FFI_CallFrame frame{};
  frame.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE;
  frame.api = &api;
  frame.extension_start = &extension.extension_base;
  return handler(&frame) == nullptr ? metadata.traits : ~XLA_FFI_Handler_Traits{0};
}

Attributes round_attributes(const Entry& entry, const std::string& tag) {
  return {{"comm", entry.id()},
          {"tag", tag},
          {"collective", 1},
          {"paths", std::string("w")},
          {"op", std::string("sum")},
          {"codec", std::string("none")},
          {"plan", std::string()},
          {"fingerprint", std::string()},
          {"guard", 1}};
}

}  // namespace jccl::xla_ext::testing
