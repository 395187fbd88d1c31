// Rounds from inside compiled programs. Each handler makes one communicator call over all its
// leaves, on XLA's thread and XLA's buffers, and turns the outcome into status words. Expected
// faults are never ffi::Errors: those destroy every donated buffer of the program.
#include <algorithm>
#include <cstring>

#include "calls.h"
#include "float_mode.h"
#include "handlers/handlers.h"
#include "host_call.h"
#include "operands.h"

namespace jccl::xla_ext {

namespace ffi = xla::ffi;
using base::Code;
using base::Status;

namespace {

// A reduce_scatter writes its own share alone; XLA's buffer holds whatever was there before.
void zero_outside(const Payload& data, const peer::RoundResult& result) {
  if (data.out.empty()) return;
  const View& out = data.out[0];
  const std::size_t element = codec::size_of(out.dtype);
  const std::uint64_t first = std::min(result.scatter_first, out.count);
  const std::uint64_t end = std::min(first + result.scatter_count, out.count);
  auto* bytes = static_cast<std::uint8_t*>(out.data);
  if (first > 0) std::memset(bytes, 0, first * element);
  if (end < out.count) std::memset(bytes + end * element, 0, (out.count - end) * element);
}

// Operands: leaves…, with the attribute `marks` u32[k,2] of the tag's state, or with `state` so
// many leaves of it, weight f32, deadline_ms s32, token u32. A leaf of the attribute `encoded` is
// u8[n], and values in the results. Results: leaves…, status s32[4], token u32 [, extent s32[2]: of
// reduce_scatter first, count; of all_to_all the own slot, how many are filled].
ffi::Error round_call(std::int32_t device, ffi::RunId run, ffi::RemainingArgs args,
                      ffi::RemainingRets rets, ffi::Dictionary attributes) {
  const ScopedFloatMode mode;
  const auto verb =
      static_cast<peer::Collective>(attribute<std::int32_t>(attributes, "collective", 1));
  const bool scatter = verb == peer::Collective::kReduceScatter;
  const bool has_extent = scatter || verb == peer::Collective::kAllToAll;
  const std::size_t extra = has_extent ? 3 : 2;
  const std::size_t held = state_operands(attributes), scalars = 3 + held;
  if (args.size() < scalars || rets.size() != args.size() - scalars + extra) {
    return malformed("jccl_round");
  }
  const std::size_t n = args.size() - scalars;
  const auto encoded = encoded_leaves(attributes);
  if (!encoded) return malformed("jccl_round");
  const auto data = payload(args, 0, rets, 0, n, *encoded);
  peer::RoundOptions options;
  const auto weight = scalar<float>(args, n + held);
  const auto deadline_ms = scalar<std::int32_t>(args, n + held + 1);
  const auto token = scalar<std::uint32_t>(args, n + held + 2);
  const auto status = status_result(rets, n);
  if (!data || !weight || !deadline_ms || !token || !status || !put_token(rets, n + 1, *token) ||
      !read_state(args, n, attributes, &options)) {
    return malformed("jccl_round");
  }
  const auto entry = entry_of(attributes);
  peer::RoundResult outcome;
  if (!entry) {
    outcome.status = {Code::kClosed, "the communicator is closed"};
  } else {
    outcome.status = options_from(attributes, *weight, *deadline_ms, &options);
    options.out_private = true;  // XLA shows a result to nobody before its handler returned
    options.feed = feed_of_call();
    if (outcome.status.ok()) outcome.status = entry->enter(options.tag, run.run_id, device);
    if (outcome.status.ok()) {
      data->expect_writes();
      outcome = entry->comm().run(data->leaves(text_attribute(attributes, "paths")), options);
    }
    // A call that made way says nothing of its own: the round that it goes before does.
    const bool made_way = !options.state_tag.empty() && outcome.status.code == Code::kResync;
    if (!made_way) entry->note(options.tag, outcome.status);
    if (holds_result(outcome.status.code)) entry->count(options.tag, outcome);
  }
  if (!holds_result(outcome.status.code)) {
    const auto feed = feed_of_call();
    if (!feed || feed->wait(kFeedMax)) {
      data->keep_input();
    } else {
      data->clear();
    }
  }
  put_status(*status, outcome);
  if (has_extent) {
    const auto extent = result(rets, n + 2);
    if (!extent || extent->count != 2) return malformed("jccl_round");
    auto* words = static_cast<std::int32_t*>(extent->data);
    words[0] = static_cast<std::int32_t>(outcome.scatter_first);
    words[1] = static_cast<std::int32_t>(outcome.scatter_count);
    if (scatter && holds_result(outcome.status.code)) zero_outside(*data, outcome);
  }
  return ffi::Error::Success();
}

// Operands: `count` leaves as of a round, pass-throughs…, marks or state as of a round, weight f32,
// deadline_ms s32, token u32.
// Results: handle u32[2], pass-throughs… (aliased), token u32.
ffi::Error start_call(std::int32_t device, ffi::RunId run, ffi::RemainingArgs args,
                      ffi::RemainingRets rets, ffi::Dictionary attributes) {
  const ScopedFloatMode mode;
  const auto n = static_cast<std::size_t>(attribute<std::int32_t>(attributes, "count", -1));
  const std::size_t scalars = 3 + state_operands(attributes);
  if (args.size() < scalars || n > args.size() - scalars) return malformed("jccl_start");
  const std::size_t through = args.size() - scalars - n;
  if (rets.size() != through + 2) return malformed("jccl_start");
  peer::RoundOptions options;
  const auto weight = scalar<float>(args, args.size() - 3);
  const auto deadline_ms = scalar<std::int32_t>(args, args.size() - 2);
  const auto token = scalar<std::uint32_t>(args, args.size() - 1);
  const auto handle_out = result(rets, 0);
  const auto passed = payload(args, n, rets, 1, through);
  const auto encoded = encoded_leaves(attributes);
  if (!encoded) return malformed("jccl_start");
  const auto data = inputs(args, n, *encoded);
  if (!data || !weight || !deadline_ms || !token || !passed || !handle_out ||
      handle_out->bytes() != 8 || !read_state(args, n + through, attributes, &options) ||
      !put_token(rets, through + 1, *token)) {
    return malformed("jccl_start");
  }
  passed->keep_input();
  Status failure{Code::kClosed, "the communicator is closed"};
  std::uint64_t handle = 0;
  if (const auto entry = entry_of(attributes)) {
    failure = options_from(attributes, *weight, *deadline_ms, &options);
    if (failure.ok()) failure = entry->enter(options.tag, run.run_id, device);
    if (failure.ok()) {
      const auto leaves = data->leaves(text_attribute(attributes, "paths"));
      const auto started = entry->comm().start(leaves, options, /*stage=*/true);
      failure = started.status();
      if (started.ok()) {
        handle = started.value();
        entry->opened(handle, options.tag, data->shapes());
      }
    }
    if (!failure.ok()) entry->note(options.tag, failure);
  }
  if (!failure.ok()) handle = failed_start_of(failure.code);
  std::memcpy(handle_out->data, &handle, 8);
  return ffi::Error::Success();
}

// Operands: handle u32[2], `count` leaves, whatever must come before…, token u32.
// Results: leaves…, status s32[4], token u32. Not committed: what start() was given; no such
// handle, or a start that failed: this call's own leaves.
ffi::Error done_call(ffi::RemainingArgs args, ffi::RemainingRets rets, ffi::Dictionary attributes) {
  const ScopedFloatMode mode;
  if (rets.size() < 2 || args.size() < rets.size()) return malformed("jccl_done");
  const std::size_t n = rets.size() - 2;
  const auto handle_in = operand(args, 0);
  const auto data = payload(args, 1, rets, 0, n);
  const auto token = scalar<std::uint32_t>(args, args.size() - 1);
  const auto status = status_result(rets, n);
  if (!handle_in || handle_in->bytes() != 8 || !data || !token || !status ||
      !put_token(rets, n + 1, *token)) {
    return malformed("jccl_done");
  }
  std::uint64_t handle = 0;
  std::memcpy(&handle, handle_in->data, 8);
  const auto entry = entry_of(attributes);
  peer::RoundResult outcome;
  bool written = false;
  if (!entry) {
    outcome.status = {Code::kClosed, "the communicator is closed"};
  } else if (is_failed_start(handle)) {
    outcome.status = failed_start(handle);
  } else {
    base::Tag tag = text_attribute(attributes, "tag");
    outcome.status = entry->take(handle, data->shapes(), &tag);
    if (outcome.status.ok()) {
      std::vector<void*> outs;
      for (const View& view : data->out) outs.push_back(view.data);
      outcome = entry->comm().wait(handle, &outs, peer::OnFailure::kInput);
      written = outcome.status.code != Code::kClosed && outcome.status.code != Code::kUnknownTag &&
                outcome.status.code != Code::kBusyTag;
    }
    entry->note(tag, outcome.status);
    if (holds_result(outcome.status.code)) entry->count(tag, outcome);
  }
  if (!written) data->keep_input();
  put_status(*status, outcome);
  return ffi::Error::Success();
}

// Operands: leaves…, with the attribute `marks` u32[k,2] of the state before them, status s32[4] of
// the round, deadline_ms s32, token u32.
// Results: leaves…, status s32[4] = code, 1 if replaced, revision, how_replaced(); token u32.
ffi::Error publish_call(ffi::RemainingArgs args, ffi::RemainingRets rets,
                        ffi::Dictionary attributes) {
  const ScopedFloatMode mode;
  const std::size_t marks = marks_of_call(attributes), scalars = 3 + marks;
  if (args.size() < scalars || rets.size() != args.size() - marks - 1) {
    return malformed("jccl_publish");
  }
  const std::size_t n = args.size() - scalars;
  const auto data = payload(args, 0, rets, 0, n);
  const auto before = marks_operand(args, marks != 0 ? n : args.size());
  const auto code = round_code(args, n + marks);
  const auto deadline_ms = scalar<std::int32_t>(args, n + marks + 1);
  const auto token = scalar<std::uint32_t>(args, n + marks + 2);
  const auto status = status_result(rets, n);
  if (!data || !code || !deadline_ms || !token || !status || !put_token(rets, n + 1, *token) ||
      before.has_value() != (marks != 0)) {
    return malformed("jccl_publish");
  }
  const auto entry = entry_of(attributes);
  peer::SyncResult outcome;
  bool written = false;
  if (!entry) {
    outcome.status = {Code::kClosed, "the communicator is closed"};
  } else {
    peer::SyncOptions options;
    options.tag = text_attribute(attributes, "tag");
    options.deadline = deadline_of(*deadline_ms);
    options.before = before;
    if (wants_publish(*code, entry->comm(), options.tag)) {
      outcome = entry->comm().publish(data->leaves(text_attribute(attributes, "paths")), options);
      if (!outcome.status.ok()) entry->note(options.tag, outcome.status);
      written = outcome.status.ok() || outcome.status.code == Code::kResynced;
    }
    if (outcome.status.ok() && !holds_result(*code)) outcome.status.code = *code;
  }
  if (!written) data->keep_input();
  const Code ended = outcome.status.code;
  put_status(*status, ended, outcome.replaced ? 1 : 0, outcome.revision, how_replaced(outcome));
  return ffi::Error::Success();
}

}  // namespace

}  // namespace jccl::xla_ext

XLA_FFI_DEFINE_HANDLER_SYMBOL(JcclRound, jccl::xla_ext::round_call,
                              jccl::xla_ext::placed_binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(JcclStart, jccl::xla_ext::start_call,
                              jccl::xla_ext::placed_binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(JcclDone, jccl::xla_ext::done_call,
                              xla::ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attrs());
XLA_FFI_DEFINE_HANDLER_SYMBOL(JcclPublish, jccl::xla_ext::publish_call,
                              xla::ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attrs());

namespace jccl::xla_ext {

const Target kTargetTable[kTargets] = {
    {"jccl_round", JcclRound},
    {"jccl_start", JcclStart},
    {"jccl_done", JcclDone},
    {"jccl_publish", JcclPublish},
    {"jccl_mark", JcclMark},
    {"jccl_counted", JcclCounted},
    {"jccl_outer", JcclOuter},
    {"jccl_roundtrip", JcclRoundtrip},
    {"jccl_mesh_round", JcclMeshRound},
    {"jccl_mesh_start", JcclMeshStart},
    {"jccl_mesh_done", JcclMeshDone},
    {"jccl_mesh_publish", JcclMeshPublish},
};

}  // namespace jccl::xla_ext
