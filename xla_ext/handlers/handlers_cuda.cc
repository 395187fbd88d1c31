// The custom calls of the CUDA platform. Each runs the call of the CPU platform on pinned copies of
// its operands, so that both mean the same to the last bit; this file says what is copied when.
// Runs on the threads that launch programs, which go on while a round is under way: only done (for
// its handle) and publish (for what it fetched) wait here, for the stream to come to them.
// Refuses to be recorded into CUDA graphs: the trait that XLA asks for is not set.
// Run on one GPU so far (docs/gpu.md); tests take a library that stands in for the driver.
#include <cstring>
#include <optional>

#include "base/text.h"
#include "calls.h"
#include "cuda/cuda_call.h"
#include "handlers/handlers.h"

namespace jccl::xla_ext {

namespace ffi = xla::ffi;
using base::Code;
using base::Status;

namespace cuda {
namespace {

// The call that this thread is launching: XLA's decoders hand out views of it, and we need it
// whole.
thread_local const XLA_FFI_CallFrame* launching = nullptr;

ffi::Error failed(const Status& status) {
  if (status.ok()) return ffi::Error::Success();
  return ffi::Error(ffi::ErrorCode::kInternal, base::cat("jccl: ", status.text));
}

// Operands of marks, made on the device: a few words of each leaf come down, and no state.
std::size_t marks_in(const Parts& parts) {
  return parts.frame->attribute<std::int32_t>("marks", 0) != 0 ? 1 : 0;
}

// The call that is being launched, for the handler `target`; nullopt if it has fewer operands or
// results than that takes.
std::optional<Parts> parts_here(const char* target, std::size_t operands, std::size_t results,
                                std::int32_t device, ffi::RunId run) {
  Parts parts;
  parts.frame = DeviceFrame::copy(*launching);
  if (!parts.frame) return std::nullopt;
  if (parts.frame->attribute<std::int32_t>("state", 0) != 0) return std::nullopt;  // for the CPU
  HostCall& host = parts.frame->host;
  const std::size_t taken = operands + marks_in(parts);
  if (host.operands.size() < taken || host.results.size() < results) return std::nullopt;
  host.place = {device, run.run_id, nullptr};
  parts.target = target;
  const auto held = parts.frame->attribute<std::vector<std::int64_t>>("held", {});  // of a mesh
  const auto comm = parts.frame->attribute<std::int64_t>("comm", 0);
  parts.entry = Registry::get().find(held.empty() ? comm : held.front());
  const auto words = parts.frame->attribute<std::vector<std::int64_t>>("encoded", {});
  const auto encoded = EncodedLeaves::read(words, parts.frame->attribute<std::string>("codec", ""));
  if (!encoded) return std::nullopt;
  parts.encoded = *encoded;
  return parts;
}

// Leaves, then `more` operands of which the deadline is the last but one; results end with status
// and token, and an extent where the collective has one.
Form form_of(const Parts& parts, std::size_t more) {
  Form form;
  form.leaves = parts.frame->host.operands.size() - more;
  form.status = form.leaves;
  form.deadline = form.leaves + more - 2;
  return form;
}

// The driver and the stream of a launch, or what is wrong with them.
class Scope {
 public:
  explicit Scope(Stream stream) : status_(driver().status()) {
    if (!status_.ok()) return;
    scope_.emplace(driver().value(), stream);
    status_ = scope_->status();
  }
  const Status& status() const { return status_; }
  const StreamScope& operator*() const { return *scope_; }

