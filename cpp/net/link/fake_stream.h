// A stream for tests, whose other side is the test itself.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>

#include "net/link/stream.h"

namespace jccl::net::test {

// Gives prepared pieces, one per read; takes at most `room` bytes in all.
class FakeStream : public ByteStream {
 public:
  void give(Bytes piece) {
    if (!piece.empty()) pieces.push_back(std::move(piece));
    wake(on_readable);
  }
  void end() {
    ended = true;
    wake(on_readable);
  }
  void when_readable(std::function<void()> fn) override { on_readable = std::move(fn); }
  void when_writable(std::function<void()> fn) override { on_writable = std::move(fn); }
  void shut_write() override {}
  const Status& failure() const override { return failed; }
  void pace(std::uint64_t) override {}
  Time last_received() const override { return 0; }
  StreamStats stats() const override { return {}; }
  std::string remote_text() const override { return "fake:1"; }
  bool remote_is_loopback() const override { return true; }
  bool is_tls() const override { return false; }
  static void wake(std::function<void()>& fn) {
    const auto now = std::exchange(fn, nullptr);
    if (now) now();
  }

  std::deque<Bytes> pieces;
  bool ended = false;
  Status failed;
  Bytes written;
  std::size_t writes = 0;
  std::size_t room = SIZE_MAX;
  std::function<void()> on_readable;
  std::function<void()> on_writable;

 protected:
  std::size_t read_some(std::span<const MutableView> parts) override {
    if (pieces.empty()) {
      if (ended) failed = Status{Code::kLinkLost, "ended"};
      return 0;
    }
    Bytes& piece = pieces.front();
    std::size_t total = 0;
    for (const MutableView& part : parts) {
      const std::size_t n = std::min(part.size(), piece.size());
      if (n > 0) std::memcpy(part.data(), piece.data(), n);
      piece.erase(piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(n));
      total += n;
    }
    if (piece.empty()) pieces.pop_front();
    return total;
  }
  std::size_t write_some(std::span<const ByteView> parts) override {
    std::size_t total = 0;
    for (const ByteView& part : parts) {
      const std::size_t n = std::min(part.size(), room);
      written.insert(written.end(), part.begin(), part.begin() + static_cast<std::ptrdiff_t>(n));
      room -= n;
      total += n;
    }
    if (total > 0) ++writes;
    return total;
  }
};

}  // namespace jccl::net::test
