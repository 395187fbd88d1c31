// Rounds and shared state, for C: arguments are checked here, so that nothing unchecked goes on.
// Dtypes, codecs and ops are named as peer/communicator.h hands them on.
#include <optional>

#include "base/limits.h"
#include "base/planted.h"
#include "capi/comm.h"
#include "capi/errors.h"
#include "codec/codec.h"
#include "codec/dtype.h"
#include "collective/aggregator.h"
#include "collective/op.h"
#include "collective/spec.h"
#include "peer/call.h"

namespace jccl::capi {
namespace {

using collective::Collective;

#define JCCL_SAME(c_name, name) \
  static_assert(static_cast<int>(c_name) == static_cast<int>(name), "jccl.h differs")
JCCL_SAME(JCCL_F32, codec::Dtype::kF32);
JCCL_SAME(JCCL_F64, codec::Dtype::kF64);
JCCL_SAME(JCCL_BF16, codec::Dtype::kBf16);
JCCL_SAME(JCCL_F16, codec::Dtype::kF16);
JCCL_SAME(JCCL_I8, codec::Dtype::kI8);
JCCL_SAME(JCCL_I16, codec::Dtype::kI16);
JCCL_SAME(JCCL_I32, codec::Dtype::kI32);
JCCL_SAME(JCCL_I64, codec::Dtype::kI64);
JCCL_SAME(JCCL_U8, codec::Dtype::kU8);
JCCL_SAME(JCCL_U16, codec::Dtype::kU16);
JCCL_SAME(JCCL_U32, codec::Dtype::kU32);
JCCL_SAME(JCCL_U64, codec::Dtype::kU64);
JCCL_SAME(JCCL_SUM, collective::Op::kSum);
JCCL_SAME(JCCL_MEAN, collective::Op::kMean);
JCCL_SAME(JCCL_MIN, collective::Op::kMin);
JCCL_SAME(JCCL_MAX, collective::Op::kMax);
JCCL_SAME(JCCL_PROD, collective::Op::kProd);
JCCL_SAME(JCCL_ALL_REDUCE, Collective::kAllReduce);
JCCL_SAME(JCCL_ALL_GATHER, Collective::kAllGather);
JCCL_SAME(JCCL_REDUCE_SCATTER, Collective::kReduceScatter);
JCCL_SAME(JCCL_BROADCAST, Collective::kBroadcast);
JCCL_SAME(JCCL_BARRIER, Collective::kBarrier);
JCCL_SAME(JCCL_ALL_TO_ALL, Collective::kAllToAll);
#undef JCCL_SAME

constexpr std::uint32_t kDimensionsMax = 64;

bool is_byte(int32_t value) { return value >= 0 && value <= 255; }

// Arrays of a state that is compared have no output.
enum class Use : std::uint8_t { kInAndOut, kIn };

Status read_array(const jccl_array& from, std::size_t index, Use use, peer::Leaf* leaf) {
  const auto dtype = is_byte(from.dtype)
                         ? codec::dtype_from_number(static_cast<std::uint8_t>(from.dtype))
                         : std::nullopt;
  const std::string name =
      from.path != nullptr ? std::string(from.path) : base::cat("array ", index);
  if (!dtype) return invalid(base::cat(name, ": unknown dtype ", from.dtype));
  if (from.count > 0 &&
      (from.in == nullptr ||
       (from.out == nullptr && !JCCL_PLANTED("null-output-taken") && use == Use::kInAndOut))) {
    return invalid(base::cat(name, ": in or out is NULL"));
  }
  leaf->dtype = *dtype;
  leaf->count = from.count;
  leaf->in = from.in;
  leaf->out = from.out;
  leaf->path = text_or(from.path, "");
  if (from.shape == nullptr) return {};
  if (from.dimensions > kDimensionsMax) {
    return invalid(base::cat(name, ": ", from.dimensions, " dimensions"));
  }
  leaf->shape.assign(from.shape, from.shape + from.dimensions);
  std::uint64_t product = 1;
  for (const std::uint64_t extent : leaf->shape) {
    if (__builtin_mul_overflow(product, extent, &product) &&
        !JCCL_PLANTED("shape-overflow-taken")) {
      return invalid(base::cat(name, ": the shape overflows"));
    }
  }
  if (product == from.count || JCCL_PLANTED("shape-not-compared")) return {};
  return invalid(base::cat(name, ": the shape has ", product, " elements, not ", from.count));
}

Status read_arrays(const jccl_array* arrays, std::size_t count, std::vector<peer::Leaf>* out,
                   Use use = Use::kInAndOut) {
  if (count > 0 && arrays == nullptr) return invalid("arrays is NULL");
  if (count > base::kLeavesMax) {
    return {Code::kLimit, base::cat(count, " arrays; the limit is ", base::kLeavesMax)};
  }
  out->resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    const Status status = read_array(arrays[i], i, use, &(*out)[i]);
    if (!status.ok()) return status;
  }
  return {};
}

// A state that is compared; none if the caller names none.
Status read_state(const jccl_array* arrays, std::size_t count,
                  std::optional<std::vector<peer::Leaf>>* out) {
  if (arrays == nullptr) return count == 0 ? Status{} : invalid("the state's arrays are NULL");
  std::vector<peer::Leaf> leaves;
  const Status status = read_arrays(arrays, count, &leaves, Use::kIn);
  if (status.ok()) *out = std::move(leaves);
  return status;
}

Status read_codec(const jccl_round_options& options, codec::Codec* out) {
  const auto id = is_byte(options.codec)
                      ? codec::codec_from_number(static_cast<std::uint8_t>(options.codec))
                      : std::nullopt;
  if (!id) return invalid(base::cat("unknown codec ", options.codec));
  *out = *id;
  if (options.kept > codec::kTopKBlock) return invalid(base::cat("kept ", options.kept));
  if (options.kept != 0) out->kept = static_cast<std::uint16_t>(options.kept);
  out->stochastic = options.stochastic != 0;
  out->seed = options.seed;
  return codec::check(*out);
}

Status read_quorum(const jccl_round_options& options, base::Quorum* out) {
  if (options.quorum == 0) {
    return options.grace_ns == 0 ? Status{} : invalid("grace_ns without a quorum");
  }
  const auto known = base::quorum_of(
      options.quorum, static_cast<double>(options.grace_ns) / static_cast<double>(base::kSecond));
  if (!known) {
    return invalid(base::cat("quorum ", options.quorum, " with grace_ns ", options.grace_ns,
                             ": a quorum is above 0.5 and below 1, its grace 0 to a day"));
  }
  *out = *known;
  return {};
}

Status read_round_options(const jccl_round_options* given, peer::RoundOptions* out) {
  jccl_round_options options = JCCL_ROUND_OPTIONS_INIT;
  const Status status = read_struct(given, "jccl_round_options", &options);
  if (!status.ok()) return status;
  const auto op = is_byte(options.op)
                      ? collective::op_from_number(static_cast<std::uint8_t>(options.op))
                      : std::nullopt;
  if (!op) return invalid(base::cat("unknown op ", options.op));
  const Status coded = read_codec(options, &out->codec);
  if (!coded.ok()) return coded;
  const std::string aggregator = text_or(options.aggregator, "mean");
  const auto known = collective::aggregator_from_name(aggregator);
  if (!known) return invalid(base::cat("unknown aggregator '", aggregator, "'"));
  if (options.deadline_ns < 0) return invalid("deadline_ns is negative");
  const Status quorum = read_quorum(options, &out->quorum);
  if (!quorum.ok()) return quorum;
  out->op = *op;
  out->aggregator = *known;
  out->root = options.root != 0;
  out->slots = options.slots;
  out->guard = options.guard != 0;
  out->out_private = options.out_private != 0;
  out->weight = options.weight;
  out->deadline = options.deadline_ns;
  out->tag = text_or(options.tag, "default");
  out->plan = text_or(options.plan, "");
  out->fingerprint = {options.fingerprint[0],
                      JCCL_PLANTED("half-a-fingerprint") ? 0 : options.fingerprint[1]};
  return read_state(options.state, options.state_count, &out->state_leaves);
}

void write_result(const peer::RoundResult& from, jccl_result* out) {
  if (out == nullptr) return;
  jccl_result value = JCCL_RESULT_INIT;
  JCCL_CHECK(read_struct(out, "jccl_result", &value).ok());  // keeps the caller's room
  value.code = static_cast<int32_t>(from.status.code);
  value.n = from.n;
  value.epoch = from.epoch;
  value.world = from.world;
  value.attempts = from.attempts;
  value.sent_bytes = from.sent_bytes;
  value.received_bytes =
      JCCL_PLANTED("received-is-what-was-sent") ? from.sent_bytes : from.received_bytes;
  value.scatter_first = from.scatter_first;
  value.scatter_count = from.scatter_count;
  value.elapsed_ns = from.elapsed;
  value.contributors = static_cast<std::uint32_t>(from.contributors.size());
  const std::size_t room = std::min<std::size_t>(
      value.contributors_room + (JCCL_PLANTED("contributors-beyond-room") ? 1 : 0),
      value.contributors);
  for (std::size_t i = 0; i < room; ++i) {
    if (value.contributor_ids != nullptr) value.contributor_ids[i] = from.contributors[i];
    if (value.contributor_weights != nullptr && i < from.weights.size()) {
      value.contributor_weights[i] = from.weights[i];
    }
  }
  write_struct(value, out);
}

struct Call {
  std::vector<peer::Leaf> leaves;
  peer::RoundOptions options;
};

Status read_call(jccl_comm* comm, Collective collective, const jccl_array* arrays,
                 std::size_t count, const jccl_round_options* options, Call* call) {
  if (comm == nullptr) return invalid("comm is NULL");
  Status status = read_arrays(arrays, count, &call->leaves);
  if (status.ok()) status = read_round_options(options, &call->options);
  call->options.collective = collective;
  return status;
}

// Ends a call that never began: the result says so, too.
Status refused(const Status& status, jccl_result* result) {
  peer::RoundResult nothing;
  if (!JCCL_PLANTED("result-of-refused-untouched")) nothing.status = status;
  write_result(nothing, result);
  return status;
}

Status run(jccl_comm* comm, Collective collective, const jccl_array* arrays, std::size_t count,
           const jccl_round_options* options, jccl_result* result) {
  Status status = check_result(result, "jccl_result");
  if (!status.ok()) return status;
  Call call;
  status = read_call(comm, collective, arrays, count, options, &call);
  if (!status.ok()) return refused(status, result);
  const peer::RoundResult done = comm->held->run(call.leaves, call.options);
  write_result(done, result);
  return done.status;
}

Status run_codec(const jccl_array* array, const jccl_round_options* options, bool residual) {
  Call call;
  if (array == nullptr) return invalid("array is NULL");
  Status status = read_arrays(array, 1, &call.leaves);
  if (status.ok()) status = read_round_options(options, &call.options);
  return status.ok() ? peer::roundtrip(call.leaves[0], call.options, residual) : status;
}

using SyncCall = peer::SyncResult (peer::Communicator::*)(const std::vector<peer::Leaf>&,
                                                          const peer::SyncOptions&);

void write_sync(const peer::SyncResult& from, jccl_sync_result* out) {
  jccl_sync_result value = JCCL_SYNC_RESULT_INIT;
  value.code = static_cast<int32_t>(from.status.code);
  value.revision = from.revision;
  value.digest[0] = from.digest.low;
  value.digest[1] = from.digest.high;
  value.replaced = from.replaced ? 1 : 0;
  value.edited = from.edited && !JCCL_PLANTED("edited-not-handed-out") ? 1 : 0;
  value.went_back = from.went_back ? 1 : 0;
  value.received_bytes = from.received_bytes;
  write_struct(value, out);
}

Status synchronise(jccl_comm* comm, SyncCall how, const jccl_array* arrays, std::size_t count,
                   const jccl_sync_options* given, jccl_sync_result* result) {
  Status status = check_result(result, "jccl_sync_result");
  if (!status.ok()) return status;
  jccl_sync_options options = JCCL_SYNC_OPTIONS_INIT;
  std::vector<peer::Leaf> leaves;
  if (comm == nullptr) status = invalid("comm is NULL");
  if (status.ok()) status = read_struct(given, "jccl_sync_options", &options);
  if (status.ok() && options.deadline_ns < 0) status = invalid("deadline_ns is negative");
  if (status.ok() && (options.restore < 0 || options.restore > JCCL_RESTORE_AGAIN)) {
    status = invalid("restore is none of JCCL_RESTORE_…");
  }
  if (status.ok()) status = read_arrays(arrays, count, &leaves);
  peer::SyncResult done;
  done.status = status;
  if (status.ok()) {
    peer::SyncOptions wish;
    wish.tag = text_or(options.tag, "default");
    wish.source = options.source != 0;
    wish.restore = static_cast<base::Wish>(options.restore);
    wish.deadline = options.deadline_ns;
    std::optional<std::vector<peer::Leaf>> before;
    done.status = read_state(options.before, options.before_count, &before);
    if (before) wish.before = peer::marks_of(*before);
    if (done.status.ok()) done = (comm->held.get()->*how)(leaves, wish);
  }
  write_sync(done, result);
  return done.status;
}

std::optional<Collective> read_collective(int32_t number) {
  const auto known = collective::collective_from_number(number);
  return known || !JCCL_PLANTED("collective-beyond-last") ? known : Collective::kBarrier;
}

}  // namespace
}  // namespace jccl::capi

