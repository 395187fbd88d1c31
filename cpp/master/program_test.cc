// jccl-master as a process: its output, exit codes, signals, and its death by SIGKILL.
#include <gtest/gtest.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "master/raw_peer.h"
#include "master/test_folder.h"

namespace jccl::master {
namespace {

struct Exit {
  int code = -1;  // -1: did not end, or was killed
  std::string out, err;
};

class ProgramTest : public FolderTest {
 protected:
  void SetUp() override { ::unsetenv("JCCL_TOKEN"); }
  void TearDown() override {
    if (pid_ > 0) stop(SIGKILL);
  }

  std::string at(const std::string& name) const { return (folder_ / name).string(); }
  std::string read(const std::string& name) const {
    std::ifstream file(at(name));
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  void spawn(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), JCCL_MASTER_PROGRAM);
    std::vector<char*> argv;
    for (auto& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    const std::string out = at("out"), err = at("err");
    pid_ = ::fork();
    if (pid_ == 0) {
      if (!std::freopen(out.c_str(), "w", stdout) || !std::freopen(err.c_str(), "w", stderr)) {
        ::_exit(98);
      }
      if (file_bytes_max_ > 0) {
        ::signal(SIGXFSZ, SIG_IGN);
        const rlimit limit{file_bytes_max_, file_bytes_max_};
        ::setrlimit(RLIMIT_FSIZE, &limit);
      }
      if (cores_) {
        const rlimit any{RLIM_INFINITY, RLIM_INFINITY};
        if (::setrlimit(RLIMIT_CORE, &any) != 0 || ::chdir(folder_.c_str()) != 0) ::_exit(97);
      }
      ::execv(argv[0], argv.data());
      ::_exit(99);
    }
  }
  int wait() {
    int status = 0;
    EXPECT_EQ(::waitpid(pid_, &status, 0), pid_);
    pid_ = -1;
    left_a_core_ = WIFSIGNALED(status) && WCOREDUMP(status);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  void fails_and_goes_on(const std::string& group);
  int stop(int signal) {
    ::kill(pid_, signal);
    return wait();
  }
  Exit run(std::vector<std::string> arguments) {
    spawn(std::move(arguments));
    Exit out;
    out.code = wait();
    out.out = read("out");
    out.err = read("err");
    return out;
  }
  // Starts a master that serves; its address.
  std::string serve(std::vector<std::string> more = {}) {
    std::filesystem::remove(at("address"));
    std::vector<std::string> arguments{"--bind", "127.0.0.1:0", "--print-address-file",
                                       at("address")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    spawn(arguments);
    for (int i = 0; i < 20'000 && !std::filesystem::exists(at("address")); ++i) ::usleep(1000);
    std::ifstream file(at("address"));
    std::string address;
    EXPECT_TRUE(file >> address) << read("err");
    return address;
  }

  pid_t pid_ = -1;
  rlim_t file_bytes_max_ = 0;  // of the program; 0: as the test's
  bool cores_ = false, left_a_core_ = false;
};

TEST_F(ProgramTest, with_a_secret_it_leaves_no_core) {
  cores_ = true;
  (void)serve();
  stop(SIGABRT);
  if (!left_a_core_) {  // as sanitized programs, which have no room for one
    std::fputs("no core is written here at all: not tried\n", stderr);
    return;
  }
  const std::string secret = run({"--new-token"}).out;
  std::ofstream(at("secret")) << secret;
  ASSERT_EQ(::chmod(at("secret").c_str(), 0600), 0);
  (void)serve({"--token-file", at("secret")});
  stop(SIGABRT);
  EXPECT_FALSE(left_a_core_);
}

TEST_F(ProgramTest, it_prints_its_address_and_stops_cleanly_on_a_signal) {
  for (const int signal : {SIGTERM, SIGINT}) {
    const std::string address = serve();
    Member a(address, 11);
    EXPECT_TRUE(a.welcome);
    EXPECT_EQ(stop(signal), 0);
    EXPECT_EQ(read("out"), "JCCL_MASTER=" + address + "\n");
    EXPECT_TRUE(a.socket.ended());
  }
}

TEST_F(ProgramTest, on_sigusr1_it_leaves_a_recording_and_serves_on) {
  const std::string address = serve({"--record", at("recordings")});
  Member a(address, 11);
  ASSERT_TRUE(a.welcome);
  ::kill(pid_, SIGUSR1);
  for (int i = 0; i < kPatienceMs && read("err").find(".rec") == std::string::npos; ++i) {
    ::usleep(1000);
  }
  EXPECT_NE(read("err").find("recording " + at("recordings") + "/jccl-master-"), std::string::npos)
      << read("err");
  EXPECT_TRUE(Member(address, 12).welcome);
  EXPECT_EQ(stop(SIGTERM), 0);
  // Without a folder it says what to do, and is not ended by the signal either.
  serve();
  ::kill(pid_, SIGUSR1);
  for (int i = 0; i < kPatienceMs && read("err").find("--record") == std::string::npos; ++i) {
    ::usleep(1000);
  }
  EXPECT_EQ(stop(SIGTERM), 0);
}

TEST_F(ProgramTest, a_kill_and_a_restart_on_the_journal_lose_nothing_that_was_told) {
  const std::vector<std::string> store{"--store", "sqlite:" + at("run.db")};
  base::Attempt last;
  std::uint64_t n = 0, epoch = 0;
  for (int life = 0; life < 5; ++life) {
    const std::string address = serve(store);
    std::vector<wire::Unresolved> open;
    if (n > 0) open.push_back({last, {"grads", n}});
    Member a(address, 11, open);
    ASSERT_TRUE(a.welcome) << read("err");
    EXPECT_GT(a.welcome->epoch, epoch);
    epoch = a.welcome->epoch;
    if (n > 0) {
      const auto outcome = a.socket.await<wire::Outcome>();
      ASSERT_TRUE(outcome);
      EXPECT_EQ(outcome->verdict, wire::Verdict::kCommitted);
      EXPECT_EQ(outcome->attempt, last);
    }
    for (int i = 0; i < 10; ++i) {
      const auto attempt = commit_round({&a}, "grads", ++n);
      ASSERT_TRUE(attempt);
      EXPECT_GT(*attempt, last);
      last = *attempt;
    }
    stop(SIGKILL);
  }
}

TEST_F(ProgramTest, what_keeps_it_from_starting_has_a_text_and_a_code) {
  const std::string address =
      serve({"--store", "sqlite:" + at("run.db"), "--run", std::string(32, 'a')});
  const pid_t serving = pid_;
  Exit exit = run({"--bind", address});
  EXPECT_EQ(exit.code, 3);
  EXPECT_NE(exit.err.find(std::to_string(port_of(address))), std::string::npos) << exit.err;
  exit = run({"--bind", "127.0.0.1:0", "--store", "sqlite:" + at("run.db")});
  EXPECT_EQ(exit.code, 3);
  EXPECT_NE(exit.err.find("another master"), std::string::npos) << exit.err;
  exit = run({"--bind", "0.0.0.0:0"});
  EXPECT_EQ(exit.code, 6);
  exit = run({"--frobnicate"});
  EXPECT_EQ(exit.code, 2);
  exit = run({"--start-peers", "-3"});
  EXPECT_EQ(exit.code, 2);
  EXPECT_NE(exit.err.find("--start-peers"), std::string::npos);
  for (const char* odd : {"nan", "inf", "0x10", "-1", "", "1e6x", "0.5"}) {
    exit = run({"--weight-max", odd});
    EXPECT_EQ(exit.code, 2) << odd;
    EXPECT_NE(exit.err.find("weight"), std::string::npos) << exit.err;
  }
  for (const char* odd : {"9999", "nan", "-1", "1e300", "fast"}) {
    exit = run({"--max-rate", odd});
    EXPECT_EQ(exit.code, 2) << odd;
    EXPECT_NE(exit.err.find("rate"), std::string::npos) << exit.err;
  }
  for (const char* odd : {"nan", "0x1", "1.01", "-0.1", "one"}) {
    EXPECT_EQ(run({"--audit", odd}).code, 2) << odd;
  }
  exit = run({"--token-file", at("nothing")});
  EXPECT_EQ(exit.code, 6);
  pid_ = serving;
  EXPECT_EQ(stop(SIGTERM), 0);
  exit = run({"--bind", "127.0.0.1:0", "--store", "sqlite:" + at("run.db"), "--run",
              std::string(32, 'b')});
  EXPECT_EQ(exit.code, 5);
}

TEST_F(ProgramTest, a_token_that_others_can_read_is_refused_in_words) {
  const std::string path = at("secret");
  std::ofstream(path) << net::to_text(net::new_run_secret().value()) << "\n";
  for (const unsigned rights : {0640U, 0604U, 0644U}) {
    ASSERT_EQ(::chmod(path.c_str(), rights), 0);
    const Exit exit = run({"--token-file", path});
    EXPECT_EQ(exit.code, 6);
    EXPECT_NE(exit.err.find("chmod 600"), std::string::npos) << exit.err;
  }
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  serve({"--token-file", path});
  EXPECT_EQ(stop(SIGTERM), 0);
}

TEST_F(ProgramTest, an_error_is_one_line_whatever_it_names) {
  const Exit exit = run({"--store", "tape:\nforged \x1b[31m"});
  EXPECT_NE(exit.code, 0);
  EXPECT_NE(exit.err.find("\\nforged \\u001b[31m"), std::string::npos) << exit.err;
  EXPECT_EQ(std::count(exit.err.begin(), exit.err.end(), '\n'), 1) << exit.err;
}

TEST_F(ProgramTest, a_damaged_journal_is_refused_and_the_record_named) {
  const std::string where = "sqlite:" + at("run.db");
  const std::string address = serve({"--store", where});
  Member a(address, 11);
  for (std::uint64_t n = 1; n <= 5; ++n) ASSERT_TRUE(commit_round({&a}, "grads", n));
  EXPECT_EQ(stop(SIGTERM), 0);
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(at("run.db").c_str(), &db), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(db, "update journal set payload = x'00' where sequence = 3", nullptr,
                         nullptr, nullptr),
            SQLITE_OK);
  EXPECT_EQ(sqlite3_changes(db), 1);
  sqlite3_close(db);
  const Exit exit = run({"--bind", "127.0.0.1:0", "--store", where});
  EXPECT_EQ(exit.code, 4);
  EXPECT_NE(exit.err.find("row 3"), std::string::npos) << exit.err;
}

// The journal of the run's, or of a group's.
void ProgramTest::fails_and_goes_on(const std::string& group) {
  const std::vector<std::string> store{"--store", "sqlite:" + at("run.db" + group)};
  file_bytes_max_ = 512 * 1024;
  base::Attempt last;
  std::uint64_t told = 0;
  {
    Member a(serve(store), 11, {}, false, 0, group);
    while (const auto attempt = commit_round({&a}, "grads", told + 1)) {
      last = *attempt;
      ASSERT_LT(++told, 10'000u);
    }
    EXPECT_EQ(wait(), 3);
    EXPECT_NE(read("err").find("the journal failed"), std::string::npos) << read("err");
  }
  EXPECT_GT(told, 10u);
  file_bytes_max_ = 0;
  Member a(serve(store), 11, {{last, {"grads", told}}}, false, 0, group);
  const auto outcome = a.socket.await<wire::Outcome>();
  ASSERT_TRUE(outcome) << read("err");
  EXPECT_EQ(outcome->verdict, wire::Verdict::kCommitted);
  EXPECT_EQ(outcome->attempt, last);
  EXPECT_EQ(stop(SIGTERM), 0);
}

TEST_F(ProgramTest, a_journal_that_fails_stops_the_master_and_what_was_told_stays_true) {
  fails_and_goes_on("");
}

TEST_F(ProgramTest, a_group_s_journal_that_fails_stops_the_master_as_the_run_s_does) {
  fails_and_goes_on("west");
}

TEST_F(ProgramTest, a_master_that_was_stopped_itself_does_not_take_its_peers_for_silent) {
  Member a(serve({"--silence-ms", "400"}), 11);
  for (std::uint64_t n = 1; n <= 5; ++n) {
    ASSERT_TRUE(commit_round({&a}, "grads", n)) << n;
    ::kill(pid_, SIGSTOP);
    ::usleep(900'000);  // longer than the silence allowed
    a.socket.send(wire::Heartbeat{n, 0});
    ::kill(pid_, SIGCONT);
  }
}

TEST_F(ProgramTest, help_and_tokens_need_no_master) {
  Exit exit = run({"--help"});
  EXPECT_EQ(exit.code, 0);
  EXPECT_NE(exit.out.find("--store"), std::string::npos);
  exit = run({"--new-token"});
  EXPECT_EQ(exit.code, 0);
  EXPECT_EQ(exit.out.find("jccl2run."), 0u);
}

}  // namespace
}  // namespace jccl::master
