// What tests of one machine alone look at. Test-only.
#pragma once

#include <variant>
#include <vector>

#include "protocol/master/master_machine.h"
#include "protocol/peer/peer_machine.h"

namespace jccl::protocol {

inline constexpr base::Time kNow = base::kSecond;

// The messages of one kind among the effects.
template <typename T>
std::vector<T> sent(const PeerEffects& effects) {
  std::vector<T> found;
  for (const wire::Message& message : effects.send) {
    if (const T* one = std::get_if<T>(&message)) found.push_back(*one);
  }
  return found;
}

template <typename T>
std::vector<T> sent(const MasterEffects& effects) {
  std::vector<T> found;
  for (const MasterSend& one : effects.send) {
    if (const T* message = std::get_if<T>(&one.message)) found.push_back(*message);
  }
  return found;
}

}  // namespace jccl::protocol
