#include "master/last_record.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "master/test_folder.h"

namespace jccl::master {
namespace {

struct LastRecordTest : FolderTest {
  std::string path() const { return (folder_ / "last").string(); }
  void note(std::uint64_t first, std::uint64_t last) const {
    LastRecord record;
    ASSERT_TRUE(record.open(path()).ok());
    for (std::uint64_t n = first; n <= last; ++n) {
      ASSERT_TRUE(record.note(n, static_cast<std::uint32_t>(100 + n)).ok());
    }
  }
  std::uint64_t known() const {
    LastRecord record;
    EXPECT_TRUE(record.open(path()).ok());
    if (record.sequence() != 0) {
      EXPECT_EQ(record.crc(), 100 + record.sequence());
    }
    return record.sequence();
  }
};

TEST_F(LastRecordTest, the_newer_of_two_notes_counts_wherever_it_stands) {
  EXPECT_EQ(known(), 0u);
  for (std::uint64_t n = 1; n <= 4; ++n) {
    note(n, n);
    EXPECT_EQ(known(), n);
  }
}

// Torn by a power failure while it was written.
TEST_F(LastRecordTest, a_note_that_was_torn_leaves_the_one_before_it) {
  for (const std::uint64_t last : {7, 8}) {
    note(1, last);
    std::fstream file(path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(last % 2 * 64 + 9));
    file.put('\x55');
    file.close();
    EXPECT_EQ(known(), last - 1);
  }
}

}  // namespace
}  // namespace jccl::master
