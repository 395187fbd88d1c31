// What the master machine holds between two events, and the steps it is made of. Private to the
// master_*.cc files. Durable facts live in the Ledger, everything else here is lost by a restart
// and rebuilt from what peers say when they come back. Pure; one event at a time.
//
// A life:   hello → observer → (admitted) member → evicted, fenced for ever
// A round:  forming (READY by READY) → running (MasterAttempt) → commit: n + 1
//                                                               → abort: forming again, same n
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/own_pause.h"
#include "protocol/ledger.h"
#include "protocol/master_machine.h"
#include "protocol/master_records.h"

namespace jccl::protocol {

// How long START of all states is held for a joiner at first, and with attempts that are in flight.
inline constexpr base::Duration kHoldMax = base::kSecond;
inline constexpr base::Duration kHoldInFlightMax = 4 * base::kSecond;

struct MasterMachine::State {
  State(MasterOptions options, Planner planner, const std::vector<wire::Record>& records,
        base::Time now);

  // master_machine.cc: routing
  void begin(base::Time now);
  void stood_still(const base::OwnPause& pause);
  MasterEffects finish();
  void start();
  void on(const MasterEvent& event);
  void on_message(const ConnMessage& said);
  void on_peer_message(ProcessRecord& process, const wire::Message& message);
  void settle();  // everything that follows from the event
  void settle(const wire::Tag& tag);
  void drop_unused_tags();
  void end_pauses();
  void tick();
  base::Time due(const Round& round, base::Time seen) const;
  base::Time next_wake() const;
  void journal(wire::Record record);
  void send(ConnId conn, wire::Message message);
  void send(const ProcessRecord& to, wire::Message said) { send(to.conn, std::move(said)); }
  void note(std::string kind, std::vector<std::pair<std::string, std::string>> fields);
  void refuse(ConnId conn, wire::Code code, std::string text);
  void refuse_nonsense(ConnId conn, std::string text);  // and hold it against a member
  void close(ConnId conn);
  void touch(const wire::Tag& tag) { touched_.insert(tag); }
  void touch_all();
  void extend_holds();
  base::Time held_until(base::Time until) const;
  void end_holds();

  // master_peers.cc: lives; master_seats.cc: seats; master_members.cc: membership
  void on_hello(ConnId conn, const wire::Hello& hello, const Shown& shown);
  std::optional<base::Status> objection(const wire::Hello& hello) const;
  std::optional<base::Status> seat_taken(const wire::Hello& hello,
                                         const wire::PublicKey& key) const;
  std::string taken_text(const ProcessRecord& process, const wire::PublicKey& asker) const;
  void attach(ConnId conn, const wire::Hello& hello, const Shown& shown);
  void on_resume(ProcessRecord& process, const wire::Resume& resume);
  void on_closed(ConnId conn);
  void lose(ConnId conn);
  void detach(ProcessRecord& process);  // its connection is gone
  void drop_observer(wire::Incarnation incarnation, const std::string& why);
  void on_leave(ProcessRecord& process);
  // By value: the caller's string may belong to what is evicted.
  void evict(std::string site, const std::string& reason, const std::string& kind);
  void depart(const std::string& site, const std::string& reason, const std::string& kind);
  base::Time lost_at(const ProcessRecord& process) const;
  void expire_processes();
  void probe_absent();
  bool complete(const std::string& site) const;  // all shards connected and resumed
  bool admit_some();
  bool wants_in(const std::string& site) const;
  bool gathers() const;
  void admit(const std::vector<std::string>& sites);
  void know_participants();
  void leave_what_it_does_not_hold(const ProcessRecord& process);
  void write_epoch(std::vector<wire::Member> members, wire::PeerId next_id, std::string reason);
  wire::Roster roster() const;
  wire::Member member_of(const ProcessRecord& process) const;
  void flush_roster();
  void tell(ProcessRecord& process, wire::Roster roster);
  ProcessRecord* record_of(wire::Incarnation incarnation);
  const ProcessRecord* record_of(wire::Incarnation incarnation) const;
  const std::set<wire::Incarnation>& processes_at(const std::string& site) const;  // empty: none
  std::vector<ProcessRecord*> shards_of(const std::string& site);
  void forget(wire::Incarnation incarnation);
  void holder_left(wire::Incarnation incarnation);
  std::size_t observers() const { return processes_.size() - ledger_.members().size(); }
  std::set<std::string> member_sites() const;
  void make_room(const wire::Hello& hello);
  bool gives_way(const ProcessRecord& process) const;
  void keep_seat(const std::string& site);
  std::optional<base::Status> seat_kept(const std::string& site, const wire::PublicKey& key) const;
  base::Status reserved(const std::string& site, const wire::PublicKey& key,
                        const std::function<bool(const std::string&)>& is_its_own) const;
  std::string key_elsewhere(const ProcessRecord& process) const;
  bool is_idle(const ProcessRecord& process) const;
  void fence_observer(const ProcessRecord& process);
  bool alive(const ProcessRecord& process) const;
  bool no_site_left(const wire::Hello& hello) const;
  void turn_away(const std::string& site);
  bool owes(const wire::Tag& tag, wire::PeerId id) const;
  bool nobody_is_new(const wire::Tag& tag) const;
  void enter(const wire::Tag& tag, const std::string& site);
  void settle_in(wire::PeerId id);
  std::size_t owing(const wire::Tag& tag) const;     // how many
  std::size_t sites_in(const wire::Tag& tag) const;  // of those that owe
  std::uint32_t start_peers() const;
  void note_gone(const std::string& site, std::string why);
  std::string gone_text() const;
  const ProcessRecord* patient() const;  // whose wish for start_peers is the largest

