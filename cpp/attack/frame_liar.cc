#include "attack/frame_liar.h"

#include <cmath>
#include <cstring>
#include <memory>

#include "snapshot/digest.h"
#include "wire/codec.h"

namespace jccl::attack {

using wire::FrameKind;

namespace {

constexpr std::uint32_t kNoSuchChunk = 1000;

bool is_of_frames(Row row) { return row >= Row::kFrameBent && row <= Row::kFrameKind; }

bool is_of_rounds(FrameKind kind) {
  return kind == FrameKind::kContribution || kind == FrameKind::kPartial ||
         kind == FrameKind::kResult;
}

}  // namespace

FrameLiar::FrameLiar(const std::vector<Row>& rows, bool checked) : checked_(checked) {
  for (const Row row : rows) {
    if (is_of_frames(row)) row_ = row;
  }
}

// The first that a frame leaves for.
bool FrameLiar::is_victim(base::Incarnation to) {
  std::lock_guard lock(mutex_);
  if (victim_ == 0) victim_ = to;
  return victim_ == to;
}

bool FrameLiar::sends(base::Incarnation to, exchange::OutFrame* frame) {
  if (!armed_ || row_ == Row::kNone) return true;
  wire::FrameHeader header = wire::decode_frame_header(frame->header).value();
  if (!is_of_rounds(header.kind) || header.payload_bytes < sizeof(float)) return true;
  if (row_ == Row::kFrameBent && !is_victim(to)) return true;
  ++told_;
  const auto bytes = std::make_shared<base::Bytes>();
  for (const base::ByteView& part : frame->payload) {
    bytes->insert(bytes->end(), part.begin(), part.end());
  }
  const float nan = std::nanf("");
  switch (row_) {
    case Row::kFrameBent:
      (*bytes)[1] ^= 1;
      break;
    case Row::kFrameNan:
      std::memcpy(bytes->data() + bytes->size() - sizeof nan, &nan, sizeof nan);
      break;
    case Row::kFrameChunk:
      header.chunk += kNoSuchChunk;
      break;
    case Row::kFrameLength:
      bytes->resize(bytes->size() + sizeof nan);
      header.payload_bytes += sizeof nan;
      break;
    default:  // no plan has both
      header.kind =
          header.kind == FrameKind::kPartial ? FrameKind::kContribution : FrameKind::kPartial;
  }
  if (checked_) header.payload_check = snapshot::check_of(*bytes);
  wire::encode(header, frame->header.data());
  frame->payload = {base::ByteView(*bytes)};
  frame->keep_alive = bytes;
  return true;
}

}  // namespace jccl::attack
