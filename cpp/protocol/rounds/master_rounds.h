// A round, from its first READY to its outcome. Rooms of the master machine (master_room.h).
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

// A round before START: calls come, and must be alike (master_rounds.cc, master_agree.cc,
// master_weights.cc).
class Forming : public Room<Forming> {
 public:
  void on_ready(ProcessRecord& process, const wire::Ready& ready);
  bool answer_ready_out_of_turn(ProcessRecord& process, const wire::Ready& ready);
  void send_start(const ProcessRecord& process, const Participant& part,
                  const MasterAttempt& running);
  void on_withdraw(ProcessRecord& process, const wire::Withdraw& withdraw);
  const OpenReady* ready_of(const wire::Tag& tag, const wire::Member& member) const;
  void forget_call(wire::Incarnation incarnation, const wire::Tag& tag);
  void reject(const wire::Tag& tag, wire::Incarnation incarnation, wire::Code code,
              const std::string& text);
  void reject_all(const wire::Tag& tag, wire::Code, const std::string& text, bool outsiders = true);
  bool asks_in_vain(const wire::Member& member, const wire::Tag& tag) const;
  void uncross();
  void form(const wire::Tag& tag);
  bool agree(const wire::Tag& tag);  // false: somebody was rejected
  void note_weights(const wire::Tag& tag, const MasterAttempt& committed);
  Wait forming_wait(const wire::Tag& tag) const;
  std::vector<Participant> parts_for(const wire::Tag& tag) const;
  LinkSet bad_links(const wire::Tag& tag, bool avoid_cuts) const;
  base::Result<std::vector<base::Bytes>> plans_for(const wire::Tag& tag,
                                                   const std::vector<Participant>& parts,
                                                   const LinkSet& bad) const;

  std::uint64_t counter_ = 0;
  base::Time states_crossed_since_ = base::kNever;

 private:
  std::uint32_t contributors_needed(const wire::Tag& tag,
                                    const std::vector<Participant>& parts) const;
  bool state_fits(ProcessRecord& process, const wire::Ready& ready);
  void expire_round(const wire::Tag& tag);
  void send_on(const wire::Tag& tag);
  std::set<wire::Tag> crossed_states() const;
  void note_elsewhere(const wire::Tag& tag, base::Time since);
  bool agree_on_call(const wire::Tag& tag);
  bool all_ask_alike(const wire::Tag& tag) const;
  bool agree_on_hint(const wire::Tag& tag);
  bool agree_on_weights(const wire::Tag& tag);
  bool agree_on_contributors(const wire::Tag& tag);
  void refuse_sites(const wire::Tag& tag, const std::map<std::string, base::Status>& unfit,
                    bool go_on);
  bool agree_on_state(const wire::Tag& tag);
  void launch(const wire::Tag& tag);
  base::Time round_deadline(const wire::Tag& tag) const;
};

// An attempt from START to its outcome (master_attempts.cc, master_outcomes.cc).
class RunningAttempts : public Room<RunningAttempts> {
 public:
  void start_late(const ProcessRecord& process, Participant& part, MasterAttempt& running);
  void drop_part(const ProcessRecord& process, const wire::Tag& tag, Participant& part, Fault fault,
                 const std::string& why);
  void on_done(ProcessRecord& process, const wire::Done& done);
  void on_fail(ProcessRecord& process, const wire::Fail& fail);
  void on_query(ProcessRecord& process, const wire::Query& query);
  void answer(ProcessRecord& process, const wire::Unresolved& about);
  bool conclude(const wire::Tag& tag);  // true: the attempt ended
  void commit(const wire::Tag& tag);
  void abort(const wire::Tag& tag, wire::Code code, const std::string& text, bool retry,
             const std::string& left_out_site = {}, const std::set<wire::PeerId>& ended = {});
  wire::Tag running_tag(const wire::Attempt& attempt) const;  // empty: none

  base::Time pauses_due_ = base::kNever;  // no round's pause ends before
  std::map<wire::Attempt, wire::Tag> running_;
  std::uint32_t edges_seen_ = 0;  // of all attempts: see MasterAttempt::edges

 private:
  void tell_late(ProcessRecord& process, const wire::Outcome& outcome);  // who asked
  static base::Code told_to_others(base::Code cause);
  void refused_by(const wire::Tag& tag, Participant& part, const base::Status& why);
  void judge_refusals(const wire::Tag& tag);
  bool unequal(const wire::Tag& tag);
  bool is_misled(Round& round, const Participant& part);
  std::optional<wire::Outcome> outcome_of(const wire::Unresolved& about,
                                          const ProcessRecord& process) const;
  bool ends_by_deadline(const wire::Tag& tag);
};

