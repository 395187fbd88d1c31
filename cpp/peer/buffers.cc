// Size classes are quarters of powers of two, so at most 25 % is wasted.
#include "peer/buffers.h"

#include <sys/mman.h>

#include <bit>

#include "base/planted.h"

namespace jccl::peer {
namespace {

constexpr std::size_t kSmallest = 4096;
constexpr std::size_t kHugesMin = 8;  // of 2 MiB; below it is not worth a call

struct SizeClass {
  std::size_t index;
  std::size_t bytes;
};

SizeClass class_of(std::size_t size) {
  if (size <= kSmallest) return {0, kSmallest};
  const std::size_t quarter = std::bit_floor(size - 1) / 4;
  const std::size_t steps = (size + quarter - 1) / quarter;  // 5..8 quarters
  const std::size_t log = static_cast<std::size_t>(std::bit_width(quarter)) - 1;
  return {log * 4 + steps - 4, steps * quarter};
}

// A large buffer's first pass is mostly page faults: 65,536 for 256 MiB, half a second of a
// joiner's time. With huge pages it is 128. Memory that is never touched is still never taken, but
// for the rest of a last huge page. A kernel without them refuses, and nothing is lost.
void prefer_huge_pages(Buffer* buffer) {
  constexpr std::uintptr_t kHugePage = std::uintptr_t{2} << 20;
  const auto begin = reinterpret_cast<std::uintptr_t>(buffer->data());
  const std::uintptr_t first = (begin + kHugePage - 1) / kHugePage * kHugePage;
  const std::uintptr_t last = (begin + buffer->capacity()) / kHugePage * kHugePage;
  if (last < first + kHugesMin * kHugePage) return;
  (void)::madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
}

}  // namespace

BufferPool::BufferPool(std::size_t kept_bytes_max) : shelf_(std::make_shared<Shelf>()) {
  shelf_->kept_bytes_max = kept_bytes_max;
}

std::size_t BufferPool::kept_bytes() const {
  const std::lock_guard lock(shelf_->mutex);
  return shelf_->kept_bytes;
}

BufferRef BufferPool::take(std::size_t size) {
  const SizeClass wanted = class_of(size);
  std::unique_ptr<Buffer> buffer;
  {
    std::lock_guard lock(shelf_->mutex);
    if (wanted.index >= shelf_->by_class.size()) shelf_->by_class.resize(wanted.index + 1);
    auto& row = shelf_->by_class[wanted.index];
    if (!row.empty()) {
      buffer = std::move(row.back());
      row.pop_back();
      if (!JCCL_PLANTED("shelf-counts-up-only")) shelf_->kept_bytes -= wanted.bytes;
    }
  }
  if (!buffer) {
    buffer = std::make_unique<Buffer>(wanted.bytes);
    prefer_huge_pages(buffer.get());
  }
  if (!JCCL_PLANTED("buffer-of-old-size") || buffer->size() == wanted.bytes) buffer->resize(size);
  auto give_back = [shelf = shelf_, wanted](Buffer* raw) {
    std::unique_ptr<Buffer> owned(raw);
    std::lock_guard lock(shelf->mutex);
    if (shelf->kept_bytes + wanted.bytes > shelf->kept_bytes_max &&
        !JCCL_PLANTED("shelf-unbounded"))
      return;
    shelf->kept_bytes += wanted.bytes;
    shelf->by_class[wanted.index].push_back(std::move(owned));
  };
  return {buffer.release(), give_back};
}

}  // namespace jccl::peer
