// A lease on etcd, renewed by a thread of its own. What counts is until(): etcd can't have let it
// run out before, since every renewal is reckoned from when it was asked for, not answered.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/status.h"
#include "master/etcd/etcd_http.h"
#include "master/etcd/etcd_where.h"

namespace jccl::master {

class EtcdLease {
 public:
  // Codes: those of EtcdHttp.
  static base::Result<std::unique_ptr<EtcdLease>> grant(const EtcdWhere& where, base::Time by);
  ~EtcdLease();  // gives the lease back if it is still held, within a second
  EtcdLease(const EtcdLease&) = delete;
  EtcdLease& operator=(const EtcdLease&) = delete;

  std::int64_t id() const { return id_; }
  // Of boot_now(). From any thread. In the past: lost for good.
  base::Time until() const { return until_.load(std::memory_order_acquire); }
  std::string trouble() const;  // why the last renewal failed; empty if it did not

 private:
  EtcdLease() = default;
  void keep();
  base::Status renew();

  std::unique_ptr<EtcdHttp> http_;
  std::int64_t id_ = 0;
  base::Duration length_ = 0;
  std::atomic<base::Time> until_{0};

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::string trouble_;
  std::thread thread_;
};

}  // namespace jccl::master
