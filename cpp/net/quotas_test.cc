#include "net/quotas.h"

#include <gtest/gtest.h>

#include "net/test_support.h"

namespace jccl::net::test {
namespace {

using base::kMillisecond;
using base::kSecond;

TEST(AllowanceTest, a_burst_is_free_and_then_each_waits_its_turn) {
  const Rate rate{100, 10};
  Allowance allowance;
  base::Time now = 5 * kSecond;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(allowance.charge(rate, now), 0);
  EXPECT_EQ(allowance.charge(rate, now), 100 * kMillisecond);
  EXPECT_EQ(allowance.charge(rate, now), 200 * kMillisecond);
  now += 200 * kMillisecond;
  EXPECT_EQ(allowance.charge(rate, now), 100 * kMillisecond);
  allowance.refund(rate, 5);
  EXPECT_EQ(allowance.charge(rate, now), 0);
  now += 60 * kSecond;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(allowance.charge(rate, now), 0);  // and no more
  EXPECT_GT(allowance.charge(rate, now), 0);
}

TEST(AllowanceTest, any_number_of_addresses_takes_bounded_memory) {
  const Rate rate{10, 1};
  Allowances all;
  for (int i = 0; i < 20'000; ++i) (void)all.charge(std::to_string(i), rate, kSecond);
  EXPECT_LE(all.size(), Allowances::kMost);
  EXPECT_GT(all.charge("new", rate, kSecond), 0);  // shares with other late comers
  EXPECT_EQ(all.charge("0", rate, kSecond), 0);    // one that was there first does not
  EXPECT_EQ(all.charge("new", rate, 60 * kSecond), 0);
}

TEST(AllowanceTest, who_may_not_wait_runs_up_no_debt) {
  const Rate rate{10, 1};
  Allowance allowance;
  base::Time now = 5 * kSecond;
  int taken = 0;
  for (int i = 0; i < 1000; ++i) taken += allowance.take(rate, now);
  EXPECT_EQ(taken, 10);
  EXPECT_TRUE(allowance.spent(rate, now));
  now += kSecond;
  EXPECT_TRUE(allowance.take(rate, now));
  EXPECT_FALSE(allowance.take(rate, now));
}

TEST(QuotasTest, a_network_is_closed_out_by_its_own_connections_alone) {
  Quotas quotas({{10, 1}, {5, 1}});
  base::Time now = 5 * kSecond;
  int admitted = 0;
  for (int i = 0; i < 1000; ++i) admitted += quotas.admit("a", now);
  EXPECT_EQ(admitted, 10);
  EXPECT_TRUE(quotas.admit("b", now));
  now += 3 * kSecond;
  for (int i = 0; i < 1000; ++i) admitted += quotas.admit("a", now);
  EXPECT_EQ(admitted, 13);
}

TEST(QuotasTest, who_proves_nothing_again_and_again_is_closed_sooner) {
  Quotas quotas({{1000, 1000}, {5, 1}});
  base::Time now = 5 * kSecond;
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(quotas.admit("a", now));
    quotas.failed("a", now);
  }
  EXPECT_FALSE(quotas.admit("a", now));
  EXPECT_TRUE(quotas.admit("b", now));
  now += kSecond;
  EXPECT_TRUE(quotas.admit("a", now));
}

class QuotasOfListenerTest : public NetTest {
 protected:
  ~QuotasOfListenerTest() override {
    loop.call([&] {
      raw.clear();
      server.reset();
    });
  }
  void listen(const Credentials& credentials, const QuotaRates& rates) {
    on([&] {
      server = std::make_unique<Server>(loop, credentials, ListenerOptions{.quotas = rates});
    });
  }
  void strangers(int count, const Bytes& bytes) {
    on([&] {
      for (int i = 0; i < count; ++i) {
        raw.push_back(bare_connection(loop, server->address));
        raw.back()->write_ahead(Bytes(bytes));
        (void)raw.back()->flush_ahead();
      }
    });
  }
  ListenerStats stats() {
    ListenerStats stats;
    on([&] { stats = server->listener->stats(); });
    return stats;
  }

  std::unique_ptr<Server> server;
  std::vector<std::unique_ptr<ByteStream>> raw;
};

TEST_F(QuotasOfListenerTest, beyond_a_network_s_connections_each_is_closed_at_once) {
  listen(plain(), {{20, 1}, {1000, 1000}});
  strangers(50, {});
  EXPECT_TRUE(eventually([&] { return stats().over_quota >= 20; }));
  EXPECT_LE(stats().pending, 30U);
}

TEST_F(QuotasOfListenerTest, handshakes_that_prove_nothing_are_bounded_before_tls) {
  listen(tls(), {{1000, 1000}, {10, 1}});
  for (int i = 0; i < 10; ++i) {
    strangers(1, {1, 2, 3, 4});  // no TLS
    EXPECT_TRUE(eventually([&] { return stats().refused >= static_cast<std::uint64_t>(i) + 1; }));
  }
  strangers(20, {1, 2, 3, 4});
  EXPECT_TRUE(eventually([&] { return stats().over_quota >= 10; }));
}

TEST_F(QuotasOfListenerTest, who_says_nothing_has_failed_at_nothing) {
  listen(plain(), {{1000, 1000}, {2, 1}});
  strangers(20, {});
  on([&] { raw.clear(); });
  EXPECT_TRUE(eventually([&] { return stats().refused == 20; }));
  strangers(5, {});
  EXPECT_TRUE(eventually([&] { return stats().pending == 5; }));
  EXPECT_EQ(stats().over_quota, 0U);
}

TEST_F(QuotasOfListenerTest, who_proves_its_key_does_not_count_as_failed) {
  listen(tls(), {{1000, 1000}, {2, 1}});
  for (int i = 0; i < 10; ++i) {
    Dialled dialled;
    on([&] { dialled.start(loop, {server->address}, tls()); });
    EXPECT_TRUE(eventually([&] { return dialled.calls == 1; }));
    EXPECT_TRUE(dialled.status.ok()) << dialled.status.text;
    on([&] {
      dialled.handle.reset();
      dialled.stream.reset();
    });
  }
  EXPECT_EQ(stats().over_quota, 0U);
}

}  // namespace
}  // namespace jccl::net::test
