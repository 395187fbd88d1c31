// Status and Result: how every layer reports failure. No exceptions cross a layer.
#pragma once

#include <string>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/codes.h"

namespace jccl::base {

struct [[nodiscard]] Status {
  Code code = Code::kOk;
  std::string text;  // what happened, to whom, and what to do next

  Status() = default;
  Status(Code c, std::string t) : code(c), text(std::move(t)) {}
  bool ok() const { return code == Code::kOk; }
};

inline Status ok_status() { return {}; }

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : held_(std::move(value)) {}        // NOLINT: implicit by design
  Result(Status status) : held_(std::move(status)) {  // NOLINT
    JCCL_CHECK(!std::get<Status>(held_).ok());
  }
  bool ok() const { return std::holds_alternative<T>(held_); }
  T& value() {
    JCCL_CHECK(ok());
    return std::get<T>(held_);
  }
  const T& value() const {
    JCCL_CHECK(ok());
    return std::get<T>(held_);
  }
  Status status() const { return ok() ? Status{} : std::get<Status>(held_); }

 private:
  std::variant<T, Status> held_;
};

}  // namespace jccl::base
