#include "host_call.h"

#include <memory>

#include "base/text.h"

// XLA leaves both to whoever calls handlers.
struct XLA_FFI_Error {
  std::string text;
};
struct XLA_FFI_ExecutionContext {
  jccl::xla_ext::HostPlace place;
};

namespace jccl::xla_ext {

using base::Code;
using base::Status;
using codec::Dtype;

namespace {

thread_local std::shared_ptr<peer::StreamedInput> feed_here;

struct FeedHere {
  explicit FeedHere(std::shared_ptr<peer::StreamedInput> feed) { feed_here = std::move(feed); }
  ~FeedHere() { feed_here = nullptr; }
};

XLA_FFI_Error* create_error(XLA_FFI_Error_Create_Args* args) {
  return new XLA_FFI_Error{args->message};
}
void message_of_error(XLA_FFI_Error_GetMessage_Args* args) {
  args->message = args->error->text.c_str();
}
void destroy_error(XLA_FFI_Error_Destroy_Args* args) { delete args->error; }

XLA_FFI_Error* run_id(XLA_FFI_RunId_Get_Args* args) {
  args->run_id = args->ctx->place.execution;
  return nullptr;
}
XLA_FFI_Error* device_ordinal(XLA_FFI_DeviceOrdinal_Get_Args* args) {
  args->device_ordinal = args->ctx->place.device;
  return nullptr;
}

XLA_FFI_Error* stream(XLA_FFI_Stream_Get_Args* args) {
  args->stream = args->ctx->place.stream;
  return nullptr;
}

// What else XLA offers (states, futures, allocators) our handlers never ask for.
const XLA_FFI_Api& api() {
  static const XLA_FFI_Api table = [] {
    XLA_FFI_Api all{};
    all.struct_size = XLA_FFI_Api_STRUCT_SIZE;
    all.api_version.struct_size = XLA_FFI_Api_Version_STRUCT_SIZE;
    all.api_version.major_version = XLA_FFI_API_MAJOR;
    all.api_version.minor_version = XLA_FFI_API_MINOR;
    all.XLA_FFI_Error_Create = create_error;
    all.XLA_FFI_Error_GetMessage = message_of_error;
    all.XLA_FFI_Error_Destroy = destroy_error;
    all.XLA_FFI_Stream_Get = stream;
    all.XLA_FFI_RunId_Get = run_id;
    all.XLA_FFI_DeviceOrdinal_Get = device_ordinal;
    return all;
  }();
  return table;
}

XLA_FFI_DataType type_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF32:
      return XLA_FFI_DataType_F32;
    case Dtype::kF64:
      return XLA_FFI_DataType_F64;
    case Dtype::kBf16:
      return XLA_FFI_DataType_BF16;
    case Dtype::kF16:
      return XLA_FFI_DataType_F16;
    case Dtype::kI8:
      return XLA_FFI_DataType_S8;
    case Dtype::kI16:
      return XLA_FFI_DataType_S16;
    case Dtype::kI32:
      return XLA_FFI_DataType_S32;
    case Dtype::kI64:
      return XLA_FFI_DataType_S64;
    case Dtype::kU8:
      return XLA_FFI_DataType_U8;
    case Dtype::kU16:
      return XLA_FFI_DataType_U16;
    case Dtype::kU32:
      return XLA_FFI_DataType_U32;
    case Dtype::kU64:
      return XLA_FFI_DataType_U64;
  }
  return XLA_FFI_DataType_INVALID;
}

// Arrays in the form of the C header. Points into the views, which must stay where they are.
class Buffers {
 public:
  explicit Buffers(std::vector<View>& views) : buffers_(views.size()) {
    for (std::size_t i = 0; i < views.size(); ++i) {
      XLA_FFI_Buffer& one = buffers_[i];
      one.struct_size = XLA_FFI_Buffer_STRUCT_SIZE;
      one.dtype = type_of(views[i].dtype);
      one.data = views[i].data;
      one.rank = static_cast<std::int64_t>(views[i].shape.size());
      one.dims = reinterpret_cast<std::int64_t*>(views[i].shape.data());
      places_.push_back(&one);
    }
    arg_types_.assign(views.size(), XLA_FFI_ArgType_BUFFER);
    ret_types_.assign(views.size(), XLA_FFI_RetType_BUFFER);
  }
  XLA_FFI_Args args() {
    return {XLA_FFI_Args_STRUCT_SIZE, nullptr, size(), arg_types_.data(), places_.data()};
  }
  XLA_FFI_Rets rets() {
    return {XLA_FFI_Rets_STRUCT_SIZE, nullptr, size(), ret_types_.data(), places_.data()};
  }

