// Names, numbers and parameters of codecs. Parameters follow the name, each after a colon.
#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>

#include "base/planted.h"
#include "base/text.h"
#include "codec/codec.h"

namespace jccl::codec {
namespace {

// The number behind "<key>=".
template <typename T>
bool read_number(std::string_view text, std::string_view key, T* out) {
  if (text.substr(0, key.size()) != key) return false;
  text.remove_prefix(key.size());
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc{} &&
         (JCCL_PLANTED("name-with-tail-read") || end == text.data() + text.size());
}

bool read_parameter(std::string_view text, Codec* codec) {
  if (text == "stochastic") return std::exchange(codec->stochastic, true) == false;
  if (text.substr(0, 5) == "kept=") return read_number(text, "kept=", &codec->kept);
  return read_number(text, "seed=", &codec->seed);
}

}  // namespace

base::Status check(const Codec& codec) {
  const auto invalid = [&](std::string_view text) {
    return base::Status{base::Code::kInvalid, base::cat("codec ", name_of(codec.id), ": ", text)};
  };
  if (static_cast<std::uint8_t>(codec.id) > kCodecNumberMax) return invalid("unknown");
  if (is_sparse(codec.id)) {
    const std::size_t most = spec_of(codec.id).kept_max;
    if ((codec.kept < 1 && !JCCL_PLANTED("kept-zero-passes")) || codec.kept > most) {
      return invalid(base::cat("kept ", codec.kept, "; 1 to ", most, " of each block"));
    }
  } else if (codec.kept != 0) {
    return invalid("kept is a parameter of topk and topk2 alone");
  }
  if (codec.stochastic && !is_rounding(codec.id)) {
    return invalid("rounds nothing, so it has no stochastic form");
  }
  if (!codec.stochastic && codec.seed != 0 && !JCCL_PLANTED("unused-seed-passes"))
    return invalid("a seed is for stochastic rounding");
  return base::ok_status();
}

std::string_view name_of(CodecId codec) {
  const auto number = static_cast<std::size_t>(codec);
  return number < std::size(kCodecs) ? kCodecs[number].name : "?";
}

std::string name_of(const Codec& codec) {
  std::string text(name_of(codec.id));
  if (is_sparse(codec.id)) text += base::cat(":kept=", codec.kept);
  if (codec.stochastic) text += base::cat(":stochastic:seed=", codec.seed);
  return text;
}

std::optional<CodecId> codec_from_number(std::uint8_t number) {
  if (number > kCodecNumberMax) return std::nullopt;
  return static_cast<CodecId>(number);
}

std::optional<Codec> codec_from_name(std::string_view name) {
  const std::size_t colon = std::min(name.find(':'), name.size());
  const auto* at = std::find_if(std::begin(kCodecs), std::end(kCodecs), [&](const auto& spec) {
    return name.substr(0, colon) == spec.name;
  });
  if (at == std::end(kCodecs)) return std::nullopt;
  Codec codec = at->id;
  name.remove_prefix(colon);
  while (!name.empty()) {
    name.remove_prefix(1);
    const std::size_t end = std::min(name.find(':'), name.size());
    if (!read_parameter(name.substr(0, end), &codec)) return std::nullopt;
    name.remove_prefix(end);
  }
  if (!check(codec).ok()) return std::nullopt;
  return codec;
}

}  // namespace jccl::codec
