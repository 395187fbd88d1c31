// The keywords of a call from Python, each taken once.
#pragma once

#include <pybind11/stl.h>

#include <cstdint>
#include <set>
#include <string>

#include "base/text.h"
#include "module/arrays.h"
#include "module/module.h"

namespace jccl::xla_ext {

namespace py = pybind11;

inline std::uint32_t small(const py::handle& value, const char* name) {
  const auto number = py::cast<std::int64_t>(value);
  if (number < 0 || number > UINT32_MAX) {
    throw py::value_error(base::cat(name, " must be between 0 and 2^32 - 1"));
  }
  return static_cast<std::uint32_t>(number);
}

// Each keyword may be taken once; what is left over is the caller's typing error.
class Keywords {
 public:
  explicit Keywords(const py::kwargs& kwargs) : kwargs_(kwargs) {}
  template <typename T>
  T take(const char* name, T fallback) {
    taken_.insert(name);
    return kwargs_.contains(name) ? py::cast<T>(kwargs_[name]) : fallback;
  }
  std::uint32_t take_small(const char* name, std::uint32_t fallback) {
    taken_.insert(name);
    return kwargs_.contains(name) ? small(kwargs_[name], name) : fallback;
  }
  base::Duration take_seconds(const char* name, double fallback) {
    return duration_from(take<double>(name, fallback), name);
  }
  void finish(const char* call) const {
    for (const auto& [key, value] : kwargs_) {
      const auto name = py::cast<std::string>(key);
      if (!taken_.contains(name)) {
        throw py::type_error(base::cat(call, "() got an unexpected keyword '", name, "'"));
      }
    }
  }

 private:
  const py::kwargs& kwargs_;
  std::set<std::string> taken_;
};

}  // namespace jccl::xla_ext
