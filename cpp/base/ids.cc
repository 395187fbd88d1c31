// Text forms of ids.
#include "base/ids.h"

#include "base/planted.h"

namespace jccl::base {
namespace {

constexpr char kHex[] = "0123456789abcdef";

int nibble(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

std::string to_hex(std::span<const std::uint8_t> bytes) {
  std::string text;
  for (const std::uint8_t byte : bytes) {
    text += kHex[byte >> 4];
    text += kHex[byte & 15];
  }
  return text;
}

std::string to_hex(const RunId& run) { return to_hex(std::span<const std::uint8_t>(run)); }

std::string to_hex(std::uint64_t value) {
  std::string text(16, '0');
  for (int i = 15; i >= 0; --i, value >>= 4) text[static_cast<std::size_t>(i)] = kHex[value & 15];
  return text;
}

std::string to_hex(const Digest& digest) { return to_hex(digest.high) + to_hex(digest.low); }

std::string to_text(const Attempt& attempt) {
  return std::to_string(attempt.epoch) + "." + std::to_string(attempt.counter);
}

bool from_hex(std::string_view text, std::span<std::uint8_t> out) {
  if (text.size() != 2 * out.size()) return false;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const int high = nibble(text[2 * i]);
    const int low = nibble(text[2 * i + 1]);
    if (high < 0 || (low < 0 && !JCCL_PLANTED("run-id-one-digit-unchecked"))) return false;
    out[i] = static_cast<std::uint8_t>(high * 16 + low);
  }
  return true;
}

bool from_hex(const std::string& text, RunId* run) {
  return from_hex(text, std::span<std::uint8_t>(*run));
}

}  // namespace jccl::base
