#include <algorithm>
#include <array>
#include <utility>

#include "base/planted.h"
#include "base/text.h"
#include "net/link/frames.h"

namespace jccl::net {
namespace {

constexpr std::size_t kScratchBytes = 64 * 1024;
constexpr std::size_t kSpansPerRead = 63;  // and one for the next header

MutableView scratch() {
  thread_local std::array<std::uint8_t, kScratchBytes> bytes;  // drained bytes; nobody looks
  return bytes;
}

}  // namespace

struct DataReader::Impl {
  enum class Phase { kHeader, kPlacing, kPaused, kPayload, kDraining };

  Impl(std::size_t header_bytes, DataSink* s)
      : sink(s), header(header_bytes), next_header(header_bytes) {}

  // Each step moves what it can; false when the stream has nothing (or failed).
  bool read_header(ByteStream& stream) {
    if (got < header.size()) {
      const std::size_t n = stream.read_now(MutableView(header).subspan(got));
      got += n;
      moved += n;
      if (n == 0) return false;
    }
    if (got == header.size()) phase = Phase::kPlacing;
    return true;
  }

  void place() {
    Placement answer = sink->place(header);
    if (phase != Phase::kPlacing) {  // cancelled meanwhile
      if (answer.kind == Placement::Kind::kInto) sink->lost(header, answer.token);
      return;
    }
    switch (answer.kind) {
      case Placement::Kind::kInto:
        spans = std::move(answer.spans);
        token = answer.token;
        span_index = span_at = 0;
        phase = Phase::kPayload;
        skip_full();
        break;
      case Placement::Kind::kPause:
        phase = Phase::kPaused;
        break;
      case Placement::Kind::kDrain:
        drain_left = answer.drain_bytes;
        phase = Phase::kDraining;
        break;
      case Placement::Kind::kAck:
        phase = Phase::kHeader;
        got = 0;
        break;
      case Placement::Kind::kRefuse:
        status = answer.status;
        break;
    }
  }

  void skip_full() {
    while (span_index < spans.size() && span_at == spans[span_index].size()) {
      ++span_index;
      span_at = 0;
    }
  }

  std::size_t missing_bytes() const {
    std::size_t bytes = 0;
    for (std::size_t i = span_index; i < spans.size(); ++i) bytes += spans[i].size();
    return bytes - span_at;
  }

  // Of the payload and the header behind it, as much as `parts` has room for.
  std::size_t missing(std::span<MutableView> parts) {
    std::size_t count = 0;
    for (std::size_t i = span_index; i < spans.size() && count + 1 < parts.size(); ++i) {
      parts[count++] = spans[i].subspan(i == span_index ? span_at : 0);
    }
    if (span_index + count == spans.size()) parts[count++] = MutableView(next_header);
    return count;
  }

  bool read_payload(ByteStream& stream) {
    if (span_index < spans.size()) {
      std::array<MutableView, kSpansPerRead + 1> parts;
      const std::size_t count = missing(parts);
      std::size_t n = stream.read_now(std::span<const MutableView>(parts.data(), count));
      if (n == 0) return false;
      moved += n;
      advance(n);
    }
    if (span_index == spans.size()) finish_frame();
    return true;
  }

  void advance(std::size_t n) {
    while (n > 0 && span_index < spans.size()) {
      const std::size_t step = std::min(n, spans[span_index].size() - span_at);
      span_at += step;
      n -= step;
      skip_full();
    }
    next_got = n;
  }

  void finish_frame() {
    phase = Phase::kHeader;
    spans.clear();
    std::swap(header, next_header);
    got = std::exchange(next_got, 0);
    Status answer = sink->arrived(next_header, token);
    if (answer.ok()) ++frames;  // a damaged one has not arrived: the sender must send it again
    if (status.ok()) status = std::move(answer);
  }

