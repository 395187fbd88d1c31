#include "master/store.h"

#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "master/test_folder.h"
#include "wire/samples.h"

namespace jccl::master {
namespace {

using base::Code;

class StoreTest : public FolderTest {
 protected:
  std::string path() const { return (folder_ / "run.db").string(); }
  std::string where() const { return "sqlite:" + path(); }
  std::unique_ptr<StateStore> open() {
    base::Result<std::unique_ptr<StateStore>> store = open_store(where());
    EXPECT_TRUE(store.ok()) << store.status().text;
    return store.ok() ? std::move(store.value()) : nullptr;
  }
  base::Status why_not(const std::string& where) { return open_store(where).status(); }
  void sql(const std::string& text) {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(path().c_str(), &db), SQLITE_OK);
    char* error = nullptr;
    EXPECT_EQ(sqlite3_exec(db, text.c_str(), nullptr, nullptr, &error), SQLITE_OK) << error;
    sqlite3_close(db);
  }
};

std::vector<wire::Row> part(const std::vector<wire::Row>& rows, std::size_t from, std::size_t to) {
  return {rows.begin() + static_cast<long>(from), rows.begin() + static_cast<long>(to)};
}

TEST_F(StoreTest, rows_are_there_after_reopening) {
  const std::vector<wire::Row> rows = wire::sample_rows(9);
  auto store = open();
  EXPECT_TRUE(store->load().value().empty());
  ASSERT_TRUE(store->append(part(rows, 0, 1)).ok());
  ASSERT_TRUE(store->append(part(rows, 1, 6)).ok());
  ASSERT_TRUE(store->append({}).ok());
  EXPECT_EQ(store->load().value(), part(rows, 0, 6));
  EXPECT_TRUE(std::filesystem::exists(path() + "-wal"));
  store.reset();
  EXPECT_FALSE(std::filesystem::exists(path() + "-wal"));  // folded in: one file to copy
  store = open();
  EXPECT_EQ(store->load().value(), part(rows, 0, 6));
  ASSERT_TRUE(store->append(part(rows, 6, 9)).ok());
  store.reset();
  EXPECT_EQ(open()->load().value(), rows);
  EXPECT_TRUE(wire::walk(rows, nullptr).ok());
}

TEST_F(StoreTest, numbers_above_the_signed_range_survive) {
  wire::Row row;
  row.sequence = 1;
  row.crc = 0xFFFFFFFF;
  row.previous = 0xFFFFFFFFFFFFFFFF;
  auto store = open();
  ASSERT_TRUE(store->append({row}).ok());  // its payload is empty, too
  EXPECT_EQ(store->load().value(), std::vector<wire::Row>{row});
}

TEST_F(StoreTest, a_second_opener_is_refused_until_the_first_is_gone) {
  auto store = open();
  ASSERT_TRUE(store->append(wire::sample_rows(1)).ok());
  const base::Status status = why_not(where());
  EXPECT_EQ(status.code, Code::kIo);
  EXPECT_EQ(status.text,
            "journal " + path() + ": in use by another master (or another program reads it)");
  ASSERT_TRUE(store->append(part(wire::sample_rows(2), 1, 2)).ok());
  store.reset();
  EXPECT_EQ(open()->load().value().size(), 2U);
}

// What a killed master had acknowledged is there, and its lock is not.
TEST_F(StoreTest, acknowledged_rows_survive_a_kill_and_the_lock_does_not) {
  const std::vector<wire::Row> rows = wire::sample_rows(20);
  int told[2];
  ASSERT_EQ(pipe(told), 0);
  const pid_t child = fork();
  if (child == 0) {
    auto store = open();
    if (!store || !store->append(rows).ok()) _exit(1);
    if (write(told[1], "x", 1) != 1) _exit(1);
    pause();
    _exit(0);
  }
  close(told[1]);
  char byte = 0;
  ASSERT_EQ(read(told[0], &byte, 1), 1);
  close(told[0]);
  EXPECT_EQ(why_not(where()).code, Code::kIo);  // another process holds it
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_EQ(open()->load().value(), rows);
}

TEST_F(StoreTest, truncate_deletes_what_a_walk_has_cut) {
  std::vector<wire::Row> rows = wire::sample_rows(5);
  rows[4].crc ^= 1;
  auto store = open();
  ASSERT_TRUE(store->append(rows).ok());
  base::Result<wire::Chain> chain = wire::walk(store->load().value(), nullptr);
  ASSERT_EQ(chain.value().cut_rows, 1U);
  const base::Status refused = store->truncate(4);  // it was acknowledged: no torn tail
  EXPECT_EQ(refused.code, Code::kDamaged);
  EXPECT_NE(refused.text.find("row 5"), std::string::npos) << refused.text;
  store.reset();
  std::filesystem::remove(path() + "-last");
  store = open();
  ASSERT_TRUE(store->truncate(4).ok());
  ASSERT_TRUE(store->append({chain.value().writer.append(wire::sample_records()[4])}).ok());
  store.reset();
  chain = wire::walk(open()->load().value(), nullptr);
  ASSERT_TRUE(chain.ok());
  EXPECT_EQ(chain.value().records.size(), 5U);
  EXPECT_EQ(chain.value().cut_rows, 0U);
}

TEST_F(StoreTest, a_journal_that_is_older_than_what_was_told_is_refused) {
  auto store = open();
  ASSERT_TRUE(store->append(wire::sample_rows(3)).ok());
  store.reset();
  std::filesystem::copy_file(path(), path() + "-copy");
  store = open();
  ASSERT_TRUE(store->append(part(wire::sample_rows(5), 3, 5)).ok());
  store.reset();
  std::filesystem::rename(path() + "-copy", path());
  base::Status status = open()->load().status();
  EXPECT_EQ(status.code, Code::kDamaged);
  EXPECT_NE(status.text.find("ends at row 3, but row 5 was acknowledged"), std::string::npos)
      << status.text;
  std::filesystem::remove(path());  // also when nothing is left of it
  EXPECT_EQ(open()->load().status().code, Code::kDamaged);
  std::filesystem::remove(path() + "-last");
  EXPECT_TRUE(open()->load().ok());
}

TEST_F(StoreTest, another_row_in_place_of_the_one_that_was_told_is_refused) {
  auto store = open();
  ASSERT_TRUE(store->append(wire::sample_rows(3)).ok());
  EXPECT_TRUE(store->held().ok());
  store.reset();
  sql("UPDATE journal SET crc = crc + 1 WHERE sequence = 3");
  const base::Status status = open()->load().status();
  EXPECT_EQ(status.code, Code::kDamaged);
  EXPECT_NE(status.text.find("row 3 is not the one that was acknowledged"), std::string::npos)
      << status.text;
}

TEST_F(StoreTest, a_note_of_the_last_row_that_cannot_be_kept_is_named) {
  std::filesystem::create_directory(path() + "-last");
  const base::Status status = why_not(where());
  EXPECT_EQ(status.code, Code::kIo);
  EXPECT_TRUE(status.text.starts_with("journal's " + path() + "-last can't be opened"))
      << status.text;
}

TEST_F(StoreTest, damaged_rows_reach_the_walk_which_names_them) {
  auto store = open();
  ASSERT_TRUE(store->append(wire::sample_rows(5)).ok());
  store.reset();
  sql("UPDATE journal SET payload = x'0102' WHERE sequence = 3");
  const base::Status status = wire::walk(open()->load().value(), nullptr).status();
  EXPECT_EQ(status.code, Code::kDamaged);
  EXPECT_TRUE(status.text.starts_with("journal row 3: its CRC32C differs")) << status.text;
  sql("UPDATE journal SET crc = crc + 4294967296 WHERE sequence = 2");
  EXPECT_EQ(open()->load().status().code, Code::kDamaged);
}

TEST_F(StoreTest, a_repeated_sequence_is_refused_and_ends_the_store) {
  auto store = open();
  ASSERT_TRUE(store->append(wire::sample_rows(3)).ok());
  EXPECT_EQ(store->append(part(wire::sample_rows(4), 2, 4)).code, Code::kDamaged);
  EXPECT_EQ(store->append(part(wire::sample_rows(4), 3, 4)).code, Code::kDamaged);
  store.reset();
  EXPECT_EQ(open()->load().value(), wire::sample_rows(3));  // nothing of the failed transaction
}

TEST_F(StoreTest, files_that_are_not_a_journal_are_refused_and_left_alone) {
  const std::string text(5000, 'x');
  std::ofstream(path()) << text;
  EXPECT_EQ(why_not(where()).code, Code::kDamaged);
  std::ifstream file(path());
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), text);
  std::filesystem::remove(path());
  sql("CREATE TABLE journal(sequence INTEGER PRIMARY KEY); PRAGMA application_id = 7");
  const base::Status status = why_not(where());
  EXPECT_EQ(status.code, Code::kDamaged);
  EXPECT_NE(status.text.find("another program's database"), std::string::npos) << status.text;
  std::filesystem::remove(path());
  open().reset();
  sql("PRAGMA user_version = 2");
  EXPECT_EQ(why_not(where()).code, Code::kVersion);
}

