// How Python sees what calls of a communicator give: results of rounds and of synchronising, and
// what it knows of itself. Values, read where Python asks.
#include <pybind11/stl.h>

#include "module/module.h"
#include "peer/communicator.h"

namespace py = pybind11;

namespace jccl::xla_ext {

void bind_results(py::module_& module) {
  using peer::RoundResult;
  py::class_<RoundResult>(module, "RoundResult")
      .def_property_readonly("code",
                             [](const RoundResult& r) { return static_cast<int>(r.status.code); })
      .def_property_readonly("text", [](const RoundResult& r) { return r.status.text; })
      .def_readonly("n", &RoundResult::n)
      .def_readonly("world", &RoundResult::world)
      .def_readonly("epoch", &RoundResult::epoch)
      .def_readonly("attempts", &RoundResult::attempts)
      .def_readonly("contributors", &RoundResult::contributors)
      .def_readonly("weights", &RoundResult::weights)
      .def_readonly("sent_bytes", &RoundResult::sent_bytes)
      .def_readonly("received_bytes", &RoundResult::received_bytes)
      .def_readonly("scatter_first", &RoundResult::scatter_first)
      .def_readonly("scatter_count", &RoundResult::scatter_count)
      .def_property_readonly(
          "elapsed", [](const RoundResult& r) { return static_cast<double>(r.elapsed) * 1e-9; });
  using peer::SyncResult;
  py::class_<SyncResult>(module, "SyncResult")
      .def_property_readonly("code",
                             [](const SyncResult& r) { return static_cast<int>(r.status.code); })
      .def_property_readonly("text", [](const SyncResult& r) { return r.status.text; })
      .def_readonly("revision", &SyncResult::revision)
      .def_property_readonly("digest", [](const SyncResult& r) { return base::to_hex(r.digest); })
      .def_readonly("replaced", &SyncResult::replaced)
      .def_readonly("edited", &SyncResult::edited)
      .def_readonly("went_back", &SyncResult::went_back)
      .def_readonly("received_bytes", &SyncResult::received_bytes);
  using peer::Attributes;
  py::class_<Attributes>(module, "Attributes")
      .def_property_readonly("run_id", [](const Attributes& a) { return base::to_hex(a.run); })
      .def_readonly("id", &Attributes::id)
      .def_readonly("incarnation", &Attributes::incarnation)
      .def_readonly("epoch", &Attributes::epoch)
      .def_readonly("world", &Attributes::world)
      .def_readonly("sites", &Attributes::sites)
      .def_readonly("ids", &Attributes::ids)
      .def_readonly("evictions", &Attributes::evictions)
      .def_readonly("evicted", &Attributes::evicted)
      .def_readonly("departures", &Attributes::departures)
      .def_readonly("departed", &Attributes::departed)
      .def_readonly("drain", &Attributes::drain)
      .def_readonly("noticed", &Attributes::noticed)
      .def_readonly("notices", &Attributes::notices)
      .def_readonly("sent_bytes", &Attributes::sent_bytes)
      .def_readonly("received_bytes", &Attributes::received_bytes)
      .def_readonly("rounds_committed", &Attributes::rounds_committed)
      .def_readonly("rounds_retried", &Attributes::rounds_retried)
      .def_readonly("listen", &Attributes::listen);
}

}  // namespace jccl::xla_ext
