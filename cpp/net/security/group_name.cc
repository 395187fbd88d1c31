#include "net/security/group_name.h"

#include <algorithm>

#include "base/planted.h"
#include "base/text.h"
#include "base/utf8.h"

namespace jccl::net {
namespace {

// Of ASCII, whatever the locale.
bool is_plain(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool may_follow(char c) {
  return is_plain(c) || c == '-' || c == '_' || c == '.' ||
         (c == '/' && JCCL_PLANTED("group-name-is-a-path"));
}

}  // namespace

bool is_group_name(std::string_view name) {
  return !name.empty() && name.size() <= kGroupNameBytesMax && is_plain(name.front()) &&
         std::all_of(name.begin(), name.end(), may_follow);
}

base::Status check_group_name(std::string_view name) {
  if (name.empty() || is_group_name(name)) return {};
  return {base::Code::kInvalid,
          base::cat("'", base::printable(base::to_utf8(name)),
                    "' is no name of a group: give 1 to ", kGroupNameBytesMax,
                    " letters, digits, '-', '_' and '.', the first a letter or digit")};
}

}  // namespace jccl::net
