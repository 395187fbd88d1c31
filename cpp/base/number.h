// Numbers as people write them in options: digits, a point, an exponent. Refuses what strtod takes
// besides: nan, inf, hexadecimal, blanks, a sign. Pure; any thread.
#pragma once

#include <optional>
#include <string_view>

namespace jccl::base {

std::optional<double> decimal(std::string_view text);  // >= 0 and finite

}  // namespace jccl::base