// The slow ones: quorum, skipping, and edits of who was left out (master_stragglers.cc,
// master_edits.cc).
class Stragglers : public Room<Stragglers> {
 public:
  base::Time leaves_behind_at(const Round& round) const;
  void note_late(const wire::Tag& tag);
  void note_back();
  const Participant* waits_for(const MasterAttempt& running, const Participant& part) const;
  bool waits_itself(const MasterAttempt& running, const Participant& part) const;
  const Participant* holds_in_silence(const MasterAttempt& running) const;
  void note_quorum(const wire::Tag& tag);
  static void forget_quorum(Round& round);
  void note_asked_edit(ProcessRecord& process, const wire::Sync& sync);
  bool take_back_left_out(const wire::Tag& tag);
  void note_spoilt(const wire::Tag& tag, const std::string& site);
  void note_edit(const wire::Tag& tag, const std::string& site);
  void forget_spoilt(const wire::Tag& tag, const MasterAttempt& committed);
  bool takes_part(const wire::Tag& tag, const wire::Member& member) const;
  bool waited_for(const std::string& site) const;
  void take_back(const std::string& site, const wire::Tag& tag);
  bool slow_down(const wire::Tag& tag);
  std::string straggling(const MasterAttempt& running, base::Duration patience,
                         std::string* why) const;
  const Participant* silent_last(const MasterAttempt& running, base::Duration patience) const;
  std::string trouble_of(const ProcessRecord& process, base::Time now) const;
  std::string left_text(const MasterAttempt& running, const Participant& part) const;
  bool is_to_be_heard(const MasterAttempt& running) const;

 private:
  std::set<std::string> late_sites(const wire::Tag& tag) const;
  bool left_out(const wire::Tag& tag, const wire::Member& member) const;
  void leave_behind(const wire::Tag& tag);
  void note_asked_quorum(const wire::Tag& tag);
  void leave_out(const wire::Tag& tag);
  void skip(const wire::Tag& tag, const std::string& site, base::Time since, base::Duration waited,
            const std::string& why);
  void wait_without_quorum(const wire::Tag& tag, std::size_t ready, std::size_t sites);
  void note_ready_late(const wire::Tag& tag);
  bool waits_for_evicted(const MasterAttempt& running, const wire::Moving& moving) const;
};

// Contributions that do not come (master_withheld.cc).
class Withheld : public Room<Withheld> {
 public:
  void note_lacks(const ProcessRecord& process);
  std::pair<const Participant*, base::Time> withholds(const MasterAttempt& running) const;
  bool starves(const MasterAttempt& running, wire::PeerId id) const;
  std::vector<Pair> starved(const MasterAttempt& running, const Participant* last,
                            base::Duration patience) const;
  void cut_starved(const wire::Tag& tag, const std::vector<Pair>& links);
  bool cut_off(const wire::Tag& tag);
  bool starves_by_a_link(const wire::Tag& tag, const Participant& last, const wire::Moving& its);

 private:
  bool owes_it(const MasterAttempt& running, const Lack& lack) const;
  Pair slow_pair(const MasterAttempt& running) const;
  base::Time alone_since(const MasterAttempt& running, const Lack& lack) const;
};

// Whether sums are right (master_audit.cc, master_audit_waits.cc).
class Audits : public Room<Audits> {
 public:
  enum class Step { kPassed, kWaits, kEnded };
  bool may_audit(const wire::Tag& tag, const std::vector<Participant>& parts,
                 const std::vector<base::Bytes>& plans);
  static void keep_roots(const MasterAttempt& running, Participant& part,
                         const wire::AuditRoots& roots);
  static std::vector<std::uint32_t> owed_cells(const MasterAttempt& running,
                                               const Participant& part);
  void ask_anew(const ProcessRecord& process);
  void on_audit_part(ProcessRecord& process, const wire::AuditPart& shown);
  base::Duration took(const Audit& audit, wire::PeerId id) const;
  void note_owing(const MasterAttempt& running);
  void note_owing(const MasterAttempt& running, const Participant& part);
  void note_unshown(const ProcessRecord& process, const MasterAttempt& running,
                    const Participant& part);
  void leave_audit(const ProcessRecord& process, const wire::Tag& tag, const Participant& part,
                   const wire::Fail& fail);
  base::Time audit_due(const MasterAttempt& running) const;
  Step audit(const wire::Tag& tag);
  std::string audit_text(const MasterAttempt& running) const;

 private:
  void note_audit(const wire::Tag& tag, const std::string& text);
  static bool contradicts_itself(const MasterAttempt& running, const Participant& part);
  static LinkSet crossed_roots(const MasterAttempt& running, bool of_gone);
  void draw(const wire::Tag& tag);
  void ask_for_cells(const wire::Tag& tag);
  bool judge_cell(const wire::Tag& tag, const CellName& name);
  void hold_against(const ProcessRecord& process, Fault fault, const std::string& why);
  void convict(const wire::Tag& tag, const Participant& part, const std::string& what);
  void hold_roots_against_links(const wire::Tag& tag, const LinkSet& links);
  void note_shown(MasterAttempt& running, const Participant& part) const;
  static std::size_t pieces_of(const MasterAttempt& running, const Participant& part,
                               const std::vector<std::uint32_t>& cells);
  base::Duration others_take(const MasterAttempt& running, const Participant& part) const;
  base::Duration patience_with(const MasterAttempt& running, const Participant& part) const;
  base::Time owes_since(const MasterAttempt& running, const Participant& part) const;
  bool ends_by_withholding(const wire::Tag& tag);
};

}  // namespace jccl::protocol
