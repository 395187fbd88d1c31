// What an operator orders, in a word: on the command line and in the history.
#pragma once

#include <string_view>
#include <utility>

#include "wire/messages.h"

namespace jccl::wire {

inline constexpr std::pair<std::string_view, OrderVerb> kOrderVerbs[] = {
    {"kick", OrderVerb::kKick},   {"ban", OrderVerb::kBan},       {"pardon", OrderVerb::kPardon},
    {"admit", OrderVerb::kAdmit}, {"revoke", OrderVerb::kRevoke}, {"drain", OrderVerb::kDrain},
    {"dump", OrderVerb::kDump}};

}  // namespace jccl::wire
