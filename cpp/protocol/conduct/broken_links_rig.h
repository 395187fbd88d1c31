// Four members whose links fail, and newcomers by name. (Where no plan goes round a link, one of
// its two ends has to go.)
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/text.h"
#include "protocol/hostile_rig.h"

namespace jccl::protocol {

inline bool cuts(const MasterEffects& effects) {
  return std::any_of(effects.history.begin(), effects.history.end(),
                     [](const HistoryLine& line) { return line.kind == "cut"; });
}

class BrokenLinks : public HostileMember {
 protected:
  void SetUp() override {
    MasterOptions four = options();
    four.start_peers = 4;
    begin(four, [](const PlanRequest& request) -> base::Result<base::Bytes> {
      for (const auto& [a, b] : request.bad_links) {
        const auto& all = request.contributors;
        const bool both =
            std::count(all.begin(), all.end(), a) > 0 && std::count(all.begin(), all.end(), b) > 0;
        if (both)
          return base::Status(base::Code::kLinkLost, base::cat("no plan avoids ", a, "-", b));
      }
      return base::Bytes{};
    });
    join({"a", "b", "c", "d"});
    (void)round();
  }
  // Where a plan does without any link.
  void begin_with_plans_around(const std::vector<std::string>& sites = {"a", "b", "c", "d"}) {
    MasterOptions all = options();
    all.start_peers = static_cast<std::uint32_t>(sites.size());
    last_ = 0, n_ = 1;
    begin(all);
    conns_.clear();
    for (const std::string& site : sites) {
      conns_[site] = conns_.size() + 1;
      (void)join(conns_[site], hello(100 * conns_[site], site));
    }
    (void)round();
  }
  wire::PeerId id_of(const std::string& site) const {
    for (const PeerView& peer : master_->view(now_).peers) {
      if (peer.member.site == site && peer.admitted) return peer.member.id;
    }
    return 0;
  }
  bool is_member(const std::string& site) const { return id_of(site) != 0; }
  ConnId conn_of(const std::string& site) const { return conns_.at(site); }

  // All that are members call; the attempt that begins.
  wire::Attempt calls() {
    wire::Attempt attempt;
    for (auto one = conns_.rbegin(); one != conns_.rend(); ++one) {  // newcomers first
      for (const auto& start : sent<wire::Start>(say(one->second, ready("grads", n_)))) {
        attempt = start.attempt;
      }
    }
    return attempt;
  }
  wire::Attempt round() {
    const wire::Attempt attempt = calls();
    for (const auto& [site, conn] : conns_) (void)say(conn, wire::Done{attempt, {7, 7}});
    EXPECT_EQ(committed("grads"), n_);
    ++n_;
    return attempt;
  }
  // `by` says in each attempt that its link to `to` is broken, until one of the members has to go.
  std::string out_by_link(const std::string& by, const std::string& to) {
    for (int time = 0; time < 4; ++time) {
      const wire::Attempt attempt = calls();
      if (attempt == wire::Attempt{}) break;
      (void)say(conn_of(by), wire::Fail{attempt, base::Code::kLinkLost, id_of(to), "broken"});
    }
    (void)calls();
    for (const auto& [site, conn] : conns_) {
      if (!is_member(site)) return site;
    }
    return "nobody";
  }
  // It waits until it may, and is in a round again; cuts are over by then.
  void come_back(const std::string& site) {
    conns_.erase(site);
    (void)round();
    now_ += 60 * base::kSecond;
    const ConnId old = site[0] - 'a' + 1;
    ++fresh_;
    for (auto& [one, conn] : conns_) (void)say(conn, wire::Heartbeat{});
    conns_[site] = 20 + fresh_;
    const wire::Hello again = hello(1000 * fresh_ + 100 * old, site);
    const wire::PublicKey key = key_of(wire::Message(hello(100 * old, site)));
    (void)say(conns_.at(site), again, key);
    (void)say(conns_.at(site), wire::Resume{});
    (void)round();
    ASSERT_TRUE(is_member(site));
  }

  // A new process of that name, with a key of its own, unless it is said whose.
  void come(const std::string& site, const std::string& token = {}, std::uint32_t uses = 0,
            std::uint64_t key = 0) {
    const auto process = static_cast<wire::Incarnation>(10'000 + ++fresh_);
    const std::uint64_t own = key != 0 ? key : fresh_;
    const Shown shown{
        {static_cast<std::uint8_t>(own), static_cast<std::uint8_t>(own >> 8), 1}, token, uses};
    const ConnId conn = 200 + fresh_;
    (void)on(ConnMessage{conn, hello(process, site), shown});
    (void)on(ConnMessage{conn, wire::Resume{}, shown});
    conns_[site] = conn;
  }
  void leave(const std::string& site) {
    (void)say(conn_of(site), wire::Leave{});
    conns_.erase(site);
  }
  void pass(base::Duration time) {
    for (const base::Time end = now_ + time; now_ < end; now_ += base::kSecond / 2) {
      for (const auto& [site, conn] : conns_) (void)say(conn, wire::Heartbeat{});
      (void)on(Tick{});
    }
  }
  // The share of five minutes in which `site` is in attempts that it ends, each by another link, so
  // many in each round.
  double lost_to(const std::string& site, bool fresh, int each_round) {
    base::Duration lost = 0;
    const base::Time begun = now_;
    for (int done = 0; now_ < begun + 300 * base::kSecond;) {
      if (conns_.count(site) == 0) come(site, {}, 0, fresh ? 0 : 9999);
      const wire::Attempt attempt = calls();
      const bool in = is_member(site);
      const char* other[] = {"a", "b", "c", "d"};
      const bool breaks = in && done < each_round;
      const std::string& end = other[fresh ? 0 : done % 4];
      if (breaks) {
        pass(base::kSecond / 2);
        (void)say(conn_of(site), wire::Fail{attempt, base::Code::kLinkLost, id_of(end), "broken"});
      }
      done = breaks ? done + 1 : 0;
      if (!in) conns_.erase(site);
      if (!breaks) {
        for (const auto& [one, conn] : conns_) (void)say(conn, wire::Done{attempt, {7, 7}});
        n_ = committed("grads") + 1;
      }
      lost += breaks ? base::kSecond : 0;
      pass(base::kSecond / 2);
      for (const char* one : other) EXPECT_TRUE(is_member(one)) << one;
    }
    return static_cast<double>(lost) / (300 * base::kSecond);
  }
  void serve(base::Duration time) {
    (void)round();
    pass(time);
    (void)round();
  }

  std::map<std::string, ConnId> conns_ = {{"a", 1}, {"b", 2}, {"c", 3}, {"d", 4}};
  std::uint64_t n_ = 1, fresh_ = 0;
};

}  // namespace jccl::protocol
