// Who is here: processes, members, seats. Rooms of the master machine (master_room.h).
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

// Processes and their connections: hello, resume, lost, left, evicted (master_peers.cc).
class Connections : public Room<Connections> {
 public:
  void on_hello(ConnId conn, const wire::Hello& hello, const Shown& shown);
  void on_resume(ProcessRecord& process, const wire::Resume& resume);
  void on_closed(ConnId conn);
  void lose(ConnId conn);
  void drop_observer(wire::Incarnation incarnation, const std::string& why);
  void on_leave(ProcessRecord& process);
  // By value: the caller's string may belong to what is evicted.
  void evict(std::string site, const std::string& reason, const std::string& kind);
  void depart(const std::string& site, const std::string& reason, const std::string& kind);
  base::Time lost_at(const ProcessRecord& process) const;
  void expire_processes();
  void probe_absent();
  ProcessRecord* record_of(wire::Incarnation incarnation);
  const ProcessRecord* record_of(wire::Incarnation incarnation) const;
  const std::set<wire::Incarnation>& processes_at(const std::string& site) const;  // empty: none
  std::vector<ProcessRecord*> shards_of(const std::string& site);
  void forget(wire::Incarnation incarnation);
  std::size_t observers() const;
  bool gives_way(const ProcessRecord& process) const;
  bool alive(const ProcessRecord& process) const;

  std::map<ConnId, wire::Incarnation> conns_;          // 0: hello refused or not heard yet
  std::map<wire::Incarnation, wire::PublicKey> left_;  // observers that left, or were replaced
  std::uint64_t links_ = 0;  // generation of the newest link secret: the epoch of the last eviction
  std::map<std::string, std::set<wire::Incarnation>> sites_;  // of all lives
  std::map<wire::PublicKey, std::map<std::string, std::set<wire::Incarnation>>> of_key_;  // by site
  base::Time processes_due_ = 0;  // no life expires before
  std::uint64_t order_ = 0;
  bool processes_changed_ = false;

 private:
  friend struct Archived;
  friend class MasterMachine;

  std::optional<base::Status> objection(const wire::Hello& hello) const;
  void attach(ConnId conn, const wire::Hello& hello, const Shown& shown);
  void detach(ProcessRecord& process);  // its connection is gone
  void holder_left(wire::Incarnation incarnation);
  void make_room(const wire::Hello& hello);
  bool is_idle(const ProcessRecord& process) const;
  void fence_observer(const ProcessRecord& process);
  bool no_site_left(const wire::Hello& hello) const;

  std::deque<wire::Incarnation> left_in_order_;
  wire::PeerId probed_last_ = 0;  // of the members that are not back
};

// Which sites are members, who is told, and who owes a round (master_members.cc).
class Membership : public Room<Membership> {
 public:
  bool complete(const std::string& site) const;  // all shards connected and resumed
  bool admit_some();
  void know_participants();
  void leave_what_it_does_not_hold(const ProcessRecord& process);
  void write_epoch(std::vector<wire::Member> members, wire::PeerId next_id, std::string reason);
  wire::Roster roster() const;
  wire::Member member_of(const ProcessRecord& process) const;
  void flush_roster();
  void tell(ProcessRecord& process, wire::Roster roster);
  std::set<std::string> member_sites() const;
  bool owes(const wire::Tag& tag, wire::PeerId id) const;
  void enter(const wire::Tag& tag, const std::string& site);
  void settle_in(wire::PeerId id);
  std::size_t owing(const wire::Tag& tag) const;     // how many
  std::size_t sites_in(const wire::Tag& tag) const;  // of those that owe
  std::uint32_t start_peers() const;
  void note_gone(const std::string& site, std::string why);
  std::string gone_text() const;
  const ProcessRecord* patient() const;  // whose wish for start_peers is the largest
  bool open_the_door(const wire::Tag& tag);

  bool begun_ = false;                       // start_peers was reached once
  bool took_over_ = false;                   // … before this master started
  std::map<std::string, std::string> gone_;  // sites that went before the run began, in words
  wire::Roster told_;                        // the last one for everybody; changes build on it
  std::string departures_;                   // since that, in words
  bool roster_dirty_ = false;

 private:
  friend struct Archived;
  friend class MasterMachine;

  bool wants_in(const std::string& site) const;
  bool gathers() const;
  void admit(const std::vector<std::string>& sites);
  void turn_away(const std::string& site);
  bool nobody_is_new(const wire::Tag& tag) const;

  std::set<wire::PeerId> established_;  // were in a round, or share a state: see owes()
};

// Which key a site's name belongs to (master_seats.cc).
class Seats : public Room<Seats> {
 public:
  std::optional<base::Status> seat_taken(const wire::Hello& hello,
                                         const wire::PublicKey& key) const;
  void keep_seat(const std::string& site);
  base::Status reserved(const std::string& site, const wire::PublicKey& key,
                        const std::function<bool(const std::string&)>& is_its_own) const;
  std::string key_elsewhere(const ProcessRecord& process) const;

 private:
  friend struct Archived;
  friend class MasterMachine;

  std::string taken_text(const ProcessRecord& process, const wire::PublicKey& asker) const;
  std::optional<base::Status> seat_kept(const std::string& site, const wire::PublicKey& key) const;

  std::map<std::string, KeptSeat> kept_seats_;  // of sites that an operator kicked
};

}  // namespace jccl::protocol