  // master_blame.cc: who may be here, and what is held against whom
  std::optional<base::Status> unwelcome(const wire::Hello& hello, const Shown& shown) const;
  std::string ban_text(const wire::PublicKey& key, std::uint64_t until_unix_ms,
                       const std::string& reason) const;
  const Ban* ban_of(const wire::PublicKey& key) const;  // that holds now; nullptr: none
  bool is_revoked(const std::string& token) const;
  struct Place {
    std::uint32_t shard = 0, of = 1;
  };
  std::optional<base::Status> token_spent(const std::string& token, std::uint32_t uses, Place place,
                                          const wire::PublicKey& key) const;
  std::string kept_outside(const std::string& site) const;  // why; empty: it may come in
  std::string kept_outside(const ProcessRecord& process) const;
  std::string barred(const ProcessRecord& process) const;
  void open_gates();
  void remember_bans();
  std::uint32_t caught(const std::string& token);
  void note_entry(const ProcessRecord& process);
  void note_departure(const std::string& site);
  bool is_new(const wire::PublicKey& key) const;
  void charge(const ProcessRecord& process, Fault fault, const std::string& why);
  void charge_nonsense(ConnId conn);
  void on_outvoted(ProcessRecord& process, const wire::Outvoted& said);
  void on_violation(const ProcessRecord& process, const wire::Violation& said);
  void end_attempts_of(const ProcessRecord& process, const std::string& why);
  static std::string_view words_of(wire::ViolationKind kind);
  void charge_accused(ProcessRecord& process);
  base::Time leaves_behind_at(const Round& round) const;
  std::set<std::string> late_sites(const wire::Tag& tag) const;
  void note_late(const wire::Tag& tag);
  void note_back();
  bool open_the_door(const wire::Tag& tag);
  const Part* waits_for(const MasterAttempt& running, const Part& part) const;
  bool waits_itself(const MasterAttempt& running, const Part& part) const;
  const Part* holds_in_silence(const MasterAttempt& running) const;
  void charge_invented(const ProcessRecord& process, const std::string& what);
  void punish();
  void put_out_holders();
  void ban(const wire::PublicKey& key, base::Duration span, const std::string& reason,
           const std::string& site);
  std::size_t expel(const std::function<bool(const ProcessRecord&)>& whom, const std::string& told,
                    const std::function<std::string(const std::string&)>& reason);
  void put_out(const std::string& site, base::Duration cost);
  void on_order(ConnId conn, const wire::Order& order, const Shown& shown);
  wire::OrderReply carry_out(const wire::Order& order);
  wire::OrderReply kick(const wire::Order& order);
  wire::OrderReply kick_candidate(const std::string& site, const std::string& why);
  wire::OrderReply drain(const wire::Order& order);
  wire::OrderReply order_of_key(const wire::Order& order);
  wire::OrderReply revoke(const wire::Order& order);
  std::uint64_t unix_ms() const;

