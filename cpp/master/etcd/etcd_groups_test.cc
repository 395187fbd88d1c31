// Journals of groups in etcd: under the run's leader, and its next master's with the run's.
#include <gtest/gtest.h>
#include <unistd.h>

#include "master/etcd/etcd_fake.h"
#include "master/master.h"
#include "master/raw_peer.h"
#include "master/store.h"

namespace jccl::master {
namespace {

using base::Code;

class EtcdGroupsTest : public testing::Test {
 protected:
  std::unique_ptr<StateStore> lead() {
    auto store = open_store(etcd_.where("?lease=4"), {});
    EXPECT_TRUE(store.ok()) << store.status().text;
    return store.ok() ? std::move(store.value()) : nullptr;
  }
  static std::unique_ptr<StateStore> group(StateStore& run, const std::string& name) {
    auto store = run.of_group(name, {});
    EXPECT_TRUE(store.ok()) << store.status().text;
    return store.ok() ? std::move(store.value()) : nullptr;
  }
  static std::vector<wire::Row> row(std::uint64_t sequence, std::uint8_t what) {
    wire::Row one;
    one.sequence = sequence;
    one.payload.assign(4, what);
    return {one};
  }

  FakeEtcd etcd_;
};

TEST_F(EtcdGroupsTest, rows_of_a_group_are_its_own_and_there_for_the_next_master) {
  {
    const auto run = lead();
    const auto west = group(*run, "west"), east = group(*run, "east");
    ASSERT_TRUE(run->append(row(1, 1)).ok());
    ASSERT_TRUE(west->append(row(1, 2)).ok());
    ASSERT_TRUE(west->append(row(2, 3)).ok());
    ASSERT_TRUE(east->append(row(1, 4)).ok());
    EXPECT_EQ(etcd_.count("/run/rows/"), 1u);
    EXPECT_EQ(etcd_.count("/run/group-rows/west/"), 2u);
  }
  EXPECT_EQ(etcd_.count("/run/leader"), 0u);  // given back when the last of them is closed
  const auto run = lead();
  EXPECT_EQ(run->load().value(), row(1, 1));
  EXPECT_EQ(group(*run, "west")->load().value().size(), 2u);
  EXPECT_EQ(group(*run, "east")->load().value(), row(1, 4));
  EXPECT_TRUE(group(*run, "north")->load().value().empty());
}

TEST_F(EtcdGroupsTest, who_leads_the_run_no_more_writes_in_no_group) {
  const auto run = lead();
  const auto west = group(*run, "west");
  ASSERT_TRUE(west->append(row(1, 1)).ok());
  etcd_.end_leases();
  const auto next = lead();
  EXPECT_EQ(west->append(row(2, 2)).code, Code::kEvicted);
  EXPECT_NE(run->of_group("east", {}).status().code, Code::kOk);
  EXPECT_EQ(group(*next, "west")->load().value(), row(1, 1));
}

TEST_F(EtcdGroupsTest, the_next_master_tells_a_group_what_became_of_its_round) {
  MasterConfig config;
  config.store = etcd_.where("?lease=4");
  config.restart_grace = 100 * base::kMillisecond;
  base::Attempt attempt;
  {
    auto active = Master::start(config);
    ASSERT_TRUE(active.ok()) << active.status().text;
    Member a(active.value()->address(), 11, {}, false, 0, "west");
    const auto done = commit_round({&a}, "grads", 1);
    ASSERT_TRUE(done);
    attempt = *done;
  }
  auto next = Master::start(config);
  ASSERT_TRUE(next.ok()) << next.status().text;
  Member again(next.value()->address(), 11, {{attempt, {"grads", 1}}}, false, 0, "west");
  const auto outcome = again.socket.await<wire::Outcome>();
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->verdict, wire::Verdict::kCommitted);
  EXPECT_TRUE(commit_round({&again}, "grads", 2));
}

}  // namespace
}  // namespace jccl::master
