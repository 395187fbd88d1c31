#include "operands.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "base/planted.h"

namespace jccl::xla_ext {

namespace ffi = xla::ffi;
using codec::Dtype;

std::optional<Dtype> dtype_of(ffi::DataType type) {
  switch (type) {
    case ffi::DataType::F32:
      return Dtype::kF32;
    case ffi::DataType::F64:
      return Dtype::kF64;
    case ffi::DataType::BF16:
      return Dtype::kBf16;
    case ffi::DataType::F16:
      return Dtype::kF16;
    case ffi::DataType::S8:
      return Dtype::kI8;
    case ffi::DataType::S16:
      return Dtype::kI16;
    case ffi::DataType::S32:
      return Dtype::kI32;
    case ffi::DataType::S64:
      return Dtype::kI64;
    case ffi::DataType::U8:
      return Dtype::kU8;
    case ffi::DataType::U16:
      return Dtype::kU16;
    case ffi::DataType::U32:
      return Dtype::kU32;
    case ffi::DataType::U64:
      return Dtype::kU64;
    default:
      return std::nullopt;
  }
}

namespace {

template <typename Buffer>
std::optional<View> view_of(Buffer& buffer) {
  const auto dtype = dtype_of(buffer.element_type());
  if (!dtype) return std::nullopt;
  const auto extents = buffer.dimensions();
  return View{*dtype,
              static_cast<std::uint64_t>(buffer.element_count()),
              buffer.untyped_data(),
              {extents.begin(), extents.end()}};
}

}  // namespace

std::optional<View> operand(const ffi::RemainingArgs& args, std::size_t at) {
  if (at >= args.size()) return std::nullopt;
  auto buffer = args.get<ffi::AnyBuffer>(at);
  if (!buffer.has_value()) return std::nullopt;
  return view_of(buffer.value());
}

std::optional<View> result(const ffi::RemainingRets& rets, std::size_t at) {
  if (at >= rets.size()) return std::nullopt;
  auto buffer = rets.get<ffi::AnyBuffer>(at);
  if (!buffer.has_value()) return std::nullopt;
  return view_of(*buffer.value());
}

std::string text_attribute(const ffi::Dictionary& attributes, std::string_view name) {
  return std::string(attribute<std::string_view>(attributes, name, ""));
}

std::span<const std::int64_t> words_attribute(const ffi::Dictionary& attributes,
                                              std::string_view name) {
  const auto held = attributes.get<ffi::Span<const std::int64_t>>(name);
  if (!held.has_value()) return {};
  return {held->begin(), held->size()};
}

std::optional<EncodedLeaves> encoded_leaves(const ffi::Dictionary& attributes) {
  return EncodedLeaves::read(words_attribute(attributes, "encoded"),
                             text_attribute(attributes, "codec"));
}

std::optional<Payload> payload(const ffi::RemainingArgs& args, std::size_t first_arg,
                               const ffi::RemainingRets& rets, std::size_t first_ret,
                               std::size_t count, EncodedLeaves encoded) {
  auto data = inputs(args, count, std::move(encoded), first_arg);
  if (!data) return std::nullopt;
  for (std::size_t i = 0; i < count; ++i) {
    const auto to = result(rets, first_ret + i);
    const View* values = data->encoded.find(i);
    if (!to || to->dtype != data->out[i].dtype) return std::nullopt;
    if (values != nullptr && to->count != values->count) return std::nullopt;
    data->out[i] = *to;
  }
  return data;
}

std::optional<Payload> inputs(const ffi::RemainingArgs& args, std::size_t count,
                              EncodedLeaves encoded, std::size_t first) {
  Payload data;
  for (std::size_t i = 0; i < count; ++i) {
    const auto view = operand(args, first + i);
    const View* values = encoded.find(i);
    if (!view || (values != nullptr && view->dtype != Dtype::kU8)) return std::nullopt;
    data.in.push_back(*view);
    data.out.push_back(values != nullptr ? *values : *view);
    data.out.back().data = nullptr;
  }
  data.encoded = std::move(encoded);
  return data;
}

std::optional<peer::StateMarks> marks_operand(const ffi::RemainingArgs& args, std::size_t at,
                                              std::uint32_t part, std::uint32_t parts) {
  const auto view = operand(args, at);
  if (!view || view->dtype != Dtype::kU32 || part >= parts || view->count % (2 * parts) != 0) {
    return std::nullopt;
  }
  peer::StateMarks marks(view->count / (2 * parts));
  const auto* words = static_cast<const std::uint8_t*>(view->data) + part * marks.size() * 8;
  for (std::size_t i = 0; i < marks.size(); ++i) {
    std::memcpy(&marks[i].first, words + i * 8, 4);
    std::memcpy(&marks[i].second, words + i * 8 + 4, 4);
  }
  return marks;
}

std::vector<peer::Leaf> Payload::leaves(const std::string& paths) const {
  std::vector<peer::Leaf> out_leaves;
  out_leaves.reserve(in.size());
  std::size_t at = 0;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const std::size_t end = std::min(paths.find('\n', at), paths.size());
    peer::Leaf leaf;
    const View* values = encoded.find(i);
    const View& form = values != nullptr ? *values : in[i];
    leaf.dtype = form.dtype;
    leaf.count = form.count;
    leaf.shape = form.shape;
    if (values == nullptr) {
      leaf.in = in[i].data;
    } else {
      leaf.encoded = static_cast<const std::uint8_t*>(in[i].data);
      leaf.encoded_bytes = in[i].bytes();
    }
    leaf.out = out[i].data;
    leaf.path = paths.substr(at, end - at);
    out_leaves.push_back(std::move(leaf));
    at = std::min(end + 1, paths.size());
  }
  return out_leaves;
}

