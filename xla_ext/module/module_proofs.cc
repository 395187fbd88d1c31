// TOPLOC proofs of host arrays: the 16 bits of each value, a chunk at a time.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <optional>

#include "base/text.h"
#include "module/module.h"
#include "proof/proof.h"

namespace jccl::xla_ext {

namespace py = pybind11;

namespace {

using Halves = py::array_t<std::uint16_t, py::array::c_style>;

std::span<const std::uint16_t> halves_of(const Halves& values) {
  return {values.data(), static_cast<std::size_t>(values.size())};
}

proof::Format format_from(const std::string& name) {
  if (name == "bfloat16") return proof::Format::kBf16;
  if (name == "float16") return proof::Format::kFp16;
  throw py::value_error(base::cat("a proof is of bfloat16 or float16, not of '", name, "'"));
}

template <typename T>
T taken(base::Result<T> result) {
  if (!result.ok()) raise(result.status());
  return std::move(result.value());
}

py::bytes bytes_of(const proof::Proof& made) {
  const base::Bytes bytes = proof::print(made);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

py::bytes build(const Halves& values, std::size_t k, const std::string& format) {
  const proof::Format form = format_from(format);
  const auto made = [&] {
    const py::gil_scoped_release release;
    const auto points = proof::largest(halves_of(values), k, form);
    return points.ok() ? proof::build(points.value()) : base::Result<proof::Proof>(points.status());
  }();
  return bytes_of(taken(made));
}

py::bytes of_points(const py::array_t<std::uint32_t, py::array::c_style>& indices,
                    const Halves& bits) {
  if (indices.size() != bits.size()) throw py::value_error("a point has an index and 16 bits");
  std::vector<proof::Point> points;
  for (py::ssize_t i = 0; i < indices.size(); ++i) {
    points.push_back({indices.data()[i], bits.data()[i]});
  }
  return bytes_of(taken(proof::build(points)));
}

// (exponents, signs, mean, median); None of bytes that are no proof.
std::optional<std::tuple<std::uint32_t, std::uint32_t, double, double>> compare(
    const std::string& bytes, const Halves& values, std::size_t k, const std::string& format) {
  const proof::Format form = format_from(format);
  const auto points = taken(proof::largest(halves_of(values), k, form));
  const auto parsed =
      proof::parse({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
  if (!parsed.ok() || parsed.value().coefficients.size() != k) return std::nullopt;
  const proof::Comparison found = proof::compare(parsed.value(), points, form);
  return std::tuple(found.exponents, found.signs, found.mean, found.median);
}

}  // namespace

void bind_proofs(py::module_& module) {
  module.def("proof_build", &build, py::arg("values"), py::arg("k"), py::arg("format"));
  module.def("proof_of_points", &of_points, py::arg("indices"), py::arg("bits"));
  module.def("proof_compare", &compare, py::arg("proof"), py::arg("values"), py::arg("k"),
             py::arg("format"));
}

}  // namespace jccl::xla_ext
