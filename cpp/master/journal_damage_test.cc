// The SQLite journal of a small run, every file of it cut at every byte and with a bit flipped in
// every byte: what opens holds every acknowledged record as it was, or the journal is refused and
// the text says which. JCCL_EVERY_BIT=1 flips all eight bits.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/sanitized.h"
#include "base/text.h"
#include "master/store.h"
#include "master/test_folder.h"
#include "wire/samples.h"

namespace jccl::master {
namespace {

using base::Code;

constexpr std::size_t kRows = 5;
constexpr std::size_t kStep = base::kSanitized ? 7 : 1;  // bytes; an opening costs much more

using Image = std::map<std::string, std::string>;  // suffix of the file, its bytes

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class JournalDamageTest : public FolderTest {
 protected:
  JournalDamageTest() : FolderTest(memory_or_disk()) {}

  std::string path() const { return (folder_ / "run.db").string(); }

  // What a master leaves that acknowledged kRows and was killed, or stopped.
  Image image(bool killed) {
    const pid_t child = fork();
    if (child == 0) {
      auto store = std::move(open_store("sqlite:" + path()).value());
      for (const wire::Row& row : wire::sample_rows(kRows)) {
        if (!store->append({row}).ok()) _exit(1);
      }
      if (killed) _exit(0);
      store.reset();
      _exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    Image files;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      const std::string suffix = entry.path().filename().string().substr(6);
      files[suffix] = read_file(entry.path());
    }
    return files;
  }

  void restore(const Image& files) {
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      std::filesystem::remove(entry.path());
    }
    for (const auto& [suffix, bytes] : files) {
      std::ofstream(path() + suffix, std::ios::binary).write(bytes.data(), long(bytes.size()));
    }
  }

  // The records that a master would go on with, or why it would not.
  base::Result<std::size_t> reopen() {
    auto store = open_store("sqlite:" + path());
    if (!store.ok()) return store.status();
    auto rows = store.value()->load();
    if (!rows.ok()) return rows.status();
    const auto chain = wire::walk(rows.value(), nullptr);
    if (!chain.ok()) return chain.status();
    const std::size_t kept = rows.value().size() - chain.value().cut_rows;
    if (chain.value().cut_rows > 0) {
      const base::Status cut = store.value()->truncate(kept);
      if (!cut.ok()) return cut;
    }
    const std::vector<wire::Row> told = wire::sample_rows(kRows);
    for (std::size_t i = 0; i < kept; ++i) {
      EXPECT_TRUE(i < told.size() && rows.value()[i] == told[i]) << "another history";
    }
    return kept;
  }

  // At least `least` records, or a refusal that names the journal or the record.
  void judge(const Image& files, std::size_t least, const std::string& what) {
    restore(files);
    const auto kept = reopen();
    if (kept.ok()) {
      ++(kept.value() < kRows ? cut_ : whole_);
      if (kept.value() < least) ++lost_, ADD_FAILURE() << what << ": " << kept.value() << " left";
      return;
    }
    ++refused_;
    const std::string& text = kept.status().text;
    EXPECT_TRUE(text.find("journal") != std::string::npos) << what << ": " << text;
    EXPECT_TRUE(kept.status().code == Code::kDamaged || kept.status().code == Code::kVersion ||
                kept.status().code == Code::kIo)
        << what << ": " << text;
  }

  void flip_everywhere(const Image& files, std::size_t least) {
    const bool every_bit = std::getenv("JCCL_EVERY_BIT") != nullptr;
    for (const auto& [suffix, bytes] : files) {
      for (std::size_t at = 0; at < bytes.size(); at += kStep) {
        for (unsigned bit = 0; bit < 8; ++bit) {
          if (!every_bit && bit != (at * 5) % 8) continue;
          Image damaged = files;
          damaged[suffix][at] = static_cast<char>(damaged[suffix][at] ^ (1 << bit));
          judge(damaged, least, base::cat("flip of bit ", bit, " of byte ", at, " of ", suffix));
        }
      }
    }
  }

  void cut_everywhere(const Image& files, std::size_t least) {
    for (const auto& [suffix, bytes] : files) {
      for (std::size_t size = 0; size < bytes.size(); size += kStep) {
        Image damaged = files;
        damaged[suffix].resize(size);
        judge(damaged, least, base::cat(suffix, " cut to ", size));
      }
      Image without = files;
      without.erase(suffix);
      if (!suffix.empty()) judge(without, least, suffix + " is gone");
    }
  }

  void report(const char* what) const {
    std::printf("%s: %zu openings whole, %zu refused, %zu cut, %zu lost\n", what, whole_, refused_,
                cut_, lost_);
  }

  std::size_t whole_ = 0, cut_ = 0, refused_ = 0, lost_ = 0;
};

TEST_F(JournalDamageTest, a_flipped_bit_in_a_killed_masters_journal_loses_nothing_in_silence) {
  flip_everywhere(image(true), kRows);
  report("flips after a kill");
}

TEST_F(JournalDamageTest, a_flipped_bit_in_a_stopped_masters_journal_loses_nothing_in_silence) {
  flip_everywhere(image(false), kRows);
  report("flips after a stop");
}

// The last append was not acknowledged when the power went: its part of the log may be there, or be
// torn anywhere.
TEST_F(JournalDamageTest, a_torn_last_append_is_cut_and_nothing_else) {
  const Image acknowledged = image(true);
  const pid_t child = fork();
  if (child == 0) {
    auto store = std::move(open_store("sqlite:" + path()).value());
    _exit(store->append({wire::sample_rows(kRows + 1).back()}).ok() ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  ASSERT_EQ(status, 0);
  Image torn = acknowledged;
  torn[""] = read_file(path());
  const std::string log = read_file(path() + "-wal");
  for (std::size_t size = 0; size < log.size(); size += kStep) {
    torn["-wal"] = log.substr(0, size);
    judge(torn, kRows, base::cat("torn at ", size));
  }
  report("torn appends");
}

TEST_F(JournalDamageTest, a_journal_that_was_cut_short_loses_nothing_in_silence) {
  const Image killed = image(true);
  cut_everywhere(killed, kRows);
  restore({});
  cut_everywhere(image(false), kRows);
  report("cuts");
}

}  // namespace
}  // namespace jccl::master
