#include "master/etcd/etcd_lease.h"

#include <algorithm>

#include "base/planted.h"
#include "base/text.h"
#include "master/etcd/etcd_kv.h"

namespace jccl::master {
namespace {

using base::Code;
using base::Result;
using base::Status;

constexpr base::Duration kGiveBackMax = base::kSecond;

Status accept_lease(const std::string& body) { return parse_lease_reply(body).status(); }

}  // namespace

Result<std::unique_ptr<EtcdLease>> EtcdLease::grant(const EtcdWhere& where, base::Time by) {
  std::unique_ptr<EtcdLease> out(new EtcdLease);
  auto http = EtcdHttp::open(where);
  if (!http.ok()) return http.status();
  out->http_ = std::move(http.value());
  const base::Time asked = boot_now();
  const auto body = out->http_->post(
      "/v3/lease/grant", lease_grant_json(where.lease / base::kSecond), by, accept_lease);
  if (!body.ok()) return body.status();
  const auto reply = parse_lease_reply(body.value());
  if (!reply.ok()) return reply.status();
  if (reply.value().seconds == 0) return Status{Code::kLinkLost, "etcd granted no lease"};
  out->id_ = reply.value().id;
  out->length_ = reply.value().seconds * base::kSecond;  // etcd may round up to what it can keep
  out->until_ = asked + out->length_;
  out->thread_ = std::thread([lease = out.get()] { lease->keep(); });
  return out;
}

EtcdLease::~EtcdLease() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (id_ == 0 || JCCL_PLANTED("lease-not-given-back") || boot_now() >= until()) return;
  (void)http_->post("/v3/lease/revoke", lease_json(id_), boot_now() + kGiveBackMax,
                    [](const std::string&) { return Status{}; });
}

std::string EtcdLease::trouble() const {
  const std::lock_guard lock(mutex_);
  return trouble_;
}

void EtcdLease::keep() {
  const auto pause = std::chrono::nanoseconds(length_ / 5);
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, pause, [this] { return stop_; })) {
    lock.unlock();
    const Status renewed = renew();
    lock.lock();
    trouble_ = renewed.text;
    if (boot_now() >= until()) return;
  }
}

Status EtcdLease::renew() {
  const base::Time asked = boot_now();
  if (asked >= until()) return {Code::kEvicted, "it was not renewed in time"};
  const auto body = http_->post("/v3/lease/keepalive", lease_json(id_),
                                std::min(until(), asked + length_ / 3), accept_lease);
  if (!body.ok()) return body.status();
  const auto reply = parse_lease_reply(body.value());
  if (!reply.ok()) return reply.status();
  if (reply.value().seconds == 0) {  // etcd ended it
    until_ = 0;
    return {Code::kEvicted, "etcd no longer knows it"};
  }
  until_ = asked + std::min(length_, reply.value().seconds * base::kSecond);
  return {};
}

}  // namespace jccl::master
