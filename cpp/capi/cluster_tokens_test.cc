// Runs with a token: what it encrypts, and to what it admits.
#include "capi/cluster_support.h"
#include "master/ask.h"
#include "net/security/credentials.h"
#include "net/socket/listener.h"

namespace jccl::capi::test {
namespace {

std::string fresh_token() { return net::to_text(net::new_run_secret().value()); }

ClusterOptions with_token() {
  ClusterOptions options;
  options.master.token = fresh_token();
  return options;
}

TEST(TlsTest, a_run_with_a_token_reduces_gathers_and_synchronises) {
  Cluster cluster(3, with_token());
  expect_rounds(cluster);
  std::vector<base::Digest> digests(3);
  cluster.on_all([&](std::size_t p, Communicator& comm) {
    std::vector<float> x(50000, 1.5F), all(4 * 50000, 9);
    RoundOptions o = sum_of("gather");
    o.collective = Collective::kAllGather;
    o.slots = 4;
    EXPECT_TRUE(comm.run({leaf_of(x, all)}, o).status.ok());
    EXPECT_EQ(all[2 * 50000], 1.5F);
    EXPECT_EQ(all.back(), 0.0F);
    for (const char* plan : {"direct", "exchange", "ring"}) {
      o = sum_of("lossy");
      o.plan = plan;
      o.codec = CodecId::kInt8;
      EXPECT_NEAR(small_round(comm, o, 2, 50000).value, 6, 0.1);
    }
    std::vector<float> state(300000, static_cast<float>(p));
    SyncOptions s;
    s.tag = "model";
    EXPECT_TRUE(comm.sync_state({leaf_of(state, state)}, s).status.ok());
    EXPECT_EQ(state.front(), state.back());
    digests[p] = comm.digest("model");
  });
  EXPECT_EQ(digests[0], digests[1]);
  EXPECT_EQ(digests[0], digests[2]);
}

TEST(TlsTest, off_loopback_binds_are_allowed_with_a_token) {
  ClusterOptions options = with_token();
  options.start_together = false;
  options.master.start_peers = 2;
  options.master.bind = "0.0.0.0:0";
  options.peer.bind = "0.0.0.0:0";
  options.peer.advertise = {"127.0.0.1:0"};
  Cluster cluster(0, options);
  for (int i = 0; i < 2; ++i) {
    ConnectOptions o = cluster.peer_options();
    o.master = cat("127.0.0.1", cluster.address().substr(cluster.address().rfind(':')));
    ASSERT_NE(cluster.add(o), nullptr);
  }
  expect_rounds(cluster);
}

TEST(TlsTest, a_wrong_or_missing_token_is_refused_and_disturbs_nobody) {
  Cluster cluster(2, with_token());
  ConnectOptions o = cluster.peer_options();
  o.connect_timeout = 5 * kSecond;
  o.token = fresh_token();
  const base::Status wrong = Communicator::connect(o).status();
  EXPECT_EQ(wrong.code, Code::kAuth) << wrong.text;
  o.token = "";
  o.connect_timeout = kSecond;
  const base::Status missing = Communicator::connect(o).status();
  EXPECT_EQ(missing.code, Code::kAuth) << missing.text;
  expect_rounds(cluster);
}

std::string token_of(const std::string& run_secret, const std::string& role,
                     const std::string& site = "", std::uint32_t uses = 0) {
  return master::make_token_text({run_secret, role, uses, 0, site}).value();
}

TEST(TlsTest, a_run_of_peers_with_tokens_of_their_own) {
  ClusterOptions options = with_token();
  options.start_together = false;
  options.master.start_peers = 2;
  Cluster cluster(0, options);
  for (int i = 0; i < 2; ++i) {
    ConnectOptions o = cluster.peer_options();
    o.token = token_of(options.master.token, "peer");
    ASSERT_NE(cluster.add(o), nullptr);
  }
  expect_rounds(cluster);
}

TEST(TlsTest, an_observers_token_asks_and_does_not_join) {
  ClusterOptions options = with_token();
  Cluster cluster(1, options);
  ConnectOptions o = cluster.peer_options();
  o.token = token_of(options.master.token, "observer");
  const base::Status refused = Communicator::connect(o).status();
  EXPECT_EQ(refused.code, Code::kAuth) << refused.text;
  EXPECT_NE(refused.text.find("an observer's"), std::string::npos) << refused.text;
  master::AskOptions question;
  question.master = cluster.address();
  question.token = o.token;
  EXPECT_TRUE(master::ask_status(question).ok());
}

TEST(TlsTest, where_peers_listen_is_told_to_operators_alone) {
  ClusterOptions options = with_token();
  Cluster cluster(1, options);
  const auto told_to = [&](const std::string& role) {
    master::AskOptions question;
    question.master = cluster.address();
    question.token = token_of(options.master.token, role);
    const auto answer = master::ask_status(question);
    EXPECT_TRUE(answer.ok()) << answer.status().text;
    return answer.ok() ? answer.value() : std::string();
  };
  const std::string place = R"("addresses":["127.0.0.1:)";
  EXPECT_NE(told_to("admin").find(place), std::string::npos);
  for (const char* role : {"observer", "peer"}) {
    const std::string status = told_to(role);
    EXPECT_NE(status.find(R"("addresses":[])"), std::string::npos) << role << ": " << status;
    EXPECT_EQ(status.find(place), std::string::npos) << role;
  }
}

TEST(TlsTest, a_token_of_a_site_admits_that_site) {
  ClusterOptions options = with_token();
  Cluster cluster(1, options);
  ConnectOptions o = cluster.peer_options();
  o.token = token_of(options.master.token, "peer", "eu");
  o.site = "us";
  const base::Status refused = Communicator::connect(o).status();
  EXPECT_EQ(refused.code, Code::kAuth) << refused.text;
  EXPECT_NE(refused.text.find("another site than 'us'"), std::string::npos) << refused.text;
  o.site = "eu";
  EXPECT_NE(cluster.add(o), nullptr);
}

TEST(TlsTest, a_shared_token_does_not_take_the_name_of_a_site_that_has_its_own) {
  ClusterOptions options = with_token();
  options.start_together = false;
  options.master.start_peers = 2;
  Cluster cluster(0, options);
  ConnectOptions own = cluster.peer_options();
  own.token = token_of(options.master.token, "peer", "eu", 1);
  own.site = "eu";
  ConnectOptions shared = cluster.peer_options();
  shared.token = token_of(options.master.token, "peer");
  shared.site = "us";
  ASSERT_NE(cluster.add(shared), nullptr);
  ASSERT_NE(cluster.add(own), nullptr);
  expect_rounds(cluster);
  cluster.remove(1);
  shared.site = "eu";
  const base::Status refused = Communicator::connect(shared).status();
  EXPECT_EQ(refused.code, Code::kAuth) << refused.text;
  EXPECT_NE(refused.text.find("site eu has tokens of its own"), std::string::npos) << refused.text;
  own.token = token_of(options.master.token, "peer", "eu", 1);
  EXPECT_NE(cluster.add(own), nullptr);
}

// Of one use and one site, as they are made unless it is said otherwise.
TEST(TlsTest, a_stolen_token_is_of_no_use_without_the_key_that_joined_by_it) {
  ClusterOptions options = with_token();
  options.start_together = false;
  options.master.start_peers = 2;
  Cluster cluster(1, options);
  ConnectOptions o = cluster.peer_options();
  o.token = token_of(options.master.token, "peer", "eu", 1);
  o.site = "eu";
  ASSERT_NE(cluster.add(o), nullptr);
  expect_rounds(cluster);
  const base::Status refused = Communicator::connect(o).status();
  EXPECT_EQ(refused.code, Code::kBanned) << refused.text;
  EXPECT_NE(refused.text.find("was used by 1 key"), std::string::npos) << refused.text;
  expect_rounds(cluster);
}

TEST(TlsTest, a_token_starts_no_master) {
  master::MasterConfig config;
  config.token = token_of(fresh_token(), "peer");
  const base::Status refused = master::Master::start(config).status();
  EXPECT_EQ(refused.code, Code::kAuth) << refused.text;
  EXPECT_NE(refused.text.find("the run's own secret"), std::string::npos) << refused.text;
}

// Who has a token and answers at an address where peers look for the master.
TEST(TlsTest, who_has_a_token_cannot_lead) {
  const std::string text = token_of(fresh_token(), "peer");
  net::Loop loop;
  loop.start();
  std::unique_ptr<net::Listener> impostor;
  loop.call([&] {
    const auto token = net::parse_token(text);
    auto opened = net::Listener::open(loop, {"127.0.0.1", 0}, net::Credentials::from(token.value()),
                                      {}, [](net::Accepted) {});
    ASSERT_TRUE(opened.ok());
    impostor = std::move(opened.value());
  });
  ConnectOptions o;
  o.master = cat("127.0.0.1:", impostor->port());
  o.token = text;
  const base::Status refused = Communicator::connect(o).status();
  EXPECT_EQ(refused.code, Code::kAuth) << refused.text;
  EXPECT_NE(refused.text.find("no master of this run"), std::string::npos) << refused.text;
  loop.call([&] { impostor.reset(); });
  loop.stop();
}

TEST(TlsTest, a_peer_with_a_token_does_not_talk_to_a_plain_master) {
  Cluster cluster(0);
  ConnectOptions o = cluster.peer_options();
  o.token = fresh_token();
  o.connect_timeout = kSecond;
  EXPECT_FALSE(Communicator::connect(o).status().ok());
}

TEST(TlsTest, a_master_off_loopback_needs_a_token_or_an_explicit_wish) {
  master::MasterConfig config;
  config.log = [](const std::string&) {};
  config.bind = "0.0.0.0:0";
  EXPECT_EQ(master::Master::start(config).status().code, Code::kAuth);
  config.insecure = true;
  EXPECT_TRUE(master::Master::start(config).ok());
}

}  // namespace
}  // namespace jccl::capi::test
