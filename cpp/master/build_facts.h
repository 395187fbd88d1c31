// What this build is and with what it was made, as `jccl --version` prints it. Any thread.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace jccl::master {

// (name, value), in the order to print them: version, commit, compiler, glibc (of the headers),
// wire, oldest_wire, journals, encryption, openssl (of the headers, then what runs), sqlite (what
// runs), boost.
std::vector<std::pair<std::string_view, std::string>> build_facts();

}  // namespace jccl::master
