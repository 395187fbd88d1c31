// The file of a flight recorder: its writer and the reason, then states of a machine. After each
// state come its events, each with its time, the advisors' answers, and notes of its effects. The
// file begins with a state, so all of it can be replayed. A reader takes any bytes and never
// crashes; its views point into them. No file, no clock: bytes alone. Pure; any one thread.
//
//   "JCCLREC\n" · format u16 · wire version u16 · role u8 · layout u64 · run 16 bytes · life u64 ·
//   site, build, why: texts (u16 length) · at i64 · Unix ms i64 · entries · CRC-32C of all before
//   entry: u32 length of what follows · kind u8 (1 state, 2 start, 3 event) · time i64 ·
//     state: the machine's, whole
//     start, event: answers: u32 count, each u8 0 and u32 length and bytes, or u8 1, code u8, u32
//       length and text · effects: u32 count, each kind u8 and digest u32 · the event
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "base/time.h"
#include "protocol/recorder/recorded_sides.h"

namespace jccl::protocol {

inline constexpr std::uint16_t kRecordingFormat = 1;
inline constexpr std::size_t kRecordingBytesMax = std::size_t{256} << 20;
inline constexpr std::size_t kWhyBytesMax = 512;

struct About {  // a recording, for whoever gets it
  Role role = Role::kMaster;
  std::uint16_t wire_version = wire::kVersion;
  std::uint64_t layout = 0;  // of the build's machines: see recorded_sides.h
  wire::RunId run{};
  wire::Incarnation incarnation = 0;  // of a peer
  std::string site;                   // likewise
  std::string build;                  // of whoever wrote it, in words
  std::string why;                    // it was written
  base::Time at = 0;                  // when, on the machine's clock …
  std::int64_t unix_ms = 0;           // … and on the world's
  bool operator==(const About&) const = default;
};

enum class EntryKind : std::uint8_t { kState = 1, kStart = 2, kEvent = 3 };
using Answer = base::Result<base::Bytes>;

struct Entry {
  EntryKind kind = EntryKind::kState;
  base::Time at = 0;
  std::vector<Answer> answers;  // of the advisors, in order
  std::vector<EffectNote> effects;
  base::ByteView body;  // the state, or the event
};

// Bytes of an entry are what its recorder put together (recorder.h).
void put_entry(const Entry& entry, Saver& to);

base::Bytes recording_of(const About& about, const std::vector<base::ByteView>& entries);

struct Recording {
  About about;
  std::vector<Entry> entries;  // the first is a state
};
// kInvalid: this is no recording. kVersion: one of another format. kDamaged: torn or bent.
base::Result<Recording> read_recording(base::ByteView bytes);

}  // namespace jccl::protocol
