// Carries out what the master machine decides: sockets in, decoded messages to the machine, its
// effects out, in the order journal (durable), sends, closes. Decides nothing itself.
// A group of the run has a driver of its own, on the same loop: the run's driver makes it, hands it
// the connections that ask for the group, and closes it (driver_groups.cc).
// Confined to its loop's thread once started, save where said otherwise.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "master/history.h"
#include "master/log_valve.h"
#include "master/master.h"
#include "master/plan_cache.h"
#include "master/rendering.h"
#include "master/status_json.h"
#include "master/store.h"
#include "net/link/frames.h"
#include "net/recordings.h"
#include "net/security/credentials.h"
#include "net/socket/listener.h"
#include "net/socket/loop.h"
#include "net/socket/probe.h"
#include "net/socket/reach.h"
#include "page/server.h"
#include "protocol/master/master_machine.h"
#include "protocol/recorder/recorder.h"
#include "wire/chain.h"

namespace jccl::master {

class Master::Driver {
 public:
  explicit Driver(MasterConfig config);
  Driver(Driver& run, const std::string& group);  // of a group
  ~Driver();

  base::Status open();           // store, journal, machine, listener, thread
  void stop();                   // any thread but the loop's
  std::string status();          // any thread
  void evict(std::string site);  // any thread
  base::Result<std::string> record(const std::string& why);  // any thread but the loop's
  base::Status failure() const;                              // any thread
  const std::string& address() const { return address_; }
  const std::string& run_text() const { return run_text_; }
  const std::string& token() const { return config_.token; }
  const std::string& http_address() const { return http_address_; }

 private:
  using ConnId = protocol::ConnId;
  struct Conn {
    std::unique_ptr<net::FramedStream> stream;
    std::string network;      // whose quotas it shares
    std::string group;        // of the run, that it asks for
    base::Time adopt_by = 0;  // … and what its first word needs there
    std::shared_ptr<net::PendingPlace> pending;
    bool greeted = false;        // its Hello went to the machine
    wire::Incarnation life = 0;  // that its Hello names
    protocol::Shown shown;       // who it has proved to be, and by which token
    net::Allowance messages;
  };

  base::Status read_config();
  base::Status open_journal();
  base::Status read_profile();
  base::Status read_straggler();
  base::Status read_weight_max() const;
  base::Status read_max_rate() const;
  base::Status read_audit() const;
  base::Status recover();
  base::Status read_journal();
  void begin(protocol::MasterEffects first);  // its records are durable
  base::Status listen();
  void set_address(std::uint16_t port);
  protocol::MasterOptions machine_options() const;

  ConnId on_accepted(net::Accepted accepted);
  void on_frame(ConnId id, base::ByteView bytes);
  void on_closed(ConnId id, const base::Status& status);
  void first_word(ConnId id, wire::Message message);
  void hold_back(ConnId id, base::Duration wait);
  void answer_status(ConnId id);
  base::Status objection(const Conn& conn, const wire::Message& first);
  void drop_stranger(ConnId id, const std::string& why);
  void retire(ConnId id, bool last_words);
  void sweep();

  // driver_groups.cc
  base::Status open_group();
  base::Result<Driver*> group_for(const Conn& conn, const wire::Message& first);
  base::Status room_for_group() const;
  void hand_over(ConnId id, wire::Message first);
  void close_deserted_groups();
  bool is_deserted() const;
  void tell_groups(const std::vector<wire::Record>& records);
  void put_out(const std::function<bool(const protocol::PeerView&)>& whom);
  void halt();
  void bound_members();
  std::vector<Driver*> all_drivers();
  // Runs `fn` unless this is gone by then: a group may be, while the loop goes on.
  template <typename Fn>
  auto while_here(Fn fn) {
    return [weak = std::weak_ptr<bool>(here_), fn = std::move(fn)] {
      if (!weak.expired()) fn();
    };
  }

