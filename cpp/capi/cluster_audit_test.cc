// Audited rounds in whole clusters: results are right and committed, the status says what was
// looked at, and whoever shows the master something else than it was bound to is named and out.
#include <atomic>

#include "capi/cluster_support.h"
#include "peer/control_hook.h"
#include "wire/codec.h"

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

TEST(ClusterAuditTest, audited_rounds_commit_with_the_bits_of_others) {
  for (const CodecId codec : {CodecId::kNone, CodecId::kInt8, CodecId::kInt4}) {
    std::vector<std::vector<float>> plain(3), audited(3);
    for (const double share : {0.0, 1.0}) {
      Cluster cluster(3, audited_options(share));
      auto& results = share > 0 ? audited : plain;
      cluster.on_all([&](std::size_t p, Communicator& comm) {
        std::vector<float> in(100'003);
        for (std::size_t i = 0; i < in.size(); ++i) {
          in[i] = static_cast<float>((i * 7919 + p * 104'729) % 1000) / 333;
        }
        RoundOptions o = direct_round();
        o.codec = codec;
        o.weight = 1 + 0.5 * static_cast<double>(p);
        for (int round = 0; round < 3; ++round) {
          results[p].assign(in.size(), 0);
          const RoundResult r = comm.run({leaf_of(in, results[p])}, o);
          ASSERT_TRUE(r.status.ok()) << r.status.text;
          EXPECT_EQ(r.attempts, 1U);
        }
      });
      EXPECT_EQ(says_status(cluster, "\"audit\":\"audited at a share of 1\""), share > 0);
    }
    EXPECT_EQ(plain, audited);
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
