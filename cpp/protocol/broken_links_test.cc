// Links that no plan goes round: one of the two ends has to go, and nobody can tell which is to
// blame. Whoever breaks them again and again does not stay for that.
#include "protocol/hostile_rig.h"

namespace jccl::protocol {
namespace {

using base::Code;
using base::kSecond;

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
        if (both) return base::Status(Code::kLinkLost, base::cat("no plan avoids ", a, "-", b));
      }
      return base::Bytes{};
    });
    join({"a", "b", "c", "d"});
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
    for (const auto& [site, conn] : conns_) {
      for (const auto& start : sent<wire::Start>(say(conn, ready("grads", n_)))) {
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
      (void)say(conn_of(by), wire::Fail{attempt, Code::kLinkLost, id_of(to), "broken"});
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
    now_ += 700 * kSecond;
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

  std::map<std::string, ConnId> conns_ = {{"a", 1}, {"b", 2}, {"c", 3}, {"d", 4}};
  std::uint64_t n_ = 1, fresh_ = 0;
};

TEST_F(BrokenLinks, one_that_breaks_them_with_several_goes_itself) {
  EXPECT_EQ(out_by_link("a", "d"), "d") << "one of the two";
  conns_.erase("d");
  (void)round();
  EXPECT_EQ(out_by_link("a", "c"), "a");
  EXPECT_TRUE(is_member("b"));
}

TEST_F(BrokenLinks, at_first_the_one_that_is_named_goes) {
  EXPECT_EQ(out_by_link("d", "a"), "a") << "mostly it is that one that hangs";
}

TEST_F(BrokenLinks, of_the_same_two_they_go_by_turns) {
  EXPECT_EQ(out_by_link("a", "d"), "d");
  come_back("d");
  EXPECT_EQ(out_by_link("a", "d"), "a");
  come_back("a");
  EXPECT_EQ(out_by_link("a", "d"), "d");
}

}  // namespace
}  // namespace jccl::protocol
