#include "calls.h"

#include "base/text.h"
#include "collective/aggregator.h"
#include "collective/op.h"
#include "collective/spec.h"

namespace jccl::xla_ext {

namespace ffi = xla::ffi;
using base::Code;
using base::Status;

std::optional<base::Digest> digest_from(const std::string& hex) {
  base::RunId bytes{};
  if (!base::from_hex(hex, &bytes)) return std::nullopt;
  base::Digest digest;
  std::memcpy(&digest.low, bytes.data(), 8);
  std::memcpy(&digest.high, bytes.data() + 8, 8);
  return digest;
}

ffi::Error malformed(const char* what) {
  return ffi::Error(ffi::ErrorCode::kInvalidArgument,
                    base::cat("jccl: ", what,
                              " was built with other operands than this "
                              "version takes"));
}

std::optional<View> status_result(const ffi::RemainingRets& rets, std::size_t at) {
  const auto view = result(rets, at);
  if (!view || view->dtype != codec::Dtype::kI32 || view->count != 4) return std::nullopt;
  return view;
}

bool put_token(const ffi::RemainingRets& rets, std::size_t at, std::uint32_t token) {
  const auto view = result(rets, at);
  if (!view || view->count != 1 || codec::size_of(view->dtype) != 4) return false;
  ++token;  // a value of its own, so that no pass can take result and operand for one array
  std::memcpy(view->data, &token, 4);
  return true;
}

std::optional<Code> round_code(const ffi::RemainingArgs& args, std::size_t at) {
  const auto view = operand(args, at);
  if (!view || view->bytes() != 16) return std::nullopt;
  std::int32_t number = 0;
  std::memcpy(&number, view->data, 4);
  return base::is_code(number) ? static_cast<Code>(number) : Code::kInvalid;
}

base::Duration deadline_of(std::int32_t deadline_ms) {
  return deadline_ms > 0 ? deadline_ms * base::kMillisecond : 0;
}

std::size_t marks_of_call(const ffi::Dictionary& attributes) {
  return attribute<std::int32_t>(attributes, "marks", 0) != 0 ? 1 : 0;
}

std::size_t state_operands(const ffi::Dictionary& attributes) {
  const auto leaves = attribute<std::int32_t>(attributes, "state", 0);
  return leaves > 0 ? static_cast<std::size_t>(leaves) : marks_of_call(attributes);
}

bool read_state(const ffi::RemainingArgs& args, std::size_t at, const ffi::Dictionary& attributes,
                peer::RoundOptions* options) {
  if (attribute<std::int32_t>(attributes, "state", 0) > 0) {
    const auto state = inputs(args, state_operands(attributes), {}, at);
    if (state) options->state_leaves = state->leaves("");
    return state.has_value();
  }
  if (marks_of_call(attributes) == 0) return true;
  options->state = marks_operand(args, at);
  return options->state.has_value();
}

Status options_from(const ffi::Dictionary& attributes, double weight, std::int32_t deadline_ms,
                    peer::RoundOptions* options) {
  options->tag = text_attribute(attributes, "tag");
  options->state_tag = text_attribute(attributes, "state_tag");
  const auto number = attribute<std::int32_t>(attributes, "collective", 1);
  const auto verb = collective::collective_from_number(number);
  if (!verb) return {Code::kInvalid, base::cat("unknown collective ", number)};
  options->collective = *verb;
  const std::string op = text_attribute(attributes, "op");
  const std::string codec_name = text_attribute(attributes, "codec");
  const auto known_op = collective::op_from_name(op);
  const auto known_codec = codec::codec_from_name(codec_name);
  if (!known_op) return {Code::kInvalid, base::cat("unknown op '", op, "'")};
  if (!known_codec) return {Code::kInvalid, base::cat("unknown codec '", codec_name, "'")};
  const std::string aggregator = text_attribute(attributes, "aggregator");
  const auto known = collective::aggregator_from_name(aggregator.empty() ? "mean" : aggregator);
  if (!known) return {Code::kInvalid, base::cat("unknown aggregator '", aggregator, "'")};
  const std::string quorum = text_attribute(attributes, "quorum");
  const auto known_quorum = base::quorum_from_text(quorum);
  if (!known_quorum) return {Code::kInvalid, base::cat("unknown quorum '", quorum, "'")};
  options->quorum = *known_quorum;
  options->op = *known_op;
  options->codec = *known_codec;
  options->aggregator = *known;
  options->weight = weight;
  options->root = attribute<std::int32_t>(attributes, "root", 0) != 0;
  options->slots = static_cast<std::uint32_t>(attribute<std::int32_t>(attributes, "slots", 0));
  options->plan = text_attribute(attributes, "plan");
  options->guard = attribute<std::int32_t>(attributes, "guard", 1) != 0;
  options->fingerprint =
      digest_from(text_attribute(attributes, "fingerprint")).value_or(base::Digest{});
  options->deadline = deadline_of(deadline_ms);
  return {};
}

bool wants_publish(Code round, const peer::Communicator& comm, const base::Tag& tag) {
  return holds_result(round) || comm.digest(tag) != base::Digest{};
}

namespace {
constexpr std::uint64_t kFailedStart = std::uint64_t{1} << 63;
}

std::uint64_t failed_start_of(Code code) { return kFailedStart | static_cast<std::uint64_t>(code); }

bool is_failed_start(std::uint64_t handle) { return (handle & kFailedStart) != 0; }

Status failed_start(std::uint64_t handle) {
  const auto code = static_cast<std::int32_t>(handle & 0xFFFF);
  if (!base::is_code(code)) return {Code::kUnknownTag, "no round was started"};
  return {static_cast<Code>(code), "the round could not be started"};
}

std::shared_ptr<Entry> entry_of(const ffi::Dictionary& attributes) {
  return Registry::get().find(attribute<std::int64_t>(attributes, "comm", 0));
}

}  // namespace jccl::xla_ext
