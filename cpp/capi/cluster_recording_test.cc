// Recordings of live runs: what a fault leaves replays to what was done, and holds no secret and no
// value of a tensor.
#include <filesystem>
#include <fstream>
#include <iterator>

#include "capi/cluster_support.h"
#include "master/ask.h"
#include "protocol/recorder/replay.h"

namespace jccl::capi::test {
namespace {

namespace fs = std::filesystem;

class ClusterRecordingTest : public testing::Test {
 protected:
  ClusterRecordingTest() {
    std::string pattern = (fs::temp_directory_path() / "jccl-recordings-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~ClusterRecordingTest() override { fs::remove_all(folder_); }

  std::vector<std::string> files(const std::string& of) const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("jccl-" + of)) found.push_back(entry.path().string());
    }
    return found;
  }
  static base::Bytes bytes_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return base::Bytes(std::istreambuf_iterator<char>(file), {});
  }
  static protocol::About replayed(const std::string& path) {
    const base::Bytes bytes = bytes_of(path);
    const auto recording = protocol::read_recording(bytes);
    EXPECT_TRUE(recording.ok()) << recording.status().text;
    if (!recording.ok()) return {};
    const auto counts = protocol::replay(recording.value(), [&](const protocol::Replayed& one) {
      for (const std::string& what : one.differences) {
        ADD_FAILURE() << path << ": " << one.event << ": " << what;
      }
    });
    EXPECT_TRUE(counts.ok()) << counts.status().text;
    EXPECT_TRUE(!counts.ok() || counts.value().events > 5);
    return recording.value().about;
  }

  std::string folder_;
};

// A value whose bytes nothing else has.
constexpr double kSecretValue = 1.2345678901234567e-89;

TEST_F(ClusterRecordingTest, an_eviction_is_recorded_on_both_sides_without_secrets_or_values) {
  ClusterOptions options;
  options.master.token = master::new_token_text().value();
  options.master.record = options.peer.record = folder_;
  options.peer.token = master::make_token_text({options.master.token, "peer", 0, 0, ""}).value();
  Cluster cluster(3, options);
  const auto round = [](Communicator& comm) {
    std::vector<double> x(1000, kSecretValue);
    return comm.run({leaf_of(x, x)}, sum_of("grads"));
  };
  cluster.on_all([&](std::size_t, Communicator& comm) {
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(round(comm).status.ok());
  });
  const std::string site = cluster[0].attributes().sites.at(0);
  cluster.master().evict_site(site);
  ASSERT_TRUE(eventually([&] { return !files("master").empty() && !files("peer").empty(); }));
  const auto asked = cluster[1].record("a test asks");
  ASSERT_TRUE(asked.ok()) << asked.status().text;
  EXPECT_EQ(replayed(asked.value()).why, "a test asks");
  const protocol::About masters = replayed(files("master").front());
  EXPECT_EQ(masters.role, protocol::Role::kMaster);
  EXPECT_TRUE(contains(masters.why, "evict")) << masters.why;
  bool evicted = false;
  for (const std::string& path : files("peer")) {
    const protocol::About about = replayed(path);
    EXPECT_EQ(about.role, protocol::Role::kPeer);
    evicted = evicted || (about.site == site && contains(about.why, "evicted"));
  }
  EXPECT_TRUE(evicted);
  const auto* raw = reinterpret_cast<const char*>(&kSecretValue);
  for (const auto& entry : fs::directory_iterator(folder_)) {
    const base::Bytes bytes = bytes_of(entry.path().string());
    const std::string text(bytes.begin(), bytes.end());
    EXPECT_FALSE(contains(text, std::string(raw, sizeof kSecretValue)));
    for (const std::string& token : {options.master.token, options.peer.token}) {
      const std::string secret = token.substr(token.rfind('.') + 1);
      base::Bytes bare(secret.size() / 2);
      ASSERT_TRUE(base::from_hex(secret, bare));
      EXPECT_FALSE(contains(text, secret));
      EXPECT_FALSE(contains(text, std::string(bare.begin(), bare.end())));
    }
    EXPECT_TRUE(contains(text, site));
  }
}

TEST_F(ClusterRecordingTest, who_asks_without_a_folder_or_a_recorder_is_told_so) {
  Cluster cluster(1);
  EXPECT_EQ(cluster[0].record("why").status().code, Code::kInvalid);
  ConnectOptions off = cluster.peer_options();
  off.record = folder_, off.record_bytes = 0;
  EXPECT_EQ(cluster.add(off)->record("why").status().code, Code::kInvalid);
  off.record = folder_ + "/no/such";
  EXPECT_EQ(Communicator::connect(off).status().code, Code::kIo);
  cluster[0].close();
  EXPECT_EQ(cluster[0].record("why").status().code, Code::kClosed);
}

// Restarted again and again, it would fill the folder of all others.
TEST_F(ClusterRecordingTest, a_peer_that_is_refused_at_the_door_leaves_none) {
  ClusterOptions options;
  options.master.token = master::new_token_text().value();
  Cluster cluster(1, options);
  EXPECT_TRUE(small_round(cluster[0], sum_of("x"), 1).result.status.ok());
  ConnectOptions refused = cluster.peer_options();
  refused.record = folder_;
  refused.site = cluster[0].attributes().sites.at(0);  // of another key: it tries again
  refused.connect_timeout = base::kSecond;
  EXPECT_FALSE(Communicator::connect(refused).ok());
  refused.site.clear();
  refused.token = master::make_token_text({options.master.token, "observer", 0, 0, ""}).value();
  refused.connect_timeout = 60 * base::kSecond;
  EXPECT_EQ(Communicator::connect(refused).status().code, Code::kAuth);  // for good
  EXPECT_TRUE(files("").empty());
}

}  // namespace
}  // namespace jccl::capi::test
