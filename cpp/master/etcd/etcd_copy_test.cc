#include "master/etcd/etcd_copy.h"

#include <gtest/gtest.h>

namespace jccl::master {
namespace {

using base::Code;

std::string rows_of(std::uint64_t first, std::size_t count = 1) {
  std::vector<wire::Row> rows(count);
  for (std::size_t i = 0; i < count; ++i) rows[i].sequence = first + i, rows[i].payload = {1};
  return encode_rows(rows);
}

struct EtcdCopyTest : testing::Test {
  EtcdKeys keys{"/run"};
  EtcdCopy copy{keys};

  // What etcd answers: no leader, the journal's key unless `mod` is 0, and these rows.
  EtcdReply reply(std::uint64_t mod, std::vector<EtcdPair> rows, std::string format = "") const {
    EtcdReply out;
    out.revision = 9;
    out.found.resize(3);
    if (format.empty()) format = std::string(kEtcdFormat);
    if (mod != 0) out.found[1].pairs.push_back({keys.journal, format, mod, mod});
    out.found[2].pairs = std::move(rows);
    return out;
  }
  EtcdPair group(std::uint64_t first, const std::string& value) const {
    return {keys.row(first), value, 7, 7};
  }
};

TEST_F(EtcdCopyTest, rows_are_read_once_and_in_order) {
  ASSERT_TRUE(copy.take(reply(3, {group(1, rows_of(1, 2)), group(3, rows_of(3))})).ok());
  ASSERT_TRUE(copy.take(reply(3, {group(4, rows_of(4))})).ok());
  const auto rows = copy.take_rows();
  ASSERT_EQ(rows.size(), 4u);
  for (std::size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(rows[i].sequence, i + 1);
}

TEST_F(EtcdCopyTest, a_row_that_is_missing_is_missed) {
  EXPECT_EQ(copy.take(reply(3, {group(2, rows_of(2))})).status().code, Code::kDamaged);
  EtcdCopy other{keys};
  const auto gap = other.take(reply(3, {group(1, rows_of(1)), group(3, rows_of(2))}));
  EXPECT_EQ(gap.status().code, Code::kDamaged);
}

TEST_F(EtcdCopyTest, rows_of_one_key_are_in_sequence) {
  EXPECT_EQ(copy.take(reply(3, {group(1, rows_of(2))})).status().code, Code::kDamaged);
}

TEST_F(EtcdCopyTest, a_journal_that_was_begun_anew_is_read_anew) {
  ASSERT_TRUE(copy.take(reply(3, {group(1, rows_of(1, 2))})).ok());
  const auto again = copy.take(reply(8, {}));
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(again.value()) << "there is more to read";
  EXPECT_TRUE(copy.groups().empty());
  ASSERT_TRUE(copy.take(reply(8, {group(1, rows_of(1))})).ok());
  EXPECT_EQ(copy.take_rows().size(), 1u);
}

TEST_F(EtcdCopyTest, rows_without_their_journal_and_keys_of_another_program_are_refused) {
  EXPECT_EQ(copy.take(reply(0, {group(1, rows_of(1))})).status().code, Code::kDamaged);
  EXPECT_EQ(copy.take(reply(3, {}, "something else")).status().code, Code::kVersion);
  EXPECT_TRUE(copy.take(reply(0, {})).ok());
}

}  // namespace
}  // namespace jccl::master
