#include "net/recordings.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace jccl::net {
namespace {

namespace fs = std::filesystem;
using base::Code;
using Cause = RecordingCause;
constexpr base::Bytes::value_type kByte = 7;

class RecordingsTest : public testing::Test {
 protected:
  RecordingsTest() {
    char path[] = "/tmp/jccl-recordings-XXXXXX";
    folder_ = ::mkdtemp(path);
  }
  ~RecordingsTest() override { fs::remove_all(folder_); }

  std::string at(const std::string& name) const { return folder_ + "/" + name; }
  std::size_t files(const std::string& folder) const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
  }

  std::string folder_;
  const base::Bytes bytes_ = base::Bytes(100'000, kByte);
};

TEST_F(RecordingsTest, a_file_is_whole_and_its_owners_alone) {
  auto folder = Recordings::open(at("new"), "master-0123");
  ASSERT_TRUE(folder.ok()) << folder.status().text;
  struct ::stat facts{};
  ASSERT_EQ(::stat(at("new").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0700U);
  const auto path = folder.value().write(bytes_, Cause::kOrder, 0);
  ASSERT_TRUE(path.ok()) << path.status().text;
  ASSERT_EQ(::stat(path.value().c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600U);
  std::ifstream in(path.value(), std::ios::binary);
  EXPECT_EQ(base::Bytes(std::istreambuf_iterator<char>(in), {}), bytes_);
  EXPECT_EQ(fs::path(path.value()).filename().string().substr(0, 16), "jccl-master-0123");
  EXPECT_EQ(files(at("new")), 1U);  // no draft is left
}

TEST_F(RecordingsTest, a_storm_of_faults_writes_few_files) {
  RecordingLimits limits;
  limits.faults_max = 3;
  auto folder = Recordings::open(folder_, "peer", limits);
  ASSERT_TRUE(folder.ok());
  for (int second = 0; second < 300; ++second) {
    (void)folder.value().write(bytes_, Cause::kFault, second * base::kSecond);
    if (second == 29) {
      EXPECT_EQ(files(folder_), 1U);
    }
    if (second == 59) {
      EXPECT_EQ(files(folder_), 2U);
    }
  }
  EXPECT_EQ(files(folder_), 3U);
  // Whoever asks still gets one, and another a second later.
  EXPECT_TRUE(folder.value().write(bytes_, Cause::kOrder, 300 * base::kSecond).ok());
  EXPECT_EQ(folder.value().write(bytes_, Cause::kOrder, 300 * base::kSecond + 1).status().code,
            Code::kLimit);
  EXPECT_TRUE(folder.value().write(bytes_, Cause::kOrder, 302 * base::kSecond).ok());
}

TEST_F(RecordingsTest, a_full_folder_gets_no_more_whoever_filled_it) {
  RecordingLimits limits;
  limits.files_max = 4;
  for (int i = 0; i < 4; ++i) std::ofstream(at("jccl-old-" + std::to_string(i) + ".rec"));
  std::ofstream(at("other.txt"));
  auto folder = Recordings::open(folder_, "master", limits);
  ASSERT_TRUE(folder.ok());
  const auto no = folder.value().write(bytes_, Cause::kOrder, 0);
  EXPECT_EQ(no.status().code, Code::kLimit);
  EXPECT_NE(no.status().text.find("take some away"), std::string::npos);
  fs::remove(at("jccl-old-0.rec"));
  EXPECT_TRUE(folder.value().write(bytes_, Cause::kOrder, 0).ok());
}

TEST_F(RecordingsTest, an_hour_after_the_last_a_fault_leaves_one_more_and_the_end_is_said_once) {
  RecordingLimits limits;
  limits.faults_max = 2, limits.fault_pause = base::kSecond;
  auto folder = Recordings::open(folder_, "peer", limits);
  ASSERT_TRUE(folder.ok());
  const auto fault = [&](base::Duration at) {
    return folder.value().write(bytes_, Cause::kFault, at).ok();
  };
  EXPECT_TRUE(fault(0));
  EXPECT_FALSE(folder.value().ends_here());
  EXPECT_TRUE(fault(10 * base::kSecond));
  EXPECT_TRUE(folder.value().ends_here());
  EXPECT_FALSE(folder.value().ends_here());
  EXPECT_FALSE(fault(3599 * base::kSecond));
  EXPECT_TRUE(folder.value().due(Cause::kFault, 3601 * base::kSecond).ok());
  EXPECT_TRUE(fault(3601 * base::kSecond));
  EXPECT_TRUE(folder.value().ends_here()) << "once each time";
  EXPECT_FALSE(fault(3700 * base::kSecond));
  for (int hour = 3; hour < 40; ++hour) (void)fault(3600 * base::kSecond * 40);
  EXPECT_EQ(files(folder_), 4U) << "and two at once at most";
}

TEST_F(RecordingsTest, what_a_killed_writer_left_goes_with_the_next_start) {
  std::ofstream(at(".recording-old")), std::ofstream(at(".recording-new"));
  const auto old = fs::last_write_time(at(".recording-new")) - std::chrono::hours(2);
  fs::last_write_time(at(".recording-old"), old);
  ASSERT_TRUE(Recordings::open(folder_, "x").ok());
  EXPECT_FALSE(fs::exists(at(".recording-old")));
  EXPECT_TRUE(fs::exists(at(".recording-new"))) << "somebody may be writing it";
}

TEST_F(RecordingsTest, a_file_is_named_from_the_root_on) {
  const auto before = fs::current_path();
  fs::current_path(folder_);
  auto folder = Recordings::open("here", "x");
  ASSERT_TRUE(folder.ok());
  const auto path = folder.value().write(bytes_, Cause::kOrder, 0);
  fs::current_path(before);
  ASSERT_TRUE(path.ok());
  EXPECT_TRUE(path.value().starts_with("/")) << path.value();
  EXPECT_TRUE(fs::exists(path.value()));
  EXPECT_EQ(Recordings::open(at("a") + '\0' + "b", "x").status().code, Code::kInvalid);
}

TEST_F(RecordingsTest, a_folder_that_is_none_is_refused_at_once) {
  std::ofstream(at("file"));
  EXPECT_EQ(Recordings::open(at("file"), "x").status().code, Code::kIo);
  EXPECT_EQ(Recordings::open(at("no/such"), "x").status().code, Code::kIo);
  auto none = Recordings::open("", "x");
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(none.value().any());
  EXPECT_EQ(none.value().write(bytes_, Cause::kOrder, 0).status().code, Code::kInvalid);
}

}  // namespace
}  // namespace jccl::net
