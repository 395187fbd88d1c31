// cat("round ", 3, " of ", tag): builds a message; the standard library here has no std::format.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>

namespace jccl::base {

inline void append_text(std::string& out, std::string_view part) { out += part; }
template <typename T>
  requires std::is_arithmetic_v<T>
void append_text(std::string& out, T value) {
  out += std::to_string(value);
}

template <typename... Parts>
std::string cat(const Parts&... parts) {
  std::string out;
  (append_text(out, parts), ...);
  return out;
}

}  // namespace jccl::base