  void enqueue(protocol::MasterEvent event);
  void pump();
  protocol::MasterEffects take_batch();
  void merge(protocol::MasterEffects effects, protocol::MasterEffects* batch);
  base::Status append(const std::vector<wire::Record>& records);
  void carry_out(protocol::MasterEffects effects);
  void send(const protocol::MasterSend& message);
  base::Bytes encoded(const wire::Message& message);
  protocol::Shown shown_by(const net::ByteStream& stream) const;
  base::Status read_admission();
  net::DialPolicy policy_for(wire::Incarnation incarnation) const;
  void close_unread(ConnId id, const std::string& why);
  void bound_memory();
  std::size_t beyond_its_own(const Conn& conn) const;
  void know_members(const wire::EpochRecord& epoch);
  void log_trouble(const protocol::HistoryLine& line);
  base::Status open_recordings();
  base::Result<std::string> leave_recording(net::RecordingCause cause, const std::string& why);
  void record_fault(const std::string& what);
  void answer_dump(ConnId id, const std::string& why);
  void start_probe(wire::Incarnation incarnation, const std::vector<std::string>& addresses);
  void arm(base::Time wake);
  void on_alarm();
  base::Time machine_time();
  void watch_store();
  void fail(base::Status status);
  void log(const std::string& text);
  std::string status_now(Audience audience);
  base::Status open_page();
  double uptime_s() const;
  void publish(const std::set<std::string>& tokens);
  void tell_page(const std::vector<protocol::HistoryLine>& lines);
  void mark_round(const wire::Message& message);

  Driver* const run_driver_ = nullptr;  // of a group: the run's
  const std::string group_;             // "": the run itself
  const std::shared_ptr<bool> here_ = std::make_shared<bool>(true);
  MasterConfig config_;  // as given, and with what the profile says
  protocol::Straggler straggler_ = protocol::Straggler::kWait;
  net::Credentials credentials_;
  std::array<std::uint8_t, 32> link_root_{};  // link secrets follow from it; of this process alone
  wire::LinkSecret newest_links_;             // that was derived last
  protocol::Admission admission_ = protocol::Admission::kAuto;
  std::set<wire::PublicKey> listed_;
  std::vector<net::Network> peer_networks_;
  // From where lives were welcomed: what they advertise is dialled only if it may be there.
  std::map<wire::Incarnation, net::Endpoint> origins_;
  net::Address bind_;
  wire::RunId run_{};
  bool run_known_ = false;
  std::string run_text_, address_;

  const std::unique_ptr<net::Loop> own_loop_;
  net::Loop& loop_;
  std::unique_ptr<StateStore> store_;
  wire::ChainWriter writer_;
  std::uint64_t journal_sequence_ = 0;
  std::unique_ptr<History> history_;
  PlanCache planner_;
  protocol::Recorder<protocol::MasterSide> recorder_;
  net::Recordings recordings_;
  std::unique_ptr<protocol::MasterMachine> machine_;
  std::unique_ptr<net::Reservation> reserved_;  // until it listens
  std::unique_ptr<net::Listener> listener_;
  LogValve valve_;
  LogValve faults_{500 * base::kMillisecond};
  net::Allowances hellos_, questions_;
  Rendering status_, status_for_anybody_;
  base::Time started_ = 0;

  ConnId next_conn_ = 1;
  std::map<ConnId, Conn> conns_;
  std::vector<std::unique_ptr<net::FramedStream>> closing_;  // writing their last words
  net::TimerId sweep_timer_ = 0;
  std::uint64_t strangers_closed_ = 0;

  std::deque<protocol::MasterEvent> inbox_;
  std::set<ConnId> doomed_;            // closed by an effect of the batch under way
  std::set<base::Attempt> committed_;  // by the batch under way
  std::shared_ptr<net::HeldMemory> memory_ = std::make_shared<net::HeldMemory>();
  bool bounding_ = false;
  std::map<wire::Incarnation, wire::PublicKey> members_;
  bool pump_posted_ = false;
  net::TimerId alarm_ = 0;
  net::TimerId held_timer_ = 0;
  base::Time alarm_due_ = base::kNever;
  base::Time last_time_ = 0;    // of the machine's clock
  base::Duration stalled_ = 0;  // time the machine's clock did not count
  bool after_stall_ = false, put_off_ = false;
  std::uint64_t next_probe_ = 1;
  std::map<std::uint64_t, std::unique_ptr<net::Probe>> probes_;

  std::unique_ptr<page::Server> page_;  // none without --http
  std::string http_address_;
  page::Snapshot page_status_;  // as it was handed over last
  HistoryValve page_valve_;

  mutable std::mutex failure_guard_;
  base::Status failure_;
  bool stopped_ = false;

  std::map<std::string, std::unique_ptr<Driver>> groups_;  // that are open
  net::TimerId groups_timer_ = 0;
  base::Time deserted_since_ = base::kNever;  // of a group
};

}  // namespace jccl::master
