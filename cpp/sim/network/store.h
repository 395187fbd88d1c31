// Where a simulated run's journal lives: the disk of its only master, or a store outside that
// several master processes reach, one of which holds the lease; a write of any other is refused.
// Holds what is durable and what a crash may take. Pure; one thread per world.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/network/network.h"
#include "wire/chain.h"

namespace jccl::sim {

struct Disk {
  std::vector<wire::Row> rows;  // durable
  std::vector<wire::Row> unsynced;
  std::size_t told = 0;  // durable rows that history knows of

  void sync();
  // What a power cut leaves: a prefix of the unsynced rows, the last of them perhaps torn.
  void crash(base::Rng& rng, double torn);
};

enum class StoreFault : std::uint8_t { kNone, kWrite, kSync };

struct StoreWrite {  // on its way to a store outside
  std::uint32_t master = 0, life = 0;
  std::uint64_t term = 0;
  std::vector<wire::Row> rows;
};

inline constexpr std::uint32_t kNoHolder = 99;

struct Store {
  Disk disk;
  std::vector<StoreWrite> writes;
  // The lease. Terms grow; a write carries the term it was made under.
  std::uint64_t term = 0;
  std::uint32_t holder = kNoHolder;
  Time expires = 0;
  // What is wrong with it.
  std::array<Time, kMastersMax> cut_until{};
  Time full_until = 0, slow_until = 0;
  StoreFault fails_next = StoreFault::kNone;
  std::uint64_t rot = 0;  // not 0: a row is damaged when the master starts

  bool held_by(std::uint32_t master, std::uint64_t its_term, Time now) const {
    return holder == master && term == its_term && now < expires;
  }
};

// What a master reads when it starts.
base::Result<wire::Chain> read_journal(std::vector<wire::Row> rows, const wire::RunId& run);
// One bit of one row but the last, flipped.
std::vector<wire::Row> rotten(std::vector<wire::Row> rows, std::uint64_t bits);

}  // namespace jccl::sim
