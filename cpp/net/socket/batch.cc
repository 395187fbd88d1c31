#include "net/socket/batch.h"

#include <algorithm>
#include <utility>

#include "base/planted.h"

namespace jccl::net {

void Batch::push(OutFrame frame, bool told) {
  const std::uint64_t bytes = bytes_of(frame);
  frames_.push_back({std::move(frame), bytes, 0, told});
}

std::size_t Batch::rest_of(const Taken& taken, std::span<ByteView> out) {
  std::uint64_t skip = taken.written;
  std::size_t count = 0;
  const auto add = [&](ByteView part) {
    if (skip >= part.size()) {
      skip -= part.size();
    } else if (count < out.size()) {
      out[count++] = part.subspan(static_cast<std::size_t>(std::exchange(skip, 0)));
    }
  };
  if (!JCCL_PLANTED("batch-header-skipped") || taken.written == 0) add(taken.frame.header);
  for (const ByteView& part : taken.frame.payload) add(part);
  return count;
}

std::size_t Batch::unwritten(std::span<ByteView> out) const {
  std::size_t count = 0;
  for (const Taken& taken : frames_) count += rest_of(taken, out.subspan(count));
  return count;
}

bool Batch::advance(std::uint64_t n, const std::function<bool(std::uint64_t key)>& done) {
  while (n > 0) {
    Taken& first = frames_.front();
    const std::uint64_t step = std::min(n, first.bytes - first.written);
    first.written += step;
    n -= step;
    if (first.written < first.bytes) break;
    const std::uint64_t key = first.frame.key;
    const bool tell = first.told;
    frames_.pop_front();
    if (tell && !done(key)) return false;
  }
  return true;
}

void Batch::own(const std::function<bool(std::uint64_t key)>& which) {
  for (Taken& taken : frames_) {
    if (!taken.told || !which(taken.frame.key)) continue;
    std::vector<ByteView> rest(taken.frame.payload.size() + 1);
    rest.resize(rest_of(taken, rest));
    auto copy = std::make_shared<Bytes>();
    copy->reserve(static_cast<std::size_t>(taken.bytes - taken.written));
    for (const ByteView& part : rest) copy->insert(copy->end(), part.begin(), part.end());
    taken.frame.header.clear();
    taken.frame.payload = {ByteView(*copy)};
    taken.frame.keep_alive = copy;
    taken.bytes = copy->size();
    taken.written = 0;
    taken.told = false;
    taken.copied = true;
  }
}

bool Batch::has(const std::function<bool(std::uint64_t key)>& which) const {
  return std::any_of(frames_.begin(), frames_.end(),
                     [&which](const Taken& taken) { return taken.told && which(taken.frame.key); });
}

std::uint64_t Batch::copied() const {
  std::uint64_t bytes = 0;
  for (const Taken& taken : frames_) bytes += taken.copied ? taken.bytes : 0;
  return bytes;
}

}  // namespace jccl::net
