// What a hostile member does besides speaking: others of its making come, go and ask. Each runs on
// a thread of its own until it is told to stop.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "attack/known.h"
#include "peer/communicator.h"

namespace jccl::attack {

struct CrowdOptions {
  std::string master;
  std::string secret;  // of the run; empty: plain
  std::uint64_t elements = 1021;
  std::string key_file;  // of who comes by the same key each time
  std::function<Known()> known = nullptr;
  std::atomic<std::uint64_t>* answered = nullptr;  // whom nobody should have
};

using Crowd = void (*)(const CrowdOptions&, const std::atomic<bool>&, std::atomic<std::uint64_t>&);

// A token that admits one key, or any number; empty where the run has none.
std::string token_for_one(const std::string& secret);
std::string token_for_all(const std::string& secret);

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

// ---- connections of nobody in particular (callers.cc) ------------------------------------------

// Control: hellos that say the life or the site of a member.
void take_lives(const CrowdOptions& options, const std::atomic<bool>& stop,
                std::atomic<std::uint64_t>& count);
// 1,023 or 900 observers that stay; one of the former calls on 256 tags.
void observe(const CrowdOptions& options, const std::atomic<bool>& stop,
             std::atomic<std::uint64_t>& count);
void observe_less(const CrowdOptions& options, const std::atomic<bool>& stop,
                  std::atomic<std::uint64_t>& count);
void drive_terminals(const CrowdOptions& options, const std::atomic<bool>& stop,
                     std::atomic<std::uint64_t>& count);
void say_one_byte(const CrowdOptions& options, const std::atomic<bool>& stop,
                  std::atomic<std::uint64_t>& count);

// ---- links to peers (linkers.cc): whoever is in knows the secret they show ---------------------

void impersonate(const CrowdOptions& options, const std::atomic<bool>& stop,
                 std::atomic<std::uint64_t>& count);
void ask_after_leaving(const CrowdOptions& options, const std::atomic<bool>& stop,
                       std::atomic<std::uint64_t>& count);
void ask_and_not_read(const CrowdOptions& options, const std::atomic<bool>& stop,
                      std::atomic<std::uint64_t>& count);
void ask_for_none(const CrowdOptions& options, const std::atomic<bool>& stop,
                  std::atomic<std::uint64_t>& count);
void make_up_links(const CrowdOptions& options, const std::atomic<bool>& stop,
                   std::atomic<std::uint64_t>& count);

}  // namespace jccl::attack
