// Handlers for Python: as capsules, to be registered with XLA, and called on numpy arrays for the
// routes without FFI.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "base/text.h"
#include "cuda/cuda_driver.h"
#include "host_call.h"
#include "module/arrays.h"
#include "module/module.h"

namespace py = pybind11;

namespace jccl::xla_ext {

namespace {

py::dict handlers(const std::string& platform) {
  if (platform != "cpu" && platform != "CUDA") {
    throw py::value_error(base::cat("no handlers for platform '", platform, "'"));
  }
  py::dict out;
  for (const Target& target : platform == "cpu" ? kTargetTable : kCudaTargetTable) {
    out[target.name] = py::capsule(reinterpret_cast<void*>(target.handler));
  }
  return out;
}

View view_from(const peer::Leaf& leaf) {
  return {leaf.dtype, leaf.count, const_cast<void*>(leaf.in), leaf.shape};
}

HostAttribute attribute_from(const std::string& name, const py::handle& value) {
  if (py::isinstance<py::str>(value)) return py::cast<std::string>(value);
  const auto array = py::array::ensure(value);
  if (py::isinstance<py::array_t<std::int32_t>>(array) && array.ndim() == 0) {
    return *static_cast<const std::int32_t*>(array.data());
  }
  if (py::isinstance<py::array_t<std::int64_t>>(array)) {
    const auto* words = static_cast<const std::int64_t*>(array.data());
    if (array.ndim() == 0) return *words;
    if (array.ndim() == 1) return std::vector<std::int64_t>(words, words + array.size());
  }
  throw py::type_error(base::cat("attribute ", name, " is no str, int32, int64 or int64 array"));
}

void run_handler(const std::string& target, const Arrays& operands, const Arrays& results,
                 const py::dict& attributes, std::int32_t device, std::int64_t execution) {
  HostCall call;
  call.place = {device, execution};
  for (const peer::Leaf& leaf : leaves_from(operands, nullptr, {}, 1)) {
    call.operands.push_back(view_from(leaf));
  }
  for (const peer::Leaf& leaf : leaves_from(results, &results, {}, 1)) {
    call.results.push_back(view_from(leaf));
  }
  for (const auto& [key, value] : attributes) {
    const auto name = py::cast<std::string>(key);
    call.attributes.emplace(name, attribute_from(name, value));
  }
  ensure_interrupts();
  base::Status status;
  {
    py::gil_scoped_release release;
    status = call_handler(target, std::move(call));
  }
  if (!status.ok()) raise(status);
}

}  // namespace

void bind_handlers(py::module_& module) {
  module.def("handlers", &handlers, py::arg("platform") = "cpu");
  module.def("cuda_problem", [] { return cuda::driver().status().text; });
  module.def("run_handler", &run_handler, py::arg("target"), py::arg("operands"),
             py::arg("results"), py::arg("attributes"), py::kw_only(), py::arg("device") = 0,
             py::arg("execution") = 0);
}

}  // namespace jccl::xla_ext
