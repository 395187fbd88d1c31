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
#include "handlers/handlers.h"
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

void put_status(const View& status, const RendezvousOutcome& outcome) {
  put_status(status, outcome.status.code, outcome.words[0], outcome.words[1], outcome.words[2]);
}

// Of the tag's state, part by part; none if the program hands none in.
struct PartMarks {
  std::vector<peer::StateMarks> all;

  std::optional<peer::StateMarks> of(const MeshCall::Part& part) const {
    return all.empty() ? std::nullopt : std::optional(all.at(part.number));
  }
};

using Handles = std::vector<base::Result<peer::Handle>>;

// All parts or none, where the whole site is here: if the state of one differs, nothing is sent. Of
// several processes the others hear of it by the end of the attempt.
Handles start_parts(const MeshCall& call, const DeviceRendezvous& met, peer::RoundOptions options,
                    const PartMarks& marks) {
  // Nobody sees the memory of the rendezvous before the call ended.
  options.out_private = true;
  Handles handles;
  Status fine;
  if (call.parts().size() == marks.all.size()) {
    for (const MeshCall::Part& part : call.parts()) {
      options.state = marks.of(part);
      const Status one = part.entry->comm().check_state(options);
      if (fine.ok()) fine = one;
    }
  }
  for (const MeshCall::Part& part : call.parts()) {
    if (!fine.ok()) {
      handles.push_back(fine);
      continue;
    }
    options.state = marks.of(part);
    handles.push_back(part.entry->comm().start(call.leaves(part, met), options));
  }
  return handles;
}

