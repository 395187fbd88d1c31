// The module itself: tables, the outer step for host arrays, and how Python's signals and
// errors meet the transport's. jccl/_core.pyi is its contract.
#include "module/module.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>
#include <thread>

#include "base/check.h"
#include "base/limits.h"
#include "base/text.h"
#include "collective/spec.h"
#include "handlers/handlers.h"
#include "module/arrays.h"
#include "module/interrupt.h"
#include "outer.h"
#include "registry.h"

namespace py = pybind11;

namespace jccl::xla_ext {

namespace {

// Owned by the module object, which lives as long as the interpreter.
PyObject* core_error = nullptr;

}  // namespace

void raise(const base::Status& status) {
  const py::object type = py::reinterpret_borrow<py::object>(core_error);
  const py::object error = type(static_cast<int>(status.code), status.text);
  error.attr("code") = static_cast<int>(status.code);
  error.attr("text") = status.text;
  PyErr_SetObject(core_error, error.ptr());
  throw py::error_already_set();
}

base::Duration duration_from(double seconds, const char* name) {
  constexpr double kCentury = 3.2e9;
  if (!(seconds >= 0) || seconds > kCentury) {
    throw py::value_error(base::cat(name, " must be seconds, 0 or more"));
  }
  return static_cast<base::Duration>(seconds * 1e9);
}

namespace {

// Python sets wakeup descriptors from the main thread only. Returns the one before.
int set_wakeup(int descriptor) {
  const py::object set = py::module_::import("signal").attr("set_wakeup_fd");
  return py::cast<int>(set(descriptor, py::arg("warn_on_full_buffer") = false));
}

bool on_main_thread() {
  const py::object main = py::module_::import("threading").attr("main_thread")();
  return py::cast<unsigned long>(main.attr("ident")) == PyThread_get_thread_ident();
}

}  // namespace

std::size_t record_bytes_from(std::uint32_t mib) {
  constexpr std::size_t kMibMax = base::kRecordBytesMax >> 20;
  if (mib > kMibMax) {
    throw py::value_error(
        base::cat("record_mib=", mib, " is above ", kMibMax, ": keep fewer of the last events"));
  }
  return std::size_t{mib} << 20;
}

void ensure_interrupts() {
  const int ours = wakeup_descriptor();
  if (ours < 0 || !on_main_thread()) return;
  const int before = set_wakeup(ours);
  if (before != ours) chain_wakeup(before);
}

void check_signals() {
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

void interruptible(std::function<void()> blocking) {
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
  };
  const auto shared = std::make_shared<Shared>();
  std::thread([shared, blocking = std::move(blocking)] {
    blocking();
    std::lock_guard lock(shared->mutex);
    shared->done = true;
    shared->changed.notify_all();
  }).detach();
  for (bool done = false; !done;) {
    {
      py::gil_scoped_release release;
      std::unique_lock lock(shared->mutex);
      done = shared->changed.wait_for(lock, std::chrono::milliseconds(50),
                                      [&] { return shared->done; });
    }
    if (!done) check_signals();
  }
}

namespace {

void bind_tables(py::module_& module) {
  py::dict codes, remedies, limits;
  for (int number = 0; base::is_code(number); ++number) {
    const auto code = static_cast<base::Code>(number);
    codes[py::str(std::string(base::name_of(code)))] = number;
    remedies[py::int_(number)] = base::name_of(base::remedy_of(code)).data();
  }
  limits["leaves_max"] = base::kLeavesMax;
  limits["round_bytes_max"] = base::kRoundBytesMax;
  limits["tag_bytes_max"] = base::kTagBytesMax;
  limits["weight_min"] = base::kWeightMin;
  limits["weight_max"] = base::kWeightMax;
  limits["weight_announced"] = base::kWeightAnnounced;
  limits["rate_min"] = base::kRateMin;
  limits["day_bytes_min"] = base::kDayBytesMin;
  limits["record_bytes_max"] = base::kRecordBytesMax;
  limits["peers_max"] = base::kPeersMax;
  py::dict collectives;
  for (const collective::CollectiveSpec& spec : collective::kCollectives) {
    collectives[py::str(std::string(spec.name))] = static_cast<int>(spec.collective);
  }
  py::list dtypes;
  for (const auto& [name, dtype] : kDtypeNames) {
    dtypes.append(name);
    JCCL_CHECK(py::len(dtypes) == static_cast<std::size_t>(dtype));  // numbers are places, from 1
  }
  module.attr("codes") = codes;
  module.attr("remedies") = remedies;
  module.attr("limits") = limits;
  module.attr("collectives") = collectives;
  module.attr("dtypes") = py::tuple(dtypes);
  module.attr("version") = JCCL_VERSION;
  module.attr("ffi_api_version") = py::make_tuple(XLA_FFI_API_MAJOR, XLA_FFI_API_MINOR);
}

float* floats(const py::array& array, py::ssize_t count, const char* name, bool written) {
  if (!py::isinstance<py::array_t<float>>(array) || array.size() != count ||
      (array.flags() & py::array::c_style) == 0 || (written && !array.writeable())) {
    throw py::value_error(
        base::cat(name, " must be a writable, C-contiguous f32 array of ", count, " elements"));
  }
  return static_cast<float*>(const_cast<void*>(array.data()));
}

void host_outer_step(const py::array& anchor, const std::optional<py::array>& momentum,
                     const py::array& delta, float learning_rate, float momentum_decay,
                     bool nesterov) {
  OuterLeaf leaf;
  leaf.count = static_cast<std::size_t>(anchor.size());
  leaf.anchor_out = floats(anchor, anchor.size(), "anchor", true);
  leaf.anchor = leaf.anchor_out;
  leaf.delta = floats(delta, anchor.size(), "delta", false);
  OuterKind kind = OuterKind::kSgd;
  if (momentum) {
    leaf.momentum_out = floats(*momentum, anchor.size(), "momentum", true);
    leaf.momentum = leaf.momentum_out;
    kind = nesterov ? OuterKind::kNesterov : OuterKind::kMomentum;
  }
  py::gil_scoped_release release;
  outer_step(kind, {learning_rate, momentum_decay}, leaf);
}

std::atomic<int> wished_exit{0};

// After all of Python's own end, which cannot change the code any more: so nothing of it is left
// out, and a program that says itself that it failed keeps its code.
void correct_exit(int code, void*) {
  const int wished = wished_exit.load();
  if (code != 0 || wished == 0) return;
  std::fflush(nullptr);
  ::_exit(wished);
}

// What this process ends with where it would end with 0; 0: with that.
void wish_exit_code(int code) {
  static const bool once = on_exit(&correct_exit, nullptr) == 0;
  if (once) wished_exit.store(code);
}

std::atomic<PyObject*> term_handler{nullptr};

// On the thread that reads signals.
bool term_is_ours() {
  if (Py_IsInitialized() == 0) return false;
  const py::gil_scoped_acquire gil;
  try {
    const py::object now = py::module_::import("signal").attr("getsignal")(SIGTERM);
    return now.ptr() == term_handler.load();
  } catch (const py::error_already_set&) {
    return false;
  }
}

// While `handler` is Python's for SIGTERM, peers that leave on it do so before it runs.
void leave_with_handler(const py::object& handler) {
  Py_XDECREF(term_handler.exchange(handler.inc_ref().ptr()));
  ask_before_leaving(&term_is_ours);
}

// The parent's wakeup descriptor is a socket that the parent reads: a signal of the child must not
// abort the parent's waits.
void after_fork_in_child() {
  wished_exit.store(0);
  if (on_main_thread()) set_wakeup(chained_wakeup());
}

}  // namespace

}  // namespace jccl::xla_ext