  // master_held.cc: time that others wait
  bool may_be_slow(const std::string& site) const;
  base::Time waited_since(const std::string& site) const;  // kNever: nobody waits for it
  base::Time awaited_since(const MasterAttempt& running, const Part& part) const;
  base::Time in_trouble_since(const ProcessRecord& process) const;
  void note_held(const std::string& site, base::Time since, base::Duration more_free = 0);
  void charge_time(const Departed& by, base::Time until, base::Duration more_free);
  void note_left(const std::string& site);
  void charge_left(const wire::Tag& tag);
  void note_exit(const ProcessRecord& process, const MasterAttempt& running);
  base::Duration free_time() const;
  void hold_token(const std::string& by, base::Time since, base::Time until, base::Duration free);
  void note_absence(const std::string& site, base::Time since, base::Duration more_free = 0);
  bool pays(const std::string& site) const;  // for time that it held others

  // master_deadlines.cc: calls that end attempts, and who pays for it
  void charge_exit(const ProcessRecord& process, const wire::Tag& tag, const Part& part,
                   Fault fault, const std::string& why);
  void charge_exit(const ProcessRecord& process, const MasterAttempt& running, Fault fault,
                   const std::string& text);
  Fault kind_of_deadline(ProcessRecord& process, const Part& part);
  bool hasty(wire::Incarnation who, const std::vector<Part>& parts, double share = 1.0 / 8) const;
  bool hurried(const wire::Tag& tag);
  void note_deadline(const MasterAttempt& running);
  const Part* withholder(const MasterAttempt& running) const;
  bool note_hold(const MasterAttempt& running);
  bool note_short_calls(const MasterAttempt& running, const Part* holder);
  void note_cut_short(Round& round);
  bool note_tight_calls(const MasterAttempt& running);
  void note_lost_time(const MasterAttempt& running);

  // master_rounds.cc: forming; master_agree.cc: what must be alike
  std::optional<base::Status> open_tag(const ProcessRecord& process, const wire::Tag& tag);
  void on_ready(ProcessRecord& process, const wire::Ready& ready);
  bool answer_ready_out_of_turn(ProcessRecord& process, const wire::Ready& ready);
  void start_late(const ProcessRecord& process, Part& part, MasterAttempt& running);
  bool began_late(Round& round, const Part& part);
  void send_start(const ProcessRecord& process, const Part& part, const MasterAttempt& running);
  void drop_part(const ProcessRecord& process, const wire::Tag& tag, Part& part, Fault fault,
                 const std::string& why);
  bool state_fits(ProcessRecord& process, const wire::Ready& ready);
  void on_withdraw(ProcessRecord& process, const wire::Withdraw& withdraw);
  const OpenReady* ready_of(const wire::Tag& tag, const wire::Member& member) const;
  void forget_call(wire::Incarnation incarnation, const wire::Tag& tag);
  void reject(const wire::Tag& tag, wire::Incarnation incarnation, wire::Code code,
              const std::string& text);
  void reject_all(const wire::Tag& tag, wire::Code, const std::string& text, bool outsiders = true);
  void expire_round(const wire::Tag& tag);
  void send_on(const wire::Tag& tag);
  bool asks_in_vain(const wire::Member& member, const wire::Tag& tag) const;
  std::set<wire::Tag> crossed_states() const;
  void uncross();
  void note_elsewhere(const wire::Tag& tag, base::Time since);
  void form(const wire::Tag& tag);
  bool agree(const wire::Tag& tag);  // false: somebody was rejected
  bool agree_on_call(const wire::Tag& tag);
  bool all_ask_alike(const wire::Tag& tag) const;
  bool agree_on_hint(const wire::Tag& tag);
  bool agree_on_weights(const wire::Tag& tag);
  void note_weights(const wire::Tag& tag, const MasterAttempt& committed);
  bool agree_on_contributors(const wire::Tag& tag);
  void refuse_sites(const wire::Tag& tag, const std::map<std::string, base::Status>& unfit,
                    bool go_on);
  bool agree_on_state(const wire::Tag& tag);
  Wait forming_wait(const wire::Tag& tag) const;
  void launch(const wire::Tag& tag);
  std::vector<Part> parts_for(const wire::Tag& tag) const;
  LinkSet bad_links(const wire::Tag& tag, bool avoid_cuts) const;
  bool weighs_nothing(const ProcessRecord& process, const ProcessRecord& junior) const;
  bool is_liar_beside(const ProcessRecord& other, const ProcessRecord& process) const;
  void evict_one_that_only_dials(const wire::Tag& tag, const base::Status& why);
  LinkSet avoided_links(base::Time now) const;
  base::Result<std::vector<base::Bytes>> plans_for(const wire::Tag& tag,
                                                   const std::vector<Part>& parts,
                                                   const LinkSet& bad) const;
  void evict_worst_link(const wire::Tag& tag, const base::Status& why);
  base::Time round_deadline(const wire::Tag& tag) const;