RendezvousOutcome wait_parts(const MeshCall& call, const Handles& handles) {
  RendezvousOutcome worst;
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

using Share = std::function<std::optional<peer::SyncResult>(const MeshCall::Part&,
                                                            const std::vector<peer::Leaf>&)>;

// Side by side: the master answers a part of a site when it has heard of all of them.
std::vector<std::optional<peer::SyncResult>> share_parts(const MeshCall& call,
                                                         const DeviceRendezvous& met,
                                                         const Share& share) {
  std::vector<std::optional<peer::SyncResult>> all(call.parts().size());
  const auto one = [&](std::size_t i) {
    const MeshCall::Part& part = call.parts()[i];
    all[i] = share(part, call.leaves(part, met));
  };
  std::vector<std::thread> others;
  for (std::size_t i = 1; i < all.size(); ++i) others.emplace_back(one, i);
  one(0);
  for (std::thread& other : others) other.join();
  return all;
}

RendezvousOutcome publish_parts(const MeshCall& call, const DeviceRendezvous& met, Code round,
                                const Share& share) {
  RendezvousOutcome worst;
  worst.status.code = round;
  if (holds_result(round)) worst.status = {};
  int rank = 0;
  bool wanted = false;
  for (const auto& shared : share_parts(call, met, share)) {
    if (!shared) continue;
    const peer::SyncResult& one = *shared;
    worst.words[2] |= how_replaced(one);
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
RendezvousOutcome keep_round(const MeshCall& call, DeviceRendezvous& met,
                             const peer::RoundOptions& options, const PartMarks& marks) {
  auto round = std::make_shared<OpenRound>();
  round->tag = call.tag();
  round->deadline = options.deadline;
  round->layout = call.layout();
  round->memory = met.shared_from_this();
  round->handles = start_parts(call, met, options, marks);
  RendezvousOutcome outcome;
  for (const base::Result<peer::Handle>& one : round->handles) {
    if (!one.ok()) outcome.status = one.status();
  }
  for (const base::Result<peer::Handle>& one : round->handles) {
    if (!one.ok()) continue;
    outcome.words[0] = one.value();
    // With every part: its memory must outlive the communicator of any.
    for (const MeshCall::Part& part : call.parts())
      part.entry->rendezvous().keep(one.value(), round);
    break;
  }
  return outcome;
}

RendezvousOutcome end_round(const MeshCall& call, DeviceRendezvous& met, peer::Handle handle) {
  RendezvousOutcome outcome;
  if (is_failed_start(handle)) {
    outcome.status.code = failed_start(handle).code;  // start() noted the words
    return outcome;
  }
  RendezvousTable& kept = call.parts().front().entry->rendezvous();
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
    met.begun = round->memory;
    for (const MeshCall::Part& part : call.parts()) part.entry->rendezvous().take(handle);
  }
  return outcome;
}

// A call as XLA makes it, and whether its operands and results are what the handler takes.
class Frame {
 public:
  Frame(MeshCall::Place at, ffi::RemainingArgs args, ffi::RemainingRets rets, ffi::Dictionary said)
      : place(at), attributes(said), args_(args), rets_(rets) {}

  const MeshCall::Place place;
  const ffi::Dictionary attributes;
  bool good = true;

  // Besides pieces and what passes through; false where there are fewer.
  bool has(std::size_t operands, std::size_t results) {
    return good = good && args_.size() >= operands && rets_.size() >= results;
  }
  std::size_t operands() const { return args_.size(); }
  std::size_t results() const { return rets_.size(); }

  template <typename T>
  T read(std::size_t at) {
    return taken(scalar<T>(args_, at));
  }
  View words(std::size_t at, std::size_t bytes) { return sized(operand(args_, at), bytes); }
  View handle_out(std::size_t at) { return sized(result(rets_, at), 8); }
  View status_out(std::size_t at) { return taken(status_result(rets_, at)); }
  Code round_status(std::size_t at) { return taken(round_code(args_, at)); }
  // The token is the last operand and the last result.
  void pass_token() {
    good = good && put_token(rets_, results() - 1, read<std::uint32_t>(operands() - 1));
  }
  PartMarks marks(std::size_t at) {
    PartMarks marks;
    if (marks_of_call(attributes) == 0) return marks;
    const auto parts = static_cast<std::uint32_t>(attribute<std::int32_t>(attributes, "parts", 1));
    for (std::uint32_t part = 0; good && part < parts; ++part) {
      marks.all.push_back(taken(marks_operand(args_, at, part, parts)));
    }
    return marks;
  }
  Payload pieces(std::size_t first, std::size_t first_result, std::size_t count) {
    return taken(payload(args_, first, rets_, first_result, count));
  }
  Payload pieces_in(std::size_t count) { return taken(inputs(args_, count)); }

  // Of the pieces, by the device of operand `at`; null if something is wrong.
  MeshCall* call_of(Payload pieces, std::size_t at) {
    const auto device = read<std::int32_t>(at);
    good = good && device >= 0;
    if (good) {
      call_ = MeshCall::read(std::move(pieces), attributes, static_cast<std::uint32_t>(device));
    }
    return call_ ? &*call_ : nullptr;
  }

 private:
  template <typename T>
  T taken(std::optional<T> value) {
    good = good && value.has_value();
    return value ? std::move(*value) : T{};
  }
  View sized(const std::optional<View>& view, std::size_t bytes) {
    good = good && view && view->bytes() == bytes;
    return good ? *view : View{};
  }

  const ffi::RemainingArgs args_;
  const ffi::RemainingRets rets_;
  std::optional<MeshCall> call_;
};

// A round's weight and deadline, which must be alike on all devices.
struct Terms {
  float weight = 1;
  std::int32_t deadline_ms = 0;

  std::vector<double> scalars() const { return {weight, static_cast<double>(deadline_ms)}; }
  Status options(const ffi::Dictionary& attributes, peer::RoundOptions* options) const {
    return options_from(attributes, weight, deadline_ms, options);
  }
};

// Handlers: false if the call has other operands than they take.
// Operands: pieces…, device s32, with the attribute `marks` u32[parts,k,2] of the tag's state,
// weight f32, deadline_ms s32, token u32. Results: pieces…, status s32[4], token u32.
bool mesh_round(Frame& frame) {
  const std::size_t marks = marks_of_call(frame.attributes), scalars = 4 + marks;
  if (!frame.has(scalars, 2) || frame.results() != frame.operands() - marks - 2) return false;
  const std::size_t n = frame.operands() - scalars;
  const Terms terms{frame.read<float>(n + marks + 1), frame.read<std::int32_t>(n + marks + 2)};
  PartMarks state = frame.marks(n + 1);
  const View status = frame.status_out(n);
  MeshCall* call = frame.call_of(frame.pieces(0, 0, n), n);
  frame.pass_token();
  if (call == nullptr || !frame.good) return false;
  call->hand_in(std::move(state.all));
  const auto work = [&](MeshCall& all, DeviceRendezvous& met) {
    peer::RoundOptions options;
    RendezvousOutcome outcome;
    outcome.status = terms.options(frame.attributes, &options);
    if (!outcome.status.ok()) return outcome;
    return wait_parts(all, start_parts(all, met, options, {met.state()}));
  };
  put_status(status, call->join(frame.place, terms.scalars(), work));
  return true;
}

// Operands: `count` pieces, pass-throughs…, device s32, marks as of a round, weight f32,
// deadline_ms s32, token u32. Results: handle u32[2], pass-throughs… (aliased), token u32.
bool mesh_start(Frame& frame) {
  const auto n = static_cast<std::size_t>(attribute<std::int32_t>(frame.attributes, "count", -1));
  const std::size_t marks = marks_of_call(frame.attributes), scalars = 4 + marks;
  if (!frame.has(scalars, 2) || n > frame.operands() - scalars) return false;
  const std::size_t last = frame.operands() - scalars, through = last - n;
  if (frame.results() != through + 2) return false;
  const Terms terms{frame.read<float>(last + marks + 1),
                    frame.read<std::int32_t>(last + marks + 2)};
  PartMarks state = frame.marks(last + 1);
  const View handle_out = frame.handle_out(0);
  const Payload passed = frame.pieces(n, 1, through);
  MeshCall* call = frame.call_of(frame.pieces_in(n), last);
  frame.pass_token();
  if (call == nullptr || !frame.good) return false;
  passed.keep_input();
  call->hand_in(std::move(state.all));
  const auto work = [&](MeshCall& all, DeviceRendezvous& met) {
    peer::RoundOptions options;
    RendezvousOutcome outcome;
    outcome.status = terms.options(frame.attributes, &options);
    return outcome.status.ok() ? keep_round(all, met, options, {met.state()}) : outcome;
  };
  const RendezvousOutcome outcome = call->begin(frame.place, terms.scalars(), work);
  // With a handle for some of the parts done() ends those, and finds what is wrong with the others.
  std::uint64_t handle = outcome.words[0];
  if (handle == 0) handle = failed_start_of(outcome.status.code);
  std::memcpy(handle_out.data, &handle, 8);
  return true;
}

// Operands: `count` pieces, handle u32[2], device s32, whatever must come before…, token u32.
// Results: pieces…, with the attribute `inputs` the pieces that went into the round…, status
// s32[4], token u32. Not committed: what start() was given; no such handle, or a start that failed:
// this call's own pieces.
bool mesh_done(Frame& frame) {
  const auto n = static_cast<std::size_t>(attribute<std::int32_t>(frame.attributes, "count", -1));
  const bool both = attribute<std::int32_t>(frame.attributes, "inputs", 0) != 0;
  const std::size_t pieces = both ? 2 * n : n;
  if (!frame.has(3, 2) || n > frame.operands() - 3 || frame.results() != pieces + 2) return false;
  const View handle_in = frame.words(n, 8), status = frame.status_out(pieces);
  const Payload went_in = frame.pieces(0, n, both ? n : 0);
  MeshCall* call = frame.call_of(frame.pieces(0, 0, n), n + 1);
  frame.pass_token();
  if (call == nullptr || !frame.good) return false;
  std::uint32_t words[2];
  std::memcpy(words, handle_in.data, 8);
  std::uint64_t handle = 0;
  std::memcpy(&handle, handle_in.data, 8);
  const auto work = [&](MeshCall& all, DeviceRendezvous& met) {
    return end_round(all, met, handle);
  };
  const std::vector<double> scalars{static_cast<double>(words[0]), static_cast<double>(words[1])};
  put_status(status, call->end(frame.place, scalars, went_in.out, work));
  return true;
}

// With the attribute `sync` it is sync_state, and the status operand is OK.
// Operands: pieces…, status s32[4] of the round, device s32, with the attribute `marks` those of
// the state before them, deadline_ms s32, token u32. Results: pieces…, status s32[4] = code, 1 if
// replaced, revision, how_replaced(); token u32.
bool mesh_publish(Frame& frame) {
  const std::size_t marks = marks_of_call(frame.attributes), operands = 4 + marks;
  if (!frame.has(operands, 2) || frame.results() != frame.operands() - marks - 2) return false;
  const std::size_t n = frame.operands() - operands;
  const Code code = frame.round_status(n);
  PartMarks before = frame.marks(n + 2);
  const auto deadline_ms = frame.read<std::int32_t>(n + marks + 2);
  const View status = frame.status_out(n);
  MeshCall* call = frame.call_of(frame.pieces(0, 0, n), n + 1);
  frame.pass_token();
  if (call == nullptr || !frame.good) return false;
  const std::vector<double> scalars{static_cast<double>(code), static_cast<double>(deadline_ms)};
  call->hand_in(std::move(before.all));
  call->publishes();
  const auto work = [&](MeshCall& all, DeviceRendezvous& met) {
    peer::SyncOptions options;
    options.tag = all.tag();
    options.deadline = deadline_of(deadline_ms);
    options.source = attribute<std::int32_t>(frame.attributes, "source", 0) != 0;
    options.restore =
        static_cast<base::Wish>(attribute<std::int32_t>(frame.attributes, "restore", 0));
    const bool sync = attribute<std::int32_t>(frame.attributes, "sync", 0) != 0;
    return publish_parts(
        all, met, code,
        [&](const MeshCall::Part& part,
            const std::vector<peer::Leaf>& leaves) -> std::optional<peer::SyncResult> {
          peer::Communicator& comm = part.entry->comm();
          peer::SyncOptions own = options;
          own.before = PartMarks{met.state()}.of(part);
          if (sync) return comm.sync_state(leaves, options);
          if (!wants_publish(code, comm, options.tag)) return std::nullopt;
          return comm.publish(leaves, own);
        });
  };
  put_status(status, call->join(frame.place, scalars, work));
  return true;
}

using MeshHandler = bool (*)(Frame&);

template <MeshHandler kHandler, const char* kName>
ffi::Error bound_mesh(std::int32_t ordinal, ffi::RunId run, ffi::RemainingArgs args,
                      ffi::RemainingRets rets, ffi::Dictionary attributes) {
  const ScopedFloatMode mode;
  Frame frame({run.run_id, ordinal}, args, rets, attributes);
  return kHandler(frame) ? ffi::Error::Success() : malformed(kName);
}

constexpr char kRound[] = "jccl_mesh_round", kStart[] = "jccl_mesh_start";
constexpr char kDone[] = "jccl_mesh_done", kPublish[] = "jccl_mesh_publish";

}  // namespace

}  // namespace jccl::xla_ext

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    JcclMeshRound, (jccl::xla_ext::bound_mesh<jccl::xla_ext::mesh_round, jccl::xla_ext::kRound>),
    jccl::xla_ext::placed_binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    JcclMeshStart, (jccl::xla_ext::bound_mesh<jccl::xla_ext::mesh_start, jccl::xla_ext::kStart>),
    jccl::xla_ext::placed_binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    JcclMeshDone, (jccl::xla_ext::bound_mesh<jccl::xla_ext::mesh_done, jccl::xla_ext::kDone>),
    jccl::xla_ext::placed_binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    JcclMeshPublish,
    (jccl::xla_ext::bound_mesh<jccl::xla_ext::mesh_publish, jccl::xla_ext::kPublish>),
    jccl::xla_ext::placed_binding());
