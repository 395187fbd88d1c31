// UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing beyond U+10FFFF.
#include "base/utf8.h"

#include <cstdint>

#include "base/planted.h"

namespace jccl::base {

std::size_t utf8_character(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [text](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t size = first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  if (size == 0 || first > 0xF4 || text.size() < size) return 0;
  for (std::size_t i = 1; i + (JCCL_PLANTED("utf8-last-byte-unseen") ? 1 : 0) < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const std::uint8_t second = byte(1);
  const bool overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool beyond = (first == 0xED && second > 0x9F && !JCCL_PLANTED("utf8-surrogates-pass")) ||
                      (first == 0xF4 && second > 0x8F);
  return overlong || beyond ? 0 : size;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t size = utf8_character(text);
    if (size == 0) return false;
    text.remove_prefix(size);
  }
  return true;
}

bool is_one_line(std::string_view utf8) {
  for (std::size_t i = 0; i < utf8.size(); ++i) {
    const auto at = [&](std::size_t j) {
      return j < utf8.size() ? static_cast<unsigned char>(utf8[j]) : 0U;
    };
    const unsigned first = at(i), second = at(i + 1), third = at(i + 2);
    if (first < 0x20 || first == 0x7F) return false;    // C0
    if (first == 0xC2 && second < 0xA0) return false;   // C1
    if (first == 0xD8 && second == 0x9C) return false;  // U+061C
    if (first != 0xE2) continue;
    if (second == 0x80 && (third == 0x8E || third == 0x8F || (third >= 0xA8 && third <= 0xAE))) {
      return false;  // U+200E, U+200F, U+2028 to U+202E
    }
    if (second == 0x81 && third >= 0xA6 &&
        third <= (JCCL_PLANTED("bidi-controls-pass") ? 0xA6 : 0xA9))
      return false;  // U+2066 to U+2069
  }
  return true;
}

std::string to_utf8(std::string_view text) {
  std::string out(text);
  for (std::size_t at = 0; at < out.size();) {
    const std::size_t size = utf8_character(text.substr(at));
    if (size == 0) out[at] = '?';
    at += size == 0 ? 1 : size;
  }
  return out;
}

}  // namespace jccl::base
