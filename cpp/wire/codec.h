// Bytes of messages, journal records, data frame headers and link hellos. Decoding never throws,
// allocates only within base/limits.h, and refuses anything that is not exactly one valid value.
#pragma once

#include "base/bytes.h"
#include "base/status.h"
#include "wire/messages.h"

namespace jccl::wire {

base::Bytes encode(const Message& message);
base::Result<Message> decode(base::ByteView bytes);
std::string_view name_of(const Message& message);

base::Bytes encode_record(const Record& record);
base::Result<Record> decode_record(base::ByteView bytes);

// First frame on every connection between peers.
struct LinkHello {
  std::uint16_t version = kVersion;
  RunId run{};
  Incarnation from = 0, to = 0;
  std::uint64_t ticket = 0;  // of `to`, as the master named it
  std::uint16_t stripe = 0, stripes = 1;
  bool operator==(const LinkHello&) const = default;
};
base::Bytes encode(const LinkHello& hello);
base::Result<LinkHello> decode_link_hello(base::ByteView bytes);

// Header of every data frame, fixed size. The payload's size follows from (attempt, chunk, kind)
// at the receiver; `payload_bytes` must equal it and is never trusted.
enum class FrameKind : std::uint8_t {
  kContribution = 1,  // one peer's encoded chunk, to its owner
  kPartial = 2,       // a partial sum in accumulator form
  kResult = 3,        // the owner's encoded result
  kSnapshotAsk = 4,   // payload: SnapshotAsk
  kSnapshotPart = 5,  // attempt = (revision, ask id), chunk = part
  kSnapshotGone = 6,  // no payload; the revision is no longer held
};
struct FrameHeader {
  FrameKind kind = FrameKind::kContribution;
  Attempt attempt;
  std::uint32_t chunk = 0;
  std::uint32_t payload_bytes = 0;
  std::uint32_t payload_crc = 0;
  bool operator==(const FrameHeader&) const = default;
};
inline constexpr std::size_t kFrameHeaderBytes = 40;  // ends with a CRC32C of the header itself
void encode(const FrameHeader& header, std::uint8_t* out /* kFrameHeaderBytes */);
base::Result<FrameHeader> decode_frame_header(base::ByteView bytes);

struct SnapshotAsk {  // "send parts [first_part, last_part) of this revision"
  Tag tag;
  std::uint64_t revision = 0;
  std::uint64_t ask = 0;
  std::uint32_t first_part = 0, last_part = 0;
  bool operator==(const SnapshotAsk&) const = default;
};
base::Bytes encode(const SnapshotAsk& ask);
base::Result<SnapshotAsk> decode_snapshot_ask(base::ByteView bytes);

}  // namespace jccl::wire