  // master_stragglers.cc: the slow ones
  void note_quorum(const wire::Tag& tag);
  bool left_out(const wire::Tag& tag, const wire::Member& member) const;
  void note_asked_edit(ProcessRecord& process, const wire::Sync& sync);
  bool take_back_left_out(const wire::Tag& tag);
  void note_spoilt(const wire::Tag& tag, const std::string& site);
  void note_edit(const wire::Tag& tag, const std::string& site);
  void forget_spoilt(const wire::Tag& tag, const MasterAttempt& committed);
  bool takes_part(const wire::Tag& tag, const wire::Member& member) const;
  bool waited_for(const std::string& site) const;
  void take_back(const std::string& site, const wire::Tag& tag);
  void leave_behind(const wire::Tag& tag);
  void note_ready_late(const wire::Tag& tag);
  bool slow_down(const wire::Tag& tag);
  std::string straggling(const MasterAttempt& running, base::Duration patience,
                         std::string* why) const;
  const Part* silent_last(const MasterAttempt& running, base::Duration patience) const;
  bool waits_for_evicted(const MasterAttempt& running, const wire::Moving& moving) const;
  std::string trouble_of(const ProcessRecord& process, base::Time now) const;
  std::string left_text(const MasterAttempt& running, const Part& part) const;

  // master_withheld.cc: contributions that do not come
  void note_lacks(const ProcessRecord& process);
  std::pair<const Part*, base::Time> withholds(const MasterAttempt& running) const;
  bool owes_it(const MasterAttempt& running, const Lack& lack) const;
  bool starves(const MasterAttempt& running, wire::PeerId id) const;
  Pair slow_pair(const MasterAttempt& running) const;
  base::Time alone_since(const MasterAttempt& running, const Lack& lack) const;
  std::vector<Pair> starved(const MasterAttempt& running, const Part* last,
                            base::Duration patience) const;
  void cut_starved(const wire::Tag& tag, const std::vector<Pair>& links);
  bool cut_off(const wire::Tag& tag);

  // master_attempts.cc: running
  void on_done(ProcessRecord& process, const wire::Done& done);
  void on_fail(ProcessRecord& process, const wire::Fail& fail);
  void on_query(ProcessRecord& process, const wire::Query& query);
  void answer(ProcessRecord& process, const wire::Unresolved& about);
  void tell_late(ProcessRecord& process, const wire::Outcome& outcome);  // who asked
  void remember_link(Round& round, const wire::Attempt& attempt, wire::PeerId reporter,
                     wire::PeerId named, bool juniors_pay = true);
  bool is_to_be_heard(const MasterAttempt& running) const;
  bool hears_out(MasterAttempt& running);
  void judge(const wire::Tag& tag);
  void cut_link(Round& round, wire::PeerId a, wire::PeerId b, base::Duration held = 0);
  void avoid_link(wire::PeerId one, wire::PeerId two, base::Duration held = 0);
  void hold_against_an_end(wire::PeerId one, wire::PeerId two, base::Time since, bool juniors_pay);
  std::pair<wire::PublicKey, wire::PublicKey> keys_of(wire::PeerId one, wire::PeerId two) const;
  std::size_t often_broken(const wire::PublicKey& key) const;
  bool one_has_yielded(wire::PeerId one, wire::PeerId two) const;
  static std::string broken_with(const ProcessRecord& other);
  void forgive_links_with(wire::Incarnation incarnation);
  const ProcessRecord* member_record(wire::PeerId id) const;  // null: it is no member
  base::Duration served(const ProcessRecord& process) const;
  bool served_less(const ProcessRecord& process, const ProcessRecord& other) const;
  bool is_junior(const ProcessRecord& process, const ProcessRecord& other) const;
  bool conclude(const wire::Tag& tag);  // true: the attempt ended
  void commit(const wire::Tag& tag);
  void abort(const wire::Tag& tag, wire::Code code, const std::string& text, bool retry,
             const std::string& left_out_site = {}, const std::set<wire::PeerId>& ended = {});
  static bool names_another(const MasterAttempt& running, const Part& part, const wire::Fail& fail);
  static base::Code told_to_others(base::Code cause);
  static bool says_what_another_sent(const MasterAttempt& running, const Part& part,
                                     const wire::Fail& fail);
  void refused_by(const wire::Tag& tag, Part& part, const base::Status& why);
  void judge_refusals(const wire::Tag& tag);
  bool unequal(const wire::Tag& tag);
  bool is_misled(Round& round, const Part& part);
  bool starves_by_a_link(const wire::Tag& tag, const Part& last, const wire::Moving& its);
  std::optional<wire::Outcome> outcome_of(const wire::Unresolved& about,
                                          const ProcessRecord& process) const;
  wire::Tag running_tag(const wire::Attempt& attempt) const;  // empty: none

