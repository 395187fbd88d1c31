#include "encoded_leaves.h"

#include <cstring>

#include "base/limits.h"
#include "base/planted.h"
#include "codec/encoded.h"

namespace jccl::xla_ext {

std::optional<EncodedLeaves> EncodedLeaves::read(std::span<const std::int64_t> words,
                                                 std::string_view codec) {
  EncodedLeaves all;
  if (words.empty()) return all;
  const auto known = codec::codec_from_name(codec);
  if (!known) return std::nullopt;
  all.codec = *known;
  while (!words.empty()) {
    if (words.size() < 3 || words[0] < 0 || words[1] < 1 ||
        words[1] > codec::kDtypeNumberMax + (JCCL_PLANTED("encoded-dtype-unbounded") ? 1 : 0) ||
        words[2] < 0 || static_cast<std::size_t>(words[2]) > words.size() - 3) {
      return std::nullopt;
    }
    const auto leaf = static_cast<std::size_t>(words[0]);
    View values{static_cast<codec::Dtype>(words[1]), 1, nullptr, {}};
    for (const std::int64_t extent : words.subspan(3, static_cast<std::size_t>(words[2]))) {
      if (extent < 0 || values.count > base::kRoundBytesMax) return std::nullopt;
      values.shape.push_back(static_cast<std::uint64_t>(extent));
      values.count *= values.shape.back();
    }
    words = words.subspan(3 + values.shape.size());
    all.values.emplace(leaf, std::move(values));
  }
  return all;
}

const View* EncodedLeaves::find(std::size_t leaf) const {
  const auto at = values.find(leaf);
  return at == values.end() ? nullptr : &at->second;
}

void EncodedLeaves::decode(const View& bytes, const View& out) const {
  if (out.bytes() == 0) return;
  const auto* from = static_cast<const std::uint8_t*>(bytes.data);
  if (JCCL_PLANTED("bad-bytes-decoded") ||
      codec::check_encoded(codec, out.dtype, from, bytes.bytes(), out.count).ok()) {
    codec::decode(codec, out.dtype, from, out.count, out.data);
  } else {
    std::memset(out.data, 0, out.bytes());
  }
}

}  // namespace jccl::xla_ext
