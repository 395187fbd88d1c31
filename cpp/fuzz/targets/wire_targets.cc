// Whatever decodes is within its bounds, and its bytes are the only ones it has.
#include <algorithm>

#include "base/crc32c.h"
#include "fuzz/input.h"
#include "fuzz/target.h"
#include "wire/samples.h"
#include "wire/serialize.h"

namespace jccl::fuzz {
namespace {

bool equal(ByteView a, ByteView b) { return std::ranges::equal(a, b); }

// The header's own checksum would keep every mutation out.
Bytes with_checksum(ByteView bytes) {
  Bytes out(bytes.begin(), bytes.end());
  if (out.size() != wire::kFrameHeaderBytes) return out;
  const std::uint32_t crc = base::crc32c(ByteView(out).first(out.size() - 4));
  std::memcpy(out.data() + out.size() - 4, &crc, sizeof(crc));
  return out;
}

void check_frame_header(ByteView bytes) {
  const auto header = wire::decode_frame_header(bytes);
  if (!header.ok()) return;
  JCCL_CHECK(header.value().payload_bytes <= wire::kFramePayloadBytesMax);
  Bytes again(wire::kFrameHeaderBytes);
  wire::encode(header.value(), again.data());
  JCCL_CHECK(equal(again, bytes));
}

}  // namespace

void run_message(ByteView bytes) {
  const auto message = wire::decode(bytes);
  if (!message.ok()) {
    JCCL_CHECK(!message.status().text.empty());
    return;
  }
  JCCL_CHECK(!wire::name_of(message.value()).empty());
  const auto* hello = std::get_if<wire::Hello>(&message.value());
  if (hello != nullptr && !wire::has_common_version(*hello)) return;  // the rest was not read
  JCCL_CHECK(wire::check(message.value()).ok());
  JCCL_CHECK(equal(wire::encode(message.value()), bytes));
  JCCL_CHECK(wire::decode(bytes).value() == message.value());
}

void run_record(ByteView bytes) {
  const auto record = wire::decode_record(bytes);
  if (!record.ok()) {
    JCCL_CHECK(record.status().code == base::Code::kDamaged);
    return;
  }
  JCCL_CHECK(!wire::name_of(record.value()).empty());
  JCCL_CHECK(equal(wire::encode_record(record.value()), bytes));
}

void run_header(ByteView bytes) {
  Input in(bytes);
  const std::uint8_t which = in.u8();
  const ByteView body = in.rest();
  if (which == 0) {
    check_frame_header(body);
    check_frame_header(with_checksum(body));
  } else if (which == 1) {
    const auto hello = wire::decode_link_hello(body);
    if (hello.ok()) JCCL_CHECK(equal(wire::encode(hello.value()), body));
  } else if (which == 2) {
    const auto ask = wire::decode_snapshot_ask(body);
    if (ask.ok()) JCCL_CHECK(equal(wire::encode(ask.value()), body));
  } else {
    const auto ask = wire::decode_proof_ask(body);
    if (ask.ok()) JCCL_CHECK(equal(wire::encode(ask.value()), body));
  }
}

std::vector<Bytes> message_seeds() {
  std::vector<Bytes> out;
  for (const wire::Message& message : wire::sample_messages()) {
    out.push_back(wire::encode(message));
  }
  return out;
}

std::vector<Bytes> record_seeds() {
  std::vector<Bytes> out;
  for (const wire::Record& record : wire::sample_records()) {
    out.push_back(wire::encode_record(record));
  }
  return out;
}

std::vector<Bytes> header_seeds() {
  Bytes frame(wire::kFrameHeaderBytes);
  wire::encode(wire::sample_frame_header(), frame.data());
  std::vector<Bytes> out{frame, wire::encode(wire::sample_link_hello()),
                         wire::encode(wire::sample_ask()), wire::encode(wire::sample_proof_ask())};
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i].insert(out[i].begin(), static_cast<std::uint8_t>(i));
  }
  return out;
}

}  // namespace jccl::fuzz