 private:
  Status status_;
  std::optional<StreamScope> scope_;
};

// The memory of the call goes back when the stream is done with what was enqueued, also if the last
// of it was refused.
ffi::Error retired(DeviceCall& call, const Status& ended) {
  const Status given_back = call.retire();
  return failed(ended.ok() ? given_back : ended);
}

// Operands down, the host's call, results up.
ffi::Error through_host(Stream stream, Parts parts) {
  const Scope scope(stream);
  if (!scope.status().ok()) return failed(scope.status());
  DeviceCall call(*scope, std::move(parts));
  if (const Status staged = call.stage(); !staged.ok()) {
    return failed(staged.code == Code::kLimit ? call.answer(staged) : staged);
  }
  return retired(
      call,
      Steps{}.then([&] { return call.carry_out(); }).then([&] { return call.store(0); }).status);
}

ffi::Error round_on_device(Stream stream, std::int32_t device, ffi::RunId run) {
  auto parts = parts_here("jccl_round", 3, 2, device, run);
  if (!parts) return malformed("jccl_round");
  parts->form = form_of(*parts, 3 + marks_in(*parts));
  if (parts->frame->host.results.size() < parts->form.leaves + 2) return malformed("jccl_round");
  return through_host(stream, std::move(*parts));
}

ffi::Error over_mesh(const char* target, Stream stream, std::int32_t device, ffi::RunId run) {
  auto parts = parts_here(target, 4, 2, device, run);
  if (!parts) return malformed(target);
  parts->form = form_of(*parts, 4 + marks_in(*parts));
  if (parts->frame->host.results.size() != parts->form.leaves + 2) return malformed(target);
  return through_host(stream, std::move(*parts));
}

ffi::Error mesh_round_on_device(Stream stream, std::int32_t device, ffi::RunId run) {
  return over_mesh("jccl_mesh_round", stream, device, run);
}

ffi::Error mesh_publish_on_device(Stream stream, std::int32_t device, ffi::RunId run) {
  return over_mesh("jccl_mesh_publish", stream, device, run);
}

ffi::Error compute(const char* target, Stream stream) {
  auto parts = parts_here(target, 0, 0, 0, {0});
  if (!parts) return malformed(target);
  const HostCall& host = parts->frame->host;
  if (host.operands.size() < host.results.size()) return malformed(target);
  parts->form.leaves = host.results.size();
  return through_host(stream, std::move(*parts));
}

// On the host, as on every other peer: a device's compiler contracts products and sums.
ffi::Error outer_on_device(Stream stream, std::int32_t, ffi::RunId) {
  return compute("jccl_outer", stream);
}

// Of programs that were traced where arrays lie in host memory. Others have the marks from XLA.
ffi::Error mark_on_device(Stream stream, std::int32_t, ffi::RunId) {
  return compute("jccl_mark", stream);
}

// The first operand is there for its size: a result comes up into memory like it.
ffi::Error counted_on_device(Stream stream, std::int32_t, ffi::RunId) {
  return compute("jccl_counted", stream);
}

ffi::Error roundtrip_on_device(Stream stream, std::int32_t, ffi::RunId) {
  return compute("jccl_roundtrip", stream);
}

// The state goes down in any case and comes up only where a newer one replaces it.
ffi::Error publish_on_device(Stream stream, std::int32_t device, ffi::RunId run) {
  auto parts = parts_here("jccl_publish", 3, 2, device, run);
  if (!parts) return malformed("jccl_publish");
  parts->form = form_of(*parts, 3 + marks_in(*parts));
  const std::size_t n = parts->form.leaves;
  if (parts->frame->host.results.size() != n + 2) return malformed("jccl_publish");
  const Scope scope(stream);
  if (!scope.status().ok()) return failed(scope.status());
  DeviceCall call(*scope, std::move(*parts));
  if (const Status staged = call.stage(); !staged.ok()) {
    return failed(staged.code == Code::kLimit ? call.answer(staged) : staged);
  }
  Steps steps;
  steps.then([&] { return call.fetch(); }).then([&] { return synchronize(*scope); });
  if (!steps.status.ok()) return retired(call, steps.status);
  call.parts().carry_out();
  std::int32_t words[4];
  std::memcpy(words, call.host().results[n].data, sizeof(words));
  const bool replaced = words[1] != 0;
  steps.then([&] { return replaced ? Status{} : call.keep(0, 0, n); });
  return retired(call, steps.then([&] { return call.store(replaced ? 0 : n); }).status);
}

// Some of them, at first, that the host has no use for: they stay on the device.
void drop(std::vector<View>* views, std::vector<std::uint64_t>* places, std::size_t first,
          std::size_t count) {
  const auto from = static_cast<std::ptrdiff_t>(first), many = static_cast<std::ptrdiff_t>(count);
  views->erase(views->begin() + from, views->begin() + from + many);
  places->erase(places->begin() + from, places->begin() + from + many);
}

Parts without_operands(const Parts& parts, std::size_t first, std::size_t count) {
  Parts fewer = parts;
  fewer.frame = std::make_shared<DeviceFrame>(*parts.frame);
  drop(&fewer.frame->host.operands, &fewer.frame->operands_at, first, count);
  return fewer;
}

// The round behind a start takes its leaves and scalars, and gives results like the leaves, a
// status and a token, which stay on the host until done.
Parts round_of(const Parts& start, std::size_t n) {
  const std::size_t marks = marks_in(start);
  Parts round = without_operands(start, n, start.frame->host.operands.size() - 3 - marks - n);
  round.target = "jccl_round";
  auto& [host, operands_at, results_at] = *round.frame;
  host.results.clear();
  for (std::size_t i = 0; i < n; ++i) {
    const View* values = start.encoded.find(i);
    host.results.push_back(values != nullptr ? *values : host.operands[i]);
  }
  host.results.push_back({codec::Dtype::kI32, 4, nullptr, {4}});
  host.results.push_back(host.operands.back());
  results_at.clear();
  round.form.leaves = n;
  round.form.status = n;
  round.form.deadline = n + marks + 1;
  return round;
}

std::vector<Shape> shapes_of(const std::vector<View>& views, std::size_t first, std::size_t count) {
  std::vector<Shape> shapes;
  for (std::size_t i = 0; i < count; ++i) {
    shapes.push_back({views[first + i].dtype, views[first + i].count});
  }
  return shapes;
}

// The round begins when the stream comes here; the stream itself goes on as soon as the operands
// are copied.
ffi::Error start_on_device(Stream stream, std::int32_t device, ffi::RunId run) {
  const auto parts = parts_here("jccl_start", 3, 2, device, run);
  if (!parts) return malformed("jccl_start");
  const HostCall& host = parts->frame->host;
  const auto n = static_cast<std::size_t>(parts->frame->attribute<std::int32_t>("count", -1));
  const std::size_t scalars = 3 + marks_in(*parts);
  if (n > host.operands.size() - scalars) return malformed("jccl_start");
  const std::size_t through = host.operands.size() - scalars - n;
  if (host.results.size() != through + 2) return malformed("jccl_start");
  const Scope scope(stream);
  if (!scope.status().ok()) return failed(scope.status());
  const DeviceCall start(*scope, *parts);
  DeviceCall round(*scope, round_of(*parts, n));
  Status staged{Code::kClosed, "the communicator is closed"};
  if (parts->entry) staged = round.stage();
  if (staged.code == Code::kInternal) return failed(staged);
  if (!staged.ok() && parts->entry) parts->entry->note(parts->tag(), staged);
  std::uint64_t handle = failed_start_of(staged.code);
  Steps steps;
  steps.then([&] { return start.keep(n, 1, through); });
  steps.then([&] { return start.keep(host.operands.size() - 1, through + 1, 1); });
  if (staged.ok()) {
    steps.then([&] { return round.begin(); });
    if (!steps.status.ok()) return retired(round, steps.status);
    handle = round.state().opened({round.staged(), round.region_of_result(0),
                                   shapes_of(round.host().results, 0, n), parts->tag()});
  }
  const auto low = static_cast<std::uint32_t>(handle);
  const auto high = static_cast<std::uint32_t>(handle >> 32);
  return failed(steps.then([&] { return start.fill(0, low, high); }).status);
}

// Reads the handle, once the stream has come here; the memory it was read into is free again.
Status read_handle(const StreamScope& scope, const DeviceCall& done, std::uint64_t* handle) {
  const auto own = StagedCall::make(scope, done.state().pool, {sizeof(*handle)});
  if (!own.ok()) return own.status();
  Steps steps;
  steps
      .then([&] {
        return own.value()->fetch(scope, 0, done.parts().frame->operands_at[0], sizeof(*handle));
      })
      .then([&] { return synchronize(scope); });
  if (steps.status.ok()) std::memcpy(handle, own.value()->region(0), sizeof(*handle));
  return steps.status;
}

// No round for a handle: the operands come back, and the status says why.
Status answer_done(const DeviceCall& done, std::size_t n, const Status& why) {
  if (done.parts().entry) done.parts().entry->note(done.parts().tag(), why);
  return Steps{}
      .then([&] { return done.keep(1, 0, n); })
      .then([&] { return done.fill(n, static_cast<std::uint32_t>(why.code)); })
      .status;
}

ffi::Error done_on_device(Stream stream, std::int32_t device, ffi::RunId run) {
  const auto parts = parts_here("jccl_done", 2, 2, device, run);
  if (!parts) return malformed("jccl_done");
  const HostCall& host = parts->frame->host;
  const std::size_t n = host.results.size() - 2;
  if (host.operands.size() < n + 2 || host.operands[0].bytes() != 8) return malformed("jccl_done");
  const Scope scope(stream);
  if (!scope.status().ok()) return failed(scope.status());
  const DeviceCall done(*scope, *parts);
  std::uint64_t handle = 0;
  Steps steps;
  steps.then([&] { return done.keep(host.operands.size() - 1, n + 1, 1); });
  steps.then([&] { return read_handle(*scope, done, &handle); });
  if (steps.status.code == Code::kLimit) return failed(answer_done(done, n, steps.status));
  if (!steps.status.ok()) return failed(steps.status);
  Started round;
  Status found{Code::kClosed, "the communicator is closed"};
  if (parts->entry) {
    found = is_failed_start(handle)
                ? failed_start(handle)
                : done.state().take(handle, shapes_of(host.operands, 1, n), &round);
  }
  if (!found.ok()) return failed(answer_done(done, n, found));
  steps.then([&] { return round.call->wait(*scope); });
  for (std::size_t i = 0; i <= n; ++i) {  // leaves and status
    steps.then([&] {
      return round.call->store(*scope, round.first_result + i, parts->frame->results_at[i],
                               host.results[i].bytes());
    });
  }
  return failed(steps.then([&] { return round.call->retire(*scope); }).status);
}

// A handle is one for all local devices, and the host has it when all of them have called: the
// stream waits for that, as it does in a local collective, and not for the round. What passes
// through stays on the device.
ffi::Error mesh_start_on_device(Stream stream, std::int32_t device, ffi::RunId run) {
  const auto parts = parts_here("jccl_mesh_start", 4, 2, device, run);
  if (!parts) return malformed("jccl_mesh_start");
  const HostCall& host = parts->frame->host;
  const auto n = static_cast<std::size_t>(parts->frame->attribute<std::int32_t>("count", -1));
  const std::size_t marks = marks_in(*parts), scalars = 4 + marks;
  if (n > host.operands.size() - scalars) return malformed("jccl_mesh_start");
  const std::size_t through = host.operands.size() - scalars - n;
  if (host.results.size() != through + 2) return malformed("jccl_mesh_start");
  const Scope scope(stream);
  if (!scope.status().ok()) return failed(scope.status());
  const Status passed = DeviceCall(*scope, *parts).keep(n, 1, through);
  if (!passed.ok()) return failed(passed);
  Parts start = without_operands(*parts, n, through);
  drop(&start.frame->host.results, &start.frame->results_at, 1, through);
  start.form.starts = true;
  start.form.deadline = n + marks + 2;
  return through_host(stream, std::move(start));
}

// What it must come after stays on the device. The pieces go down: they are the results where
// there is no round.
ffi::Error mesh_done_on_device(Stream stream, std::int32_t device, ffi::RunId run) {
  const auto parts = parts_here("jccl_mesh_done", 3, 2, device, run);
  if (!parts) return malformed("jccl_mesh_done");
  const HostCall& host = parts->frame->host;
  const auto n = static_cast<std::size_t>(parts->frame->attribute<std::int32_t>("count", -1));
  const bool again = parts->frame->attribute<std::int32_t>("inputs", 0) != 0;
  if (n > host.operands.size() - 3 || host.results.size() != (again ? 2 * n : n) + 2 ||
      host.operands[n].bytes() != 8) {
    return malformed("jccl_mesh_done");
  }
  Parts done = without_operands(*parts, n + 2, host.operands.size() - 3 - n);
  done.form.leaves = n;
  done.form.leaves_again = again;
  done.form.status = host.results.size() - 2;
  done.form.ends = n;
  return through_host(stream, std::move(done));
}

using OnDevice = ffi::Error (*)(Stream, std::int32_t, ffi::RunId);

template <OnDevice kCall>
ffi::Error bound(Stream stream, std::int32_t device, ffi::RunId run, ffi::RemainingArgs,
                 ffi::RemainingRets, ffi::Dictionary) {
  return kCall(stream, device, run);
}

// The frame is ours for the time of the call. No traits: not to be recorded.
template <OnDevice kCall>
XLA_FFI_Error* launch(XLA_FFI_CallFrame* frame) {
  static auto* handler = ffi::Ffi::Bind()
                             .Ctx<ffi::PlatformStream<Stream>>()
                             .Ctx<ffi::DeviceOrdinal>()
                             .Ctx<ffi::RunId>()
                             .RemainingArgs()
                             .RemainingRets()
                             .Attrs()
                             .To(bound<kCall>)
                             .release();
  launching = frame;
  XLA_FFI_Error* error = handler->Call(frame);
  launching = nullptr;
  return error;
}

}  // namespace
}  // namespace cuda

const Target kCudaTargetTable[kTargets] = {
    {"jccl_round", cuda::launch<cuda::round_on_device>},
    {"jccl_start", cuda::launch<cuda::start_on_device>},
    {"jccl_done", cuda::launch<cuda::done_on_device>},
    {"jccl_publish", cuda::launch<cuda::publish_on_device>},
    {"jccl_mark", cuda::launch<cuda::mark_on_device>},
    {"jccl_counted", cuda::launch<cuda::counted_on_device>},
    {"jccl_outer", cuda::launch<cuda::outer_on_device>},
    {"jccl_roundtrip", cuda::launch<cuda::roundtrip_on_device>},
    {"jccl_mesh_round", cuda::launch<cuda::mesh_round_on_device>},
    {"jccl_mesh_start", cuda::launch<cuda::mesh_start_on_device>},
    {"jccl_mesh_done", cuda::launch<cuda::mesh_done_on_device>},
    {"jccl_mesh_publish", cuda::launch<cuda::mesh_publish_on_device>},
};

}  // namespace jccl::xla_ext
