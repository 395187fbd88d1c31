// Parts of the pybind11 module `_core`, and what they share. Every function here needs the GIL.
#pragma once

#include <pybind11/pybind11.h>

#include <functional>
#include <string>

#include "base/status.h"
#include "base/time.h"

namespace jccl::xla_ext {

void bind_codecs(pybind11::module_& module);
void bind_communicator(pybind11::module_& module);
void bind_results(pybind11::module_& module);
void bind_handlers(pybind11::module_& module);
void bind_master(pybind11::module_& module);
void bind_proofs(pybind11::module_& module);

// Raises _core.CoreError(code, text).
[[noreturn]] void raise(const base::Status& status);

// The path of a recording that a master or a communicator leaves; raises why there is none.
template <typename Recorded>
std::string recorded_by(Recorded& of, const std::string& why) {
  const base::Result<std::string> path = [&] {
    const pybind11::gil_scoped_release release;
    return of.record(why);
  }();
  if (!path.ok()) raise(path.status());
  return path.value();
}

// Seconds from Python; ValueError if negative, NaN or more than a century.
base::Duration duration_from(double seconds, const char* name);

// Of a flight recorder's MiB; ValueError if it may not be so large.
std::size_t record_bytes_from(std::uint32_t mib);

// Makes Ctrl-C abort waits, where called on the main thread (Python allows it there alone); every
// call that may block asks again, as others may have set a descriptor since. Theirs is chained.
void ensure_interrupts();

// Runs `blocking` without the GIL on a thread of its own and waits; on Ctrl-C leaves it behind and
// raises KeyboardInterrupt. For what no communicator can abort yet.
void interruptible(std::function<void()> blocking);

// Call when a wait is over: raises KeyboardInterrupt if a signal ended it.
void check_signals();

}  // namespace jccl::xla_ext