std::vector<Shape> Payload::shapes() const {
  std::vector<Shape> all;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const View* values = encoded.find(i);
    const View& form = values != nullptr ? *values : in[i];
    all.push_back({form.dtype, form.count});
  }
  return all;
}

void Payload::keep_input() const {
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (JCCL_PLANTED("kept-input-skipped-last") && i > 0 && i + 1 == in.size()) break;
    if (out[i].data == in[i].data || out[i].bytes() == 0) continue;
    if (encoded.find(i) != nullptr) {
      encoded.decode(in[i], out[i]);
    } else if (out[i].bytes() == in[i].bytes()) {
      std::memcpy(out[i].data, in[i].data, in[i].bytes());
    } else {
      std::memset(out[i].data, 0, out[i].bytes());  // all_gather: no slot is valid
    }
  }
}

void Payload::clear() const {
  for (const View& one : out) {
    if (one.bytes() > 0) std::memset(one.data, 0, one.bytes());
  }
}

void Payload::expect_writes() const {
  constexpr std::uintptr_t kHuge = std::uintptr_t{2} << 20;
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (out[i].data == in[i].data || out[i].bytes() < 2 * kHuge) continue;
    const auto first = (reinterpret_cast<std::uintptr_t>(out[i].data) + kHuge - 1) & ~(kHuge - 1);
    const auto end =
        (reinterpret_cast<std::uintptr_t>(out[i].data) + out[i].bytes()) & ~(kHuge - 1);
    // Advice only: without it everything works, slower.
    (void)::madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
  }
}

void put_status(const View& status, base::Code code, std::uint64_t world, std::uint64_t epoch,
                std::uint64_t attempts) {
  const auto word = [](std::uint64_t value) {
    return static_cast<std::int32_t>(
        JCCL_PLANTED("status-wraps") ? value : std::min<std::uint64_t>(value, INT32_MAX));
  };
  auto* words = static_cast<std::int32_t*>(status.data);
  words[0] = static_cast<std::int32_t>(code);
  words[1] = word(world);
  words[2] = word(epoch);
  words[3] = word(attempts);
}

void put_status(const View& status, const peer::RoundResult& result) {
  put_status(status, result.status.code, result.world, result.epoch, result.attempts);
}

std::int32_t how_replaced(const peer::SyncResult& result) {
  return (result.edited ? 1 : 0) | (result.went_back ? 2 : 0);
}

}  // namespace jccl::xla_ext
