// The codecs on host arrays: what a contribution becomes, and its bytes, for error feedback and for
// tests that hold the formulas of ALGORITHMS.md against them.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/text.h"
#include "codec/kernels/isa.h"
#include "codec/reference.h"
#include "codec/roundtrip.h"
#include "codec/spec.h"
#include "module/arrays.h"
#include "module/module.h"

namespace jccl::xla_ext {

namespace py = pybind11;

namespace {

using Bytes = py::array_t<std::uint8_t, py::array::c_style>;

constexpr std::pair<const char*, codec::Isa> kIsaNames[] = {
    {"baseline", codec::Isa::kBaseline}, {"v3", codec::Isa::kV3}, {"v4", codec::Isa::kV4}};

codec::Codec codec_from(const std::string& name) {
  const auto codec = codec::codec_from_name(name);
  if (!codec) throw py::value_error(base::cat("unknown codec '", name, "'"));
  return *codec;
}

peer::Leaf leaf_from(const codec::Codec& codec, const py::array& in, const py::array* out) {
  const Arrays outs = {out != nullptr ? *out : in};
  const peer::Leaf leaf = leaves_from({in}, out != nullptr ? &outs : nullptr, {}, 1).front();
  if (codec::is_lossy(codec) && !codec::is_float(leaf.dtype)) {
    throw py::type_error(base::cat("codec ", codec::name_of(codec.id), " is for floats"));
  }
  return leaf;
}

Bytes encode(const py::array& in, const std::string& name, std::uint64_t seed,
             std::uint64_t first_element, bool reference) {
  const codec::Codec codec = codec_from(name);
  const peer::Leaf leaf = leaf_from(codec, in, nullptr);
  Bytes out(static_cast<py::ssize_t>(codec::encoded_bytes(codec, leaf.dtype, leaf.count)));
  std::uint8_t* bytes = out.mutable_data();
  const codec::Noise noise{seed, first_element};
  if (!reference) {
    codec::encode(codec, leaf.dtype, leaf.in, leaf.count, bytes, noise);
    return out;
  }
  if (leaf.dtype != codec::Dtype::kF32) throw py::type_error("the reference is for float32");
  codec::reference::encode(codec, static_cast<const float*>(leaf.in), leaf.count, bytes, noise);
  return out;
}

void decode(const Bytes& in, const std::string& name, const py::array& out, bool reference) {
  const codec::Codec codec = codec_from(name);
  const peer::Leaf leaf = leaf_from(codec, out, &out);
  if (static_cast<std::size_t>(in.size()) != codec::encoded_bytes(codec, leaf.dtype, leaf.count)) {
    throw py::value_error(base::cat(in.size(), " bytes are not ", leaf.count, " elements"));
  }
  if (!reference) return codec::decode(codec, leaf.dtype, in.data(), leaf.count, leaf.out);
  if (leaf.dtype != codec::Dtype::kF32) throw py::type_error("the reference is for float32");
  codec::reference::decode(codec, in.data(), leaf.count, static_cast<float*>(leaf.out));
}

void roundtrip(const py::array& in, const std::string& name, const py::array& out, bool residual) {
  const codec::Codec codec = codec_from(name);
  if (codec.stochastic) throw py::value_error("the error of a stochastic codec is of one round");
  const peer::Leaf leaf = leaf_from(codec, in, &out);
  py::gil_scoped_release release;
  if (residual) return codec::residual(codec, leaf.dtype, leaf.in, leaf.count, leaf.out);
  codec::roundtrip(codec, leaf.dtype, leaf.in, leaf.count, leaf.out);
}

std::vector<std::string> isas() {
  std::vector<std::string> names;
  for (const codec::Isa isa : codec::available_isas()) {
    for (const auto& [name, known] : kIsaNames) {
      if (known == isa) names.emplace_back(name);
    }
  }
  return names;
}

void force_isa(const std::string& wanted) {
  const std::vector<std::string> available = isas();
  for (const auto& [name, isa] : kIsaNames) {
    const bool here = std::find(available.begin(), available.end(), name) != available.end();
    if (wanted == name && here) return codec::force_isa(isa);
  }
  throw py::value_error(base::cat("no instruction set '", wanted, "' here"));
}

}  // namespace

void bind_codecs(py::module_& module) {
  module.def("codec_encode", &encode, py::arg("array"), py::arg("codec"), py::kw_only(),
             py::arg("seed") = 0, py::arg("first_element") = 0, py::arg("reference") = false);
  module.def("codec_decode", &decode, py::arg("encoded"), py::arg("codec"), py::arg("out"),
             py::kw_only(), py::arg("reference") = false);
  module.def("codec_roundtrip", &roundtrip, py::arg("array"), py::arg("codec"), py::arg("out"),
             py::kw_only(), py::arg("residual") = false);
  module.def("codecs", [] {
    std::vector<std::map<std::string, py::object>> rows;
    for (const codec::CodecSpec& spec : codec::kCodecs) {
      rows.push_back({{"number", py::int_(static_cast<int>(spec.id))},
                      {"name", py::str(spec.name)},
                      {"block", py::int_(spec.block)},
                      {"scale_bytes", py::int_(spec.scale_bytes)},
                      {"code_bits", py::int_(spec.code_bits)},
                      {"kept_max", py::int_(spec.kept_max)},
                      {"relative", py::float_(spec.relative)},
                      {"of_largest", py::float_(spec.of_largest)}});
    }
    return rows;
  });
  module.def("isas", &isas);
  module.def("force_isa", &force_isa, py::arg("isa"));
}

}  // namespace jccl::xla_ext
