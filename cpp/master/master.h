// A master in this process: one thread that listens, drives the master machine, writes its journal
// and its history. Several may live side by side; teardown takes milliseconds and frees the port.
// With its journal in etcd it first waits until no other master of the run is active.
// Refuses to bind off loopback without a token, and to serve a journal that is damaged, of another
// run, or held by another master. Methods may be called from any thread but the master's own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/limits.h"
#include "base/status.h"
#include "base/time.h"
#include "net/quotas.h"
#include "net/socket/allowance.h"
#include "page/limits.h"

namespace jccl::master {

// What one connection or one address may cause at once and per second; beyond that it is served
// later, or, before it has proved who it is, not at all. Far above what a run needs: tests make
// them small.
struct MasterLimits {
  using Rate = net::Rate;
  Rate messages{2000, 500};  // of a connection; each commit it takes part in gives 16 back
  Rate hellos{2000, 100};    // of an address
  Rate questions{200, 50};   // for the status, of an address
  net::QuotaRates unproved;  // connections of an address, and those of them that prove nothing
  std::size_t unread_bytes = base::kUnreadBytesMax;  // queued for one that does not read: closed
  // Arriving and queued, of all together: beyond it the greediest goes. And of each member besides.
  std::size_t memory_bytes = base::kMemoryBytesMax;
  std::size_t member_bytes = base::kMemberBytesMax;
};

struct MasterConfig {
  std::string bind = "127.0.0.1:0";  // port 0 takes a free one
  std::string store = "memory:";     // or "sqlite:PATH", "etcd://HOST:PORT,…/PREFIX"
  std::string token;                 // the run's secret; empty: plain, loopback only
  bool insecure = false;             // plain connections off loopback, by explicit wish
  std::string run;                   // 32 hex digits; empty: the token's, the journal's, or new
  std::uint32_t start_peers = 1;     // sites awaited once, before the first round
  std::uint32_t min_peers = 1;       // sites every commit needs
  // How soon a peer counts as hung or cut off: "lan" 0.6 s, "default" 3 s, "wan" 5 s. The links
  // between peers keep to it too.
  std::string profile = "default";
  base::Duration silence = 0;      // 0: the profile's
  base::Duration heartbeat = 0;    // 0: a sixth of `silence`
  base::Duration reset_grace = 0;  // 0: the profile's
  // Sites that the others wait for longer than this: "wait" until the deadline, "skip" their
  // contribution, "evict" them.
  std::string straggler = "wait";
  base::Duration straggler_after = 10 * base::kSecond;
  // Who may become a member: "auto" whoever has a token, "list:FILE" the keys in that file,
  // "manual" those that an operator lets in (`jccl admit`); listed ones besides.
  std::string admission = "auto";
  // The site with whose state the run begins: no other one is named its source. Empty: peers name
  // one (source=True), or none.
  std::string source;
  // A contribution whose weight is more than so many times the median weight of its round is
  // refused; 0: none is.
  double weight_max = base::kWeightRatioMax;
  double max_rate = 0;  // bytes/s that each peer sends to others, at most; 0: no bound
  // The share of each round's cells that contributors show and the master adds up anew before it
  // commits the round; 0: none.
  double audit = 0;
  // Where the master may ask whether a lost peer still listens: networks like
  // "10.0.0.0/8,fd00::/8". Empty: at any global address, and at a loopback or private one if the
  // peer came from such.
  std::string peer_networks;
  base::Duration restart_grace = 5 * base::kSecond;
  base::Duration restore_after =
      30 * base::kSecond;                        // to an earlier state, when nobody has the last
  base::Duration hello_max = 5 * base::kSecond;  // from accept to a valid hello
  // The page about the run, read-only, at this address (HOST:PORT; port 0 takes a free one); empty:
  // none. Off loopback it needs `token`, and whoever looks a token of role observer.
  std::string http;
  page::Limits http_limits;
  std::string history;                         // JSON lines are appended to this file; empty: none
  std::uint64_t history_bytes_max = 64 << 20;  // then it becomes FILE.1, up to FILE.3
  // Recordings of the machine (protocol/recorder/recorder.h) are left in this folder: after faults,
  // and when asked. `record_bytes` of the last events are kept for them. Without a folder, or with
  // 0: none.
  std::string record;
  std::size_t record_bytes = std::size_t{4} << 20;
  MasterLimits limits;
  // Groups of the run, each a run of its own with the same rights: so many are open at once. One
  // that is deserted for so long is closed; its journal stays.
  std::uint32_t max_groups = base::kGroupsMax;
  base::Duration group_linger = 30 * base::kSecond;
  std::function<void(const std::string&)> log;  // one line at a time; empty: standard error
  // The master stopped serving by itself (its journal failed). At most once, on its thread; may
  // not call stop().
  std::function<void(const base::Status&)> on_failure;
  // With etcd, start() waits as a standby while another master is active; asked several times a
  // second, on start()'s thread, false ends the wait. Empty: waits for ever.
  std::function<bool()> keep_waiting;
};

class Master {
 public:
  // Serves from the moment this returns. Codes: kInvalid, kAuth (exposure), kIo (port in use,
  // store in use or unusable), kWrongRun, kDamaged (names the record), kVersion, kAborted (it was
  // told to stop waiting).
  static base::Result<std::unique_ptr<Master>> start(const MasterConfig& config);
  ~Master();  // stop()
  Master(const Master&) = delete;
  Master& operator=(const Master&) = delete;

  const std::string& address() const;       // what peers dial, "host:port"
  const std::string& run_id() const;        // 32 hex digits
  const std::string& token() const;         // empty without one
  const std::string& http_address() const;  // of the page, "host:port"; empty without one
  // One JSON object: what each peer and tag stands at and waits for.
  std::string status_json() const;
  base::Status failure() const;              // ok while serving
  void evict_site(const std::string& site);  // the operator's wish
  // Leaves a recording of the machine in the folder for them, and says where.
  base::Result<std::string> record(const std::string& why);
  void stop();  // idempotent; peers see the connection end

  class Driver;

 private:
  explicit Master(std::unique_ptr<Driver> driver);
  std::unique_ptr<Driver> driver_;
};

}  // namespace jccl::master
