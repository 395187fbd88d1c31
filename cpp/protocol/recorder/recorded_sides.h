// The two machines as a flight recorder and a replay see them: state, event and effects as bytes,
// as short notes to compare, and as words for people. Pure; any one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "protocol/master/master_machine.h"
#include "protocol/peer/peer_machine.h"

namespace jccl::protocol {

class Saver;

enum class Role : std::uint8_t { kMaster = 1, kPeer = 2 };

// One effect: of which kind, and 32 bits of a digest of all of it. For comparing, not against
// anybody who means it ill.
struct EffectNote {
  std::uint8_t kind = 0;
  std::uint32_t digest = 0;
  bool operator==(const EffectNote&) const = default;
};

struct MasterSide {
  using Machine = MasterMachine;
  using Event = MasterEvent;
  using Effects = MasterEffects;
  static constexpr Role kRole = Role::kMaster;

  static base::Bytes state_of(const Machine& machine);
  // Nothing: these bytes are no state. What nobody saved need not be one that a machine can be in.
  static std::optional<Machine> machine_of(base::ByteView state, Advisors advisors);
  static void put(const Event& event, Saver& to);
  static std::optional<Event> event_of(base::ByteView bytes);
  static std::vector<EffectNote> notes_of(const Effects& effects, Saver& scratch);
  static std::string words(const Event& event);
  static std::vector<std::string> words(const Effects& effects);  // one for each note
  static std::string_view kind_name(std::uint8_t kind);
  static std::uint64_t layout();  // differs where the fields of a build do
};

struct PeerSide {
  using Machine = PeerMachine;
  using Event = PeerEvent;
  using Effects = PeerEffects;
  static constexpr Role kRole = Role::kPeer;

  static base::Bytes state_of(const Machine& machine);
  static std::optional<Machine> machine_of(base::ByteView state, Advisors advisors);
  static void put(const Event& event, Saver& to);
  static std::optional<Event> event_of(base::ByteView bytes);
  static std::vector<EffectNote> notes_of(const Effects& effects, Saver& scratch);
  static std::string words(const Event& event);
  static std::vector<std::string> words(const Effects& effects);
  static std::string_view kind_name(std::uint8_t kind);
  static std::uint64_t layout();
};

}  // namespace jccl::protocol
