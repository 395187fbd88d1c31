#include "module/arrays.h"

#include "base/text.h"

namespace jccl::xla_ext {

namespace py = pybind11;

namespace {

std::string name_leaf(const std::vector<std::string>& paths, std::size_t at) {
  if (at < paths.size() && !paths[at].empty()) return base::cat("leaf '", paths[at], "'");
  return base::cat("leaf ", at);
}

codec::Dtype dtype_from(const py::array& array, const std::string& leaf) {
  const auto name = py::cast<std::string>(array.dtype().attr("name"));
  if (!py::cast<bool>(array.dtype().attr("isnative"))) {
    throw py::type_error(base::cat(leaf, " is not in native byte order"));
  }
  for (const auto& [known, dtype] : kDtypeNames) {
    if (name == known) return dtype;
  }
  throw py::type_error(base::cat(leaf, " has dtype ", name, ", which is not carried"));
}

void require_contiguous(const py::array& array, const std::string& leaf) {
  if ((array.flags() & py::array::c_style) == 0) {
    throw py::value_error(base::cat(leaf, " is not C-contiguous"));
  }
}

}  // namespace

std::vector<peer::Leaf> leaves_from(const Arrays& ins, const Arrays* outs,
                                    const std::vector<std::string>& paths, std::size_t slots) {
  if (outs != nullptr && outs->size() != ins.size()) {
    throw py::value_error(base::cat(ins.size(), " inputs but ", outs->size(), " outputs"));
  }
  std::vector<peer::Leaf> leaves;
  leaves.reserve(ins.size());
  for (std::size_t i = 0; i < ins.size(); ++i) {
    const std::string name = name_leaf(paths, i);
    require_contiguous(ins[i], name);
    peer::Leaf leaf;
    leaf.dtype = dtype_from(ins[i], name);
    leaf.count = static_cast<std::uint64_t>(ins[i].size());
    leaf.shape.assign(ins[i].shape(), ins[i].shape() + ins[i].ndim());
    leaf.in = ins[i].data();
    if (i < paths.size()) leaf.path = paths[i];
    if (outs != nullptr) {
      const py::array& out = (*outs)[i];
      require_contiguous(out, base::cat("output of ", name));
      if (dtype_from(out, name) != leaf.dtype ||
          static_cast<std::uint64_t>(out.size()) != leaf.count * slots) {
        throw py::value_error(base::cat("output of ", name, " has another dtype or size"));
      }
      if (!out.writeable()) throw py::value_error(base::cat("output of ", name, " is read-only"));
      leaf.out = const_cast<void*>(out.data());
    }
    leaves.push_back(std::move(leaf));
  }
  return leaves;
}

std::vector<peer::Leaf> leaves_from(const Arrays& ins, const Arrays& outs,
                                    const std::vector<std::string>& paths, std::size_t slots,
                                    const std::vector<bool>& encoded) {
  if (encoded.empty()) return leaves_from(ins, &outs, paths, slots);
  if (encoded.size() != ins.size() || outs.size() != ins.size()) {
    throw py::value_error(base::cat(ins.size(), " inputs, ", outs.size(), " outputs and ",
                                    encoded.size(), " marks of encoded ones"));
  }
  if (slots != 1) throw py::value_error("encoded inputs are for collectives with one result");
  Arrays values = ins;
  for (std::size_t i = 0; i < ins.size(); ++i) {
    if (encoded[i]) values[i] = outs[i];
  }
  std::vector<peer::Leaf> leaves = leaves_from(values, &outs, paths, slots);
  for (std::size_t i = 0; i < ins.size(); ++i) {
    if (!encoded[i]) continue;
    const std::string name = name_leaf(paths, i);
    require_contiguous(ins[i], name);
    if (dtype_from(ins[i], name) != codec::Dtype::kU8) {
      throw py::type_error(base::cat(name, ": encoded values are uint8"));
    }
    leaves[i].in = nullptr;
    leaves[i].encoded = static_cast<const std::uint8_t*>(ins[i].data());
    leaves[i].encoded_bytes = static_cast<std::uint64_t>(ins[i].size());
  }
  return leaves;
}

std::vector<void*> places_from(const Arrays& outs) {
  std::vector<void*> places;
  for (std::size_t i = 0; i < outs.size(); ++i) {
    require_contiguous(outs[i], base::cat("output ", i));
    if (!outs[i].writeable()) throw py::value_error(base::cat("output ", i, " is read-only"));
    places.push_back(const_cast<void*>(outs[i].data()));
  }
  return places;
}

}  // namespace jccl::xla_ext
