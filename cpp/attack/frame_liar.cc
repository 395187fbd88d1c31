#include "attack/frame_liar.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>

#include "snapshot/digest.h"

namespace jccl::attack {

using wire::FrameKind;

namespace {

constexpr std::uint32_t kNoSuchChunk = 1000;
constexpr float kMore = 3e6F;
constexpr std::chrono::milliseconds kDripEvery{1500};  // longer than stragglers are given

bool is_of_frames(Row row) { return row >= Row::kFrameBent && row <= Row::kAddsWrong; }

bool is_of_rounds(FrameKind kind) {
  return kind == FrameKind::kContribution || kind == FrameKind::kPartial ||
         kind == FrameKind::kResult;
}

}  // namespace

FrameLiar::FrameLiar(const std::vector<Row>& rows, bool checked, Clock::time_point (*now)())
    : checked_(checked), now_(now) {
  for (const Row row : rows) {
    if (is_of_frames(row)) row_ = row;
  }
}

bool FrameLiar::is_to_one() const {
  return row_ == Row::kFrameBent || row_ == Row::kFrameNoneOne || row_ == Row::kFrameDripOne;
}

// Whether a drop is due. A frame that is kept back is sent again after a while.
bool FrameLiar::is_time_for(base::Incarnation to) {
  const Clock::time_point now = now_();
  std::lock_guard lock(mutex_);
  const auto [last, first] = dripped_.try_emplace(to, now);
  if (!first && now - last->second < kDripEvery) return false;
  last->second = now;
  return true;
}

// The first that a frame leaves for.
bool FrameLiar::is_victim(base::Incarnation to) {
  std::lock_guard lock(mutex_);
  if (victim_ == 0) victim_ = to;
  return victim_ == to;
}

peer::Sends FrameLiar::sends(base::Incarnation to, exchange::OutFrame* frame) {
  using peer::Sends;
  wire::FrameHeader header = wire::decode_frame_header(frame->header).value();
  if (row_ == Row::kAddsWrong) return add_wrong(header, *frame), Sends::kOnce;
  if (!armed_ || row_ == Row::kNone || row_ == Row::kFrameDropped) return Sends::kOnce;
  if (!is_of_rounds(header.kind) || header.payload_bytes < sizeof(float)) return Sends::kOnce;
  if (is_to_one() && !is_victim(to)) return Sends::kOnce;
  ++told_;
  if (row_ == Row::kFrameNone || row_ == Row::kFrameNoneOne) return Sends::kDropped;
  if (row_ == Row::kFrameDrip || row_ == Row::kFrameDripOne) {
    return is_time_for(to) ? Sends::kOnce : Sends::kDropped;
  }
  if (row_ == Row::kFrameTwice) {
    std::lock_guard lock(mutex_);
    again_ = !again_;
    return again_ ? Sends::kAgain : Sends::kOnce;
  }
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
  return Sends::kOnce;
}

bool FrameLiar::takes(base::Incarnation, const wire::FrameHeader& header) {
  if (!armed_ || row_ != Row::kFrameDropped || !is_of_rounds(header.kind)) return true;
  ++told_;
  return false;
}

void FrameLiar::lends(const std::string& tag, float* values, std::size_t count) {
  std::lock_guard lock(mutex_);
  Input& input = inputs_[tag];
  input.values = values, input.count = count;
  input.changed.reset();
}

void FrameLiar::Input::restore() {
  if (changed) values[*changed] = was;
  changed.reset();
}

// Its own value of what it owns is another one from its first frame to the first result, so the sum
// is wrong; when it says what it is bound by, the value is there again. So every hash is right but
// that of the sum. What it owns is guessed from the attempt before. Where the guess is wrong, the
// value is there again before it leaves: to contribute another one is no lie.
void FrameLiar::add_wrong(const wire::FrameHeader& header, const exchange::OutFrame& frame) {
  std::lock_guard lock(mutex_);
  for (auto& [tag, input] : inputs_) {
    if (input.values == nullptr) continue;
    if (header.kind == FrameKind::kContribution) {
      for (const base::ByteView& view : frame.payload) sent(input, header.attempt, view);
    } else if (header.kind == FrameKind::kResult && header.attempt == input.attempt &&
               input.changed) {
      input.restore();
      ++told_;
    }
  }
}

void FrameLiar::sent(Input& input, const wire::Attempt& attempt, base::ByteView view) {
  const auto* first = reinterpret_cast<const float*>(view.data());
  if (first < input.values || first >= input.values + input.count) return;
  if (input.attempt != attempt) {
    input.restore();
    input.attempt = attempt;
    input.sent_before = std::exchange(input.sent, std::vector<bool>(input.count));
    const auto own = std::find(input.sent_before.begin(), input.sent_before.end(), false);
    if (armed_ && own != input.sent_before.end()) {
      input.changed = own - input.sent_before.begin();
      input.was = input.values[*input.changed];
      input.values[*input.changed] += kMore;
    }
  }
  const auto begin = static_cast<std::size_t>(first - input.values);
  const std::size_t end = begin + view.size() / sizeof(float);
  if (input.changed && begin <= *input.changed && *input.changed < end) input.restore();
  const auto at = input.sent.begin();
  std::fill(at + static_cast<std::ptrdiff_t>(begin), at + static_cast<std::ptrdiff_t>(end), true);
}

}  // namespace jccl::attack
