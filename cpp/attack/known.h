// What a member hears of a run and keeps, to use it elsewhere: who the others are and where they
// listen, the secret of their links, what they do just now. Not thread-safe.
#pragma once

#include <map>
#include <variant>
#include <vector>

#include "wire/messages.h"

namespace jccl::attack {

struct Known {
  wire::RunId run{};
  wire::LinkSecret links;
  std::map<wire::PeerId, wire::Member> members;
  std::map<wire::Tag, wire::Start> starts;  // the newest of each

  void hears(const wire::Message& message) {
    if (const auto* welcome = std::get_if<wire::Welcome>(&message)) run = welcome->run;
    if (const auto* start = std::get_if<wire::Start>(&message)) starts[start->round.tag] = *start;
    if (const auto* reply = std::get_if<wire::SyncReply>(&message)) learn(reply->links);
    const auto* roster = std::get_if<wire::Roster>(&message);
    if (roster == nullptr) return;
    learn(roster->links);
    // Who is no member hears of nobody: that takes no knowledge away.
    if (roster->base == 0 && !roster->members.empty()) members.clear();
    for (const wire::PeerId id : roster->left) members.erase(id);
    for (const wire::Member& member : roster->members) members[member.id] = member;
  }
  std::vector<wire::Member> honest() const {
    std::vector<wire::Member> out;
    for (const auto& [id, member] : members) {
      if (member.site.rfind("honest", 0) == 0) out.push_back(member);
    }
    return out;
  }

 private:
  void learn(const wire::LinkSecret& secret) {
    if (secret.generation > links.generation) links = secret;
  }
};

}  // namespace jccl::attack
