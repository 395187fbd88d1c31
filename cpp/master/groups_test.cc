// Groups of one run at one master: each with members, rounds and a journal of its own.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <filesystem>
#include <mutex>

#include "base/limits.h"
#include "master/ask.h"
#include "master/eventually.h"
#include "master/master.h"
#include "master/raw_peer.h"
#include "master/test_folder.h"

namespace jccl::master {
namespace {

using base::Code;
namespace json = boost::json;

struct GroupsTest : FolderTest {
  MasterConfig config;
  std::mutex guard;
  std::string lines;

  void SetUp() override {
    config.group_linger = 20 * base::kMillisecond;
    config.log = [this](const std::string& line) {
      const std::lock_guard lock(guard);
      lines += line + "\n";
    };
  }
  bool logged(const std::string& text) {
    const std::lock_guard lock(guard);
    return lines.find(text) != std::string::npos;
  }
  std::string sqlite() const { return "sqlite:" + (folder_ / "run.db").string(); }
  std::unique_ptr<Master> start() {
    auto started = Master::start(config);
    EXPECT_TRUE(started.ok()) << started.status().text;
    return started.ok() ? std::move(started.value()) : nullptr;
  }
};

Member in_group(const Master& master, wire::Incarnation id, const std::string& group,
                std::uint32_t start_peers = 0) {
  return Member(master.address(), id, {}, start_peers > 0, 0, group, start_peers);
}

AskOptions where(const Master& master, const std::string& group = {}) {
  AskOptions options;
  options.master = master.address();
  options.group = group;
  return options;
}

json::object status_in(const Master& master, const std::string& group = {}) {
  const auto text = ask_status(where(master, group));
  EXPECT_TRUE(text.ok()) << text.status().text;
  return text.ok() ? json::parse(text.value()).as_object() : json::object();
}

wire::Order order_of(wire::OrderVerb verb, const std::string& subject) {
  wire::Order order;
  order.verb = verb;
  order.subject = subject;
  return order;
}

std::size_t open_groups(const Master& master) {
  return status_in(master).at("groups").as_array().size();
}

int committed(const Master& master, const std::string& group) {
  const json::object status = status_in(master, group);
  const auto& tags = status.at("tags").as_array();
  return tags.empty() ? 0 : tags.at(0).at("committed").to_number<int>();
}

// What the master says to a hello in the group.
base::Status refusal(const Master& master, wire::Incarnation id, const std::string& group) {
  RawPeer peer(master.address(), 0, id, net::Purpose::kControl, group);
  peer.send(hello_of(id));
  const auto refuse = peer.await<wire::Refuse>();
  return refuse ? base::Status(refuse->code, refuse->text) : base::Status();
}

TEST_F(GroupsTest, each_has_members_and_rounds_of_its_own) {
  const auto master = start();
  Member a = in_group(*master, 11, ""), b = in_group(*master, 22, "", 2);
  Member c = in_group(*master, 11, "west"), d = in_group(*master, 33, "west", 2);
  Member e = in_group(*master, 11, "east");
  ASSERT_TRUE(e.welcome);
  EXPECT_EQ(a.welcome->run, e.welcome->run);
  for (std::uint64_t n = 1; n <= 3; ++n) ASSERT_TRUE(commit_round({&a, &b}, "grads", n));
  ASSERT_TRUE(commit_round({&c, &d}, "grads", 1));
  ASSERT_TRUE(commit_round({&e}, "grads", 1));
  EXPECT_EQ(committed(*master, ""), 3);
  EXPECT_EQ(committed(*master, "west"), 1);
  EXPECT_EQ(status_in(*master, "west").at("group"), "west");
  EXPECT_EQ(status_in(*master, "west").at("peers").as_array().size(), 2u);
  const json::object status = status_in(*master);
  EXPECT_EQ(status.at("peers").as_array().size(), 2u);
  EXPECT_EQ(status.at("groups").at(0).at("group"), "east");
  EXPECT_EQ(status.at("groups").at(1).at("sites").to_number<int>(), 2);
}

TEST_F(GroupsTest, what_the_run_waits_for_a_group_does_not) {
  config.start_peers = config.min_peers = 3;
  const auto master = start();
  Member a = in_group(*master, 11, "west");
  EXPECT_TRUE(commit_round({&a}, "grads", 1));
}

TEST_F(GroupsTest, one_that_all_have_left_is_closed_and_goes_on_from_its_journal) {
  for (const std::string& store : {std::string("memory:"), sqlite()}) {
    config.store = store;
    const auto master = start();
    {
      Member a = in_group(*master, 11, "west");
      ASSERT_TRUE(commit_round({&a}, "grads", 1));
      ASSERT_TRUE(commit_round({&a}, "grads", 2));
      a.socket.send(wire::Leave{});
      ASSERT_TRUE(a.socket.ended());
    }
    EXPECT_TRUE(eventually([&] { return open_groups(*master) == 0; }));
    EXPECT_TRUE(logged("group west: closed"));
    Member b = in_group(*master, 22, "west");
    EXPECT_TRUE(commit_round({&b}, "grads", 3)) << store;
  }
}

TEST_F(GroupsTest, a_restarted_master_finds_them_again_and_tells_none_of_another) {
  config.store = sqlite();
  {
    const auto master = start();
    Member a = in_group(*master, 11, "west"), b = in_group(*master, 22, "west-wal");
    Member c = in_group(*master, 33, "");
    ASSERT_TRUE(commit_round({&a}, "grads", 1));
    ASSERT_TRUE(commit_round({&a}, "grads", 2));
    ASSERT_TRUE(commit_round({&b}, "grads", 1));
  }
  EXPECT_TRUE(std::filesystem::exists(folder_ / "run.db.west.group"));
  config.restart_grace = 50 * base::kMillisecond;  // for lives that ended with the master
  const auto master = start();
  Member a = in_group(*master, 44, "west"), b = in_group(*master, 55, "west-wal");
  EXPECT_TRUE(commit_round({&a}, "grads", 3));
  EXPECT_TRUE(commit_round({&b}, "grads", 2));
}

TEST_F(GroupsTest, another_run_s_journal_of_that_name_is_refused_and_the_run_goes_on) {
  config.store = sqlite();
  {
    const auto master = start();
    Member a = in_group(*master, 11, "west");
  }
  std::filesystem::remove(folder_ / "run.db");
  std::filesystem::remove(folder_ / "run.db-last");
  const auto master = start();
  EXPECT_EQ(refusal(*master, 11, "west").code, Code::kWrongRun);
  Member a = in_group(*master, 11, "");
  EXPECT_TRUE(a.welcome);
  EXPECT_EQ(open_groups(*master), 0u);
}

TEST_F(GroupsTest, a_name_that_could_be_a_path_opens_nothing) {
  config.store = sqlite();
  const auto master = start();
  for (const char* name : {"../west", "a/b", ".", "a\nb", " "}) {
    RawPeer peer(master->address(), 0, 11, net::Purpose::kControl, name);
    EXPECT_FALSE(peer.connected()) << name;
  }
  EXPECT_EQ(open_groups(*master), 0u);
  const AskOptions by = where(*master, "a/b");
  EXPECT_EQ(ask_status(by).status().code, Code::kInvalid);
}

TEST_F(GroupsTest, more_than_may_be_are_refused_in_words_until_one_is_left) {
  config.max_groups = 2;
  const auto master = start();
  Member a = in_group(*master, 11, "a"), b = in_group(*master, 22, "b");
  const base::Status no = refusal(*master, 33, "c");
  EXPECT_EQ(no.code, Code::kLimit);
  EXPECT_NE(no.text.find("--max-groups"), std::string::npos);
  Member again = in_group(*master, 33, "a");  // no further one
  EXPECT_TRUE(again.welcome);
  b.socket.send(wire::Leave{});
  EXPECT_TRUE(eventually([&] { return open_groups(*master) == 1; }));
  Member c = in_group(*master, 33, "c");
  EXPECT_TRUE(c.welcome);
  config.max_groups = base::kGroupsMax + 1;
  EXPECT_EQ(Master::start(config).status().code, Code::kInvalid);
}

TEST_F(GroupsTest, none_are_served_where_none_may_be) {
  config.max_groups = 0;
  const auto master = start();
  EXPECT_EQ(refusal(*master, 11, "west").code, Code::kLimit);
}

TEST_F(GroupsTest, who_asks_or_orders_opens_none) {
  const auto master = start();
  const AskOptions west = where(*master, "west");
  const auto status = ask_status(west);
  EXPECT_EQ(status.status().code, Code::kInvalid);
  EXPECT_NE(status.status().text.find("no group west"), std::string::npos);
  EXPECT_EQ(give_order(west, order_of(wire::OrderVerb::kKick, "x")).status().code, Code::kInvalid);
  EXPECT_EQ(open_groups(*master), 0u);
}

TEST_F(GroupsTest, an_order_for_a_site_of_one_is_carried_out_there) {
  const auto master = start();
  Member a = in_group(*master, 11, ""), b = in_group(*master, 11, "west");
  ASSERT_TRUE(commit_round({&a}, "grads", 1));
  ASSERT_TRUE(commit_round({&b}, "grads", 1));
  const AskOptions west = where(*master, "west");
  EXPECT_TRUE(give_order(west, order_of(wire::OrderVerb::kKick, "site-11")).ok());
  EXPECT_TRUE(b.socket.await<wire::Evicted>());
  EXPECT_TRUE(commit_round({&a}, "grads", 2));
}

TEST_F(GroupsTest, whom_the_run_bans_no_group_has) {
  const auto master = start();
  Member b = in_group(*master, 22, "west"), c = in_group(*master, 33, "west", 2);
  ASSERT_TRUE(commit_round({&b, &c}, "grads", 1));
  const auto ban = order_of(wire::OrderVerb::kBan, base::to_hex(identity_of(22).key()));
  ASSERT_TRUE(give_order(where(*master), ban).ok());
  EXPECT_TRUE(b.socket.await<wire::Evicted>());
  EXPECT_EQ(refusal(*master, 22, "west").code, Code::kBanned);
  EXPECT_EQ(refusal(*master, 22, "east").code, Code::kBanned);
  EXPECT_TRUE(commit_round({&c}, "grads", 2));
}

TEST_F(GroupsTest, a_key_that_nobody_has_let_in_opens_none) {
  config.admission = "manual";
  const auto master = start();
  const base::Status no = refusal(*master, 11, "west");
  EXPECT_EQ(no.code, Code::kBanned);
  EXPECT_NE(no.text.find("jccl admit"), std::string::npos);
  const auto admit = order_of(wire::OrderVerb::kAdmit, base::to_hex(identity_of(11).key()));
  ASSERT_TRUE(give_order(where(*master), admit).ok());
  Member a = in_group(*master, 11, "west");
  EXPECT_TRUE(commit_round({&a}, "grads", 1));
}

TEST_F(GroupsTest, histories_lie_beside_the_run_s) {
  config.history = (folder_ / "history.jsonl").string();
  const auto master = start();
  Member a = in_group(*master, 11, "west");
  ASSERT_TRUE(commit_round({&a}, "grads", 1));
  master->stop();
  EXPECT_TRUE(std::filesystem::exists(folder_ / "history.jsonl.west.group"));
}

}  // namespace
}  // namespace jccl::master
