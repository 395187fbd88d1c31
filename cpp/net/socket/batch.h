// The frames a stripe has taken and is writing: what is unwritten of them as views, and what a
// write has finished. Internal to this folder.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "exchange/frame.h"

namespace jccl::net {

using base::Bytes;
using base::ByteView;

using exchange::bytes_of;
using exchange::OutFrame;

class Batch {
 public:
  // `told`: its end is of interest; not so for what this side adds by itself.
  void push(OutFrame frame, bool told = true);
  bool empty() const { return frames_.empty(); }
  std::size_t frames() const { return frames_.size(); }
  // Up to `out.size()` views of what is unwritten.
  std::size_t unwritten(std::span<ByteView> out) const;
  // `n` more bytes are written. Calls `done(key)` for each frame that was told of and is now
  // wholly written, after freeing it; false from it ends the call: the batch may be gone.
  bool advance(std::uint64_t n, const std::function<bool(std::uint64_t key)>& done);
  // Copies what is left of frames for which the predicate holds, so that the owner's memory is
  // free; they are told of no more.
  void own(const std::function<bool(std::uint64_t key)>& which);
  bool has(const std::function<bool(std::uint64_t key)>& which) const;  // anything for own()
  std::uint64_t copied() const;  // bytes that own() has copied and that are still held
  void clear() { frames_.clear(); }

 private:
  struct Taken {
    OutFrame frame;
    std::uint64_t bytes = 0;    // of the whole frame
    std::uint64_t written = 0;  // so many of them
    bool told = true;
    bool copied = false;
  };
  static std::size_t rest_of(const Taken& taken, std::span<ByteView> out);

  std::deque<Taken> frames_;
};

}  // namespace jccl::net
