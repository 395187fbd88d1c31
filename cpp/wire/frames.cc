// Fixed-size parts of connections between peers: the link hello, the data frame header with its own
// CRC32C, and the snapshot ask.
#include "base/crc32c.h"
#include "base/planted.h"
#include "base/text.h"
#include "wire/fields.h"
#include "wire/serialize.h"

namespace jccl::wire {
namespace {

constexpr std::uint32_t kLinkMagic = 0x314C434A;   // "JCL1"
constexpr std::uint32_t kFrameMagic = 0x3146434A;  // "JCF1"

base::Status malformed_frame(std::string_view name, base::ByteView bytes) {
  return {Code::kInvalid, base::cat("malformed ", name, " of ", bytes.size(), " bytes")};
}

template <typename Io>
void fields(Io& io, In<Io, SnapshotAsk> m) {
  io.tag(m.tag);
  io.u64(m.revision);
  io.u64(m.ask);
  io.u32(m.first_part);
  io.u32(m.last_part);
  io.require(m.first_part < m.last_part || JCCL_PLANTED("empty-ask-taken"),
             "the range of parts is empty");
}

template <typename Io>
void fields(Io& io, In<Io, ProofAsk> m) {
  io.tag(m.tag);
  io.u64(m.revision);
  io.u64(m.ask);
  io.u32(m.part);
  io.raw(m.key);
}

bool valid(const LinkHello& hello) {
  return hello.stripe < hello.stripes + (JCCL_PLANTED("stripe-equal-to-count") ? 1 : 0) &&
         hello.stripes <= base::kStripesMax;
}

bool valid(const FrameHeader& header) {
  const auto kind = static_cast<std::uint8_t>(header.kind);
  if (kind < 1 || kind > 9 ||
      (header.payload_bytes > kFramePayloadBytesMax && !JCCL_PLANTED("frame-size-unbounded")))
    return false;
  const bool bare = header.kind == FrameKind::kSnapshotGone || header.kind == FrameKind::kArrived;
  return !bare || JCCL_PLANTED("bare-frame-with-payload") || header.payload_bytes == 0;
}

}  // namespace

base::Bytes encode(const LinkHello& hello) {
  JCCL_CHECK(valid(hello));
  base::Writer w;
  w.u32(kLinkMagic);
  w.u16(hello.version);
  w.run(hello.run);
  w.u64(hello.from);
  w.u64(hello.to);
  w.u16(hello.stripe);
  w.u16(hello.stripes);
  JCCL_CHECK(w.size() == kLinkHelloBytes);
  return w.take();
}

base::Result<LinkHello> decode_link_hello(base::ByteView bytes) {
  base::Reader r(bytes);
  if (r.u32() != kLinkMagic) return malformed_frame("link hello", bytes);
  LinkHello hello;
  hello.version = r.u16();
  if (r.failed()) return malformed_frame("link hello", bytes);
  if (hello.version != kVersion) {
    return base::Status{Code::kVersion, base::cat("link hello of protocol version ", hello.version,
                                                  "; this peer speaks ", kVersion, ": upgrade ",
                                                  hello.version < kVersion ? "the other" : "it")};
  }
  hello.run = r.run();
  hello.from = r.u64();
  hello.to = r.u64();
  hello.stripe = r.u16();
  hello.stripes = r.u16();
  if (!r.finished() || !valid(hello)) return malformed_frame("link hello", bytes);
  return hello;
}

void encode(const FrameHeader& header, std::uint8_t* out) {
  JCCL_CHECK(valid(header));
  std::uint8_t* at = out;
  const auto put = [&at](auto v) {
    std::memcpy(at, &v, sizeof(v));
    at += sizeof(v);
  };
  put(kFrameMagic);
  put(static_cast<std::uint32_t>(header.kind));  // three zero bytes follow the kind
  put(header.attempt.epoch);
  put(header.attempt.counter);
  put(header.chunk);
  put(header.payload_bytes);
  put(header.payload_check);
  put(base::crc32c({out, kFrameHeaderBytes - 4}));
  JCCL_CHECK(at == out + kFrameHeaderBytes);
}

base::Result<FrameHeader> decode_frame_header(base::ByteView bytes) {
  if (bytes.size() != kFrameHeaderBytes) return malformed_frame("frame header", bytes);
  base::Reader r(bytes);
  if (r.u32() != kFrameMagic) return malformed_frame("frame header", bytes);
  FrameHeader header;
  const std::uint32_t kind = r.u32();
  header.kind = static_cast<FrameKind>(kind & 0xFF);
  header.attempt = r.attempt();
  header.chunk = r.u32();
  header.payload_bytes = r.u32();
  header.payload_check = r.u32();
  if (r.u32() != base::crc32c(bytes.first(kFrameHeaderBytes - 4)) &&
      !JCCL_PLANTED("header-crc-not-compared")) {
    return base::Status{Code::kLinkLost, "a frame header arrived damaged (CRC32C differs)"};
  }
  if (kind > 0xFF || !valid(header)) return malformed_frame("frame header", bytes);
  return header;
}

base::Bytes encode(const SnapshotAsk& ask) {
  FieldEncoder io;
  fields(io, ask);
  JCCL_CHECK(io.problem().empty());
  return io.take();
}

base::Result<SnapshotAsk> decode_snapshot_ask(base::ByteView bytes) {
  FieldDecoder io(bytes);
  SnapshotAsk ask;
  fields(io, ask);
  if (!io.finished()) return malformed_frame("snapshot ask", bytes);
  return ask;
}

base::Bytes encode(const ProofAsk& ask) {
  FieldEncoder io;
  fields(io, ask);
  JCCL_CHECK(io.problem().empty());
  return io.take();
}

base::Result<ProofAsk> decode_proof_ask(base::ByteView bytes) {
  FieldDecoder io(bytes);
  ProofAsk ask;
  fields(io, ask);
  if (!io.finished()) return malformed_frame("proof ask", bytes);
  return ask;
}

}  // namespace jccl::wire
