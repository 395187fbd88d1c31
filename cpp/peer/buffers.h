// Reused memory for chunks: a steady training run takes no page faults here after its first round.
// Confined to the data thread, except that a Buffer may be released anywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "exchange/memory.h"

namespace jccl::peer {

using exchange::Buffer;
using exchange::BufferRef;

class BufferPool : public exchange::Memory {
 public:
  explicit BufferPool(std::size_t kept_bytes_max = std::size_t{2} << 30);
  BufferRef take(std::size_t size) override;
  std::size_t kept_bytes() const;  // of memory that is held for a later take

 private:
  struct Shelf {
    std::mutex mutex;
    std::size_t kept_bytes = 0;
    std::size_t kept_bytes_max = 0;
    std::vector<std::vector<std::unique_ptr<Buffer>>> by_class;  // index: log2 size class
  };
  std::shared_ptr<Shelf> shelf_;
};

}  // namespace jccl::peer
