// Which inputs the machines met in which phases. A row is an input, a column where the machine (or
// the life that speaks, and the round it speaks of) stood when it came. Pairs that cannot happen,
// or not in this world, are listed with the reason; every other one must have been met. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "protocol/master/master_machine.h"
#include "protocol/peer/peer_machine.h"

namespace jccl::sim {

inline constexpr std::size_t kMessageKinds = std::variant_size_v<wire::Message>;
inline constexpr std::size_t kMasterInputs = kMessageKinds + 5;
inline constexpr std::size_t kMasterPhases = 8;
inline constexpr std::size_t kPeerInputs = kMessageKinds + std::variant_size_v<protocol::PeerEvent>;
inline constexpr std::size_t kPeerPhases = 13;
inline constexpr std::size_t kAttemptEdges = 16;
inline constexpr std::size_t kStragglerInputs = 4, kStragglerPolicies = 3;

struct Coverage {
  std::array<std::array<std::uint64_t, kMasterPhases>, kMasterInputs> master{};
  std::array<std::array<std::uint64_t, kPeerPhases>, kPeerInputs> peer{};
  std::array<std::uint64_t, kAttemptEdges> attempt{};  // phase · 4 + input
  std::array<std::array<std::uint64_t, kStragglerPolicies>, kStragglerInputs> straggler{};

  // Before the machine gets the event.
  void see(const protocol::MasterMachine& machine, const protocol::MasterEvent& event);
  void see(const protocol::PeerMachine& machine, const protocol::PeerEvent& event);
  // What the machine did about stragglers.
  void see(const protocol::MasterEffects& effects);
  // When a master's machine ends: bit `phase · 4 + input`.
  void see_attempts(std::uint32_t edges);
  void add(const Coverage& other);

 private:
  void see_stragglers(const protocol::MasterMachine& machine);
  void see_return(const protocol::MasterMachine& machine, protocol::ConnId conn,
                  const wire::Message& message);
};

// The tables in words; `missing` gets the names of the pairs that were not met and are not excused.
std::string to_text(const Coverage& coverage, std::vector<std::string>* missing);

}  // namespace jccl::sim
