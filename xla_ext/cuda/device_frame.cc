#include "cuda/device_frame.h"

namespace jccl::xla_ext {
namespace {

bool add_buffer(const void* raw, std::vector<View>* views, std::vector<std::uint64_t>* places) {
  const auto& from = *static_cast<const XLA_FFI_Buffer*>(raw);
  const auto dtype = dtype_of(static_cast<xla::ffi::DataType>(from.dtype));
  if (!dtype) return false;
  View view{*dtype, 1, nullptr, {}};
  for (std::int64_t i = 0; i < from.rank; ++i) {
    view.shape.push_back(static_cast<std::uint64_t>(from.dims[i]));
    view.count *= view.shape.back();
  }
  views->push_back(std::move(view));
  places->push_back(reinterpret_cast<std::uint64_t>(from.data));
  return true;
}

std::optional<HostAttribute> attribute_of(XLA_FFI_AttrType type, const void* raw) {
  if (type == XLA_FFI_AttrType_STRING) {
    const auto& text = *static_cast<const XLA_FFI_ByteSpan*>(raw);
    return text.len == 0 ? std::string() : std::string(text.ptr, text.len);
  }
  if (type == XLA_FFI_AttrType_SCALAR) {
    const auto& scalar = *static_cast<const XLA_FFI_Scalar*>(raw);
    if (scalar.dtype == XLA_FFI_DataType_S32) return *static_cast<std::int32_t*>(scalar.value);
    if (scalar.dtype == XLA_FFI_DataType_S64) return *static_cast<std::int64_t*>(scalar.value);
  }
  if (type == XLA_FFI_AttrType_ARRAY) {
    const auto& array = *static_cast<const XLA_FFI_Array*>(raw);
    const auto* words = static_cast<const std::int64_t*>(array.data);
    if (array.dtype == XLA_FFI_DataType_S64) return std::vector(words, words + array.size);
  }
  return std::nullopt;
}

}  // namespace

std::unique_ptr<DeviceFrame> DeviceFrame::copy(const XLA_FFI_CallFrame& frame) {
  auto made = std::make_unique<DeviceFrame>();
  for (std::int64_t i = 0; i < frame.args.size; ++i) {
    if (!add_buffer(frame.args.args[i], &made->host.operands, &made->operands_at)) return nullptr;
  }
  for (std::int64_t i = 0; i < frame.rets.size; ++i) {
    if (!add_buffer(frame.rets.rets[i], &made->host.results, &made->results_at)) return nullptr;
  }
  for (std::int64_t i = 0; i < frame.attrs.size; ++i) {
    const auto value = attribute_of(frame.attrs.types[i], frame.attrs.attrs[i]);
    if (!value) return nullptr;
    const XLA_FFI_ByteSpan& name = *frame.attrs.names[i];
    made->host.attributes.emplace(std::string(name.ptr, name.len), *value);
  }
  return made;
}

}  // namespace jccl::xla_ext
