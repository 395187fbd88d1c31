#include "base/number.h"

#include <charconv>
#include <cmath>

#include "base/planted.h"

namespace jccl::base {

std::optional<double> decimal(std::string_view text) {
  const bool begins = !text.empty() && (text[0] == '.' || (text[0] >= '0' && text[0] <= '9'));
  if (!begins && !JCCL_PLANTED("words-are-numbers")) return std::nullopt;  // nan, inf, a sign
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (!std::isfinite(value) && !JCCL_PLANTED("words-are-numbers")) return std::nullopt;
  return value;
}

}  // namespace jccl::base
