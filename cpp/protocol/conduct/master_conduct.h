// What is held against whom, and what follows from it. Rooms of the master machine (master_room.h).
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

// Who may be here, and what is held against whom (master_blame.cc).
class Conduct : public Room<Conduct> {
 public:
  struct Place {
    std::uint32_t shard = 0, of = 1;
  };
  std::optional<base::Status> unwelcome(const wire::Hello& hello, const Shown& shown) const;
  const Ban* ban_of(const wire::PublicKey& key) const;  // that holds now; nullptr: none
  bool is_revoked(const std::string& token) const;
  std::string kept_outside(const std::string& site) const;  // why; empty: it may come in
  std::string kept_outside(const ProcessRecord& process) const;
  std::string barred(const ProcessRecord& process) const;
  std::string not_let_in(const wire::PublicKey& key) const;  // why; empty: it may be a member
  void open_gates();
  void remember_bans();
  void note_entry(const ProcessRecord& process);
  void note_departure(const std::string& site);
  void charge(const ProcessRecord& process, Fault fault, const std::string& why);
  void charge_nonsense(ConnId conn);
  void on_outvoted(ProcessRecord& process, const wire::Outvoted& said);
  void charge_accused(ProcessRecord& process);
  void charge_invented(const ProcessRecord& process, const std::string& what);
  void punish();
  void ban(const wire::PublicKey& key, base::Duration span, const std::string& reason,
           const std::string& site);
  std::size_t expel(const std::function<bool(const ProcessRecord&)>& whom, const std::string& told,
                    const std::function<std::string(const std::string&)>& reason);
  void put_out(const std::string& site, base::Duration cost);
  std::uint64_t unix_ms() const;

  Blame blame_;
  std::map<wire::PublicKey, std::string> guilty_;  // and its site: banned at the event's end
  std::set<std::string> holders_;                  // … and evicted, for time that others waited
  std::map<std::string, Throttle> throttles_;      // of new keys, by token

 private:
  std::optional<base::Status> token_spent(const std::string& token, std::uint32_t uses, Place place,
                                          const wire::PublicKey& key) const;
  std::uint32_t caught(const std::string& token);
  bool is_new(const wire::PublicKey& key) const;
  void put_out_holders();
};

// Time that others wait, and calls that end attempts: who pays (master_held.cc,
// master_deadlines.cc).
class WaitCharges : public Room<WaitCharges> {
 public:
  base::Time waited_since(const std::string& site) const;  // kNever: nobody waits for it
  base::Time in_trouble_since(const ProcessRecord& process) const;
  void note_held(const std::string& site, base::Time since, base::Duration more_free = 0);
  void note_left(const std::string& site);
  void charge_left(const wire::Tag& tag);
  void note_exit(const ProcessRecord& process, const MasterAttempt& running);
  base::Duration free_time() const;
  void hold_token(const std::string& by, base::Time since, base::Time until, base::Duration free);
  void note_absence(const std::string& site, base::Time since, base::Duration more_free = 0);
  bool pays(const std::string& site) const;  // for time that it held others
  void charge_exit(const ProcessRecord& process, const wire::Tag& tag, const Participant& part,
                   Fault fault, const std::string& why);
  void charge_exit(const ProcessRecord& process, const MasterAttempt& running, Fault fault,
                   const std::string& text);
  bool hurried(const wire::Tag& tag);
  void note_deadline(const MasterAttempt& running);
  bool note_short_calls(const MasterAttempt& running, const Participant* holder);
  void note_cut_short(Round& round);

 private:
  bool may_be_slow(const std::string& site) const;
  base::Time awaited_since(const MasterAttempt& running, const Participant& part) const;
  void charge_time(const Departed& by, base::Time until, base::Duration more_free);
  Fault kind_of_deadline(ProcessRecord& process, const Participant& part);
  bool hasty(wire::Incarnation who, const std::vector<Participant>& parts,
             double share = 1.0 / 8) const;
  const Participant* withholder(const MasterAttempt& running) const;
  bool note_hold(const MasterAttempt& running);
  bool note_tight_calls(const MasterAttempt& running);
  void note_lost_time(const MasterAttempt& running);
};

