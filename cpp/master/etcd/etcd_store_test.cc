// The store against a gateway that answers oddly: an append is durable, or it never will be, or
// the master stops; and nobody writes after another master took over.
#include <gtest/gtest.h>
#include <unistd.h>

#include <future>

#include "master/etcd/etcd_copy.h"
#include "master/etcd/etcd_fake.h"
#include "master/etcd/etcd_where.h"
#include "master/master.h"
#include "master/raw_peer.h"
#include "master/store.h"

namespace jccl::master {
namespace {

using base::Code;
using base::Status;

constexpr const char* kTxn = "/v3/kv/txn";
constexpr const char* kKeepalive = "/v3/lease/keepalive";

std::vector<wire::Row> rows_from(std::uint64_t first, std::size_t n = 1) {
  std::vector<wire::Row> rows(n);
  for (std::size_t i = 0; i < n; ++i) {
    rows[i].sequence = first + i;
    rows[i].payload.assign(10 + i, static_cast<std::uint8_t>(first + i));
    rows[i].crc = 7;
    rows[i].previous = first;
  }
  return rows;
}

StoreOptions options_of(const std::string& address = "here:1") {
  StoreOptions options;
  options.address = address;
  return options;
}

constexpr char kLong[] = "?lease=4";  // a busy machine may stand still for a second

class EtcdStoreTest : public testing::Test {
 protected:
  std::unique_ptr<StateStore> open(StoreOptions options = options_of(),
                                   const std::string& how = "?lease=1") {
    auto store = open_store(etcd_.where(how), options);
    EXPECT_TRUE(store.ok()) << store.status().text;
    return store.ok() ? std::move(store.value()) : nullptr;
  }
  Status why_not(StoreOptions options = options_of()) {
    return open_store(etcd_.where(), options).status();
  }
  // What another master finds.
  std::vector<wire::Row> rows() {
    etcd_.end_leases();
    auto rows = open()->load();
    EXPECT_TRUE(rows.ok()) << rows.status().text;
    return rows.ok() ? rows.value() : std::vector<wire::Row>{};
  }

