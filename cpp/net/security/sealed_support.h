// What tests of sealed connections share: records as somebody sees them who has no key.
#pragma once

#include <vector>

#include "net/security/seal.h"
#include "net/test_support.h"

namespace jccl::net::test {

// The records of what one end wrote, each whole.
inline std::vector<Bytes> records_of(ByteView sealed) {
  std::vector<Bytes> out;
  while (!sealed.empty()) {
    const bool has_head = sealed.size() >= kSealHeadBytes;
    const std::size_t size = has_head ? Seal::size_in(sealed.data()) + kSealOverhead : SIZE_MAX;
    if (size > sealed.size()) {
      ADD_FAILURE() << "these are no sealed records";
      return out;
    }
    out.emplace_back(sealed.begin(), sealed.begin() + static_cast<std::ptrdiff_t>(size));
    sealed = sealed.subspan(size);
  }
  return out;
}

inline std::vector<std::size_t> sizes_of(ByteView sealed) {
  std::vector<std::size_t> out;
  for (const Bytes& record : records_of(sealed)) out.push_back(record.size() - kSealOverhead);
  return out;
}

}  // namespace jccl::net::test
