// Control messages and journal records to bytes and back: a type byte, then the fields in the order
// fields.h names them. Refuses unknown types, broken bounds, and bytes left over.
#include "wire/serialize.h"

#include "base/planted.h"
#include "wire/fields.h"

namespace jccl::wire {
namespace {

// Types of a variant in its order, so that number_of(v) is kNumbers[v.index()].
#define X(name, number) number,
constexpr std::uint8_t kMessageNumbers[] = {JCCL_MESSAGES(X)};
constexpr std::uint8_t kRecordNumbers[] = {JCCL_RECORDS(X)};
#undef X
#define X(name, number) #name,
constexpr std::string_view kMessageNames[] = {JCCL_MESSAGES(X)};
constexpr std::string_view kRecordNames[] = {JCCL_RECORDS(X)};
#undef X
#define X(name, number) , name
template <typename First, typename... Rest>
using Listed = std::variant<Rest...>;
static_assert(std::is_same_v<Message, Listed<void JCCL_MESSAGES(X)>>, "table and variant differ");
static_assert(std::is_same_v<Record, Listed<void JCCL_RECORDS(X)>>, "table and variant differ");
#undef X

constexpr std::size_t kUsualBytes = 128;  // of a message: made in one piece

template <typename Variant>
FieldEncoder encoded(const Variant& value, std::uint8_t number) {
  FieldEncoder io;
  io.reserve(kUsualBytes);
  io.u8(number);
  std::visit([&](const auto& held) { fields(io, held); }, value);
  return io;
}

FieldEncoder encoded(const Message& message) {
  return encoded(message, kMessageNumbers[message.index()]);
}

std::uint32_t bytes_max(const Message& message) {
  if (std::holds_alternative<Hello>(message) && !JCCL_PLANTED("hello-as-long-as-others"))
    return base::kHelloBytesMax;
  return kMessageNumbers[message.index()] < 32 ? base::kControlBytesMax : base::kRosterBytesMax;
}

base::Status check(const FieldEncoder& io, const Message& message) {
  if (!io.problem().empty()) {
    return {Code::kLimit, base::cat(name_of(message), ": ", io.problem())};
  }
  if (io.size() > bytes_max(message) && !JCCL_PLANTED("message-size-unbounded")) {
    return {Code::kLimit, base::cat(name_of(message), " has ", io.size(), " bytes; the limit is ",
                                    bytes_max(message))};
  }
  return {};
}

base::Status malformed(Code code, std::string_view name, base::ByteView bytes) {
  return {code, base::cat("malformed ", name, " of ", bytes.size(), " bytes")};
}

}  // namespace

base::Status check(const Message& message) { return check(encoded(message), message); }

base::Bytes encode(const Message& message) {
  FieldEncoder io = encoded(message);
  JCCL_CHECK(check(io, message).ok());
  return io.take();
}

base::Result<Message> decode(base::ByteView bytes) {
  FieldDecoder io(bytes);
  std::uint8_t number = 0;
  io.u8(number);
  switch (number) {
#define X(name, number)                                                                    \
  case number: {                                                                           \
    Message message{name{}};                                                               \
    if (bytes.size() > bytes_max(message)) return malformed(Code::kInvalid, #name, bytes); \
    fields(io, std::get<name>(message));                                                   \
    if constexpr (std::is_same_v<name, Hello>) {                                           \
      if (!io.failed() && !has_common_version(std::get<Hello>(message))) return message;   \
    }                                                                                      \
    if (!io.finished()) return malformed(Code::kInvalid, #name, bytes);                    \
    return message;                                                                        \
  }
    JCCL_MESSAGES(X)
#undef X
  }
  return malformed(Code::kInvalid, base::cat("message of unknown type ", number), bytes);
}

std::string_view name_of(const Message& message) { return kMessageNames[message.index()]; }

base::Bytes encode_record(const Record& record) {
  FieldEncoder io = encoded(record, kRecordNumbers[record.index()]);
  JCCL_CHECK(io.problem().empty());
  return io.take();
}

base::Result<Record> decode_record(base::ByteView bytes) {
  FieldDecoder io(bytes);
  std::uint8_t number = 0;
  io.u8(number);
  switch (number) {
#define X(name, number)                                                 \
  case number: {                                                        \
    Record record{name{}};                                              \
    fields(io, std::get<name>(record));                                 \
    if (!io.finished()) return malformed(Code::kDamaged, #name, bytes); \
    return record;                                                      \
  }
    JCCL_RECORDS(X)
#undef X
  }
  return malformed(Code::kDamaged, base::cat("record of unknown type ", number), bytes);
}

std::string_view name_of(const Record& record) { return kRecordNames[record.index()]; }

}  // namespace jccl::wire