 private:
  std::int64_t size() const { return static_cast<std::int64_t>(places_.size()); }

  std::vector<XLA_FFI_Buffer> buffers_;
  std::vector<void*> places_;
  std::vector<XLA_FFI_ArgType> arg_types_;
  std::vector<XLA_FFI_RetType> ret_types_;
};

// Likewise attributes, of which the header has three forms.
class Attributes {
 public:
  explicit Attributes(std::map<std::string, HostAttribute>& all) : held_(all.size()) {
    std::size_t at = 0;
    for (auto& [name, value] : all) {
      One& one = held_[at++];
      one.name = {name.data(), name.size()};
      types_.push_back(std::visit([&one](auto& held) { return one.hold(held); }, value));
      names_.push_back(&one.name);
      places_.push_back(one.place);
    }
  }
  XLA_FFI_Attrs attrs() {
    return {XLA_FFI_Attrs_STRUCT_SIZE,
            nullptr,
            static_cast<std::int64_t>(types_.size()),
            types_.data(),
            names_.data(),
            places_.data()};
  }

 private:
  struct One {
    XLA_FFI_ByteSpan name{}, text{};
    XLA_FFI_Scalar scalar{};
    XLA_FFI_Array array{};
    void* place = nullptr;

    XLA_FFI_AttrType hold(std::int32_t& value) { return hold(XLA_FFI_DataType_S32, &value); }
    XLA_FFI_AttrType hold(std::int64_t& value) { return hold(XLA_FFI_DataType_S64, &value); }
    XLA_FFI_AttrType hold(XLA_FFI_DataType type, void* value) {
      scalar = {type, value};
      place = &scalar;
      return XLA_FFI_AttrType_SCALAR;
    }
    XLA_FFI_AttrType hold(std::string& value) {
      text = {value.data(), value.size()};
      place = &text;
      return XLA_FFI_AttrType_STRING;
    }
    XLA_FFI_AttrType hold(std::vector<std::int64_t>& value) {
      array = {XLA_FFI_DataType_S64, value.size(), value.data()};
      place = &array;
      return XLA_FFI_AttrType_ARRAY;
    }
  };

  std::vector<One> held_;
  std::vector<XLA_FFI_AttrType> types_;
  std::vector<XLA_FFI_ByteSpan*> names_;
  std::vector<void*> places_;
};

XLA_FFI_Handler* handler_of(const Target* table, const std::string& target) {
  for (int i = 0; i < kTargets; ++i) {
    if (target == table[i].name) return table[i].handler;
  }
  return nullptr;
}

}  // namespace

std::shared_ptr<peer::StreamedInput> feed_of_call() { return feed_here; }

Status call_handler(const std::string& target, HostCall call) {
  return call_handler(kTargetTable, target, std::move(call));
}

Status call_handler(const Target* table, const std::string& target, HostCall call) {
  XLA_FFI_Handler* handler = handler_of(table, target);
  if (handler == nullptr) return {Code::kInvalid, base::cat("no handler '", target, "'")};
  Buffers operands(call.operands), results(call.results);
  Attributes attributes(call.attributes);
  XLA_FFI_ExecutionContext context{call.place};
  XLA_FFI_CallFrame frame{};
  frame.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE;
  frame.api = &api();
  frame.ctx = &context;
  frame.stage = XLA_FFI_ExecutionStage_EXECUTE;
  frame.args = operands.args();
  frame.rets = results.rets();
  frame.attrs = attributes.attrs();
  const FeedHere feed(call.feed);
  const std::unique_ptr<XLA_FFI_Error> error(handler(&frame));
  if (error) return {Code::kInvalid, base::cat(target, ": ", error->text)};
  return {};
}

}  // namespace jccl::xla_ext
