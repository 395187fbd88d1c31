// Rounds that the local devices of a program make together. Every device calls with its piece of
// the leaves; the last one to come makes the communicator's call for all, so a fault is decided
// once and each device gets the same status. A process with several parts of its site's leaves
// runs one round per part; the master decides those of one site as one.
#include <functional>
#include <optional>
#include <thread>
#include <vector>

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

JoinOutcome run_parts(const MeshCall& call, const Join& join, peer::RoundOptions options) {
  options.out_private = true;  // the join's memory is seen by nobody before the call ended
  std::vector<base::Result<peer::Handle>> handles;
  for (const MeshCall::Part& part : call.parts()) {
    handles.push_back(part.entry->comm().start(call.leaves(part, join), options));
  }
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
  auto call = MeshCall::read(args, rets, attributes, n, static_cast<std::uint32_t>(*device));
  if (!call) return malformed("jccl_mesh_round");
  const std::vector<double> scalars{*weight, static_cast<double>(*deadline_ms)};
  const auto work = [&](MeshCall& all, Join& join) {
    peer::RoundOptions options;
    JoinOutcome outcome;
    outcome.status = options_from(attributes, *weight, *deadline_ms, &options);
    return outcome.status.ok() ? run_parts(all, join, options) : outcome;
  };
  put_status(*status, call->join(run.run_id, ordinal, scalars, work));
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
  auto call = MeshCall::read(args, rets, attributes, n, static_cast<std::uint32_t>(*device));
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
  put_status(*status, call->join(run.run_id, ordinal, scalars, work));
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
XLA_FFI_DEFINE_HANDLER_SYMBOL(JcclMeshPublish, jccl::xla_ext::mesh_publish,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::DeviceOrdinal>()
                                  .Ctx<xla::ffi::RunId>()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attrs());