  FakeEtcd etcd_;
};

TEST_F(EtcdStoreTest, rows_are_there_for_the_next_master) {
  auto store = open();
  EXPECT_TRUE(store->load().value().empty());
  ASSERT_TRUE(store->append(rows_from(1)).ok());
  ASSERT_TRUE(store->append(rows_from(2, 3)).ok());
  ASSERT_TRUE(store->append({}).ok());
  ASSERT_TRUE(store->append(rows_from(5)).ok());
  EXPECT_EQ(etcd_.count("/run/rows/"), 3u);
  store.reset();  // gives the lease back
  EXPECT_EQ(etcd_.count("/run/leader"), 0u);
  store = open();
  auto expected = rows_from(1);
  for (const auto& row : rows_from(2, 3)) expected.push_back(row);
  expected.push_back(rows_from(5)[0]);
  EXPECT_EQ(store->load().value(), expected);
  ASSERT_TRUE(store->append(rows_from(6)).ok());
}

TEST_F(EtcdStoreTest, whatever_becomes_of_an_answer_the_rows_are_written_once) {
  for (const Odd odd : {Odd::kDropBefore, Odd::kDropAfter, Odd::kSilent, Odd::kGarbage, Odd::kHalf,
                        Odd::kOther, Odd::kNoLeader, Odd::kTimedOut}) {
    auto store = open();
    const std::uint64_t first = store->load().value().size() + 1;
    etcd_.next(kTxn, {odd});
    const Status status = store->append(rows_from(first));
    EXPECT_TRUE(status.ok()) << static_cast<int>(odd) << ": " << status.text;
    ASSERT_TRUE(store->append(rows_from(first + 1)).ok());
    store.reset();
    EXPECT_EQ(etcd_.count("/run/rows/"), first + 1);
  }
  EXPECT_EQ(rows().size(), 16u);
}

TEST_F(EtcdStoreTest, a_master_that_lost_its_lease_writes_nothing) {
  auto store = open();
  ASSERT_TRUE(store->append(rows_from(1)).ok());
  etcd_.end_leases();
  auto other = open(options_of("there:2"));
  EXPECT_EQ(other->load().value().size(), 1u);
  Status status = store->append(rows_from(2));  // before it heard of anything
  EXPECT_EQ(status.code, Code::kEvicted);
  EXPECT_NE(status.text.find("there:2"), std::string::npos) << status.text;
  EXPECT_EQ(store->held().code, Code::kEvicted);
  EXPECT_EQ(store->append(rows_from(2)).code, Code::kEvicted);
  EXPECT_TRUE(other->append(rows_from(2)).ok());
  EXPECT_EQ(etcd_.count("/run/rows/"), 2u);
}

TEST_F(EtcdStoreTest, an_append_whose_answer_was_lost_before_the_fence_is_the_next_masters) {
  auto store = open();
  etcd_.next(kTxn, {Odd::kSilent});
  auto appended = std::async(std::launch::async, [&] { return store->append(rows_from(1)); });
  while (etcd_.count("/run/rows/") == 0) ::usleep(1000);
  etcd_.end_leases();
  auto other = open();
  EXPECT_EQ(appended.get().code, Code::kEvicted);  // it must not be told as done by this one
  EXPECT_EQ(other->load().value(), rows_from(1));
}

TEST_F(EtcdStoreTest, a_lease_that_etcd_ended_is_noticed_when_nothing_happens) {
  auto store = open();
  EXPECT_TRUE(store->held().ok());
  etcd_.end_leases();
  for (int i = 0; i < 5000 && store->held().ok(); ++i) ::usleep(1000);
  const Status status = store->held();
  EXPECT_EQ(status.code, Code::kEvicted);
  EXPECT_NE(status.text.find("no other master is active"), std::string::npos) << status.text;
}

TEST_F(EtcdStoreTest, a_master_cut_off_from_etcd_is_lost_when_its_lease_is) {
  auto store = open(options_of(), kLong);
  etcd_.reachable(false);
  const Status appended = store->append(rows_from(1));
  EXPECT_EQ(appended.code, Code::kEvicted) << appended.text;
  EXPECT_EQ(store->held().code, Code::kEvicted);
  etcd_.reachable(true);
  EXPECT_EQ(store->append(rows_from(1)).code, Code::kEvicted);  // final
}

TEST_F(EtcdStoreTest, an_append_goes_on_for_as_long_as_the_lease_is_renewed) {
  auto store = open(options_of(), kLong);
  etcd_.next(kTxn, std::deque<Odd>(8, Odd::kSilent));  // for longer than the lease had left
  const Status appended = store->append(rows_from(1));
  EXPECT_TRUE(appended.ok()) << appended.text;
  EXPECT_TRUE(store->append(rows_from(2)).ok());
  EXPECT_EQ(etcd_.count("/run/rows/"), 2u);
}

TEST_F(EtcdStoreTest, renewals_that_are_answered_oddly_keep_the_lease) {
  const auto store = open(options_of(), kLong);
  etcd_.next(kKeepalive, {Odd::kNoLeader, Odd::kGarbage, Odd::kHalf, Odd::kDropAfter, Odd::kOther,
                          Odd::kSilent});
  for (int i = 0; i < 1000 && !etcd_.told_all(kKeepalive); ++i) {
    ASSERT_TRUE(store->held().ok()) << i << store->held().text;
    ::usleep(50'000);
  }
  EXPECT_TRUE(etcd_.told_all(kKeepalive));
  EXPECT_TRUE(store->held().ok()) << store->held().text;
}

TEST_F(EtcdStoreTest, what_etcd_refuses_ends_the_master_and_says_why) {
  for (const Odd odd : {Odd::kTooLarge, Odd::kFull}) {
    auto store = open();
    etcd_.next(kTxn, {odd});
    const Status status = store->append(rows_from(1));
    EXPECT_EQ(status.code, Code::kIo);
    EXPECT_NE(status.text.find("row 1 ("), std::string::npos) << status.text;
    EXPECT_NE(status.text.find(odd == Odd::kFull ? "space" : "too large"), std::string::npos);
    EXPECT_EQ(store->append(rows_from(1)).code, Code::kIo);
  }
  EXPECT_TRUE(rows().empty());
}

TEST_F(EtcdStoreTest, a_standby_waits_reads_along_and_takes_over) {
  auto store = open(options_of("active:1"));
  ASSERT_TRUE(store->append(rows_from(1)).ok());
  std::vector<std::string> lines;
  std::atomic<int> asked{0};
  StoreOptions options = options_of("standby:2");
  options.log = [&](const std::string& line) { lines.push_back(line); };
  options.keep_waiting = [&] { return ++asked > 0; };
  auto standby = std::async(std::launch::async, [&] { return open(options); });
  while (asked < 2) ::usleep(1000);
  ASSERT_TRUE(store->append(rows_from(2, 2)).ok());
  while (asked < 4) ::usleep(1000);
  store.reset();
  auto taken = standby.get();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_NE(lines[0].find("standby: the active master is at active:1"), std::string::npos);
  EXPECT_EQ(lines[1].find("active after"), 0u) << lines[1];
  EXPECT_EQ(taken->load().value().size(), 3u);
  EXPECT_TRUE(taken->append(rows_from(4)).ok());
  EXPECT_EQ(etcd_.value("/run/leader").find("standby:2 "), 0u);
}

TEST_F(EtcdStoreTest, a_standby_can_be_told_to_stop) {
  auto store = open();
  StoreOptions options = options_of();
  options.keep_waiting = [] { return false; };
  EXPECT_EQ(why_not(options).code, Code::kAborted);
}

TEST_F(EtcdStoreTest, a_campaign_whose_answer_was_lost_is_won_all_the_same) {
  for (const Odd odd : {Odd::kDropAfter, Odd::kGarbage, Odd::kTimedOut, Odd::kSilent}) {
    for (const bool reads : {true, false}) {  // the first request reads, the second campaigns
      etcd_.next(kTxn, {Odd::kNoLeader, reads ? odd : Odd::kRight, odd});
      auto store = open();
      ASSERT_TRUE(store->load().ok());
      const std::uint64_t n = etcd_.count("/run/rows/");
      EXPECT_TRUE(store->append(rows_from(n + 1)).ok());
    }
  }
}

// As a machine finds it that slept for longer than its lease.
TEST_F(EtcdStoreTest, a_campaign_that_is_refused_is_begun_again) {
  etcd_.next(kTxn, {Odd::kRight, Odd::kTooLarge});
  auto store = open();
  EXPECT_TRUE(store->append(rows_from(1)).ok());
  EXPECT_EQ(etcd_.count("/run/leader"), 1u);
}

TEST_F(EtcdStoreTest, an_answer_that_is_too_large_is_asked_for_in_smaller_pages) {
  auto store = open();
  for (std::uint64_t n = 1; n <= 70; ++n) ASSERT_TRUE(store->append(rows_from(n)).ok());
  store.reset();
  etcd_.next(kTxn, {Odd::kHuge, Odd::kHuge});  // 256 appends at a time, then 128, then 64
  store = open();
  EXPECT_EQ(store->load().value().size(), 70u);
  EXPECT_TRUE(store->append(rows_from(71)).ok());
}

TEST_F(EtcdStoreTest, a_standby_forgets_rows_that_were_wiped) {
  auto store = open();
  ASSERT_TRUE(store->append(rows_from(1)).ok());
  ASSERT_TRUE(store->append(rows_from(2)).ok());
  std::atomic<int> asked{0};
  StoreOptions options = options_of();
  options.keep_waiting = [&] { return ++asked > 0; };
  auto standby = std::async(std::launch::async, [&] { return open(options); });
  while (asked < 2) ::usleep(1000);
  etcd_.remove("/run/rows/0000000000000001");
  etcd_.remove("/run/rows/0000000000000002");
  etcd_.remove("/run/journal");
  EXPECT_EQ(store->append(rows_from(3)).code, Code::kDamaged);
  store.reset();
  store = standby.get();
  EXPECT_TRUE(store->load().value().empty());
  EXPECT_TRUE(store->append(rows_from(1)).ok());
}

TEST_F(EtcdStoreTest, a_damaged_row_is_never_cut_off) {
  auto store = open();
  ASSERT_TRUE(store->append(rows_from(1)).ok());
  EXPECT_EQ(store->truncate(0).code, Code::kDamaged);
  EXPECT_EQ(store->append(rows_from(2)).code, Code::kDamaged);
}

TEST_F(EtcdStoreTest, rows_that_somebody_removed_or_wrote_stop_the_master) {
  auto store = open();
  ASSERT_TRUE(store->append(rows_from(1)).ok());
  ASSERT_TRUE(store->append(rows_from(2)).ok());
  etcd_.remove("/run/rows/0000000000000002");
  EXPECT_EQ(store->append(rows_from(3)).code, Code::kDamaged);
  store.reset();
  store = open();
  EXPECT_EQ(store->load().value().size(), 1u);
  etcd_.put("/run/rows/0000000000000002", "mine");
  EXPECT_EQ(store->append(rows_from(2)).code, Code::kDamaged);
  store.reset();
  EXPECT_EQ(why_not().code, Code::kDamaged);
  etcd_.remove("/run/rows/0000000000000001");
  EXPECT_EQ(why_not().code, Code::kDamaged);
  etcd_.remove("/run/rows/0000000000000002");
  etcd_.put("/run/rows/0000000000000000", "before all rows");
  EXPECT_NE(why_not().text.find("other keys than rows"), std::string::npos);
  etcd_.remove("/run/rows/0000000000000000");
  etcd_.put("/run/rows/0000000000000001", encode_rows(rows_from(2)));
  EXPECT_NE(why_not().text.find("not in sequence"), std::string::npos);
  etcd_.remove("/run/journal");
  EXPECT_NE(why_not().text.find("holds rows, but"), std::string::npos);
  etcd_.put("/run/journal", "something else");
  EXPECT_EQ(why_not().code, Code::kVersion);
}

TEST(EtcdWhereTest, the_forms_of_an_address) {
  const auto plain = parse_etcd("etcd://a,b:1,[::1],[::2]:3/x/y/?lease=9");
  ASSERT_TRUE(plain.ok()) << plain.status().text;
  ASSERT_EQ(plain.value().endpoints.size(), 4u);
  EXPECT_EQ(net::to_text(plain.value().endpoints), "a:2379,b:1,[::1]:2379,[::2]:3");
  EXPECT_EQ(plain.value().prefix, "/x/y");
  EXPECT_EQ(plain.value().lease, 9 * base::kSecond);
  EXPECT_EQ(parse_etcd("etcd://a").value().prefix, "/jccl");
  const auto tls = parse_etcd("etcds://a/r?ca=/c.pem&cert=/d.pem&key=/k.pem");
  ASSERT_TRUE(tls.ok()) << tls.status().text;
  EXPECT_TRUE(tls.value().tls);
  EXPECT_EQ(tls.value().ca, "/c.pem");
  EXPECT_EQ(tls.value().key, "/k.pem");
  const auto known = parse_etcd("etcds://jccl:p%40s:s@a,b:1/r");
  ASSERT_TRUE(known.ok()) << known.status().text;
  EXPECT_EQ(known.value().user, "jccl");
  EXPECT_EQ(known.value().password, "p@s:s");
  EXPECT_EQ(net::to_text(known.value().endpoints), "a:2379,b:1");
  EXPECT_EQ(without_password("etcds://jccl:p%40s:s@a,b:1/r"), "etcds://jccl:…@a,b:1/r");
  EXPECT_EQ(without_password("etcd://a:1,b:2/r@x?lease=5"), "etcd://a:1,b:2/r@x?lease=5");
  EXPECT_EQ(without_password("sqlite:/a:b@c"), "sqlite:/a:b@c");
  EXPECT_EQ(parse_etcd("etcd://me:hush@").status().text.find("hush"), std::string::npos);
  for (const char* wrong : {"",
                            "etcd:/",
                            "sqlite:a-file",
                            "etcd://me@a",
                            "etcd://:x@a",
                            "etcd://me:@a",
                            "etcd://me:%4@a",
                            "etcd://me:%zz@a",
                            "etcd://",
                            "etcd:///x",
                            "etcd://a:0",
                            "etcd://a:x",
                            "etcd://:2379",
                            "etcd://a?lease=0",
                            "etcd://a?lease=601",
                            "etcd://a?lease=1.5",
                            "etcd://a?lease=",
                            "etcd://a?what=1",
                            "etcd://a?ca=/x",
                            "etcds://a?cert=/x",
                            "etcd://a,,b"}) {
    EXPECT_EQ(parse_etcd(wrong).status().code, Code::kInvalid) << wrong;
  }
  EXPECT_EQ(open_store("etcd://192.0.2.1/x", {}).status().code, Code::kInvalid);
  EXPECT_EQ(open_store("etcds://localhost/x?ca=/nowhere", {}).status().code, Code::kInvalid);
}

TEST(EtcdKvTest, base64_is_undone) {
  for (const char* text : {"", "a", "ab", "abc", "abcd", "\xff\xfe\x01"}) {
    EXPECT_EQ(from_base64(base64(text)).value(), text);
  }
  EXPECT_EQ(base64("Man"), "TWFu");
  for (const char* wrong : {"a", "ab=c", "ab=", "====", "a===", "ab c", "TWF\n"}) {
    EXPECT_FALSE(from_base64(wrong).ok()) << wrong;
  }
}

TEST(EtcdKvTest, answers_in_any_other_form_are_refused) {
  EtcdTxn asked;
  asked.then = {EtcdRange{"k", ""}};
  const auto with = [](const std::string& responses) {
    return R"({"header":{"revision":7},"succeeded":true,"responses":)" + responses + "}";
  };
  const auto pair = [&](const std::string& kv) {
    return with(R"([{"response_range":{"kvs":[)" + kv + "]}}]");
  };
  const auto good = parse_txn_reply(
      pair(R"({"key":"aw==","value":"dg==","create_revision":"3","mod_revision":"4"})"), asked);
  ASSERT_TRUE(good.ok()) << good.status().text;
  EXPECT_EQ(good.value().found[0].pairs[0].value, "v");
  EXPECT_EQ(good.value().found[0].pairs[0].mod, 4u);
  EXPECT_TRUE(parse_txn_reply(with(R"([{"response_range":{}}])"), asked).ok());
  for (const std::string& wrong : {std::string("{"),
                                   std::string("7"),
                                   std::string("{}"),
                                   std::string(R"({"header":1})"),
                                   std::string(R"({"header":{"revision":true}})"),
                                   std::string(R"({"succeeded":1})"),
                                   std::string(R"({"header":{"revision":"7x"}})"),
                                   std::string(R"({"header":{"revision":"-7"}})"),
                                   with("7"),
                                   with("[]"),
                                   with("[7]"),
                                   with(R"([{"response_put":{}}])"),
                                   with(R"([{"response_range":7}])"),
                                   with(R"([{"response_put":{},"response_range":{}}])"),
                                   with(R"([{"response_range":{"more":"yes"}}])"),
                                   with(R"([{"response_range":{"kvs":{}}}])"),
                                   pair("7"),
                                   pair("{}"),
                                   pair(R"({"key":"aw==","mod_revision":"0"})"),
                                   pair(R"({"key":7,"mod_revision":"4"})"),
                                   pair(R"({"key":"aw=","mod_revision":"4"})")}) {
    EXPECT_EQ(parse_txn_reply(wrong, asked).status().code, Code::kLinkLost) << wrong;
  }
  EXPECT_EQ(parse_lease_reply(R"({"result":{"ID":"5","TTL":"2"}})").value().seconds, 2);
  EXPECT_EQ(parse_lease_reply(R"({"ID":"5"})").value().seconds, 0);
  for (const char* wrong : {"{", "7", "{}", R"({"ID":"0"})", R"({"ID":"5","TTL":"-1"})",
                            R"({"result":7})", R"({"result":{"ID":[]}})"}) {
    EXPECT_EQ(parse_lease_reply(wrong).status().code, Code::kLinkLost) << wrong;
  }
}

TEST(EtcdKvTest, rows_in_any_other_form_are_refused) {
  const std::string good = encode_rows(rows_from(1, 2));
  EXPECT_EQ(decode_rows(good).value(), rows_from(1, 2));
  for (std::size_t n = 0; n < good.size(); ++n) {
    EXPECT_FALSE(decode_rows(good.substr(0, n)).ok()) << n;
  }
  EXPECT_FALSE(decode_rows(good + "x").ok());
}

// As if the machine had died: the lease ends, and the standby has waited for longer than the
// members are given to come back.
TEST_F(EtcdStoreTest, members_get_their_grace_from_a_standby_however_long_it_waited) {
  MasterConfig config;
  config.store = etcd_.where();
  config.restart_grace = 500 * base::kMillisecond;
  auto active = Master::start(config);
  ASSERT_TRUE(active.ok()) << active.status().text;
  base::Attempt attempt;
  {
    Member a(active.value()->address(), 11);
    const auto done = commit_round({&a}, "grads", 1);
    ASSERT_TRUE(done);
    attempt = *done;
    std::atomic<int> asked{0};
    config.keep_waiting = [&] { return ++asked > 0; };
    auto standby = std::async(std::launch::async, [&] { return Master::start(config); });
    while (asked < 2) ::usleep(1000);
    ::usleep(700'000);
    etcd_.end_leases();
    auto taken = standby.get();
    ASSERT_TRUE(taken.ok()) << taken.status().text;
    Member again(taken.value()->address(), 11, {{attempt, {"grads", 1}}});
    const auto outcome = again.socket.await<wire::Outcome>();
    ASSERT_TRUE(outcome);
    EXPECT_EQ(outcome->verdict, wire::Verdict::kCommitted);
    const auto next = commit_round({&again}, "grads", 2);
    ASSERT_TRUE(next);
    EXPECT_GT(next->epoch, attempt.epoch);
    for (int i = 0; i < 5000 && active.value()->failure().ok(); ++i) ::usleep(1000);
    EXPECT_EQ(active.value()->failure().code, Code::kEvicted);
    EXPECT_FALSE(commit_round({&a}, "grads", 2));
  }
}

// No member, no record, no timer of the machine's: only its store tells it.
TEST_F(EtcdStoreTest, a_master_that_nobody_asks_anything_notices_that_it_lost_its_lease) {
  MasterConfig config;
  config.store = etcd_.where();
  const auto master = Master::start(config);
  ASSERT_TRUE(master.ok()) << master.status().text;
  etcd_.end_leases();
  for (int i = 0; i < 20'000 && master.value()->failure().ok(); ++i) ::usleep(1000);
  EXPECT_EQ(master.value()->failure().code, Code::kEvicted);
}

TEST_F(EtcdStoreTest, the_status_names_the_store_without_its_password) {
  MasterConfig config;
  config.store = etcd_.where();
  config.store.insert(config.store.find("//") + 2, "jccl:geheim@");
  const auto master = Master::start(config);
  ASSERT_TRUE(master.ok()) << master.status().text;
  const std::string status = master.value()->status_json();
  EXPECT_EQ(status.find("geheim"), std::string::npos) << status;
  EXPECT_NE(status.find("jccl:"), std::string::npos) << status;
}

}  // namespace
}  // namespace jccl::master
