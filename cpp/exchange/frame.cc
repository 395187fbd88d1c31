#include "exchange/frame.h"

#include <utility>

#include "base/check.h"

namespace jccl::exchange {

using base::MutableView;

std::uint64_t bytes_of(const OutFrame& frame) {
  std::uint64_t out = frame.header.size();
  for (const base::ByteView& part : frame.payload) out += part.size();
  return out;
}

void own_payload(OutFrame* frame) {
  auto copy = std::make_shared<base::Bytes>();
  for (const base::ByteView& part : frame->payload) {
    copy->insert(copy->end(), part.begin(), part.end());
  }
  frame->payload = {base::ByteView(*copy)};
  frame->keep_alive = copy;
}

Placement Placement::into(MutableView span, std::uint64_t token) {
  return into(std::vector<MutableView>{span}, token);
}

Placement Placement::into(std::vector<MutableView> spans, std::uint64_t token) {
  Placement out;
  out.kind = Kind::kInto;
  out.token = token;
  out.spans = std::move(spans);
  return out;
}

Placement Placement::pause() {
  Placement out;
  out.kind = Kind::kPause;
  return out;
}

Placement Placement::drain(std::uint64_t bytes) {
  Placement out;
  out.kind = Kind::kDrain;
  out.drain_bytes = bytes;
  return out;
}

Placement Placement::ack() {
  Placement out;
  out.kind = Kind::kAck;
  return out;
}

Placement Placement::refuse(base::Status status) {
  JCCL_CHECK(!status.ok());
  Placement out;
  out.kind = Kind::kRefuse;
  out.status = std::move(status);
  return out;
}

}  // namespace jccl::exchange
