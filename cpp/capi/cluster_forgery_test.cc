// Holders that forge a state: other values, with the same XXH3-128 digests part by part. In real
// clusters, from the members' publishing to the joiner's program.
#include <cstring>

#include "capi/cluster_support.h"
#include "snapshot/forger.h"
#include "snapshot/manifest.h"

namespace jccl::capi::test {
namespace {

constexpr std::size_t kElements = 700'000;  // three parts: each holder has a say about one
constexpr std::size_t kPart = snapshot::kPartBytes;

class ForgeryTest : public testing::Test {
 protected:
  ForgeryTest() {
    for (std::size_t i = 0; i < kElements; ++i) right_[i] = static_cast<float>(i);
    forged_ = right_;
    const std::span<std::uint8_t> bytes{reinterpret_cast<std::uint8_t*>(forged_.data()),
                                        kElements * sizeof(float)};
    for (std::size_t at = 0; at < bytes.size(); at += kPart) {
      snapshot::forge_in_place(bytes.subspan(at, std::min(kPart, bytes.size() - at)));
    }
  }
  static SyncResult sync(Communicator& comm, std::vector<float>& state) {
    SyncOptions o;
    o.tag = "model";
    o.deadline = 60 * kSecond;
    return comm.sync_state({leaf_of(state, state, "w")}, o);
  }
  // Members that all hold one state, by its digest.
  void hold(Cluster& cluster, std::size_t forger) {
    cluster.on_all([&](std::size_t p, Communicator& comm) {
      std::vector<float> own = p == forger ? forged_ : right_;
      const SyncResult synced = sync(comm, own);
      ASSERT_TRUE(synced.status.ok()) << synced.status.text;
      EXPECT_EQ(synced.status.code, Code::kOk);
      EXPECT_EQ(own, p == forger ? forged_ : right_) << "nobody saw a difference";
    });
  }
  std::vector<float> right_ = std::vector<float>(kElements), forged_;
};

TEST_F(ForgeryTest, a_joiner_gets_what_most_hold_and_the_forger_is_named) {
  for (const std::size_t forger : {0U, 1U, 2U}) {
    Cluster cluster(3);
    hold(cluster, forger);
    Communicator* joiner = cluster.add();
    std::vector<float> state(kElements);
    const SyncResult joined = sync(*joiner, state);
    ASSERT_TRUE(joined.status.ok() || joined.status.code == Code::kResynced) << joined.status.text;
    EXPECT_EQ(std::memcmp(state.data(), right_.data(), kElements * sizeof(float)), 0) << forger;
    // Its word counts when it was in a round.
    cluster.on_all([](std::size_t, Communicator& comm) {
      const SmallRound r = small_round(comm, sum_of("x"), 1);
      EXPECT_TRUE(r.result.status.ok()) << r.result.status.text;
    });
    const std::string status = cluster.master().status_json();
    EXPECT_TRUE(contains(status, "parts of a state unlike the others'")) << forger << status;
  }
}

TEST_F(ForgeryTest, of_two_that_hold_different_bytes_a_joiner_takes_neither) {
  for (const std::size_t forger : {0U, 1U}) {
    Cluster cluster(2);
    hold(cluster, forger);
    Communicator* joiner = cluster.add();
    std::vector<float> state(kElements);
    const SyncResult joined = sync(*joiner, state);
    EXPECT_EQ(joined.status.code, Code::kDisputed) << joined.status.text;
    EXPECT_EQ(state, std::vector<float>(kElements));
  }
}

}  // namespace
}  // namespace jccl::capi::test