using jccl::base::Status;
using jccl::collective::Collective;
using jccl::peer::Communicator;
namespace capi = jccl::capi;

extern "C" {

int32_t jccl_all_reduce(jccl_comm* comm, const jccl_array* arrays, size_t count,
                        const jccl_round_options* options, jccl_result* result) {
  return capi::guarded("jccl_all_reduce", [&] {
    return capi::run(comm, Collective::kAllReduce, arrays, count, options, result);
  });
}

int32_t jccl_all_gather(jccl_comm* comm, const jccl_array* arrays, size_t count,
                        const jccl_round_options* options, jccl_result* result) {
  return capi::guarded("jccl_all_gather", [&] {
    return capi::run(comm, Collective::kAllGather, arrays, count, options, result);
  });
}

int32_t jccl_reduce_scatter(jccl_comm* comm, const jccl_array* arrays, size_t count,
                            const jccl_round_options* options, jccl_result* result) {
  return capi::guarded("jccl_reduce_scatter", [&] {
    return capi::run(comm, Collective::kReduceScatter, arrays, count, options, result);
  });
}

int32_t jccl_all_to_all(jccl_comm* comm, const jccl_array* arrays, size_t count,
                        const jccl_round_options* options, jccl_result* result) {
  return capi::guarded("jccl_all_to_all", [&] {
    return capi::run(comm, Collective::kAllToAll, arrays, count, options, result);
  });
}

int32_t jccl_broadcast(jccl_comm* comm, const jccl_array* arrays, size_t count,
                       const jccl_round_options* options, jccl_result* result) {
  return capi::guarded("jccl_broadcast", [&] {
    return capi::run(comm, Collective::kBroadcast, arrays, count, options, result);
  });
}

int32_t jccl_barrier(jccl_comm* comm, const jccl_round_options* options, jccl_result* result) {
  return capi::guarded("jccl_barrier", [&] {
    return capi::run(comm, Collective::kBarrier, nullptr, 0, options, result);
  });
}

int32_t jccl_start(jccl_comm* comm, int32_t collective, const jccl_array* arrays, size_t count,
                   const jccl_round_options* options, jccl_handle* handle) {
  return capi::guarded("jccl_start", [&]() -> Status {
    if (handle == nullptr) return capi::invalid("handle is NULL");
    *handle = 0;
    const auto known = capi::read_collective(collective);
    if (!known) return capi::invalid(jccl::base::cat("unknown collective ", collective));
    capi::Call call;
    const Status status = capi::read_call(comm, *known, arrays, count, options, &call);
    if (!status.ok()) return status;
    const auto started = comm->held->start(call.leaves, call.options);
    if (!started.ok()) return started.status();
    *handle = started.value();
    return {};
  });
}

int32_t jccl_wait(jccl_comm* comm, jccl_handle handle, jccl_result* result) {
  return capi::guarded("jccl_wait", [&]() -> Status {
    const Status status = capi::check_result(result, "jccl_result");
    if (!status.ok()) return status;
    if (comm == nullptr) return capi::refused(capi::invalid("comm is NULL"), result);
    const jccl::peer::RoundResult done = comm->held->wait(handle);
    capi::write_result(done, result);
    return done.status;
  });
}

int32_t jccl_roundtrip(const jccl_array* array, const jccl_round_options* options) {
  return capi::guarded("jccl_roundtrip", [&] { return capi::run_codec(array, options, false); });
}

int32_t jccl_residual(const jccl_array* array, const jccl_round_options* options) {
  return capi::guarded("jccl_residual", [&] { return capi::run_codec(array, options, true); });
}

int32_t jccl_test(jccl_comm* comm, jccl_handle handle, int32_t* finished) {
  return capi::guarded("jccl_test", [&]() -> Status {
    if (comm == nullptr || finished == nullptr) return capi::invalid("comm or finished is NULL");
    *finished = comm->held->finished(handle) ? 1 : 0;
    return {};
  });
}

int32_t jccl_sync_state(jccl_comm* comm, const jccl_array* arrays, size_t count,
                        const jccl_sync_options* options, jccl_sync_result* result) {
  return capi::guarded("jccl_sync_state", [&] {
    return capi::synchronise(comm, &Communicator::sync_state, arrays, count, options, result);
  });
}

int32_t jccl_publish(jccl_comm* comm, const jccl_array* arrays, size_t count,
                     const jccl_sync_options* options, jccl_sync_result* result) {
  return capi::guarded("jccl_publish", [&] {
    return capi::synchronise(comm, &Communicator::publish, arrays, count, options, result);
  });
}

}  // extern "C"
