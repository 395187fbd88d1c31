// The words of a member that lies: between its communicator and the master each is passed on, bent,
// dropped or joined by others, as its row says. Data links stay honest: what lies here is control
// alone. Thread-safe: communicators that follow one another share it.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "attack/known.h"
#include "attack/rows.h"
#include "base/rng.h"
#include "peer/control_hook.h"

namespace jccl::attack {

class Liar : public peer::ControlHook {
 public:
  // Of several rows each call takes one, at random.
  Liar(std::vector<Row> rows, std::uint64_t seed);

  void arm() { armed_ = true; }  // honest until then
  void is(std::string site) {
    std::lock_guard lock(mutex_);
    site_ = std::move(site);
  }
  std::uint64_t told() const { return told_; }      // lies so far
  std::uint64_t caught() const { return caught_; }  // how often its call was refused for that
  Known known() {
    std::lock_guard lock(mutex_);
    return known_;
  }

  std::vector<base::Bytes> says(const wire::Message& message) override;
  std::vector<base::Bytes> hears(const wire::Message& message) override;

 private:
  std::vector<base::Bytes> ready(wire::Ready ready);
  std::vector<base::Bytes> done(wire::Done done);
  std::vector<base::Bytes> published(wire::Published said);
  std::vector<base::Bytes> audited(wire::AuditPart part);
  std::vector<base::Bytes> started(const wire::Start& start);
  std::vector<base::Bytes> committed(const wire::Outcome& outcome);
  void meets(const wire::Roster& roster);
  wire::PeerId victim(const wire::Start& start, Row row);
  Row now(const wire::Tag& tag) const;
  std::vector<base::Bytes> one(const wire::Message& message);

  const std::vector<Row> rows_;
  std::atomic<bool> armed_{false};
  std::atomic<std::uint64_t> told_{0}, caught_{0};
  std::mutex mutex_;
  base::Rng rng_;
  std::string site_;
  Known known_;
  std::map<wire::Tag, Row> now_;  // of the newest call
  std::map<wire::Attempt, Row> running_;
  wire::PeerId own_ = 0;
  std::uint64_t turns_ = 0;
  base::Time syncs_at_ = 0;
  std::map<wire::Tag, std::uint64_t> once_;  // the newest round that had its broken link
  std::set<wire::Attempt> left_behind_;  // whose end was announced: nothing more is said of them
};

}  // namespace jccl::attack
