// A ByteStream whose other side is a fuzz input: its bytes arrive in pieces of any size. And what
// moves a loop that no thread runs.
#pragma once

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <utility>

#include "fuzz/input.h"
#include "net/link/stream.h"
#include "net/socket/loop.h"

namespace jccl::fuzz {

inline void turn(net::Loop& loop) {  // what a loop's thread would do now
  auto& context = *static_cast<boost::asio::io_context*>(loop.io_context());
  context.restart();
  context.poll();
}

class MemoryStream : public net::ByteStream {
 public:
  explicit MemoryStream(ByteView bytes) : left_(bytes) {}

  // So many more bytes have come.
  void arrive(std::size_t size) {
    there_ = std::min(left_.size(), there_ + size);
    if (there_ > 0) wake();
  }
  void end() {
    failure_ = {base::Code::kLinkLost, "the input ended"};
    wake();
  }
  std::size_t unread() const { return left_.size(); }
  bool waits() const { return static_cast<bool>(readable_); }

  void when_readable(std::function<void()> fn) override { readable_ = std::move(fn); }
  void when_writable(std::function<void()> fn) override { writable_ = std::move(fn); }
  void shut_write() override {}
  const base::Status& failure() const override { return there_ > 0 ? alive_ : failure_; }
  net::StreamStats stats() const override { return {}; }
  void pace(std::uint64_t) override {}
  base::Time last_received() const override { return 0; }
  std::string remote_text() const override { return "10.0.0.7:4711"; }
  bool remote_is_loopback() const override { return false; }
  bool is_tls() const override { return false; }

 protected:
  std::size_t read_some(std::span<const net::MutableView> parts) override {
    std::size_t moved = 0;
    for (const net::MutableView& part : parts) {
      const std::size_t size = std::min(part.size(), there_);
      if (size > 0) std::memcpy(part.data(), left_.data(), size);
      left_ = left_.subspan(size);
      there_ -= size;
      moved += size;
    }
    return moved;
  }
  std::size_t write_some(std::span<const ByteView> parts) override {
    std::size_t moved = 0;
    for (const ByteView& part : parts) moved += part.size();
    return moved;
  }

 private:
  void wake() {
    if (const auto fn = std::exchange(readable_, nullptr)) fn();
  }

  ByteView left_;
  std::size_t there_ = 0;
  base::Status failure_, alive_;
  std::function<void()> readable_, writable_;
};

}  // namespace jccl::fuzz
