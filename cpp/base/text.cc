// What others' text may do to a terminal or a log file is taken from it.
#include "base/text.h"

#include <cstdio>

#include "base/planted.h"
#include "base/utf8.h"

namespace jccl::base {
namespace {

// Of the character that `text` begins with.
std::uint32_t code_point(std::string_view text) {
  const auto byte = [text](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  if (text.size() == 1) return byte(0);
  std::uint32_t value = byte(0) & (0xFFu >> (text.size() + 1));
  for (std::size_t i = 1; i < text.size(); ++i) value = (value << 6) | (byte(i) & 0x3Fu);
  return value;
}

std::string hex(std::uint32_t value, int digits) {
  std::string out;
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) {
    out += "0123456789abcdef"[(value >> shift) & 0xF];
  }
  return out;
}

}  // namespace

void append_text(std::string& out, double value) {
  char text[32];
  const int length = std::snprintf(text, sizeof text, "%g", value);
  out.append(text, static_cast<std::size_t>(length));
}

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t size = utf8_character(text);
    const std::string_view one = text.substr(0, size == 0 ? 1 : size);
    const std::uint32_t point = code_point(one);
    if (size == 0) {
      out += "\\x" + hex(point, 2);
    } else if (point == '\n' && !JCCL_PLANTED("newline-printed")) {
      out += "\\n";
    } else if (is_one_line(one)) {
      out += one;
    } else {
      out += "\\u" + hex(point, 4);
    }
    text.remove_prefix(one.size());
  }
  return out;
}

}  // namespace jccl::base