  bool drain(ByteStream& stream) {
    if (drain_left > 0) {
      const MutableView into = scratch();
      const std::size_t n = stream.read_now(
          into.first(static_cast<std::size_t>(std::min<std::uint64_t>(into.size(), drain_left))));
      if (n == 0) return false;
      drain_left -= n;
      moved += n;
    }
    if (drain_left == 0) {
      phase = Phase::kHeader;
      std::swap(header, next_header);  // abandoned, it may have been read to its end and beyond
      got = std::exchange(next_got, 0);
      if (JCCL_PLANTED("header-behind-an-abandoned-frame-lost")) got = 0;
      ++drained;
    }
    return true;
  }

  bool step(ByteStream& stream) {
    switch (phase) {
      case Phase::kHeader:
        return read_header(stream);
      case Phase::kPlacing:
        place();
        return true;
      case Phase::kPayload:
        return read_payload(stream);
      case Phase::kDraining:
        return drain(stream);
      case Phase::kPaused:
        return false;
    }
    return false;
  }

  DataSink* sink;
  Phase phase = Phase::kHeader;
  Bytes header;  // of the frame under way, or as much as has come
  std::size_t got = 0;
  Bytes next_header;  // read along with a payload's end
  std::size_t next_got = 0;
  std::vector<MutableView> spans;
  std::uint64_t token = 0;
  std::size_t span_index = 0;
  std::size_t span_at = 0;
  std::uint64_t drain_left = 0;
  std::size_t moved = 0;
  std::size_t frames = 0;
  std::size_t drained = 0;
  Status status;
};

DataReader::DataReader(std::size_t header_bytes, DataSink* sink)
    : impl_(std::make_unique<Impl>(header_bytes, sink)) {
  JCCL_CHECK(header_bytes > 0);
}

DataReader::~DataReader() { cancel(); }

DataReader::Outcome DataReader::pump(ByteStream& stream, std::size_t budget, std::size_t large) {
  using Phase = Impl::Phase;
  Impl& impl = *impl_;
  if (impl.phase == Phase::kPaused) impl.phase = Phase::kPlacing;
  impl.moved = 0;
  // Frames without payload move few bytes but cost a call each.
  std::size_t steps = 4096;
  while (impl.status.ok() && impl.moved < budget && steps-- > 0) {
    if (large != SIZE_MAX && impl.phase == Phase::kPayload && impl.missing_bytes() >= large) {
      return Outcome::kLarge;
    }
    if (impl.step(stream)) continue;
    if (impl.phase == Phase::kPaused) return Outcome::kPaused;
    if (stream.failure().ok()) return Outcome::kBlocked;
    impl.status = stream.failure();
  }
  return impl.status.ok() ? Outcome::kMore : Outcome::kFailed;
}

std::vector<MutableView> DataReader::missing() {
  std::vector<MutableView> parts(impl_->spans.size() + 1);
  parts.resize(impl_->missing(parts));
  return parts;
}

void DataReader::took(std::size_t bytes, bool quiet) {
  Impl& impl = *impl_;
  if (impl.phase != Impl::Phase::kPayload) return;
  if (bytes > 0) impl.advance(bytes);
  if (!quiet && impl.span_index == impl.spans.size()) impl.finish_frame();
}

bool DataReader::under_way(const std::function<bool(ByteView header)>& which) const {
  return impl_->phase == Impl::Phase::kPayload && which(impl_->header);
}

bool DataReader::paused() const { return impl_->phase == Impl::Phase::kPaused; }

const Status& DataReader::status() const { return impl_->status; }

std::size_t DataReader::frames_received() const { return impl_->frames; }

std::size_t DataReader::frames_drained() const { return impl_->drained; }

void DataReader::cancel() {
  const bool under_way = impl_->phase == Impl::Phase::kPayload;
  impl_->phase = Impl::Phase::kPaused;
  impl_->spans.clear();
  if (impl_->status.ok()) impl_->status = Status{Code::kClosed, "the stripe is closed"};
  if (under_way) impl_->sink->lost(impl_->header, impl_->token);
}

void DataReader::abandon(const std::function<bool(ByteView header)>& which) {
  if (!under_way(which)) return;
  impl_->drain_left = impl_->missing_bytes();
  impl_->spans.clear();
  impl_->phase = Impl::Phase::kDraining;
}

}  // namespace jccl::net
