// The edge between C and the library: codes out, texts per thread, no exception past it, and
// options of any age in. Any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/text.h"
#include "jccl/jccl.h"

namespace jccl::capi {

using base::Code;
using base::Status;

void remember(const Status& status);  // for jccl_last_error(), unless it is ok

inline int32_t answer(const Status& status) {
  remember(status);
  return static_cast<int32_t>(status.code);
}

inline Status invalid(std::string text) { return {Code::kInvalid, std::move(text)}; }

// Runs the body of one public function: `body` returns a Status.
template <typename Body>
int32_t guarded(const char* name, Body body) {
  try {
    return answer(body());
  } catch (const std::bad_alloc&) {
    return answer({Code::kLimit, base::cat(name, ": out of memory")});
  } catch (const std::exception& error) {
    return answer({Code::kInternal, base::cat(name, ": ", error.what())});
  }
}

// Copies what the caller's header knew over the defaults. NULL: the defaults.
template <typename Struct>
Status read_struct(const Struct* given, const char* name, Struct* out) {
  if (given == nullptr) return {};
  if (given->struct_size < sizeof(std::uint32_t)) {
    return invalid(base::cat(name, ".struct_size is not set; use its _INIT macro"));
  }
  if (given->struct_size > sizeof(Struct)) {
    return {Code::kVersion,
            base::cat(name, " has ", given->struct_size, " bytes, this library knows ",
                      sizeof(Struct), ": it is older than the header")};
  }
  const std::size_t size = given->struct_size;
  std::memcpy(static_cast<void*>(out), given, size);
  return {};
}

// Writes as much as the caller's header knew. NULL: nothing is asked.
template <typename Struct>
Status check_result(const Struct* given, const char* name) {
  Struct ignored{};
  return read_struct(given, name, &ignored);
}
template <typename Struct>
void write_struct(Struct value, Struct* out) {
  if (out == nullptr) return;
  value.struct_size = out->struct_size;
  std::memcpy(static_cast<void*>(out), &value, out->struct_size);
}

inline std::string text_or(const char* text, std::string_view fallback) {
  return text == nullptr ? std::string(fallback) : std::string(text);
}

Status write_text(std::string_view value, char* text, size_t* size);

}  // namespace jccl::capi
