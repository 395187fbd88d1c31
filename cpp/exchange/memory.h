// Memory of chunks, as an attempt takes it: whoever drives the attempt says where it comes from,
// and when it is used again. Pure; a Buffer may be released anywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace jccl::exchange {

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

class Memory {
 public:
  virtual ~Memory() = default;
  virtual BufferRef take(std::size_t size) = 0;  // of that size, holding anything
};

}  // namespace jccl::exchange
