// See recording.h.
#include "protocol/recorder/recording.h"

#include <algorithm>

#include "base/crc32c.h"
#include "base/planted.h"
#include "base/text.h"
#include "base/utf8.h"
#include "protocol/recorder/archive.h"
#include "wire/field_io.h"

namespace jccl::protocol {

using base::Code;
using base::Status;

namespace {

constexpr std::array<std::uint8_t, 8> kMagic = {'J', 'C', 'C', 'L', 'R', 'E', 'C', '\n'};
constexpr std::size_t kCheckBytes = 4;
constexpr std::size_t kNoteBytes = 5;
constexpr std::size_t kAnswerBytesMin = 2;  // as an entry has it

void put_text(base::Writer& to, const std::string& text) {
  const std::string shown = base::to_utf8(text);
  to.text(wire::cut_text(shown, kWhyBytesMax), kWhyBytesMax);
}

bool read_entry(base::ByteView bytes, Entry* entry) {
  base::Reader in(bytes);
  const std::uint8_t kind = in.u8();
  if (kind < 1 || kind > 3) return false;
  entry->kind = static_cast<EntryKind>(kind);
  entry->at = in.i64();
  if (entry->kind != EntryKind::kState) {
    for (std::size_t n = in.count(in.left(), kAnswerBytesMin); n > 0 && !in.failed(); --n) {
      if (!in.flag()) {
        entry->answers.emplace_back(in.blob(in.left()));
        continue;
      }
      const std::uint8_t code = in.u8();
      const base::ByteView words = in.view(in.u32());
      std::string text(words.begin(), words.end());
      if (in.failed() || code == 0 || !base::is_code(code)) return false;
      entry->answers.emplace_back(Status(static_cast<Code>(code), std::move(text)));
    }
    for (std::size_t notes = in.count(in.left(), kNoteBytes); notes > 0; --notes) {
      const std::uint8_t of = in.u8();
      entry->effects.push_back({of, in.u32()});
    }
  }
  entry->body = in.view(in.left());
  return !in.failed();
}

Status damaged(const std::string& how) {
  return {Code::kDamaged, base::cat("the recording is damaged: ", how,
                                    "; ask for the file anew, sent as bytes and not as text")};
}

}  // namespace

void put_entry(const Entry& entry, Saver& to) {
  base::Writer out;
  out.u8(static_cast<std::uint8_t>(entry.kind));
  out.i64(entry.at);
  if (entry.kind != EntryKind::kState) {
    out.u32(static_cast<std::uint32_t>(entry.answers.size()));
    for (const Answer& answer : entry.answers) {
      out.flag(!answer.ok());
      if (answer.ok()) {
        out.blob(answer.value(), answer.value().size());
      } else {
        const Status why = answer.status();
        out.u8(static_cast<std::uint8_t>(why.code));
        out.u32(static_cast<std::uint32_t>(why.text.size()));
        out.raw(why.text.data(), why.text.size());
      }
    }
    out.u32(static_cast<std::uint32_t>(entry.effects.size()));
    for (const EffectNote& note : entry.effects) out.u8(note.kind), out.u32(note.digest);
  }
  out.raw(entry.body.data(), entry.body.size());
  to.bytes(out.bytes());
}

base::Bytes recording_of(const About& about, const std::vector<base::ByteView>& entries) {
  base::Writer out;
  std::size_t size = 4 * kWhyBytesMax;
  for (const base::ByteView part : entries) size += part.size();
  out.reserve(size);
  out.raw(kMagic);
  out.u16(kRecordingFormat), out.u16(about.wire_version);
  out.u8(static_cast<std::uint8_t>(about.role)), out.u64(about.layout);
  out.run(about.run), out.u64(about.incarnation);
  put_text(out, about.site), put_text(out, about.build), put_text(out, about.why);
  out.i64(about.at), out.i64(about.unix_ms);
  for (const base::ByteView part : entries) out.raw(part.data(), part.size());
  out.u32(base::crc32c(out.bytes()));
  return out.take();
}

base::Result<Recording> read_recording(base::ByteView bytes) {
  if (bytes.size() > kRecordingBytesMax) {
    return Status(Code::kInvalid,
                  base::cat("a recording has at most ", base::bytes_text(kRecordingBytesMax),
                            ", and this file ", base::bytes_text(bytes.size())));
  }
  if (bytes.size() < kMagic.size() + kCheckBytes ||
      !std::equal(kMagic.begin(), kMagic.end(), bytes.begin())) {
    return Status(Code::kInvalid, "this is no recording of a flight recorder");
  }
  base::Reader check(bytes.last(kCheckBytes));
  const base::ByteView body = bytes.first(bytes.size() - kCheckBytes);
  base::Reader in(body.subspan(kMagic.size()));
  if (const std::uint16_t format = in.u16(); format != kRecordingFormat) {
    return Status(Code::kVersion,
                  base::cat("the recording has the format ", format, ", and this program reads ",
                            kRecordingFormat, ": take the jccl-sim of the release that wrote it"));
  }
  if (check.u32() != base::crc32c(body) && !JCCL_PLANTED("bent-recordings-read")) {
    return damaged("its checksum differs, so it was cut or changed on its way");
  }
  Recording read;
  About& about = read.about;
  about.wire_version = in.u16();
  const std::uint8_t role = in.u8();
  about.layout = in.u64(), about.run = in.run(), about.incarnation = in.u64();
  about.site = in.text(kWhyBytesMax), about.build = in.text(kWhyBytesMax);
  about.why = in.text(kWhyBytesMax);
  about.at = in.i64(), about.unix_ms = in.i64();
  if (in.failed() || role < 1 || role > 2) return damaged("its head is none");
  about.role = static_cast<Role>(role);
  while (in.left() > 0) {
    Entry entry;
    const base::ByteView part = in.view(in.u32());
    if (in.failed() || !read_entry(part, &entry)) {
      return damaged(base::cat("entry ", read.entries.size() + 1, " is none"));
    }
    read.entries.push_back(std::move(entry));
  }
  const bool begins = !read.entries.empty() && read.entries.front().kind == EntryKind::kState;
  if (!begins) return damaged("it does not begin with a state");
  return read;
}

}  // namespace jccl::protocol
