// Reused memory for chunks: a steady training run takes no page faults here after its first round.
// Confined to the data thread, except that a Buffer may be released anywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace jccl::peer {

class Buffer {
 public:
  explicit Buffer(std::size_t capacity);
  std::uint8_t* data() { return data_.get(); }
  const std::uint8_t* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  std::size_t capacity() const { return capacity_; }
  void resize(std::size_t size);
  std::span<std::uint8_t> span() { return {data(), size_}; }
  std::span<const std::uint8_t> span() const { return {data(), size_}; }

 private:
  struct Free {
    void operator()(std::uint8_t* memory) const;
  };
  std::unique_ptr<std::uint8_t, Free> data_;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};
using BufferRef = std::shared_ptr<Buffer>;

class BufferPool {
 public:
  explicit BufferPool(std::size_t kept_bytes_max = std::size_t{2} << 30);
  BufferRef take(std::size_t size);
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
