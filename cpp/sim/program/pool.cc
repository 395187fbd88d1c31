// The heap of jccl-sim alone: small blocks come from free lists of their thread, for a run makes
// and drops millions of them. Blocks keep their size in front, so any thread may drop them. Not
// linked into tests: sanitizers bring their own.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace {

constexpr std::size_t kStep = 32, kClasses = 32, kHeader = 16;  // up to 1 KiB
constexpr std::size_t kSlab = 1 << 18;

struct Free {
  Free* next;
};
thread_local Free* lists[kClasses + 1];
thread_local char* slab = nullptr;
thread_local std::size_t slab_left = 0;

void* carve(std::size_t bytes) {
  if (slab_left < bytes) {
    slab = static_cast<char*>(std::malloc(kSlab));
    if (slab == nullptr) std::abort();
    slab_left = kSlab;
  }
  void* block = slab;
  slab += bytes, slab_left -= bytes;
  return block;
}

}  // namespace

void* operator new(std::size_t size) {
  const std::size_t which = (size + kHeader + kStep - 1) / kStep;
  char* block = nullptr;
  if (which > kClasses) {
    block = static_cast<char*>(std::malloc(size + kHeader));
    if (block == nullptr) std::abort();
  } else if (lists[which] != nullptr) {
    block = reinterpret_cast<char*>(lists[which]);
    lists[which] = lists[which]->next;
  } else {
    block = static_cast<char*>(carve(which * kStep));
  }
  *reinterpret_cast<std::size_t*>(block) = which;
  return block + kHeader;
}

void operator delete(void* memory) noexcept {
  if (memory == nullptr) return;
  char* block = static_cast<char*>(memory) - kHeader;
  const std::size_t which = *reinterpret_cast<std::size_t*>(block);
  if (which > kClasses) return std::free(block);
  Free* freed = reinterpret_cast<Free*>(block);
  freed->next = lists[which];
  lists[which] = freed;
}

void operator delete(void* memory, std::size_t) noexcept { operator delete(memory); }

// Of buffers: the block that they lie in stands in front.
void* operator new[](std::size_t size, std::align_val_t align) {
  const auto step = static_cast<std::size_t>(align);
  char* block = static_cast<char*>(operator new(size + step + sizeof(void*)));
  const auto first = reinterpret_cast<std::uintptr_t>(block + sizeof(void*));
  char* out = block + sizeof(void*) + (step - first % step) % step;
  reinterpret_cast<void**>(out)[-1] = block;
  return out;
}

void operator delete[](void* memory, std::align_val_t) noexcept {
  if (memory != nullptr) operator delete(static_cast<void**>(memory)[-1]);
}
