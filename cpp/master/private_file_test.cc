// Files that an older version left open to other users of the machine.
#include "master/private_file.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <mutex>
#include <vector>

#include "base/codes.h"
#include "base/text.h"
#include "master/master.h"
#include "master/store.h"
#include "master/test_folder.h"

namespace jccl::master {
namespace {

class PrivateFileTest : public FolderTest {
 protected:
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  unsigned mode(const std::string& name) const {
    struct ::stat file{};
    EXPECT_EQ(::stat(path(name).c_str(), &file), 0) << name;
    return file.st_mode & 0777U;
  }
  void open_to_others(const std::string& name) {
    std::ofstream(path(name), std::ios::app).flush();
    ASSERT_EQ(::chmod(path(name).c_str(), 0644), 0);
  }
  // The journal and the history of a master that ran and stopped.
  void run_once() {
    MasterConfig config;
    config.bind = "127.0.0.1:0";
    config.store = "sqlite:" + path("run.db");
    config.history = path("history");
    config.log = [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      log_ += line + "\n";
    };
    const auto master = Master::start(config);
    ASSERT_TRUE(master.ok()) << master.status().text;
  }
  std::mutex mutex_;
  std::string log_;
};

TEST_F(PrivateFileTest, a_master_makes_what_an_older_one_left_its_owners_and_says_so) {
  run_once();
  EXPECT_EQ(log_.find("open to other users"), std::string::npos) << log_;
  const std::vector<std::string> files = {"run.db", "run.db-last", "history", "history.1",
                                          "history.3"};
  for (const std::string& name : files) open_to_others(name);
  open_to_others("another");
  run_once();
  for (const std::string& name : files) {
    EXPECT_EQ(mode(name), 0600U) << name;
    EXPECT_NE(log_.find(path(name) + " was open to other users (mode 0644)"), std::string::npos)
        << name << ": " << log_;
  }
  EXPECT_EQ(mode("another"), 0644U) << "is no file of its own";
  log_.clear();
  run_once();
  EXPECT_EQ(log_.find("open to other users"), std::string::npos) << "once: " << log_;
}

// Another user's file. Root makes one, and asks as nobody.
TEST_F(PrivateFileTest, a_file_that_stays_open_to_others_is_refused_in_words) {
  constexpr ::uid_t kNobody = 65534;
  const bool root = ::geteuid() == 0;
  const std::string foreign = root ? path("roots") : "/etc/passwd";
  if (root) open_to_others("roots");
  std::filesystem::permissions(folder_, std::filesystem::perms(0755));
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const ::pid_t child = ::fork();
  if (child == 0) {
    if (root && ::setuid(kNobody) != 0) ::_exit(1);
    const base::Status kept = make_private("history", foreign, nullptr);
    const std::string told = base::cat(base::name_of(kept.code), " ", kept.text);
    ::_exit(::write(ends[1], told.data(), told.size()) < 0 ? 1 : 0);
  }
  ::close(ends[1]);
  std::string told(4096, 0);
  const ::ssize_t got = ::read(ends[0], told.data(), told.size());
  told.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
  ::close(ends[0]);
  int ended = 0;
  ASSERT_EQ(::waitpid(child, &ended, 0), child);
  ASSERT_EQ(ended, 0) << "it could not become nobody";
  EXPECT_NE(told.find(" history " + foreign + " is open to other users (mode 0644)"),
            std::string::npos)
      << told;
  EXPECT_NE(told.find("chmod 600"), std::string::npos) << told;
}

TEST_F(PrivateFileTest, what_is_missing_or_no_file_is_left_alone) {
  const auto log = [](const std::string& line) { ADD_FAILURE() << line; };
  EXPECT_TRUE(make_private("history", path("missing"), log).ok());
  EXPECT_TRUE(make_private("history", "/dev/null", log).ok());
}

// An operator who looks at a journal changes nothing there.
TEST_F(PrivateFileTest, a_journal_that_is_only_looked_at_stays_as_it_is) {
  run_once();
  open_to_others("run.db");
  ASSERT_TRUE(open_store("sqlite:" + path("run.db")).ok());
  EXPECT_EQ(mode("run.db"), 0644U);
}

}  // namespace
}  // namespace jccl::master
