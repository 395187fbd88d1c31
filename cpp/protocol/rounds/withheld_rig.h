// An attempt whose members say in heartbeats what comes to them, and what does not.
#pragma once

#include <algorithm>

#include "protocol/hostile_rig.h"

namespace jccl::protocol {

class WithheldTest : public HostileMember {
 protected:
  // An attempt of so many, of whom nobody is done.
  void run_of(std::uint32_t members, Straggler straggler = Straggler::kEvict) {
    MasterOptions all = options();
    all.start_peers = members, all.straggler = straggler;
    all.straggler_after = 4 * base::kSecond;
    begin(all);
    last_ = 0, lacks_.clear();
    constexpr const char* kNames[] = {"a", "b", "c", "d", "e"};
    for (std::uint32_t i = 0; i < members; ++i) join({kNames[i]});
    deadlines_.assign(members, 60 * base::kSecond);
  }
  void call(std::uint64_t n = 1) {
    std::vector<wire::Start> starts;
    for (ConnId conn = 1; conn <= last_; ++conn) {
      wire::Ready one = ready("grads", n);
      one.deadline = deadlines_[conn - 1];
      starts = sent<wire::Start>(say(conn, one));
    }
    ASSERT_FALSE(starts.empty());
    attempt_ = starts[0].attempt;
  }
  struct Said {
    wire::PeerId of = 0;
    std::uint32_t lacking = 1;
    std::uint64_t left = 500;
  };
  // With heartbeats that say so, by connection; the others move what they have. What was noted.
  std::vector<HistoryLine> pass(base::Duration time) {
    std::vector<HistoryLine> noted;
    const auto note = [&noted](const MasterEffects& effects) {
      noted.insert(noted.end(), effects.history.begin(), effects.history.end());
    };
    for (const base::Time end = now_ + time; now_ < end;) {
      for (ConnId conn = 1; conn <= last_; ++conn) {
        const auto lack = lacks_.find(conn);
        const Said said = lack == lacks_.end() ? Said{0, 0, 0} : lack->second;
        wire::Heartbeat beat;
        if (conn != quiet_)
          beat.moving.push_back({attempt_, said.left, 1000, said.of, said.lacking});
        note(say(conn, beat));
      }
      now_ += options().heartbeat / 2;
      note(on(Tick{}));
    }
    return noted;
  }
  static std::string first(const std::vector<HistoryLine>& lines, const std::string& kind,
                           const std::string& field = "site") {
    for (const HistoryLine& line : lines) {
      if (line.kind != kind) continue;
      for (const auto& [name, value] : line.fields) {
        if (name == field) return value;
      }
    }
    return "";
  }
  std::map<ConnId, Said> lacks_;
  std::vector<base::Duration> deadlines_;
  ConnId quiet_ = 0;  // whose heartbeats say nothing of the attempt
  wire::Attempt attempt_;
};

}  // namespace jccl::protocol
