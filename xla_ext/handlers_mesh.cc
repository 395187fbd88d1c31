// Rounds that the local devices of a program make together. Every device calls with its piece of
// the leaves; the last one to come makes the communicator's call for all, so a fault is decided
// once and each device gets the same status. A process with several parts of its site's leaves
// runs one round per part; the master decides those of one site as one.
#include <cstring>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "base/text.h"
#include "float_mode.h"
#include "handlers.h"
#include "mesh_call.h"

namespace jccl::xla_ext {

namespace ffi = xla::ffi;
using base::Code;
using base::Status;

namespace {

// Of several parts' codes the one that the program must act on; any kInDoubt wins.
int rank_of(Code code) {
  if (code == Code::kInDoubt) return 4;
  if (!holds_result(code)) return 3;
  return code == Code::kGuard ? 2 : 1;
}

void put_status(const View& status, const JoinOutcome& outcome) {
  put_status(status, outcome.status.code, outcome.words[0], outcome.words[1], outcome.words[2]);
}

using Handles = std::vector<base::Result<peer::Handle>>;

Handles start_parts(const MeshCall& call, const Join& join, peer::RoundOptions options) {
  options.out_private = true;  // the join's memory is seen by nobody before the call ended
  Handles handles;
  for (const MeshCall::Part& part : call.parts()) {
    handles.push_back(part.entry->comm().start(call.leaves(part, join), options));
  }
  return handles;
}

JoinOutcome wait_parts(const MeshCall& call, const Handles& handles) {
  JoinOutcome worst;
  int rank = 0;
  for (std::size_t i = 0; i < handles.size(); ++i) {
    peer::RoundResult one;
    one.status = handles[i].status();
    if (handles[i].ok()) one = call.parts()[i].entry->comm().wait(handles[i].value());
    if (rank_of(one.status.code) <= rank) continue;
    rank = rank_of(one.status.code);
    worst.status = one.status;
    worst.words[0] = one.world;
    worst.words[1] = one.epoch;
    worst.words[2] = one.attempts;
  }
  worst.has_result = holds_result(worst.status.code);
  return worst;
}

using Share = std::function<std::optional<peer::SyncResult>(peer::Communicator&,
                                                            const std::vector<peer::Leaf>&)>;

// Side by side: the master answers a part of a site when it has heard of all of them.
std::vector<std::optional<peer::SyncResult>> share_parts(const MeshCall& call, const Join& join,
                                                         const Share& share) {
  std::vector<std::optional<peer::SyncResult>> all(call.parts().size());
  const auto one = [&](std::size_t i) {
    const MeshCall::Part& part = call.parts()[i];
    all[i] = share(part.entry->comm(), call.leaves(part, join));
  };
  std::vector<std::thread> others;
  for (std::size_t i = 1; i < all.size(); ++i) others.emplace_back(one, i);
  one(0);
  for (std::thread& other : others) other.join();
  return all;
}

JoinOutcome publish_parts(const MeshCall& call, const Join& join, Code round, const Share& share) {
  JoinOutcome worst;
  worst.status.code = round;
  if (holds_result(round)) worst.status = {};
  int rank = 0;
  bool wanted = false;
  for (const auto& shared : share_parts(call, join, share)) {
    if (!shared) continue;
    const peer::SyncResult& one = *shared;
    const bool written = one.status.ok() || one.status.code == Code::kResynced;
    const int badness = written ? (one.status.ok() ? 1 : 2) : 3;
    wanted = true;
    if (badness <= rank) continue;
    rank = badness;
    worst.has_result = written;
    worst.words[0] = one.replaced ? 1 : 0;
    worst.words[1] = one.revision;
    if (!one.status.ok() || holds_result(round)) worst.status = one.status;
  }
  if (!wanted) worst.has_result = false;
  return worst;
}

// Keeps the started round where the call that ends it finds it; words[0] is its handle.
JoinOutcome keep_round(const MeshCall& call, Join& join, const peer::RoundOptions& options) {
  auto round = std::make_shared<OpenRound>();
  round->tag = call.tag();
  round->layout = call.layout();
  round->memory = join.shared_from_this();
  round->handles = start_parts(call, join, options);
  JoinOutcome outcome;
  for (const base::Result<peer::Handle>& one : round->handles) {
    if (!one.ok()) outcome.status = one.status();
  }
  for (const base::Result<peer::Handle>& one : round->handles) {
    if (!one.ok()) continue;
    outcome.words[0] = one.value();
    // With every part: its memory must outlive the communicator of any.
    for (const MeshCall::Part& part : call.parts()) part.entry->joins().keep(one.value(), round);
    break;
  }
  return outcome;
}

JoinOutcome end_round(const MeshCall& call, Join& join, peer::Handle handle) {
  JoinOutcome outcome;
  if (is_failed_start(handle)) {
    outcome.status.code = failed_start(handle).code;  // start() noted the words
    return outcome;
  }
  JoinTable& kept = call.parts().front().entry->joins();
  const auto round = kept.take(handle);
  if (round == nullptr) {
    outcome.status = {Code::kUnknownTag,
                      base::cat("handle ", handle,
                                " names no open round of local devices: it was ended already, or "
                                "is another communicator's or an earlier process's")};
  } else if (round->layout != call.layout()) {
    kept.keep(handle, round);
    outcome.status = {Code::kInvalid, base::cat("done() of tag '", round->tag,
                                                "' was given other leaves than its start()")};
  } else {
    outcome = wait_parts(call, round->handles);
    join.begun = round->memory;
    for (const MeshCall::Part& part : call.parts()) part.entry->joins().take(handle);
  }
  return outcome;
}

// Operands: pieces…, device s32, weight f32, deadline_ms s32, token u32.
// Results: pieces…, status s32[4], token u32.
ffi::Error mesh_round(std::int32_t ordinal, ffi::RunId run, ffi::RemainingArgs args,
                      ffi::RemainingRets rets, ffi::Dictionary attributes) {
  const ScopedFloatMode mode;
  if (args.size() < 4 || rets.size() != args.size() - 2) return malformed("jccl_mesh_round");
  const std::size_t n = args.size() - 4;
  const auto device = scalar<std::int32_t>(args, n);
  const auto weight = scalar<float>(args, n + 1);
  const auto deadline_ms = scalar<std::int32_t>(args, n + 2);
  const auto token = scalar<std::uint32_t>(args, n + 3);
  const auto status = status_result(rets, n);
  if (!device || *device < 0 || !weight || !deadline_ms || !token || !status ||
      !put_token(rets, n + 1, *token)) {
    return malformed("jccl_mesh_round");
  }
  auto data = payload(args, 0, rets, 0, n);
  if (!data) return malformed("jccl_mesh_round");
  auto call = MeshCall::read(std::move(*data), attributes, static_cast<std::uint32_t>(*device));
  if (!call) return malformed("jccl_mesh_round");
  const std::vector<double> scalars{*weight, static_cast<double>(*deadline_ms)};
  const auto work = [&](MeshCall& all, Join& join) {
    peer::RoundOptions options;
    JoinOutcome outcome;
    outcome.status = options_from(attributes, *weight, *deadline_ms, &options);
    if (!outcome.status.ok()) return outcome;
    return wait_parts(all, start_parts(all, join, options));
  };
  put_status(*status, call->join({run.run_id, ordinal}, scalars, work));
  return ffi::Error::Success();
}

// Operands: `count` pieces, pass-throughs…, device s32, weight f32, deadline_ms s32, token u32.
// Results: handle u32[2], pass-throughs… (aliased), token u32.
ffi::Error mesh_start(std::int32_t ordinal, ffi::RunId run, ffi::RemainingArgs args,
                      ffi::RemainingRets rets, ffi::Dictionary attributes) {
  const ScopedFloatMode mode;
  const auto n = static_cast<std::size_t>(attribute<std::int32_t>(attributes, "count", -1));
  if (args.size() < 4 || n > args.size() - 4) return malformed("jccl_mesh_start");
  const std::size_t through = args.size() - 4 - n, last = args.size() - 4;
  if (rets.size() != through + 2) return malformed("jccl_mesh_start");
  const auto device = scalar<std::int32_t>(args, last);
  const auto weight = scalar<float>(args, last + 1);
  const auto deadline_ms = scalar<std::int32_t>(args, last + 2);
  const auto token = scalar<std::uint32_t>(args, last + 3);
  const auto handle_out = result(rets, 0);
  const auto passed = payload(args, n, rets, 1, through);
  auto data = inputs(args, n);
  if (!device || *device < 0 || !weight || !deadline_ms || !token || !passed || !data ||
      !handle_out || handle_out->bytes() != 8 || !put_token(rets, through + 1, *token)) {
    return malformed("jccl_mesh_start");
  }
  auto call = MeshCall::read(std::move(*data), attributes, static_cast<std::uint32_t>(*device));
  if (!call) return malformed("jccl_mesh_start");
  passed->keep_input();
  const std::vector<double> scalars{*weight, static_cast<double>(*deadline_ms)};
  const auto work = [&](MeshCall& all, Join& join) {
    peer::RoundOptions options;
    JoinOutcome outcome;
    outcome.status = options_from(attributes, *weight, *deadline_ms, &options);
    return outcome.status.ok() ? keep_round(all, join, options) : outcome;
  };
  const JoinOutcome outcome = call->begin({run.run_id, ordinal}, scalars, work);
  // With a handle for some of the parts done() ends those, and finds what is wrong with the others.
  std::uint64_t handle = outcome.words[0];
  if (handle == 0) handle = failed_start_of(outcome.status.code);
  std::memcpy(handle_out->data, &handle, 8);
  return ffi::Error::Success();
}

// Operands: `count` pieces, handle u32[2], device s32, whatever must come before…, token u32.
// Results: pieces…, with the attribute `inputs` the pieces that went into the round…, status
// s32[4], token u32. Not committed: what start() was given; no such handle, or a start that failed:
// this call's own pieces.
ffi::Error mesh_done(std::int32_t ordinal, ffi::RunId run, ffi::RemainingArgs args,
                     ffi::RemainingRets rets, ffi::Dictionary attributes) {
  const ScopedFloatMode mode;
  const auto n = static_cast<std::size_t>(attribute<std::int32_t>(attributes, "count", -1));
  const bool both = attribute<std::int32_t>(attributes, "inputs", 0) != 0;
  const std::size_t pieces = both ? 2 * n : n;
  if (args.size() < 3 || n > args.size() - 3 || rets.size() != pieces + 2) {
    return malformed("jccl_mesh_done");
  }
  auto data = payload(args, 0, rets, 0, n);
  const auto went_in = payload(args, 0, rets, n, both ? n : 0);
  const auto handle_in = operand(args, n);
  const auto device = scalar<std::int32_t>(args, n + 1);
  const auto token = scalar<std::uint32_t>(args, args.size() - 1);
  const auto status = status_result(rets, pieces);
  if (!data || !went_in || !handle_in || handle_in->bytes() != 8 || !device || *device < 0 ||
      !token || !status || !put_token(rets, pieces + 1, *token)) {
    return malformed("jccl_mesh_done");
  }
  auto call = MeshCall::read(std::move(*data), attributes, static_cast<std::uint32_t>(*device));
  if (!call) return malformed("jccl_mesh_done");
  std::uint32_t words[2];
  std::memcpy(words, handle_in->data, 8);
  std::uint64_t handle = 0;
  std::memcpy(&handle, handle_in->data, 8);
  const auto work = [&](MeshCall& all, Join& join) { return end_round(all, join, handle); };
  put_status(*status, call->end({run.run_id, ordinal},
                                {static_cast<double>(words[0]), static_cast<double>(words[1])},
                                went_in->out, work));
  return ffi::Error::Success();
}

// With the attribute `sync` it is sync_state, and the status operand is OK.
// Operands: pieces…, status s32[4] of the round, device s32, deadline_ms s32, token u32.
// Results: pieces…, status s32[4] = code, 1 if replaced, revision, 0; token u32.
ffi::Error mesh_publish(std::int32_t ordinal, ffi::RunId run, ffi::RemainingArgs args,
                        ffi::RemainingRets rets, ffi::Dictionary attributes) {
  const ScopedFloatMode mode;
  if (args.size() < 4 || rets.size() != args.size() - 2) return malformed("jccl_mesh_publish");
  const std::size_t n = args.size() - 4;
  const auto code = round_code(args, n);
  const auto device = scalar<std::int32_t>(args, n + 1);
  const auto deadline_ms = scalar<std::int32_t>(args, n + 2);
  const auto token = scalar<std::uint32_t>(args, n + 3);
  const auto status = status_result(rets, n);
  if (!code || !device || *device < 0 || !deadline_ms || !token || !status ||
      !put_token(rets, n + 1, *token)) {
    return malformed("jccl_mesh_publish");
  }
  auto data = payload(args, 0, rets, 0, n);
  if (!data) return malformed("jccl_mesh_publish");
  auto call = MeshCall::read(std::move(*data), attributes, static_cast<std::uint32_t>(*device));
  if (!call) return malformed("jccl_mesh_publish");
  const std::vector<double> scalars{static_cast<double>(*code), static_cast<double>(*deadline_ms)};
  const auto work = [&](MeshCall& all, Join& join) {
    peer::SyncOptions options;
    options.tag = all.tag();
    options.deadline = deadline_of(*deadline_ms);
    options.source = attribute<std::int32_t>(attributes, "source", 0) != 0;
    const bool sync = attribute<std::int32_t>(attributes, "sync", 0) != 0;
    return publish_parts(
        all, join, *code,
        [&](peer::Communicator& comm,
            const std::vector<peer::Leaf>& leaves) -> std::optional<peer::SyncResult> {
          if (sync) return comm.sync_state(leaves, options);
          if (!wants_publish(*code, comm, options.tag)) return std::nullopt;
          return comm.publish(leaves, options);
        });
  };
  put_status(*status, call->join({run.run_id, ordinal}, scalars, work));
  return ffi::Error::Success();
}

}  // namespace

}  // namespace jccl::xla_ext

XLA_FFI_DEFINE_HANDLER_SYMBOL(JcclMeshRound, jccl::xla_ext::mesh_round,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::DeviceOrdinal>()
                                  .Ctx<xla::ffi::RunId>()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attrs());
XLA_FFI_DEFINE_HANDLER_SYMBOL(JcclMeshStart, jccl::xla_ext::mesh_start,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::DeviceOrdinal>()
                                  .Ctx<xla::ffi::RunId>()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attrs());
XLA_FFI_DEFINE_HANDLER_SYMBOL(JcclMeshDone, jccl::xla_ext::mesh_done,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::DeviceOrdinal>()
                                  .Ctx<xla::ffi::RunId>()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attrs());
XLA_FFI_DEFINE_HANDLER_SYMBOL(JcclMeshPublish, jccl::xla_ext::mesh_publish,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::DeviceOrdinal>()
                                  .Ctx<xla::ffi::RunId>()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attrs());