  // master_audit.cc: whether sums are right
  enum class AuditStep { kPassed, kWaits, kEnded };
  bool may_audit(const wire::Tag& tag, const std::vector<Part>& parts,
                 const std::vector<base::Bytes>& plans);
  void note_audit(const wire::Tag& tag, const std::string& text);
  static void keep_roots(const MasterAttempt& running, Part& part, const wire::AuditRoots& roots);
  static bool contradicts_itself(const MasterAttempt& running, const Part& part);
  static LinkSet crossed_roots(const MasterAttempt& running, bool of_gone);
  void draw(const wire::Tag& tag);
  void ask_for_cells(const wire::Tag& tag);
  static std::vector<std::uint32_t> owed_cells(const MasterAttempt& running, const Part& part);
  void ask_anew(const ProcessRecord& process);
  void on_audit_part(ProcessRecord& process, const wire::AuditPart& shown);
  bool judge_cell(const wire::Tag& tag, const CellName& name);
  void hold_against(const ProcessRecord& process, Fault fault, const std::string& why);
  void convict(const wire::Tag& tag, const Part& part, const std::string& what);
  void hold_roots_against_links(const wire::Tag& tag, const LinkSet& links);
  void note_shown(MasterAttempt& running, const Part& part) const;
  base::Duration took(const Audit& audit, wire::PeerId id) const;
  static std::size_t pieces_of(const MasterAttempt& running, const Part& part,
                               const std::vector<std::uint32_t>& cells);
  base::Duration others_take(const MasterAttempt& running, const Part& part) const;
  base::Duration patience_with(const MasterAttempt& running, const Part& part) const;
  base::Time owes_since(const MasterAttempt& running, const Part& part) const;
  void note_owing(const MasterAttempt& running);
  void note_owing(const MasterAttempt& running, const Part& part);
  bool ends_by_withholding(const wire::Tag& tag);
  void note_unshown(const ProcessRecord& process, const MasterAttempt& running, const Part& part);
  void leave_audit(const ProcessRecord& process, const wire::Tag& tag, const Part& part,
                   const wire::Fail& fail);
  base::Time audit_due(const MasterAttempt& running) const;
  AuditStep audit(const wire::Tag& tag);
  std::string audit_text(const MasterAttempt& running) const;
  bool ends_by_deadline(const wire::Tag& tag);

