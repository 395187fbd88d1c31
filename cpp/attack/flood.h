// Floods a master's port, and beside it one that accepts and closes and does nothing else: what a
// connection costs each in processor time, by what the stranger says, and whether others join
// meanwhile. Prints a JSON line for each kind; both servers are processes of their own.
#pragma once

#include <cstdint>
#include <string>

namespace jccl::attack {

// `secret`: of the run; empty: a fresh one. Before any thread of this process: it forks. Returns
// the exit code.
int flood(std::string secret, std::uint64_t connections);

}  // namespace jccl::attack
