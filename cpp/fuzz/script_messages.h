// Messages for the scripts, either way, out of a small world: few tags, attempts, incarnations and
// digests, so that a script meets the same thing twice. Now and then any message that decodes.
#pragma once

#include <optional>
#include <vector>

#include "fuzz/input.h"
#include "wire/serialize.h"

namespace jccl::fuzz {

class ScriptMessages {
 public:
  explicit ScriptMessages(Input* in) : in_(*in) {}

  wire::Message from_peer();
  wire::Message from_master();
  wire::Hello hello();

  wire::Tag tag() { return in_.flag() ? "model" : "grads"; }
  wire::Digest digest() { return {1 + in_.below(3), 0}; }
  wire::Held held() { return {tag(), in_.below(4), digest()}; }
  wire::Attempt attempt();
  wire::RoundName round() { return {tag(), number()}; }
  // The last attempts that either side named, so that answers can meet questions.
  void note(const wire::Attempt& attempt, const wire::RoundName& round);

  wire::Incarnation self = 1;  // whom a Roster may name
  bool any_bytes = true;       // now and then a message as it decodes, of whatever type
  std::uint64_t call = 1;      // what a Start may answer

 private:
  std::uint64_t number();
  wire::Unresolved unresolved() { return {attempt(), round()}; }
  wire::Message report();
  wire::Message answer();
  wire::Message word_of_peer();
  wire::Message word_of_master();
  wire::Outcome outcome();
  wire::Roster roster();
  wire::SyncReply sync_reply();
  std::optional<wire::Message> raw();
  std::string words() { return in_.text(8); }

  Input& in_;
  std::vector<wire::Unresolved> noted_;
};

}  // namespace jccl::fuzz
