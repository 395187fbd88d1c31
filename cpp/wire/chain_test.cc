#include "wire/chain.h"

#include <gtest/gtest.h>

#include "wire/samples.h"

namespace jccl::wire {
namespace {

struct Journal {
  std::vector<Record> records;
  std::vector<Row> rows;
};

Journal journal_of(std::size_t size) {
  Journal journal;
  ChainWriter writer;
  const std::vector<Record> samples = sample_records();
  for (std::size_t i = 0; i < size; ++i) {
    Record record = i == 0 ? samples[0] : samples[1 + (i - 1) % (samples.size() - 1)];
    if (auto* epoch = std::get_if<EpochRecord>(&record)) epoch->epoch = i;
    journal.records.push_back(record);
    journal.rows.push_back(writer.append(record));
  }
  return journal;
}

TEST(ChainTest, every_prefix_is_a_journal_and_goes_on_as_if_never_cut) {
  const Journal whole = journal_of(30);
  for (std::size_t size = 0; size <= 30; ++size) {
    std::vector<Row> rows(whole.rows.begin(), whole.rows.begin() + static_cast<long>(size));
    base::Result<Chain> chain = walk(rows, nullptr);
    ASSERT_TRUE(chain.ok()) << size << ": " << chain.status().text;
    const std::vector<Record> expected(whole.records.begin(),
                                       whole.records.begin() + static_cast<long>(size));
    EXPECT_TRUE(chain.value().records == expected) << size;
    EXPECT_EQ(chain.value().cut_rows, 0U);
    if (size == 30) break;
    EXPECT_EQ(chain.value().writer.append(whole.records[size]), whole.rows[size]);
  }
}

// Flips one bit of a row's stored form: sequence, payload, crc, previous.
void flip(Row& row, std::size_t bit) {
  const auto mask = [](std::size_t b) { return std::uint64_t{1} << b; };
  if (bit < 64) {
    row.sequence ^= mask(bit);
  } else if (bit < 128) {
    row.previous ^= mask(bit - 64);
  } else if (bit < 160) {
    row.crc ^= static_cast<std::uint32_t>(mask(bit - 128));
  } else {
    row.payload[(bit - 160) / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
  }
}

TEST(ChainTest, any_flipped_bit_is_cut_from_the_tail_or_refused_by_the_name_of_its_row) {
  const Journal whole = journal_of(30);
  for (std::size_t at = 0; at < whole.rows.size(); ++at) {
    for (std::size_t bit = 0; bit < 160 + whole.rows[at].payload.size() * 8; ++bit) {
      std::vector<Row> rows = whole.rows;
      flip(rows[at], bit);
      const base::Result<Chain> chain = walk(rows, nullptr);
      if (at + 1 == rows.size()) {
        ASSERT_TRUE(chain.ok()) << bit;
        EXPECT_EQ(chain.value().cut_rows, 1U);
        EXPECT_EQ(chain.value().records.size(), 29U);
      } else {
        ASSERT_FALSE(chain.ok()) << at << ' ' << bit;
        EXPECT_EQ(chain.status().code, Code::kDamaged);
        const std::string name = "journal row " + std::to_string(at + 1) + ":";
        EXPECT_TRUE(chain.status().text.starts_with(name)) << chain.status().text;
      }
    }
  }
}

TEST(ChainTest, a_shortened_last_payload_is_a_torn_tail) {
  std::vector<Row> rows = journal_of(5).rows;
  while (!rows.back().payload.empty()) {
    rows.back().payload.pop_back();
    const base::Result<Chain> chain = walk(rows, nullptr);
    ASSERT_TRUE(chain.ok());
    EXPECT_EQ(chain.value().cut_rows, 1U);
  }
}

TEST(ChainTest, a_missing_a_swapped_and_a_repeated_row_are_refused) {
  const std::vector<Row> rows = journal_of(5).rows;
  std::vector<Row> missing = rows;
  missing.erase(missing.begin() + 2);
  EXPECT_EQ(walk(missing, nullptr).status().text,
            "journal row 3: a row is missing (found sequence 4); restore the journal from a copy "
            "or start a new run");
  std::vector<Row> swapped = rows;
  std::swap(swapped[3], swapped[4]);
  EXPECT_EQ(walk(swapped, nullptr).status().code, Code::kDamaged);
  std::vector<Row> repeated = rows;
  repeated.push_back(rows.back());
  EXPECT_EQ(walk(repeated, nullptr).status().code, Code::kDamaged);
}

TEST(ChainTest, a_whole_last_row_of_another_journal_is_refused_not_cut) {
  std::vector<Row> rows = journal_of(4).rows;
  rows.push_back(ChainWriter(4, 12345).append(StateRecord{"model", 1, false, {{1, 1}}}));
  EXPECT_EQ(walk(rows, nullptr).status().text,
            "journal row 5: it does not follow the row before it; restore the journal from a copy "
            "or start a new run");
}

TEST(ChainTest, the_first_record_and_only_the_first_names_the_run) {
  ChainWriter headless;
  EXPECT_EQ(
      walk({headless.append(StateRecord{"model", 1, false, {{1, 1}}})}, nullptr).status().code,
      Code::kDamaged);
  ChainWriter twice;
  const Row first = twice.append(RunRecord{sample_run()});
  EXPECT_EQ(walk({first, twice.append(RunRecord{sample_run()})}, nullptr).status().code,
            Code::kDamaged);
}

TEST(ChainTest, another_run_or_another_version_is_refused) {
  const std::vector<Row> rows = journal_of(3).rows;
  const RunId mine = sample_run();
  const RunId other{1, 2, 3};
  EXPECT_TRUE(walk(rows, &mine).ok());
  EXPECT_EQ(walk(rows, &other).status().code, Code::kWrongRun);
  ChainWriter writer;
  EXPECT_EQ(walk({writer.append(RunRecord{mine, kVersion + 1})}, nullptr).status().code,
            Code::kVersion);
  ChainWriter older;
  EXPECT_EQ(walk({older.append(RunRecord{mine, kVersion - 1})}, nullptr).status().code,
            Code::kVersion);
}

}  // namespace
}  // namespace jccl::wire
