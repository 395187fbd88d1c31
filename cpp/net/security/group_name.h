// What a group of a run may be called: its name is part of the names of files and of keys in etcd,
// and stands in logs. Pure.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace jccl::net {

inline constexpr std::size_t kGroupNameBytesMax = 64;
// 1 to 64 letters, digits, '-', '_' and '.', the first of them a letter or digit: so never a path.
bool is_group_name(std::string_view name);
// "" is the run itself. Code: kInvalid, in words.
base::Status check_group_name(std::string_view name);

}  // namespace jccl::net
