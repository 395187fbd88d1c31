// Tags that carry a state. Rooms of the master machine (master_room.h).
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "protocol/master/master_records.h"
#include "protocol/master/master_room.h"

namespace jccl::protocol {

// How long START of all states is held for a joiner at first, and with attempts that are in flight.
inline constexpr base::Duration kHoldMax = base::kSecond;
inline constexpr base::Duration kHoldInFlightMax = 4 * base::kSecond;

// Tags with a state: who asks for it, who serves it, and holds for who comes (master_sync.cc,
// master_holders.cc).
class StateSync : public Room<StateSync> {
 public:
  std::optional<base::Status> open_tag(const ProcessRecord& process, const wire::Tag& tag);
  void on_sync(ProcessRecord& process, const wire::Sync& sync);
  void sync_tag(const wire::Tag& tag);  // answers every open Sync that can be answered
  bool may_enter(ProcessRecord& process, const wire::Tag& tag);
  void reply_wait(ProcessRecord& process, AskedSync& asked, const std::string& text);
  void reply_refused(ProcessRecord& to, const wire::Tag& tag, wire::Code code, const std::string&);
  void reply_current(ProcessRecord& process, const wire::Tag& tag);
  bool is_state(const wire::Tag& tag) const;
  bool admission_open(const wire::Tag& tag, const std::string& site) const;
  Serving serving(const wire::Tag& tag, std::uint32_t shard) const;
  base::Time awaited_until(const Round& round) const;
  bool awaited(const wire::Tag& tag, std::uint32_t shard) const;  // a holder, perhaps
  base::Time held_until(base::Time until) const;
  void end_holds();

  // Joiners and skipped sites that could not keep up. While one of them is here no START of any
  // state tag is sent: it has to be current on all of them at one moment.
  std::map<std::string, base::Time> holds_;
  base::Time hold_began_ = 0;
  base::Time holds_rest_until_ = 0;  // rounds flow between two holds, whoever asks for them

 private:
  bool has_newest_beside(const ProcessRecord& process, const wire::Sync& sync) const;
  bool another_source(const ProcessRecord& process, const wire::Sync& sync) const;
  void drop_ended_syncs(const wire::Tag& tag);
  void sync_one(ProcessRecord& process, const wire::Tag& tag, Serving& serving);
  void offer(ProcessRecord& process, AskedSync& asked, std::vector<wire::Member> holders);
  bool descriptor_fits(ProcessRecord& process, const AskedSync& asked);
  bool held_for(const std::string& site) const;
  bool out_of_reach(const Serving& serving, const ProcessRecord& asker) const;
  std::vector<wire::Member> holders_of(const Serving& serving, const ProcessRecord& asker) const;
  bool has_first(const ProcessRecord& process, const wire::Tag& tag) const;
  bool may_publish(const wire::Tag& tag, std::uint32_t shard) const;
  bool contributed(wire::PeerId id, const wire::Tag& tag) const;
  void extend_holds();
};

// The beginning of a state (master_birth.cc).
class StateBirth : public Room<StateBirth> {
 public:
  void try_birth(const wire::Tag& tag);
  void take_claims_back(const std::string& site);
  bool is_claimed(Round* round) const;

 private:
  std::string without(const Askers& asked) const;
  Askers askers(const wire::Tag& tag) const;
  static std::vector<const Asker*> most_alike(const Askers& sites);
  void note_claim(ProcessRecord& process, const wire::Tag& tag);
  bool is_here(const std::string& site, const Sayer& place) const;
  void drop_claims(Round* round) const;
  Birth named_source(const wire::Tag& tag, const std::vector<const Asker*>& alike) const;
  std::string half_source(const wire::Tag& tag, const Askers& sites, const Asker& like);
  std::string source_to_come(const wire::Tag& tag, const Askers& sites, const Asker& like) const;
  Birth birth_source(const wire::Tag& tag);
};

// Going back to an earlier state (master_restore.cc).
class StateRestore : public Room<StateRestore> {
 public:
  void restore_by_wish(const wire::Tag& tag);
  bool answer_wish(ProcessRecord& process, const wire::Tag& tag);
  std::string fallback_text(const wire::Tag& tag) const;
  std::string lost_text(const wire::Tag& tag, const std::string& what) const;
  void restore_by_loss(const wire::Tag& tag);
  base::Duration lost_after(const wire::Tag& tag) const;
  void tell_what_was_lost(ProcessRecord& process, const AskedSync& asked);
  std::string restored_text(const wire::Tag& tag) const;

 private:
  std::map<std::string, Ballot> offered(const wire::Tag& tag, bool wished) const;
  bool may_restore(const std::string& site) const;
  base::Wish wish_of(const std::string& site, const wire::Tag& tag) const;
  std::string unknown_text(const wire::Tag& tag, const std::string& site, const Ballot& by) const;
  std::string refused_text(const ProcessRecord& process, const wire::Tag& tag) const;
  bool wish_stands(const wire::Tag& tag) const;
  bool is_to_be_decided(const wire::Tag& tag) const;
  wire::RestoreRecord fallback(const wire::Tag& tag) const;
  void restore(wire::RestoreRecord back);
  void tell_of_restore(ProcessRecord& process, const wire::Tag& tag, const std::string& text);
};

// What a new revision is (master_votes.cc).
class StateVotes : public Room<StateVotes> {
 public:
  bool undecided(const wire::Tag& tag) const;
  bool holds_newest(const ProcessRecord& process, const wire::Tag& tag) const;
  void report(ProcessRecord& process, const wire::Held& held);
  bool votes_awaited(const wire::Tag& tag) const;
  void decide(const wire::Tag& tag);
  std::string dispute(const wire::Tag& tag) const;  // empty: none
  std::string votes_text(const wire::Tag& tag) const;

 private:
  std::map<std::string, std::uint32_t> electorate(const wire::Tag& tag, int tier) const;
  bool takes_after(const ProcessRecord& process, const wire::Tag& tag) const;
  Poll& poll_of(const wire::Tag& tag, int tier);
  void name_outvoted(const ProcessRecord& process, const wire::Tag& tag);
  bool may_abstain(const std::string& site, const wire::Tag& tag) const;
  bool voters_awaited(const wire::Tag& tag) const;
  bool all_came_back(const wire::Tag& tag) const;
  void decide_without(const wire::Tag& tag, bool complete);
  void establish(const wire::Tag& tag, Ballot ballot);
};

}  // namespace jccl::protocol