  // master_sync.cc, master_holders.cc: state tags
  void on_sync(ProcessRecord& process, const wire::Sync& sync);
  bool has_newest_beside(const ProcessRecord& process, const wire::Sync& sync) const;
  bool another_source(const ProcessRecord& process, const wire::Sync& sync) const;
  void sync_tag(const wire::Tag& tag);  // answers every open Sync that can be answered
  void drop_ended_syncs(const wire::Tag& tag);
  void sync_one(ProcessRecord& process, const wire::Tag& tag, Serving& serving);
  bool may_enter(ProcessRecord& process, const wire::Tag& tag);
  void offer(ProcessRecord& process, AskedSync& asked, std::vector<wire::Member> holders);
  bool descriptor_fits(ProcessRecord& process, const AskedSync& asked);
  void reply_wait(ProcessRecord& process, AskedSync& asked, const std::string& text);
  void reply_refused(ProcessRecord& to, const wire::Tag& tag, wire::Code code, const std::string&);
  void reply_current(ProcessRecord& process, const wire::Tag& tag);
  bool is_state(const wire::Tag& tag) const;
  bool admission_open(const wire::Tag& tag, const std::string& site) const;
  bool held_for(const std::string& site) const;
  Serving serving(const wire::Tag& tag, std::uint32_t shard) const;
  bool out_of_reach(const Serving& serving, const ProcessRecord& asker) const;
  std::vector<wire::Member> holders_of(const Serving& serving, const ProcessRecord& asker) const;
  bool has_first(const ProcessRecord& process, const wire::Tag& tag) const;
  bool may_publish(const wire::Tag& tag, std::uint32_t shard) const;
  base::Time awaited_until(const Round& round) const;
  bool awaited(const wire::Tag& tag, std::uint32_t shard) const;  // a holder, perhaps
  bool contributed(wire::PeerId id, const wire::Tag& tag) const;

  // master_birth.cc: the beginning of a state
  void try_birth(const wire::Tag& tag);
  std::string without(const Askers& asked) const;
  Askers askers(const wire::Tag& tag) const;
  static std::vector<const Asker*> most_alike(const Askers& sites);
  void note_claim(ProcessRecord& process, const wire::Tag& tag);
  void take_claims_back(const std::string& site);
  bool is_claimed(Round* round) const;
  bool is_here(const std::string& site, const Sayer& place) const;
  void drop_claims(Round* round) const;
  Birth named_source(const wire::Tag& tag, const std::vector<const Asker*>& alike) const;
  std::string half_source(const wire::Tag& tag, const Askers& sites, const Asker& like);
  std::string source_to_come(const wire::Tag& tag, const Askers& sites, const Asker& like) const;
  Birth birth_source(const wire::Tag& tag);

  // master_restore.cc: going back to an earlier state
  std::map<std::string, Ballot> offered(const wire::Tag& tag, bool wished) const;
  bool may_restore(const std::string& site) const;
  base::Wish wish_of(const std::string& site, const wire::Tag& tag) const;
  std::string unknown_text(const wire::Tag& tag, const std::string& site, const Ballot& by) const;
  std::string refused_text(const ProcessRecord& process, const wire::Tag& tag) const;
  bool wish_stands(const wire::Tag& tag) const;
  bool is_to_be_decided(const wire::Tag& tag) const;
  void restore_by_wish(const wire::Tag& tag);
  bool answer_wish(ProcessRecord& process, const wire::Tag& tag);
  wire::RestoreRecord fallback(const wire::Tag& tag) const;
  std::string fallback_text(const wire::Tag& tag) const;
  std::string lost_text(const wire::Tag& tag, const std::string& what) const;
  void restore_by_loss(const wire::Tag& tag);
  base::Duration lost_after(const wire::Tag& tag) const;
  void restore(wire::RestoreRecord back);
  void tell_what_was_lost(ProcessRecord& process, const AskedSync& asked);
  void tell_of_restore(ProcessRecord& process, const wire::Tag& tag, const std::string& text);
  std::string restored_text(const wire::Tag& tag) const;

  // master_votes.cc: what a new revision is
  bool undecided(const wire::Tag& tag) const;
  std::map<std::string, std::uint32_t> electorate(const wire::Tag& tag, int tier) const;
  bool takes_after(const ProcessRecord& process, const wire::Tag& tag) const;
  bool holds_newest(const ProcessRecord& process, const wire::Tag& tag) const;
  Poll& poll_of(const wire::Tag& tag, int tier);
  void report(ProcessRecord& process, const wire::Held& held);
  void name_outvoted(const ProcessRecord& process, const wire::Tag& tag);
  bool may_abstain(const std::string& site, const wire::Tag& tag) const;
  bool voters_awaited(const wire::Tag& tag) const;
  bool votes_awaited(const wire::Tag& tag) const;
  bool all_came_back(const wire::Tag& tag) const;
  void decide(const wire::Tag& tag);
  void decide_without(const wire::Tag& tag, bool complete);
  void establish(const wire::Tag& tag, Ballot ballot);
  std::string dispute(const wire::Tag& tag) const;  // empty: none
  std::string votes_text(const wire::Tag& tag) const;

