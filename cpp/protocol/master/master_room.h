// A room of the master machine: one thing that it decides, with the fields that only this needs.
// MasterMachine::State is made of all rooms. A room names another where it needs it, as in
// `membership().owes(tag)`; what every room needs stands here. Private to the master_*.cc files.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "protocol/master/ledger.h"
#include "protocol/master/master_machine.h"
#include "protocol/master/master_records.h"

namespace jccl::protocol {

class Connections;
class Membership;
class Seats;
class Conduct;
class WaitCharges;
class LinkFaults;
class Findings;
class OperatorOrders;
class Forming;
class RunningAttempts;
class Stragglers;
class Withheld;
class Audits;
class StateSync;
class StateBirth;
class StateRestore;
class StateVotes;
class Wording;

template <typename Self>
class Room {
 protected:
  using State = MasterMachine::State;
  // State inherits from each room, so the whole is around each of them.
  State& all() { return static_cast<State&>(static_cast<Self&>(*this)); }
  const State& all() const { return static_cast<const State&>(static_cast<const Self&>(*this)); }

  Connections& connections() { return all(); }
  const Connections& connections() const { return all(); }
  Membership& membership() { return all(); }
  const Membership& membership() const { return all(); }
  Seats& seats() { return all(); }
  const Seats& seats() const { return all(); }
  Conduct& conduct() { return all(); }
  const Conduct& conduct() const { return all(); }
  WaitCharges& wait_charges() { return all(); }
  const WaitCharges& wait_charges() const { return all(); }
  LinkFaults& link_faults() { return all(); }
  const LinkFaults& link_faults() const { return all(); }
  Findings& findings() { return all(); }
  const Findings& findings() const { return all(); }
  OperatorOrders& operator_orders() { return all(); }
  const OperatorOrders& operator_orders() const { return all(); }
  Forming& forming() { return all(); }
  const Forming& forming() const { return all(); }
  RunningAttempts& attempts() { return all(); }
  const RunningAttempts& attempts() const { return all(); }
  Stragglers& stragglers() { return all(); }
  const Stragglers& stragglers() const { return all(); }
  Withheld& withheld() { return all(); }
  const Withheld& withheld() const { return all(); }
  Audits& audits() { return all(); }
  const Audits& audits() const { return all(); }
  StateSync& state_sync() { return all(); }
  const StateSync& state_sync() const { return all(); }
  StateBirth& state_birth() { return all(); }
  const StateBirth& state_birth() const { return all(); }
  StateRestore& state_restore() { return all(); }
  const StateRestore& state_restore() const { return all(); }
  StateVotes& state_votes() { return all(); }
  const StateVotes& state_votes() const { return all(); }
  Wording& wording() { return all(); }
  const Wording& wording() const { return all(); }

  base::Time now() const { return all().now_; }
  const MasterOptions& options() const { return all().options_; }
  Ledger& ledger() { return all().ledger_; }
  const Ledger& ledger() const { return all().ledger_; }
  std::map<wire::Tag, Round>& rounds() { return all().rounds_; }
  const std::map<wire::Tag, Round>& rounds() const { return all().rounds_; }
  std::map<wire::Incarnation, ProcessRecord>& processes() { return all().processes_; }
  const std::map<wire::Incarnation, ProcessRecord>& processes() const { return all().processes_; }

  void journal(wire::Record record) { all().journal(std::move(record)); }
  void send(ConnId conn, wire::Message message) { all().send(conn, std::move(message)); }
  void send(const ProcessRecord& to, wire::Message said) { all().send(to, std::move(said)); }
  void note(std::string kind, std::vector<std::pair<std::string, std::string>> fields) {
    all().note(std::move(kind), std::move(fields));
  }
  void refuse(ConnId conn, wire::Code code, std::string text) {
    all().refuse(conn, code, std::move(text));
  }
  void close(ConnId conn) { all().close(conn); }
  void touch(const wire::Tag& tag) { all().touch(tag); }
  void touch_all() { all().touch_all(); }
};

}  // namespace jccl::protocol
