// What a hostile member does besides speaking: others of its making come, go and ask. Each runs on
// a thread of its own until it is told to stop.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "peer/communicator.h"

namespace jccl::attack {

struct CrowdOptions {
  std::string master;
  std::string secret;  // of the run; empty: plain
  std::uint64_t elements = 1021;
  std::string key_file;  // of who comes by the same key each time
};

// A token that admits one key; empty where the run has none.
std::string token_for_one(const std::string& secret);

// Keys that live for one admission.
void come_and_go(const CrowdOptions& options, const std::atomic<bool>& stop,
                 std::atomic<std::uint64_t>& count);
void ask_for_status(const CrowdOptions& options, const std::atomic<bool>& stop,
                    std::atomic<std::uint64_t>& count);
// Takes part in a round and moves nothing: for 2.2 s, before the others cut it off, under one key;
// or for 3 s, under a fresh key each time.
void hold_and_leave(const CrowdOptions& options, const std::atomic<bool>& stop,
                    std::atomic<std::uint64_t>& count);
void hold_until_evicted(const CrowdOptions& options, const std::atomic<bool>& stop,
                        std::atomic<std::uint64_t>& count);
// Over a thousand connections, each with as much under way as it may have (hoard.cc).
void hoard(const CrowdOptions& options, const std::atomic<bool>& stop,
           std::atomic<std::uint64_t>& count);
// One shard of a site of two, whose sister never comes.
void half_a_site(const CrowdOptions& options, const std::atomic<bool>& stop,
                 std::atomic<std::uint64_t>& count);

}  // namespace jccl::attack
