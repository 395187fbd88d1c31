// What one client may cause a master: memory, lines, records and time of its thread, each bounded,
// with others served meanwhile.
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "base/text.h"
#include "master/ask.h"
#include "master/eventually.h"
#include "master/history.h"
#include "master/log_valve.h"
#include "master/master.h"
#include "master/raw_peer.h"
#include "master/rendering.h"
#include "master/test_folder.h"

namespace jccl::master {
namespace {

namespace json = boost::json;
using base::kMillisecond;
using base::kSecond;

struct LimitsTest : FolderTest {
  MasterConfig config;
  std::mutex guard;
  std::vector<std::string> log;

  void SetUp() override {
    config.log = [this](const std::string& line) {
      const std::lock_guard lock(guard);
      log.push_back(line);
    };
  }

  std::unique_ptr<Master> start() {
    auto started = Master::start(config);
    EXPECT_TRUE(started.ok()) << started.status().text;
    return started.ok() ? std::move(started.value()) : nullptr;
  }
  bool logged_now(const std::string& words) {
    const std::lock_guard lock(guard);
    return std::any_of(log.begin(), log.end(), [&](const std::string& line) {
      return line.find(words) != std::string::npos;
    });
  }
  // The line may come a moment after the connection ended.
  bool logged(const std::string& words) {
    return eventually([&] { return logged_now(words); }, std::chrono::milliseconds(kPatienceMs));
  }
};

// Whether the master ended the connection of one that asks and asks and reads nothing.
bool asks_until_closed(Member& member) {
  base::Writer w;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const base::Bytes beat = wire::encode(wire::Heartbeat{i});
    w.u32(static_cast<std::uint32_t>(beat.size()));
    w.u32(base::crc32c(beat));
    w.raw(beat.data(), beat.size());
  }
  const base::Bytes many = w.take();
  for (int i = 0; i < 2000; ++i) {
    if (!member.socket.send_bytes(many)) return true;
  }
  return false;
}

TEST_F(LimitsTest, a_frame_to_the_master_is_at_most_64_kib) {
  const auto master = start();
  Member a(master->address(), 11), b(master->address(), 22);
  base::Writer w;
  w.u32(base::kControlBytesMax + 1);  // announced; nothing of it comes
  a.socket.send_bytes(w.take());
  EXPECT_TRUE(a.socket.ended());
  EXPECT_TRUE(logged("allowed 65536"));
  EXPECT_TRUE(commit_round({&b}, "grads", 1));
}

TEST_F(LimitsTest, who_does_not_read_its_answers_is_closed_and_named) {
  config.limits.unread_bytes = 32 * 1024;
  config.limits.messages = {1'000'000'000, 1'000'000'000};
  const auto master = start();
  Member deaf(master->address(), 11, {}, false, 4096), b(master->address(), 22);
  EXPECT_TRUE(asks_until_closed(deaf));
  EXPECT_TRUE(logged("does not read"));
  EXPECT_TRUE(commit_round({&b}, "grads", 1));
}

TEST_F(LimitsTest, what_all_make_it_hold_is_bounded_and_the_greediest_goes) {
  config.limits.memory_bytes = 64 * 1024;
  config.limits.member_bytes = 0;
  config.limits.messages = {1'000'000'000, 1'000'000'000};
  const auto master = start();
  Member deaf(master->address(), 11, {}, false, 4096);
  EXPECT_TRUE(asks_until_closed(deaf));
  EXPECT_TRUE(logged("65536 are allowed for all"));
  Member b(master->address(), 22);  // not before: a member that says nothing for 3 s is out
  EXPECT_TRUE(commit_round({&b}, "grads", 1));
}

// All of a frame but its last byte.
base::Bytes nearly(const base::Bytes& payload) {
  base::Writer w;
  w.u32(static_cast<std::uint32_t>(payload.size()));
  w.u32(base::crc32c(payload));
  w.raw(payload.data(), payload.size() - 1);
  return w.take();
}

TEST_F(LimitsTest, a_key_with_many_connections_goes_before_another_with_the_longest) {
  config.limits.memory_bytes = 80'000;
  config.limits.member_bytes = 0;
  const auto master = start();
  Member b(master->address(), 22);
  wire::Measured links;
  for (std::uint32_t peer = 1; peer <= 1024; ++peer) links.links.push_back({peer, 0, 0});
  const base::Bytes long_one = wire::encode(links);
  b.socket.send_bytes(nearly(long_one));
  std::vector<RawPeer> greedy;
  for (std::uint64_t life = 11; life < 17; ++life) {
    greedy.emplace_back(master->address(), 0, 11);
    greedy.back().send(hello_of(life));
    (void)greedy.back().await<wire::Welcome>(1000);
    greedy.back().send(wire::Resume{});
    greedy.back().send_bytes(nearly(base::Bytes(12'000)));
  }
  EXPECT_TRUE(logged(" with the key " + base::to_hex(identity_of(11).key()).substr(0, 16)));
  EXPECT_FALSE(logged_now(base::to_hex(identity_of(22).key()).substr(0, 16)));
  const auto memory = [&](const char* what) {
    const json::value status = json::parse(master->status_json());
    return status.at("memory").at(what).to_number<std::size_t>();
  };
  EXPECT_EQ(memory("max"), 80'000U);
  // More may have come from the others by now.
  EXPECT_TRUE(
      eventually([&] { return memory("held") <= 80'000; }, std::chrono::milliseconds(kPatienceMs)))
      << memory("held");
  greedy.clear();
  b.socket.send_bytes({long_one.back()});
  EXPECT_TRUE(commit_round({&b}, "grads", 1));
}

TEST_F(LimitsTest, members_stay_while_strangers_hold_little_each) {
  config.limits.memory_bytes = 60'000;
  config.limits.member_bytes = 32'000;
  const auto master = start();
  Member b(master->address(), 22);
  ASSERT_TRUE(commit_round({&b}, "grads", 1));
  wire::Measured links;
  for (std::uint32_t peer = 1; peer <= 1024; ++peer) links.links.push_back({peer, 0, 0});
  const base::Bytes long_one = wire::encode(links);  // as much as four strangers have
  b.socket.send_bytes(nearly(long_one));
  std::vector<RawPeer> strangers;
  for (std::uint64_t life = 101; life < 120; ++life) {
    strangers.emplace_back(master->address(), 0, life);
    strangers.back().send(hello_of(life));
    (void)strangers.back().await<wire::Welcome>(1000);
    strangers.back().send(wire::Resume{});
    strangers.back().send_bytes(nearly(base::Bytes(6'000)));
  }
  EXPECT_TRUE(logged(" are allowed for all"));
  EXPECT_FALSE(logged_now(base::to_hex(identity_of(22).key()).substr(0, 16)));
  strangers.clear();
  b.socket.send_bytes({long_one.back()});
  EXPECT_TRUE(commit_round({&b}, "grads", 2));
}

TEST_F(LimitsTest, one_that_floods_is_read_later_and_others_commit_meanwhile) {
  config.limits.messages = {100, 1};
  const auto begun = std::chrono::steady_clock::now();
  const auto master = start();
  Member flood(master->address(), 11), b(master->address(), 22);
  for (std::uint64_t i = 1; i <= 2000; ++i) flood.socket.send(wire::Heartbeat{i});
  // Four hundred messages of a member whose rounds commit are not too many.
  for (std::uint64_t n = 1; n <= 200; ++n) ASSERT_TRUE(commit_round({&b}, "grads", n)) << n;
  std::uint64_t answered = 0;
  while (answered < 99) {  // with its Resume a hundred
    ASSERT_TRUE(flood.socket.await<wire::HeartbeatAck>());
    ++answered;
  }
  while (flood.socket.await<wire::HeartbeatAck>(0)) ++answered;
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - begun)
          .count();
  EXPECT_LE(answered, static_cast<std::uint64_t>(102 + seconds));
}

TEST_F(LimitsTest, messages_held_back_are_answered_in_order_and_none_is_lost) {
  config.limits.messages = {5, 1000};
  const auto master = start();
  Member a(master->address(), 11);
  for (std::uint64_t i = 1; i <= 300; ++i) a.socket.send(wire::Heartbeat{i});
  for (std::uint64_t i = 1; i <= 300; ++i) {
    const auto ack = a.socket.await<wire::HeartbeatAck>();
    ASSERT_TRUE(ack) << i;
    ASSERT_EQ(ack->sequence, i);
  }
}

TEST_F(LimitsTest, hellos_beyond_an_address_s_share_wait_and_are_welcomed) {
  config.limits.hellos = {2, 100};
  const auto master = start();
  std::vector<RawPeer> peers;
  for (std::uint64_t i = 0; i < 20; ++i) {
    peers.emplace_back(master->address(), 0, 100 + i);
    peers.back().send(hello_of(100 + i));
  }
  for (auto& peer : peers) EXPECT_TRUE(peer.await<wire::Welcome>());
}

TEST_F(LimitsTest, what_is_beyond_an_address_s_share_comes_no_sooner_than_its_turn) {
  config.limits.hellos = {1, 20};
  const auto begun = std::chrono::steady_clock::now();
  const auto master = start();
  std::vector<RawPeer> peers;
  for (std::uint64_t i = 0; i < 11; ++i) {
    peers.emplace_back(master->address(), 0, 100 + i);
    peers.back().send(hello_of(100 + i));
  }
  for (auto& peer : peers) EXPECT_TRUE(peer.await<wire::Welcome>());
  EXPECT_GE(std::chrono::steady_clock::now() - begun, std::chrono::milliseconds(500));
}

TEST_F(LimitsTest, joins_succeed_while_every_place_before_the_hello_is_taken_and_renewed) {
  config.hello_max = 60 * kSecond;
  const auto master = start();
  std::vector<RawPeer> strangers;
  for (std::uint64_t turn = 0; turn < 8; ++turn) {
    for (std::size_t i = 0; i < base::kPendingSocketsMax; ++i) {
      strangers.push_back(RawPeer::stranger(master->address()));
      strangers.back().send_bytes({40});  // the first byte of a greeting that never comes
    }
    EXPECT_TRUE(Member(master->address(), 11 + turn).welcome) << turn;
  }
  const auto view = json::parse(master->status_json()).as_object();
  EXPECT_LE(view.at("pending").to_number<std::size_t>(), base::kPendingSocketsMax);
}

TEST_F(LimitsTest, who_proves_nothing_again_and_again_is_closed_and_its_address_joins_later) {
  config.limits.unproved.failures = {5, 2};
  const auto master = start();
  for (int i = 0; i < 20; ++i) {
    RawPeer stranger = RawPeer::stranger(master->address());
    stranger.send_bytes({1, 2, 3, 4});
    EXPECT_TRUE(stranger.ended());
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatienceMs);
  bool joined = false;
  while (!joined && std::chrono::steady_clock::now() < end) {
    RawPeer peer(master->address(), 0, 11);
    peer.send(hello_of(11));
    joined = peer.await<wire::Welcome>(100).has_value();
  }
  EXPECT_TRUE(joined);
}

// The listener of one that is lost is asked, and refuses; but only where peers may be.
TEST_F(LimitsTest, the_master_dials_only_where_peers_may_be) {
  for (const char* networks : {"", "127.0.0.0/8", "10.0.0.0/8"}) {
    log.clear();
    config.peer_networks = networks;
    config.reset_grace = 2 * kSecond;
    config.start_peers = 2;
    const auto master = start();
    Member a(master->address(), 11), b(master->address(), 22, {}, true);
    ASSERT_TRUE(commit_round({&a, &b}, "grads", 1));
    b.socket.hang_up();
    const bool asked = std::string_view(networks) != "10.0.0.0/8";
    EXPECT_TRUE(logged(asked ? "its listener refuses connections"
                             : "lost its connection and did not come back"))
        << networks;
    EXPECT_FALSE(!asked && logged_now("its listener refuses connections"));
  }
  config.peer_networks = "10.0.0.0/8,home";
  const auto wrong = Master::start(config);
  EXPECT_EQ(wrong.status().code, base::Code::kInvalid);
  EXPECT_NE(wrong.status().text.find("'home'"), std::string::npos) << wrong.status().text;
}

TEST_F(LimitsTest, a_status_asked_often_is_rendered_seldom) {
  const auto master = start();
  std::vector<RawPeer> crowd, asking;
  for (std::uint64_t i = 0; i < 300; ++i) {
    crowd.emplace_back(master->address(), 0, 1000 + i);
    crowd.back().send(hello_of(1000 + i));
  }
  for (auto& peer : crowd) ASSERT_TRUE(peer.await<wire::Welcome>());
  for (int i = 0; i < 100; ++i) {
    asking.emplace_back(master->address());
    asking.back().send(wire::StatusAsk{});
  }
  for (auto& peer : asking) ASSERT_TRUE(peer.await<wire::StatusReply>());
  const auto view = json::parse(master->status_json()).as_object();
  EXPECT_GE(view.at("answers_made").to_number<int>(), 1);
  EXPECT_LE(view.at("answers_made").to_number<int>(), 50);
}

TEST_F(LimitsTest, names_from_others_end_no_line_and_drive_no_terminal) {
  config.history = (folder_ / "history.jsonl").string();
  const auto master = start();
  RawPeer hostile(master->address());
  wire::Hello hello = hello_of(11);
  hello.site = "red\nevict site=forged\x1b[31m\u202e\u0085";
  hostile.send(hello);
  ASSERT_TRUE(hostile.next());  // welcomed or refused
  hostile.send(wire::Resume{});
  wire::Ready ready;
  ready.round = {"grads", 1};
  ready.hint = collective::encode_hint({});
  ready.deadline = 60 * kSecond;
  hostile.send(ready);
  (void)hostile.next(1000);
  master->evict_site(hello.site);
  const std::string status = master->status_json();
  master->stop();
  EXPECT_EQ(status, base::printable(status));
  for (const std::string& line : log) EXPECT_EQ(line, base::printable(line));
  std::ifstream file(config.history);
  for (std::string line; std::getline(file, line);) {
    EXPECT_EQ(line, base::printable(line));
    EXPECT_TRUE(json::parse(line).is_object());
  }
}

TEST(RenderingTest, a_dear_text_takes_a_twentieth_of_the_time_however_often_it_is_asked) {
  base::Time clock = kSecond;
  Rendering rendering;
  const auto now = [&] { return clock; };
  const auto make = [&] {
    clock += 39 * kMillisecond;
    return std::string("status");
  };
  for (const base::Time end = clock + 60 * kSecond; clock < end; clock += kMillisecond) {
    EXPECT_EQ(rendering.get(make, now), "status");
  }
  EXPECT_LE(rendering.made(), 60'000u / (21 * 39) + 1);
  EXPECT_GE(rendering.made(), 60u);  // never older than a second
}

TEST(RenderingTest, a_cheap_text_is_always_fresh) {
  base::Time clock = kSecond;
  int calls = 0;
  Rendering rendering;
  for (int i = 0; i < 100; ++i, clock += kMillisecond) {
    rendering.get([&] { return std::to_string(++calls); }, [&] { return clock; });
  }
  EXPECT_EQ(calls, 100);
}

protocol::HistoryLine refusal_of(const std::string& site, int i) {
  return {"reject", {{"site", site}, {"text", std::to_string(i)}}};
}

TEST(LogValveTest, lines_that_were_held_back_are_counted_with_the_next) {
  LogValve valve(kSecond);
  EXPECT_EQ(valve.pass("a", 10 * kSecond), "a");
  EXPECT_FALSE(valve.pass("b", 10 * kSecond + 1));
  EXPECT_FALSE(valve.pass("c", 11 * kSecond - 1));
  EXPECT_EQ(valve.pass("d", 11 * kSecond), "d (and 2 more like it)");
  EXPECT_EQ(valve.pass("e", 13 * kSecond), "e");
}

TEST(HistoryValveTest, what_one_site_can_repeat_is_counted_and_others_lines_are_all_there) {
  HistoryValve valve;
  std::size_t loud = 0, left_out = 0, quiet = 0, commits = 0;
  const auto count = [&](const std::vector<protocol::HistoryLine>& lines) {
    for (const auto& line : lines) {
      if (line.kind == "commit") ++commits;
      if (line.kind != "reject") continue;
      const auto& [name, value] = line.fields.back();
      if (name == "left_out") left_out += std::stoul(value);
      if (name == "text") ++(line.fields.front().second == "loud" ? loud : quiet);
    }
  };
  base::Time now = kSecond;
  for (int i = 0; i < 10'000; ++i, now += kMillisecond) {
    std::vector<protocol::HistoryLine> lines{refusal_of("loud", i), {"commit", {}}};
    if (i % 1000 == 0) lines.push_back(refusal_of("quiet", i));
    count(valve.pass(lines, now));
  }
  count(valve.pass({}, now + kSecond));
  EXPECT_EQ(commits, 10'000u);
  EXPECT_EQ(quiet, 10u);
  EXPECT_EQ(loud, 10 * HistoryValve::kBurst);
  EXPECT_EQ(loud + left_out, 10'000u);
}

TEST_F(LimitsTest, a_history_that_was_there_counts) {
  const std::string path = (folder_ / "history.jsonl").string();
  std::ofstream(path) << std::string(3990, '{') << "\n";
  auto history = History::open(path, 4000, 0);
  ASSERT_TRUE(history.ok());
  ASSERT_TRUE(history.value()->write({{"commit", {{"n", "1"}}}}, kSecond).ok());
  EXPECT_TRUE(std::filesystem::exists(path + ".1"));
  EXPECT_EQ(std::filesystem::file_size(path), 0u);
}

TEST_F(LimitsTest, a_full_history_turns_over_and_the_newest_lines_stay) {
  const std::string path = (folder_ / "history.jsonl").string();
  auto history = History::open(path, 4000, 0);
  ASSERT_TRUE(history.ok());
  for (int i = 0; i < 1000; ++i) {
    const protocol::HistoryLine line{"commit", {{"n", std::to_string(i)}}};
    ASSERT_TRUE(history.value()->write({line}, kSecond).ok());
  }
  history.value().reset();
  std::uintmax_t bytes = 0;
  int last = -1, lines = 0;
  for (const char* suffix : {".3", ".2", ".1", ""}) {  // the oldest first
    ASSERT_TRUE(std::filesystem::exists(path + suffix)) << suffix;
    bytes += std::filesystem::file_size(path + suffix);
    std::ifstream file(path + suffix);
    for (std::string line; std::getline(file, line); ++lines) {
      const int n = std::stoi(std::string(json::parse(line).at("n").as_string()));
      if (last >= 0) {
        EXPECT_EQ(n, last + 1);
      }
      last = n;
    }
  }
  EXPECT_EQ(last, 999);
  EXPECT_GT(lines, 200);
  EXPECT_LE(bytes, 4u * 4100);
  EXPECT_FALSE(std::filesystem::exists(path + ".4"));
}

}  // namespace
}  // namespace jccl::master