// Links that fail: which end is at fault, which pairs are avoided (master_links.cc).
class LinkFaults : public Room<LinkFaults> {
 public:
  void on_violation(const ProcessRecord& process, const wire::Violation& said);
  bool is_liar_beside(const ProcessRecord& other, const ProcessRecord& process) const;
  LinkSet avoided_links(base::Time now) const;
  void evict_worst_link(const wire::Tag& tag, const base::Status& why);
  void remember_link(Round& round, const wire::Attempt& attempt, wire::PeerId reporter,
                     wire::PeerId named, bool juniors_pay = true);
  bool hears_out(MasterAttempt& running);
  void judge(const wire::Tag& tag);
  void cut_link(Round& round, wire::PeerId a, wire::PeerId b, base::Duration held = 0);
  void forgive_links_with(wire::Incarnation incarnation);
  const ProcessRecord* member_record(wire::PeerId id) const;  // null: it is no member
  base::Duration served(const ProcessRecord& process) const;
  bool is_junior(const ProcessRecord& process, const ProcessRecord& other) const;
  static bool names_another(const MasterAttempt& running, const Participant& part,
                            const wire::Fail& fail);
  static bool says_what_another_sent(const MasterAttempt& running, const Participant& part,
                                     const wire::Fail& fail);

  std::map<std::pair<wire::PublicKey, wire::PublicKey>, Cut> cuts_;

 private:
  void end_attempts_of(const ProcessRecord& process, const std::string& why);
  static std::string_view words_of(wire::ViolationKind kind);
  bool began_late(Round& round, const Participant& part);
  bool weighs_nothing(const ProcessRecord& process, const ProcessRecord& junior) const;
  void evict_one_that_only_dials(const wire::Tag& tag, const base::Status& why);
  void avoid_link(wire::PeerId one, wire::PeerId two, base::Duration held = 0);
  void hold_against_an_end(wire::PeerId one, wire::PeerId two, base::Time since, bool juniors_pay);
  std::pair<wire::PublicKey, wire::PublicKey> keys_of(wire::PeerId one, wire::PeerId two) const;
  std::size_t often_broken(const wire::PublicKey& key) const;
  bool one_has_yielded(wire::PeerId one, wire::PeerId two) const;
  static std::string broken_with(const ProcessRecord& other);
  bool served_less(const ProcessRecord& process, const ProcessRecord& other) const;
};

// What members found that repeated the work of others (docs/audits.md, master_findings.cc). One's
// word decides nothing.
class Findings : public Room<Findings> {
 public:
  struct Said {  // a site's newest word
    wire::Tag tag;
    std::uint64_t round = 0;
    bool differs = false;
    std::uint32_t worst = 0;
    wire::FindingPolicy policy = wire::FindingPolicy::kWarn;
    base::Time at = 0;
  };
  struct Audited {
    std::string site;
    std::map<std::string, Said> said;  // by who said it
    std::uint32_t convicted = 0;       // how often
    base::Time at = 0;                 // of the newest word
  };
  void on_finding(const ProcessRecord& process, const wire::Finding& said);
  std::vector<FindingView> newest(base::Time now) const;

  std::map<wire::PublicKey, Audited> audited_;

 private:
  void judge(const ProcessRecord& process, Audited* audited);
};

// What an operator orders (master_orders.cc).
class OperatorOrders : public Room<OperatorOrders> {
 public:
  void on_order(ConnId conn, const wire::Order& order, const Shown& shown);
  wire::OrderReply drain(const wire::Order& order);

 private:
  wire::OrderReply carry_out(const wire::Order& order);
  wire::OrderReply kick(const wire::Order& order);
  wire::OrderReply kick_candidate(const std::string& site, const std::string& why);
  wire::OrderReply order_of_key(const wire::Order& order);
  wire::OrderReply revoke(const wire::Order& order);
};

}  // namespace jccl::protocol
