// Bytes of messages, journal records, data frame headers and link hellos. Decoding never throws,
// allocates only within base/limits.h, and refuses anything that is not exactly one valid value.
#pragma once

#include <array>
#include <string_view>

#include "base/bytes.h"
#include "base/limits.h"
#include "base/status.h"
#include "wire/messages.h"

namespace jccl::wire {

// X(name, type number): the first byte of a message. Numbers are never reused; a peer sends those
// below 32, the master the others.
#define JCCL_MESSAGES(X) \
  X(Hello, 1)            \
  X(Resume, 2)           \
  X(Ready, 3)            \
  X(Done, 4)             \
  X(Fail, 5)             \
  X(Withdraw, 6)         \
  X(Query, 7)            \
  X(Heartbeat, 8)        \
  X(Leave, 9)            \
  X(Sync, 10)            \
  X(Published, 11)       \
  X(Welcome, 33)         \
  X(Refuse, 34)          \
  X(Roster, 35)          \
  X(Start, 36)           \
  X(Outcome, 37)         \
  X(Reject, 38)          \
  X(Moved, 39)           \
  X(Waiting, 40)         \
  X(Evicted, 41)         \
  X(HeartbeatAck, 42)    \
  X(SyncReply, 43)       \
  X(StatusAsk, 12)       \
  X(StatusReply, 44)     \
  X(Measured, 13)        \
  X(Order, 14)           \
  X(OrderReply, 45)      \
  X(Drain, 46)           \
  X(Outvoted, 15)        \
  X(Notice, 47)          \
  X(Violation, 16)       \
  X(AuditPart, 17)       \
  X(AuditAsk, 48)        \
  X(Finding, 18)

// X(name, type number): the first byte of a journal record.
#define JCCL_RECORDS(X) \
  X(RunRecord, 1)       \
  X(EpochRecord, 2)     \
  X(BirthRecord, 3)     \
  X(CommitRecord, 4)    \
  X(StateRecord, 5)     \
  X(BanRecord, 6)       \
  X(AdmitRecord, 7)     \
  X(TokenRecord, 8)     \
  X(RestoreRecord, 9)

// A bound that `message` breaks, in words: Code::kLimit, or kInvalid for a value that has no bytes.
// encode() takes a broken bound for a bug of ours, so whoever builds a message from what a user
// said (a tag, a site, addresses, a hint) checks it first. Human texts (text, summary, reason) are
// never too long: encode() cuts them to their bound.
base::Status check(const Message& message);

base::Bytes encode(const Message& message);
// Fails with Code::kInvalid. A Hello of another version decodes to its version and nothing else,
// so that the master can answer it.
base::Result<Message> decode(base::ByteView bytes);
std::string_view name_of(const Message& message);

base::Bytes encode_record(const Record& record);
base::Result<Record> decode_record(base::ByteView bytes);  // fails with Code::kDamaged
std::string_view name_of(const Record& record);

// First frame on every connection between peers.
struct LinkHello {
  std::uint16_t version = kVersion;
  RunId run{};
  Incarnation from = 0, to = 0;
  std::uint16_t stripe = 0, stripes = 1;
  bool operator==(const LinkHello&) const = default;
};
inline constexpr std::size_t kLinkHelloBytes = 42;
base::Bytes encode(const LinkHello& hello);
// Code::kVersion if only the version differs, else kInvalid.
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
  kArrived = 7,       // no payload; attempt.counter frames before it on this stripe, in the other
                      // direction, have arrived; itself it is not counted. chunk = 1: no other
                      // frame follows by this stripe
  kProofAsk = 8,      // payload: ProofAsk
  kProof = 9,         // attempt = (revision, ask id), chunk = part; payload: its MAC
};
struct FrameHeader {
  FrameKind kind = FrameKind::kContribution;
  Attempt attempt;
  std::uint32_t chunk = 0;
  std::uint32_t payload_bytes = 0;
  std::uint32_t payload_check = 0;
  bool operator==(const FrameHeader&) const = default;
};
inline constexpr std::size_t kFrameHeaderBytes = 40;  // ends with a CRC32C of the header itself
inline constexpr std::uint32_t kFramePayloadBytesMax = 8 * base::kChunkBytesMax;  // i8 sums in i64
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

using MacKey = std::array<std::uint8_t, 16>;
using Mac = std::array<std::uint8_t, 16>;

struct ProofAsk {  // "send the MAC of that part of this revision under this key"
  Tag tag;
  std::uint64_t revision = 0;
  std::uint64_t ask = 0;
  std::uint32_t part = 0;
  MacKey key{};
  bool operator==(const ProofAsk&) const = default;
};
base::Bytes encode(const ProofAsk& ask);
base::Result<ProofAsk> decode_proof_ask(base::ByteView bytes);

}  // namespace jccl::wire