PYBIND11_MODULE(_core, module) {
  using namespace jccl::xla_ext;
  module.doc() = "The native module of jccl; import jccl instead.";
  core_error = PyErr_NewExceptionWithDoc(
      "jccl._core.CoreError", "An expected fault; args are (code, text).", nullptr, nullptr);
  module.attr("CoreError") = py::reinterpret_borrow<py::object>(core_error);
  bind_tables(module);
  bind_codecs(module);
  bind_handlers(module);
  bind_communicator(module);
  bind_master(module);
  bind_proofs(module);
  module.def(
      "abort_all", [] { Registry::get().abort_all(); }, py::call_guard<py::gil_scoped_release>());
  module.def("outer_step", &host_outer_step, py::arg("anchor"), py::arg("momentum").none(true),
             py::arg("delta"), py::kw_only(), py::arg("learning_rate"),
             py::arg("momentum_decay") = 0.0F, py::arg("nesterov") = true);
  module.def("ensure_interrupts", &ensure_interrupts);
  module.def("leave_with_handler", &leave_with_handler, py::arg("handler"));
  module.def("wish_exit_code", &wish_exit_code, py::arg("code"));
  py::module_::import("os").attr("register_at_fork")(py::arg("after_in_child") =
                                                         py::cpp_function(&after_fork_in_child));
}
