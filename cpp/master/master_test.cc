#include "master/master.h"

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <atomic>
#include <boost/json.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/rng.h"
#include "master/ask.h"
#include "master/raw_peer.h"
#include "master/store.h"
#include "master/test_folder.h"
#include "net/security/credentials.h"

namespace jccl::master {
namespace {

using base::Code;
namespace json = boost::json;

struct MasterTest : FolderTest {
  MasterConfig config;
  std::atomic<int> lines{0};

  void SetUp() override {
    config.log = [this](const std::string&) { ++lines; };
  }

  std::string sqlite() const { return "sqlite:" + (folder_ / "run.db").string(); }
  std::unique_ptr<Master> start() {
    auto started = Master::start(config);
    EXPECT_TRUE(started.ok()) << started.status().text;
    return started.ok() ? std::move(started.value()) : nullptr;
  }
  base::Status why_not() { return Master::start(config).status(); }
};

json::object status_of(const Master& master) {
  return json::parse(master.status_json()).as_object();
}

TEST_F(MasterTest, a_hello_is_welcomed_with_the_run_and_its_times) {
  config.silence = 3 * base::kSecond;
  const auto master = start();
  Member a(master->address(), 11);
  ASSERT_TRUE(a.welcome);
  EXPECT_EQ(base::to_hex(a.welcome->run), master->run_id());
  EXPECT_EQ(a.welcome->silence, config.silence);
  EXPECT_EQ(a.welcome->heartbeat, config.silence / 6);
  EXPECT_GE(a.welcome->epoch, 1u);
}

TEST_F(MasterTest, a_profile_sets_the_silence_unless_that_is_given) {
  config.profile = "lan";
  Member a(start()->address(), 11);
  ASSERT_TRUE(a.welcome);
  EXPECT_EQ(a.welcome->silence, 600 * base::kMillisecond);
  config.silence = base::kSecond;
  Member b(start()->address(), 11);
  ASSERT_TRUE(b.welcome);
  EXPECT_EQ(b.welcome->silence, base::kSecond);
}

TEST_F(MasterTest, rounds_commit_and_are_journaled_before_they_are_told) {
  config.history = (folder_ / "history.jsonl").string();
  const auto master = start();
  Member a(master->address(), 11), b(master->address(), 22, {}, true);
  // Both are members once the first round that needs both was started.
  a.ready("grads", 1);
  ASSERT_TRUE(a.socket.await<wire::Start>());
  const auto before = status_of(*master).at("journal").at("sequence").to_number<std::uint64_t>();
  a.socket.send(wire::Done{});  // an attempt nobody knows: answered or ignored, never fatal
  EXPECT_GE(before, 2u);
  const auto view = status_of(*master);
  EXPECT_EQ(view.at("peers").as_array().size(), 2u);
  EXPECT_EQ(view.at("tags").as_array().size(), 1u);
  master->stop();
  std::ifstream file(config.history);
  std::string line, kinds;
  while (std::getline(file, line)) {
    const json::value parsed = json::parse(line);
    EXPECT_TRUE(parsed.at("t").is_double());
    kinds += std::string(parsed.at("kind").as_string()) + " ";
  }
  EXPECT_EQ(kinds.find("master "), 0u);
  EXPECT_NE(kinds.find("start "), std::string::npos);
}

TEST_F(MasterTest, two_peers_commit_a_hundred_rounds) {
  config.store = sqlite();
  config.start_peers = 2;
  const auto master = start();
  Member a(master->address(), 11), b(master->address(), 22, {}, true);
  for (std::uint64_t n = 1; n <= 100; ++n) ASSERT_TRUE(commit_round({&a, &b}, "grads", n)) << n;
  const auto view = status_of(*master);
  EXPECT_EQ(view.at("tags").at(0).at("committed").to_number<int>(), 100);
  EXPECT_GT(view.at("journal").at("sequence").to_number<int>(), 100);
}

TEST_F(MasterTest, another_protocol_version_is_refused_in_words) {
  const auto master = start();
  RawPeer peer(master->address());
  wire::Hello hello = hello_of(11);
  hello.version = hello.oldest = wire::kVersion + 1;
  peer.send(hello);
  const auto refuse = peer.await<wire::Refuse>();
  ASSERT_TRUE(refuse);
  EXPECT_EQ(refuse->code, Code::kVersion);
  EXPECT_NE(refuse->text.find(std::to_string(wire::kVersion + 1)), std::string::npos);
  EXPECT_TRUE(peer.ended());
}

TEST_F(MasterTest, a_peer_of_another_run_is_refused) {
  const auto master = start();
  RawPeer peer(master->address());
  wire::RunId other{};
  other.fill(7);
  peer.send(hello_of(11, other));
  const auto refuse = peer.await<wire::Refuse>();
  ASSERT_TRUE(refuse);
  EXPECT_EQ(refuse->code, Code::kWrongRun);
  EXPECT_TRUE(peer.ended());
}

TEST_F(MasterTest, a_first_frame_that_is_no_hello_ends_the_connection) {
  const auto master = start();
  RawPeer peer(master->address());
  peer.send(wire::Resume{});
  const auto refused = peer.await<wire::Refuse>();
  ASSERT_TRUE(refused);  // it has proved its key
  EXPECT_EQ(refused->code, Code::kInvalid);
  EXPECT_NE(refused->text.find("begins with Resume"), std::string::npos) << refused->text;
  EXPECT_TRUE(peer.ended());
  EXPECT_EQ(status_of(*master).at("strangers_closed").to_number<int>(), 1);
  RawPeer stranger = RawPeer::stranger(master->address());
  stranger.send(wire::Resume{});
  EXPECT_FALSE(stranger.next().has_value()) << "who has proved nothing hears nothing";
}

TEST_F(MasterTest, garbage_ends_the_connection_of_a_stranger_and_of_a_peer) {
  const auto master = start();
  RawPeer stranger = RawPeer::stranger(master->address());
  stranger.send_bytes(base::Bytes(64, 0xFF));
  EXPECT_TRUE(stranger.ended());
  RawPeer frames(master->address());
  frames.send_frame({200, 1, 2, 3});
  EXPECT_TRUE(frames.ended());
  Member a(master->address(), 11);
  a.socket.send_frame({200, 1, 2, 3});
  EXPECT_TRUE(a.socket.ended());
  Member again(master->address(), 11);
  EXPECT_TRUE(again.welcome);
}

TEST_F(MasterTest, garbage_does_not_disturb_running_rounds) {
  config.start_peers = 2;
  const auto master = start();
  const auto begun = std::chrono::steady_clock::now();
  Member a(master->address(), 11), b(master->address(), 22, {}, true);
  std::atomic<bool> done{false};
  std::atomic<int> sent{0};
  std::thread noise([&] {
    base::Rng rng(5);
    do {
      RawPeer stranger =
          rng.below(2) == 0 ? RawPeer(master->address()) : RawPeer::stranger(master->address());
      base::Bytes bytes(rng.below(2000));
      for (auto& byte : bytes) byte = static_cast<std::uint8_t>(rng.next());
      stranger.send_bytes(bytes);
      ++sent;
    } while (!done);
  });
  for (std::uint64_t n = 1; n <= 200; ++n) {
    const auto attempt = commit_round({&a, &b}, "grads", n);
    EXPECT_TRUE(attempt) << n;
    if (!attempt) break;
  }
  done = true;
  noise.join();
  EXPECT_GT(sent, 0);
  // Rate-limited, however many came: one a second, and those of the rounds.
  const auto seconds = std::chrono::steady_clock::now() - begun;
  EXPECT_LT(lines, 60 + std::chrono::duration_cast<std::chrono::seconds>(seconds).count());
}

TEST_F(MasterTest, a_stranger_that_trickles_bytes_is_closed_at_the_deadline) {
  config.hello_max = 300 * base::kMillisecond;
  const auto master = start();
  for (const bool proved : {true, false}) {
    const auto connect = [&] {
      return proved ? RawPeer(master->address()) : RawPeer::stranger(master->address());
    };
    RawPeer slow = connect();
    slow.send_bytes({40, 0, 0, 0});  // a frame's size, and never the frame
    EXPECT_TRUE(slow.ended());
    RawPeer silent = connect();
    EXPECT_TRUE(silent.ended());
  }
  EXPECT_TRUE(Member(master->address(), 11).welcome);
}

TEST_F(MasterTest, strangers_that_were_closed_are_counted) {
  config.hello_max = 50 * base::kMillisecond;
  const auto master = start();
  RawPeer slow(master->address());
  slow.send_bytes({40, 0});  // the length of a hello that does not come
  EXPECT_TRUE(slow.ended());
  EXPECT_EQ(status_of(*master).at("strangers_closed").to_number<int>(), 1);
  EXPECT_TRUE(RawPeer::stranger(master->address()).ended());  // nor does its proof
  EXPECT_EQ(status_of(*master).at("strangers_closed").to_number<int>(), 2);
}

TEST_F(MasterTest, a_connection_that_ended_is_no_connection) {
  config.silence = 120 * base::kSecond;
  config.reset_grace = 120 * base::kSecond;
  const auto master = start();
  Member a(master->address(), 11, {}, true);
  ASSERT_TRUE(commit_round({&a}, "grads", 1));
  a.socket.hang_up();
  const auto connected = [&] {
    const json::object status = status_of(*master);
    const auto& peers = status.at("peers").as_array();
    return !peers.empty() && peers[0].at("connected").as_bool();
  };
  for (int i = 0; i < 20'000 && connected(); ++i) ::usleep(1000);
  EXPECT_FALSE(connected());
}

TEST_F(MasterTest, three_hundred_silent_strangers_leave_members_alone) {
  config.hello_max = 500 * base::kMillisecond;
  const auto master = start();
  Member a(master->address(), 11);
  std::vector<RawPeer> strangers;
  for (int i = 0; i < 300; ++i) strangers.push_back(RawPeer::stranger(master->address()));
  for (std::uint64_t n = 1; n <= 20; ++n) ASSERT_TRUE(commit_round({&a}, "grads", n));
  for (auto& stranger : strangers) EXPECT_TRUE(stranger.ended());
  EXPECT_TRUE(Member(master->address(), 22).welcome);
}

TEST_F(MasterTest, three_hundred_peers_are_welcome_at_once) {
  const auto master = start();
  std::vector<RawPeer> peers;
  for (int i = 0; i < 300; ++i) {
    const auto incarnation = static_cast<std::uint64_t>(1000 + i);
    peers.emplace_back(master->address(), 0, incarnation);
    ASSERT_TRUE(peers.back().send(hello_of(incarnation)));
  }
  for (auto& peer : peers) ASSERT_TRUE(peer.await<wire::Welcome>());
  const std::string text = master->status_json();
  EXPECT_LE(text.size(), base::kStatusBytesMax);
  const auto view = json::parse(text).as_object();
  EXPECT_EQ(view.at("connections").to_number<int>(), 300);
  EXPECT_EQ(view.at("peers").as_array().size() + view.at("peers_left_out").to_number<std::size_t>(),
            300u);
}

TEST_F(MasterTest, anybody_may_ask_for_the_status) {
  const auto master = start();
  Member a(master->address(), 11);
  AskOptions question;
  question.master = master->address();
  const auto answer = ask_status(question);
  ASSERT_TRUE(answer.ok()) << answer.status().text;
  const auto view = json::parse(answer.value()).as_object();
  EXPECT_EQ(view.at("run").as_string(), master->run_id());
  EXPECT_EQ(view.at("peers").at(0).at("site").as_string(), "site-11");
  EXPECT_TRUE(view.at("peers").at(0).at("connected").as_bool());
  EXPECT_FALSE(view.at("peers").at(0).at("admitted").as_bool());
}

TEST_F(MasterTest, what_peers_measured_is_in_the_status_and_what_the_gone_measured_is_not) {
  config.start_peers = 2;
  const auto master = start();
  Member a(master->address(), 11), b(master->address(), 22, {}, true);
  ASSERT_TRUE(commit_round({&a, &b}, "grads", 1));
  const auto known = [&](const char* list) {
    return status_of(*master).at(list).as_array().size();
  };
  const auto id_of = [&](const char* site) {
    const json::object status = status_of(*master);
    for (const json::value& peer : status.at("peers").as_array()) {
      if (peer.at("site").as_string() == site) return peer.at("id").to_number<wire::PeerId>();
    }
    return wire::PeerId{0};
  };
  a.socket.send(wire::Measured{1'000'000, {{id_of("site-22"), 5000, 2'000'000}}});
  b.socket.send(wire::Measured{3'000'000, {{id_of("site-11"), 5000, 2'000'000}}});
  for (int i = 0; i < 20'000 && known("links") < 2; ++i) ::usleep(1000);
  EXPECT_EQ(known("links"), 2u);
  EXPECT_EQ(known("uplinks"), 2u);
  b.socket.send(wire::Leave{});
  for (int i = 0; i < 20'000 && known("peers") > 1; ++i) ::usleep(1000);
  EXPECT_EQ(known("peers"), 1u);
  EXPECT_EQ(known("links"), 0u);
  EXPECT_EQ(known("uplinks"), 1u);
}

TEST_F(MasterTest, the_operator_evicts_a_site) {
  const auto master = start();
  Member a(master->address(), 11);
  ASSERT_TRUE(commit_round({&a}, "grads", 1));
  master->evict_site("site-11");
  EXPECT_TRUE(a.socket.await<wire::Evicted>());
}

TEST_F(MasterTest, a_restart_on_its_journal_keeps_the_run_and_raises_the_epoch) {
  config.store = sqlite();
  auto master = start();
  const std::string run = master->run_id();
  base::Attempt last;
  std::uint64_t epoch = 0;
  {
    Member a(master->address(), 11);
    epoch = a.welcome->epoch;
    for (std::uint64_t n = 1; n <= 3; ++n) last = *commit_round({&a}, "grads", n);
  }
  master.reset();
  master = start();
  EXPECT_EQ(master->run_id(), run);
  Member a(master->address(), 11, {{last, {"grads", 3}}});
  ASSERT_TRUE(a.welcome);
  EXPECT_GT(a.welcome->epoch, epoch);
  const auto outcome = a.socket.await<wire::Outcome>();
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->attempt, last);
  EXPECT_EQ(outcome->verdict, wire::Verdict::kCommitted);
  EXPECT_EQ(outcome->result, (base::Digest{3, 4}));
  const auto attempt = commit_round({&a}, "grads", 4);
  ASSERT_TRUE(attempt);
  EXPECT_GT(attempt->epoch, last.epoch);
}

TEST_F(MasterTest, a_master_can_be_pinned_to_its_run) {
  config.store = sqlite();
  config.run = std::string(32, 'a');
  EXPECT_EQ(start()->run_id(), config.run);
  config.run.clear();
  EXPECT_EQ(start()->run_id(), std::string(32, 'a'));
  config.run = std::string(32, 'b');
  const base::Status status = why_not();
  EXPECT_EQ(status.code, Code::kWrongRun);
  EXPECT_NE(status.text.find(std::string(32, 'a')), std::string::npos);
}

TEST_F(MasterTest, a_token_of_another_run_than_was_asked_for_is_refused) {
  config.token = net::to_text(net::new_run_secret().value());
  config.run = std::string(32, 'b');
  const base::Status status = why_not();
  EXPECT_EQ(status.code, Code::kWrongRun);
  EXPECT_NE(status.text.find(config.run), std::string::npos) << status.text;
}

// It stands where the next record goes.
TEST_F(MasterTest, a_torn_last_row_is_cut_from_the_file_and_the_journal_goes_on) {
  config.store = sqlite();
  const std::string run = start()->run_id();
  const std::string path = config.store.substr(config.store.find(':') + 1);
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  const char* torn = "INSERT INTO journal SELECT max(sequence) + 1, x'0102', 7, 0 FROM journal";
  EXPECT_EQ(sqlite3_exec(db, torn, nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(db);
  for (int again = 0; again < 2; ++again) {
    const auto master = start();
    ASSERT_TRUE(master);
    EXPECT_EQ(master->run_id(), run);
    EXPECT_TRUE(Member(master->address(), 11).welcome);
  }
}

TEST_F(MasterTest, two_masters_cannot_share_a_store) {
  config.store = sqlite();
  const auto master = start();
  const base::Status status = why_not();
  EXPECT_EQ(status.code, Code::kIo);
  EXPECT_NE(status.text.find("another master"), std::string::npos) << status.text;
}

TEST_F(MasterTest, a_port_in_use_is_named_and_leaves_no_trace_in_the_journal) {
  const auto master = start();
  config.store = sqlite();
  config.bind = master->address();
  const base::Status status = why_not();
  EXPECT_EQ(status.code, Code::kIo);
  EXPECT_NE(status.text.find(std::to_string(port_of(master->address()))), std::string::npos);
  auto store = open_store(config.store);
  ASSERT_TRUE(store.ok());
  EXPECT_TRUE(store.value()->load().value().empty());
}

TEST_F(MasterTest, off_loopback_needs_a_token_or_an_explicit_wish) {
  config.bind = "0.0.0.0:0";
  EXPECT_EQ(why_not().code, Code::kAuth);
  config.insecure = true;
  const auto open = start();
  EXPECT_EQ(open->address().find("0.0.0.0"), std::string::npos) << open->address();
  config.insecure = false;
  config.token = net::to_text(net::new_run_secret().value());
  EXPECT_TRUE(Master::start(config).ok());
}

TEST_F(MasterTest, with_a_token_nothing_is_said_without_it) {
  const auto token = net::new_run_secret().value();
  config.token = net::to_text(token);
  const auto master = start();
  EXPECT_EQ(master->run_id(), base::to_hex(token.run));
  EXPECT_FALSE(RawPeer(master->address()).connected());  // no answer to its greeting
  RawPeer plain = RawPeer::stranger(master->address());
  plain.send(hello_of(11));
  EXPECT_TRUE(plain.ended());
  AskOptions question;
  question.master = master->address();
  question.token = config.token;
  EXPECT_TRUE(ask_status(question).ok());
  question.token = net::to_text(net::new_run_secret().value());
  EXPECT_EQ(ask_status(question).status().code, Code::kAuth);
}

TEST_F(MasterTest, what_it_writes_is_its_owners_to_read) {
  const std::filesystem::path files = std::filesystem::path(::testing::TempDir()) /
                                      base::cat("jccl-private-", static_cast<int>(::getpid()));
  std::filesystem::create_directory(files);
  config.store = base::cat("sqlite:", (files / "journal").string());
  config.history = (files / "history").string();
  {
    const auto master = start();
    Member a(master->address(), 11);
    ASSERT_TRUE(commit_round({&a}, "grads", 1));
  }
  std::size_t seen = 0;
  for (const auto& entry : std::filesystem::directory_iterator(files)) {
    const auto rights = static_cast<unsigned>(entry.status().permissions());
    EXPECT_EQ(rights & 0777U, 0600U) << entry.path();
    ++seen;
  }
  EXPECT_GE(seen, 3U);
  std::filesystem::remove_all(files);
}

TEST_F(MasterTest, who_is_who_is_in_the_status) {
  const auto master = start();
  Member a(master->address(), 11);
  ASSERT_TRUE(commit_round({&a}, "grads", 1));
  const auto peers = status_of(*master).at("peers").as_array();
  ASSERT_EQ(peers.size(), 1U);
  EXPECT_EQ(std::string(peers[0].at("key").as_string()), base::to_hex(identity_of(11).key()));
}

TEST_F(MasterTest, bad_settings_are_refused_before_anything_is_opened) {
  config.run = "not hex";
  EXPECT_EQ(why_not().code, Code::kInvalid);
  config.run.clear();
  config.silence = config.heartbeat = base::kSecond;
  EXPECT_EQ(why_not().code, Code::kInvalid);
  config.silence = 0;
  config.profile = "moon";
  EXPECT_EQ(why_not().code, Code::kInvalid);
  config.profile = "wan";
  config.straggler = "scold";
  EXPECT_EQ(why_not().code, Code::kInvalid);
  config.straggler = "skip";
  config.heartbeat = 0;
  config.min_peers = 0;
  EXPECT_EQ(why_not().code, Code::kInvalid);
  config.min_peers = 1;
  config.max_rate = 9999;
  EXPECT_EQ(why_not().code, Code::kInvalid);
  config.max_rate = 0;
  config.store = "tape:1";
  EXPECT_EQ(why_not().code, Code::kInvalid);
  config.store = "memory:";
  config.history = (folder_ / "none" / "history").string();
  EXPECT_EQ(why_not().code, Code::kIo);
}

TEST_F(MasterTest, many_masters_live_side_by_side_and_free_their_ports_at_once) {
  std::vector<std::unique_ptr<Master>> masters;
  for (int i = 0; i < 8; ++i) masters.push_back(start());
  for (const auto& master : masters) EXPECT_TRUE(Member(master->address(), 11).welcome);
  config.bind = masters[3]->address();
  Member held(config.bind, 12);  // a connection that is open when its master goes
  masters.clear();
  for (int i = 0; i < 50; ++i) ASSERT_NE(start(), nullptr);
}

}  // namespace
}  // namespace jccl::master
