// Bytes of a stranger on a control connection, before and after its hello, and of a peer on a data
// stripe: whatever the pieces they come in, what is handed on is what a plain reading of the bytes
// gives, within the limits; nothing is read into a place that is too small.
#include <algorithm>
#include <optional>

#include "base/crc32c.h"
#include "fuzz/input.h"
#include "fuzz/target.h"
#include "fuzz/targets/memory_stream.h"
#include "net/link/frames.h"
#include "wire/samples.h"
#include "wire/serialize.h"

namespace jccl::fuzz {
namespace {

struct Reading {
  std::vector<Bytes> frames;
  base::Code end = base::Code::kLinkLost;
};

std::uint32_t u32_at(ByteView bytes, std::size_t at) {
  std::uint32_t value = 0;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

// The same in a dozen lines, for one piece.
Reading plain_reading(ByteView bytes, std::size_t hello_frames, const net::FramedOptions& options) {
  Reading out;
  for (;;) {
    const bool known = out.frames.size() >= hello_frames;
    if (bytes.size() < 4) return out;
    const std::uint32_t size = u32_at(bytes, 0);
    if (size > (known ? options.frame_bytes_max : options.hello_bytes_max)) {
      out.end = base::Code::kLimit;
      return out;
    }
    if (bytes.size() < 8 + size) return out;
    const ByteView payload = bytes.subspan(8, size);
    if (base::crc32c(payload) != u32_at(bytes, 4)) {
      out.end = base::Code::kCorrupt;
      return out;
    }
    out.frames.emplace_back(payload.begin(), payload.end());
    bytes = bytes.subspan(8 + size);
  }
}

// Frames with right checksums, and raw bytes between them: else no search gets past the first.
Bytes any_stream(Input& in) {
  Bytes out;
  while (!in.done() && out.size() < 40'000) {
    const std::uint8_t kind = in.u8() % 4;
    Bytes payload = kind == 3 ? Bytes(in.u16() % 3000, in.u8()) : in.bytes(200);
    if (kind != 0) {
      const std::uint32_t head[2] = {static_cast<std::uint32_t>(payload.size()),
                                     base::crc32c(payload)};
      const auto* bytes = reinterpret_cast<const std::uint8_t*>(head);
      out.insert(out.end(), bytes, bytes + sizeof(head));
    }
    out.insert(out.end(), payload.begin(), payload.end());
  }
  return out;
}

}  // namespace

void run_frames(ByteView bytes) {
  Input in(bytes);
  const std::size_t hello_frames = in.below(3), step = 1 + in.below(256) * in.below(64);
  const Bytes sent = any_stream(in);
  net::Loop loop;
  net::FramedOptions options;
  options.frame_bytes_max = 4096;
  auto memory = std::make_unique<MemoryStream>(sent);
  MemoryStream* stream = memory.get();
  net::FramedStream framed(loop, std::move(memory), options);
  Reading got;
  bool ended = false;
  if (hello_frames == 0) framed.authenticated();
  framed.start(
      [&](ByteView frame) {
        JCCL_CHECK(!ended);
        got.frames.emplace_back(frame.begin(), frame.end());
        if (got.frames.size() == hello_frames) framed.authenticated();
      },
      [&](const base::Status& status) {
        JCCL_CHECK(!ended);
        ended = true;
        got.end = status.code;
      });
  turn(loop);
  while (!ended && stream->unread() > 0) {
    stream->arrive(step);
    turn(loop);
  }
  if (!ended) stream->end();
  turn(loop);
  JCCL_CHECK(ended);
  const Reading expected = plain_reading(sent, hello_frames, options);
  JCCL_CHECK(got.frames == expected.frames);
  // A first frame that looks like TLS is called by that name.
  JCCL_CHECK(got.end == expected.end || (got.frames.empty() && got.end == base::Code::kAuth));
}

namespace {

// Answers as a data plane does: a place of its own size, a pause, or a drain, by the header.
class Sink : public net::DataSink {
 public:
  explicit Sink(Input script) : script_(script) {}

