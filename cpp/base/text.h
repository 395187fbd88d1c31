// cat("round ", 3, " of ", tag): builds a message; the standard library here has no std::format.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace jccl::base {

inline void append_text(std::string& out, std::string_view part) { out += part; }
template <typename T>
  requires std::is_integral_v<T>
void append_text(std::string& out, T value) {
  out += std::to_string(value);
}
void append_text(std::string& out, double value);  // as %g: 0.5, 1e+300

template <typename... Parts>
std::string cat(const Parts&... parts) {
  std::string out;
  (append_text(out, parts), ...);
  return out;
}

// One line that a terminal, a log and a JSON text can show, whoever wrote it: control characters
// (C0, DEL, C1), line ends and signs that turn the direction of writing become \n or \u001b, bytes
// that are no UTF-8 \xff. The rest stays as it is, backslashes too.
std::string printable(std::string_view text);

// "1.2 GB", "34.0 MB", "5 kB", "12 bytes"
inline std::string bytes_text(std::uint64_t bytes) {
  const auto tenths = [bytes](std::uint64_t unit) {
    const std::uint64_t n = (bytes + unit / 20) / (unit / 10);
    return cat(n / 10, ".", n % 10);
  };
  if (bytes >= 1'000'000'000) return cat(tenths(1'000'000'000), " GB");
  if (bytes >= 1'000'000) return cat(tenths(1'000'000), " MB");
  return bytes >= 10'000 ? cat(bytes / 1000, " kB") : cat(bytes, " bytes");
}

}  // namespace jccl::base
