// Audited rounds in whole clusters: results are right and committed, the status says what was
// looked at, and whoever shows the master something else than it was bound to is named and out.
#include <algorithm>
#include <atomic>
#include <cmath>

#include "capi/cluster_support.h"
#include "peer/control_hook.h"
#include "wire/serialize.h"

namespace jccl::capi::test {
namespace {

ClusterOptions audited_options(double share) {
  ClusterOptions options;
  options.master.audit = share;
  options.peer.chunk_bytes = 64 * 1024;
  options.peer.deadline = 60 * kSecond;
  return options;
}

RoundOptions direct_round() {
  RoundOptions o = sum_of("x");
  o.plan = "direct";
  o.op = Op::kMean;
  return o;
}

bool says_status(Cluster& cluster, const std::string& part) {
  return contains(cluster.master().status_json(), part);
}

// Exact in every order of addition, as the order is that of ids, which each cluster draws anew.
float exact(std::size_t i, std::size_t p) {
  return static_cast<float>((i * 7919 + p * 104'729) % 1000) / 64;
}

TEST(ClusterAuditTest, audited_rounds_commit_at_once_with_the_right_bits_for_all) {
  constexpr std::size_t kPeers = 3, kCount = 100'003;
  for (const CodecId codec : {CodecId::kNone, CodecId::kInt8, CodecId::kInt4}) {
    std::vector<std::vector<float>> results(kPeers);
    Cluster cluster(kPeers, audited_options(1));
    cluster.on_all([&](std::size_t p, Communicator& comm) {
      std::vector<float> in(kCount);
      for (std::size_t i = 0; i < in.size(); ++i) in[i] = exact(i, p);
      RoundOptions o = direct_round();
      o.codec = codec;
      o.weight = std::ldexp(1.0, static_cast<int>(p) - 1);
      for (int round = 0; round < 3; ++round) {
        results[p].assign(in.size(), 0);
        const RoundResult r = comm.run({leaf_of(in, results[p])}, o);
        ASSERT_TRUE(r.status.ok()) << r.status.text;
        EXPECT_EQ(r.attempts, 1U);
      }
    });
    EXPECT_TRUE(says_status(cluster, "\"audit\":\"audited at a share of 1\""));
    float worst = 0;
    for (std::size_t i = 0; i < kCount; ++i) {
      float sum = 0;
      for (std::size_t p = 0; p < kPeers; ++p)
        sum += std::ldexp(exact(i, p), static_cast<int>(p) - 1);
      worst = std::max(worst, std::abs(results[0][i] - sum / 3.5F));
    }
    EXPECT_LE(worst, codec == CodecId::kNone ? 0.0F : 4.0F);  // of values up to 16, in 4 bits
    EXPECT_TRUE(results[1] == results[0]);
    EXPECT_TRUE(results[2] == results[0]);
  }
}

TEST(ClusterAuditTest, a_round_that_cannot_be_audited_runs_and_the_status_says_why) {
  Cluster cluster(3, audited_options(1));
  RoundOptions o = direct_round();
  o.plan = "exchange";
  cluster.on_all([&](std::size_t, Communicator& comm) {
    const SmallRound r = small_round(comm, o, 2);
    ASSERT_TRUE(r.result.status.ok()) << r.result.status.text;
  });
  EXPECT_TRUE(says_status(cluster, "not audited: under plan exchange every member adds up all"));
}

// Whoever owns cell 0 shows a bit more than it made.
struct Forger final : peer::ControlHook {
  std::vector<base::Bytes> says(const wire::Message& message) override {
    wire::Message told = message;
    auto* part = std::get_if<wire::AuditPart>(&told);
    if (part != nullptr && part->result && part->cell == 0 && !forged.exchange(true)) {
      part->bytes[0] ^= 1;
    }
    return {wire::encode(told)};
  }
  std::vector<base::Bytes> hears(const wire::Message&) override { return {}; }
  std::atomic<bool> forged{false};
};

TEST(ClusterAuditTest, who_shows_another_result_is_named_and_out_and_the_round_goes_on_without_it) {
  Forger forger;
  peer::control_hook = &forger;
  {
    Cluster cluster(4, audited_options(1));
    std::atomic<int> right{0};
    cluster.on_all([&](std::size_t, Communicator& comm) {
      const SmallRound r = small_round(comm, direct_round(), 3, 40'000);
      if (!r.result.status.ok()) return;
      EXPECT_EQ(r.value, 3.0F);
      ++right;
    });
    EXPECT_TRUE(forger.forged);
    EXPECT_GE(right, 3);
    EXPECT_TRUE(says_status(cluster, "cells that an audit proved wrong"));
  }
  peer::control_hook = nullptr;
}

}  // namespace
}  // namespace jccl::capi::test