TEST_F(StoreTest, an_empty_file_becomes_a_journal) {
  std::ofstream(path()).close();
  EXPECT_TRUE(open()->append(wire::sample_rows(1)).ok());
}

TEST_F(StoreTest, damaged_pages_are_reported_not_skipped) {
  auto store = open();
  for (const wire::Row& row : wire::sample_rows(400)) ASSERT_TRUE(store->append({row}).ok());
  store.reset();
  std::fstream file(path(), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(2 * 4096);
  file << std::string(4096, '\xEE');
  file.close();
  const base::Result<std::unique_ptr<StateStore>> opened = open_store(where());
  const base::Status status = opened.ok() ? opened.value()->load().status() : opened.status();
  EXPECT_EQ(status.code, Code::kDamaged) << status.text;
}

TEST_F(StoreTest, places_that_cannot_hold_a_file_are_named) {
  for (const std::string& bad : {(folder_ / "missing" / "run.db").string(), folder_.string(),
                                 std::string("/proc/jccl.db")}) {
    const base::Status status = why_not("sqlite:" + bad);
    EXPECT_EQ(status.code, Code::kIo) << bad;
    EXPECT_NE(status.text.find(bad), std::string::npos) << status.text;
  }
  EXPECT_EQ(why_not("sqlite:").code, Code::kInvalid);
  EXPECT_EQ(why_not("file:x").text, "store 'file:x': give sqlite:PATH, etcd://… or memory:");
}

TEST_F(StoreTest, a_read_only_journal_is_refused_at_the_start) {
  open().reset();
  std::filesystem::permissions(folder_, std::filesystem::perms(0777));
  std::filesystem::permissions(path(), std::filesystem::perms(0444));
  const pid_t child = fork();
  if (child == 0) {
    if (geteuid() == 0 && seteuid(65534) != 0) _exit(2);  // the superuser may write everywhere
    const base::Status status = why_not(where());
    _exit(status.code == Code::kIo && status.text.ends_with("the right to write it") ? 0 : 1);
  }
  int exit_status = -1;
  ASSERT_EQ(waitpid(child, &exit_status, 0), child);
  EXPECT_EQ(exit_status, 0);
}

// A full disk, by the limit of file sizes: the append that doesn't fit fails, so does every later
// one, and after reopening exactly the acknowledged rows are there.
TEST_F(StoreTest, a_full_disk_ends_the_store_and_loses_nothing_acknowledged) {
  auto store = open();
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 128 * 1024;
  setrlimit(RLIMIT_FSIZE, &small);
  const std::vector<wire::Row> rows = wire::sample_rows(1000);
  std::size_t acknowledged = 0;
  while (acknowledged < rows.size() && store->append({rows[acknowledged]}).ok()) ++acknowledged;
  const base::Status again = store->append({rows.back()});
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, SIG_DFL);
  ASSERT_GT(acknowledged, 0U);
  ASSERT_LT(acknowledged, rows.size());
  EXPECT_EQ(again.code, Code::kIo);
  EXPECT_EQ(store->append({rows.back()}).code, Code::kIo);  // also with room again
  store.reset();
  EXPECT_EQ(open()->load().value(), part(rows, 0, acknowledged));
}

TEST(MemoryStoreTest, it_holds_rows_for_as_long_as_it_lives) {
  auto store = std::move(open_store("memory:").value());
  ASSERT_TRUE(store->append(wire::sample_rows(3)).ok());
  ASSERT_TRUE(store->truncate(2).ok());
  EXPECT_EQ(store->load().value(), wire::sample_rows(2));
}

}  // namespace
}  // namespace jccl::master
