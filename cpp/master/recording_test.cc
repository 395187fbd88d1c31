// Recordings of a master that runs: when it leaves one, what the file says, and what is not in it.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include "master/ask.h"
#include "master/master.h"
#include "master/raw_peer.h"
#include "master/test_folder.h"
#include "protocol/recorder/replay.h"

namespace jccl::master {
namespace {

using base::Code;
namespace fs = std::filesystem;

class RecordingTest : public FolderTest {
 protected:
  MasterConfig config() const {
    MasterConfig config;
    config.record = (folder_ / "recordings").string();
    config.log = [](const std::string&) {};
    return config;
  }
  // The first file there, once it is; "" if none comes.
  std::string first_file() const {
    for (int i = 0; i < kPatienceMs; ++i) {
      for (const auto& entry : fs::directory_iterator(folder_ / "recordings")) {
        if (entry.path().extension() == ".rec") return entry.path().string();
      }
      ::usleep(1000);
    }
    return "";
  }
  static base::Bytes bytes_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return base::Bytes(std::istreambuf_iterator<char>(file), {});
  }
  static bool holds(const base::Bytes& bytes, const std::string& text) {
    return std::string(bytes.begin(), bytes.end()).find(text) != std::string::npos;
  }
  // Replays to what the machine did; the file's head.
  static protocol::About replayed(const base::Bytes& bytes) {
    const auto recording = protocol::read_recording(bytes);
    EXPECT_TRUE(recording.ok()) << recording.status().text;
    if (!recording.ok()) return {};
    const auto counts = protocol::replay(recording.value(), [](const protocol::Replayed& one) {
      for (const std::string& what : one.differences) ADD_FAILURE() << one.event << ": " << what;
    });
    EXPECT_TRUE(counts.ok()) << counts.status().text;
    EXPECT_TRUE(!counts.ok() || counts.value().events > 0);
    return recording.value().about;
  }
  static wire::Order dump() {
    wire::Order order;
    order.verb = wire::OrderVerb::kDump;
    order.reason = "round 7 stands still";
    return order;
  }
};

TEST_F(RecordingTest, an_operator_gets_one_that_holds_no_secret) {
  MasterConfig with = config();
  with.token = new_token_text().value();
  const auto master = Master::start(with);
  ASSERT_TRUE(master.ok()) << master.status().text;
  const std::string admin = make_token_text({with.token, "admin", 0, 0, ""}).value();
  const std::string peer = make_token_text({with.token, "peer", 0, 0, ""}).value();
  AskOptions by{.master = master.value()->address(), .token = peer};
  EXPECT_EQ(give_order(by, dump()).status().code, Code::kAuth);
  by.token = admin;
  const auto said = give_order(by, dump());
  ASSERT_TRUE(said.ok()) << said.status().text;
  const std::string path = first_file();
  EXPECT_NE(said.value().find(path), std::string::npos) << said.value();
  const base::Bytes bytes = bytes_of(path);
  const protocol::About about = replayed(bytes);
  EXPECT_EQ(about.role, protocol::Role::kMaster);
  EXPECT_EQ(base::to_hex(about.run), master.value()->run_id());
  EXPECT_NE(about.why.find("round 7 stands still"), std::string::npos) << about.why;
  // A token's last part is its secret; what is before it is its name.
  for (const std::string& token : {with.token, admin, peer}) {
    const std::string secret = token.substr(token.rfind('.') + 1);
    ASSERT_GE(secret.size(), 32U);
    EXPECT_FALSE(holds(bytes, secret));
    base::Bytes raw(secret.size() / 2);
    ASSERT_TRUE(base::from_hex(secret, raw));
    EXPECT_FALSE(holds(bytes, std::string(raw.begin(), raw.end())));
  }
  EXPECT_TRUE(holds(bytes, "p-"));  // names of tokens are there: the search would find a secret
}

TEST_F(RecordingTest, an_eviction_leaves_one_that_tells_it) {
  const auto master = Master::start(config());
  ASSERT_TRUE(master.ok()) << master.status().text;
  RawPeer peer(master.value()->address());
  wire::Hello hello;
  hello.incarnation = 1, hello.site = "site-a";
  ASSERT_TRUE(peer.send(hello) && peer.send(wire::Resume{}));
  wire::Ready ready;
  ready.round = {"grads", 1}, ready.deadline = 60 * base::kSecond;
  ready.hint = collective::encode_hint({});
  ASSERT_TRUE(peer.send(ready));
  ASSERT_TRUE(peer.await<wire::Start>().has_value());
  master.value()->evict_site("site-a");
  ASSERT_TRUE(peer.await<wire::Evicted>().has_value());
  const std::string path = first_file();
  ASSERT_FALSE(path.empty());
  const protocol::About about = replayed(bytes_of(path));
  EXPECT_EQ(about.why.find("evict"), 0U) << about.why;
  EXPECT_NE(about.why.find("site-a"), std::string::npos) << about.why;
}

TEST_F(RecordingTest, one_without_a_folder_or_a_recorder_says_so) {
  MasterConfig without = config();
  without.record.clear();
  const auto master = Master::start(without);
  ASSERT_TRUE(master.ok());
  AskOptions by;
  by.master = master.value()->address();
  const auto no = give_order(by, dump());
  EXPECT_EQ(no.status().code, Code::kInvalid);
  EXPECT_NE(no.status().text.find("--record FOLDER"), std::string::npos) << no.status().text;
  MasterConfig off = config();
  off.record_bytes = 0;
  const auto silent = Master::start(off);
  ASSERT_TRUE(silent.ok());
  const auto nothing = silent.value()->record("a test asks");
  EXPECT_EQ(nothing.status().code, Code::kInvalid);
  EXPECT_NE(nothing.status().text.find("--record-mib 0"), std::string::npos);
  EXPECT_TRUE(fs::is_empty(folder_ / "recordings"));
}

TEST_F(RecordingTest, a_folder_that_can_not_be_is_refused_at_the_start) {
  MasterConfig wrong = config();
  wrong.record = (folder_ / "no" / "such").string();
  EXPECT_EQ(Master::start(wrong).status().code, Code::kIo);
}

}  // namespace
}  // namespace jccl::master