  net::Placement place(ByteView header) override {
    JCCL_CHECK(!open_.has_value());
    const auto parsed = wire::decode_frame_header(header);
    if (!parsed.ok()) return net::Placement::refuse(parsed.status());
    if (parsed.value().payload_bytes > 5000)
      return net::Placement::refuse({base::Code::kLimit, "long"});
    switch (script_.below(8)) {
      case 0:
        if (!script_.done()) return net::Placement::pause();
        break;
      case 1:
        return net::Placement::drain(parsed.value().payload_bytes);
      case 2:
        if (parsed.value().kind == wire::FrameKind::kArrived) return net::Placement::ack();
        break;
      default:
        break;
    }
    open_ = Bytes(parsed.value().payload_bytes);
    header_.assign(header.begin(), header.end());
    std::vector<net::MutableView> spans;
    net::MutableView rest(*open_);
    while (spans.size() < 100 && rest.size() > 1 && script_.flag()) {
      const std::size_t cut = script_.below(rest.size());
      spans.push_back(rest.first(cut));
      rest = rest.subspan(cut);
    }
    spans.push_back(rest);
    return net::Placement::into(std::move(spans), ++token_);
  }
  base::Status arrived(ByteView header, std::uint64_t token) override {
    JCCL_CHECK(open_.has_value());
    JCCL_CHECK(token == token_ && std::ranges::equal(header, header_));
    ++arrived_;
    open_.reset();
    return {};
  }
  void lost(ByteView header, std::uint64_t token) override {
    JCCL_CHECK(open_.has_value());
    JCCL_CHECK(token == token_ && std::ranges::equal(header, header_));
    open_.reset();
  }
  void forget() { open_.reset(); }
  bool open() const { return open_.has_value(); }
  std::size_t count() const { return arrived_; }

 private:
  Input script_;
  std::optional<Bytes> open_;
  Bytes header_;
  std::uint64_t token_ = 0;
  std::size_t arrived_ = 0;
};

Bytes any_data(Input& in) {
  Bytes out;
  while (!in.done() && out.size() < 40'000) {
    if (in.below(16) == 0) {
      const Bytes raw = in.bytes(60);
      out.insert(out.end(), raw.begin(), raw.end());
      continue;
    }
    wire::FrameHeader header = wire::sample_frame_header();
    header.kind = static_cast<wire::FrameKind>(1 + in.below(9));
    header.chunk = in.u8();
    header.payload_bytes = in.below(8) == 0 ? in.u32() : in.u16() % 3000;
    header.payload_bytes = std::min(header.payload_bytes, wire::kFramePayloadBytesMax);
    const bool bare =
        header.kind == wire::FrameKind::kArrived || header.kind == wire::FrameKind::kSnapshotGone;
    if (bare) header.payload_bytes = 0;
    Bytes head(wire::kFrameHeaderBytes);
    wire::encode(header, head.data());
    out.insert(out.end(), head.begin(), head.end());
    const std::size_t real = header.payload_bytes < 3000 ? header.payload_bytes : 0;
    out.insert(out.end(), real, in.u8());
  }
  return out;
}

}  // namespace

void run_data(ByteView bytes) {
  Input in(bytes);
  const std::size_t step = 1 + in.below(256) * in.below(64);
  Input script(in.take(in.below(256)));
  const Bytes sent = any_data(in);
  MemoryStream stream(sent);
  Sink sink(script);
  net::DataReader reader(wire::kFrameHeaderBytes, &sink);
  using Outcome = net::DataReader::Outcome;
  Outcome outcome = Outcome::kBlocked;
  for (std::size_t turns = 0; outcome != Outcome::kFailed && turns < 200'000; ++turns) {
    outcome = reader.pump(stream, 1 + in.below(5000));
    if (outcome == Outcome::kBlocked && stream.unread() == 0) break;
    if (outcome == Outcome::kBlocked) stream.arrive(step);
    if (outcome == Outcome::kPaused) JCCL_CHECK(reader.paused());
    if (turns % 7 == 3 && sink.open() && script.below(32) == 1) {
      reader.abandon([](ByteView) { return true; });
      sink.forget();
    }
  }
  JCCL_CHECK(reader.frames_received() == sink.count());
  stream.end();
  reader.cancel();
  JCCL_CHECK(!sink.open());
}

}  // namespace jccl::fuzz