  // master_texts.cc: what stands still and why
  std::string name(const ProcessRecord& process) const;
  std::string came_back(const ProcessRecord& process) const;  // why the life before ended
  std::string name(wire::PeerId id) const;
  std::string silence_of(const ProcessRecord& process) const;
  std::string missing_members(const wire::Tag& tag) const;
  std::string waiting_text(const wire::Tag& tag) const;
  std::string running_waits(const MasterAttempt& running) const;
  std::string cross_wait() const;
  std::string missing_shards(const ProcessRecord& process, const wire::Tag& called = {}) const;
  std::string outsider_text(const ProcessRecord& process, const wire::Tag& called = {}) const;
  void tell_waiting();
  void tell_ready(const wire::Tag& tag, const std::string& crossed);
  std::string mismatch_text(const wire::Tag& tag) const;
  MasterView view(base::Time now) const;

  MasterOptions options_;
  Planner planner_;
  Ledger ledger_;
  base::Time now_ = 0, last_ = 0, wake_ = base::kNever, started_at_ = 0, next_tick_ = 0;
  base::Time before_ = 0;                 // the event before this one
  base::Time woke_at_ = 0;                // it stood still itself until then
  bool begun_ = false;                    // start_peers was reached once
  bool took_over_ = false;                // … before this master started
  base::Time pauses_due_ = base::kNever;  // no round's pause ends before
  std::uint64_t counter_ = 0, order_ = 0;
  std::map<ConnId, wire::Incarnation> conns_;          // 0: hello refused or not heard yet
  std::map<wire::Incarnation, wire::PublicKey> left_;  // observers that left, or were replaced
  std::deque<wire::Incarnation> left_in_order_;
  std::uint64_t links_ = 0;  // generation of the newest link secret: the epoch of the last eviction
  std::map<std::string, std::string> gone_;  // sites that went before the run began, in words
  std::set<ConnId> doomed_;                  // closed by an effect, not yet reported closed
  std::map<wire::Incarnation, ProcessRecord> processes_;
  std::map<std::string, std::set<wire::Incarnation>> sites_;  // of all lives
  std::map<wire::PublicKey, std::map<std::string, std::set<wire::Incarnation>>> of_key_;  // by site
  base::Time processes_due_ = 0;  // no life expires before
  wire::PeerId probed_last_ = 0;  // of the members that are not back
  std::map<wire::Tag, Round> rounds_;
  std::set<wire::PeerId> established_;  // were in a round, or share a state: see owes()
  std::map<wire::Attempt, wire::Tag> running_;
  std::map<std::pair<wire::PublicKey, wire::PublicKey>, Cut> cuts_;
  Blame blame_;
  std::map<wire::PublicKey, std::string> guilty_;  // and its site: banned at the event's end
  std::set<std::string> holders_;                  // … and evicted, for time that others waited
  std::map<std::string, Throttle> throttles_;      // of new keys, by token
  // Joiners and skipped sites that could not keep up. While one of them is here no START of any
  // state tag is sent: it has to be current on all of them at one moment.
  std::map<std::string, base::Time> holds_;
  base::Time hold_began_ = 0;
  std::map<std::string, KeptSeat> kept_seats_;  // of sites that an operator kicked
  base::Time holds_rest_until_ = 0;  // rounds flow between two holds, whoever asks for them
  base::Time crossed_since_ = base::kNever, states_crossed_since_ = base::kNever;
  std::set<wire::Tag> touched_;
  std::uint32_t edges_seen_ = 0;  // of all attempts: see MasterAttempt::edges
  std::uint64_t settled_ = 0;     // tags that were looked at, for tests of what an event costs
  bool processes_changed_ = false, ticking_ = false, roster_dirty_ = false;
  wire::Roster told_;       // the last one for everybody; changes build on it
  std::string departures_;  // since that, in words
  MasterEffects fx_;
};

}  // namespace jccl::protocol
