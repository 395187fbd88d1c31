#include "exchange/memory.h"

#include <new>

#include "base/check.h"

namespace jccl::exchange {
namespace {

constexpr std::size_t kAlign = 64;

}  // namespace

void Buffer::Free::operator()(std::uint8_t* memory) const {
  ::operator delete[](memory, std::align_val_t(kAlign));
}

Buffer::Buffer(std::size_t capacity)
    : data_(static_cast<std::uint8_t*>(::operator new[](capacity, std::align_val_t(kAlign)))),
      size_(capacity),
      capacity_(capacity) {}

void Buffer::resize(std::size_t size) {
  JCCL_CHECK(size <= capacity_);
  size_ = size;
}

}  // namespace jccl::exchange
