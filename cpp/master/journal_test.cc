#include "master/journal.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <filesystem>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "master/test_folder.h"
#include "wire/samples.h"

namespace jccl::master {
namespace {

using base::Code;

class JournalTest : public FolderTest {
 protected:
  std::string where(const std::string& name) const { return "sqlite:" + (folder_ / name).string(); }
  void write(const std::string& name, const std::vector<wire::Row>& rows) {
    auto store = open_store(where(name));
    ASSERT_TRUE(store.ok()) << store.status().text;
    ASSERT_TRUE(store.value()->append(rows).ok());
  }
  std::vector<wire::Row> rows_of(const std::string& name) {
    return open_store(where(name)).value()->load().value();
  }
};

// Two rounds of one peer.
std::vector<wire::Row> a_run() {
  wire::CommitRecord commit;
  commit.attempt = {1, 1};
  commit.round = {"grads", 1};
  commit.contributors = {{4, 1.0}};
  wire::CommitRecord next = commit;
  next.attempt = {1, 2};
  next.round.n = 2;
  wire::EpochRecord epoch;
  epoch.epoch = 1;
  epoch.next_id = 5;
  epoch.members = {wire::sample_member(4)};
  wire::ChainWriter writer;
  std::vector<wire::Row> rows;
  for (const wire::Record& record : std::vector<wire::Record>{
           wire::RunRecord{wire::sample_run(), wire::kVersion}, epoch, commit, next}) {
    rows.push_back(writer.append(record));
  }
  return rows;
}

TEST_F(JournalTest, a_summary_says_whose_it_is_and_how_far_it_goes) {
  write("run.db", a_run());
  const auto text = journal_summary(where("run.db"), {});
  ASSERT_TRUE(text.ok()) << text.status().text;
  const auto found = boost::json::parse(text.value()).as_object();
  EXPECT_EQ(found.at("rows").to_number<int>(), 4);
  EXPECT_EQ(found.at("torn_rows").to_number<int>(), 0);
  EXPECT_EQ(found.at("run").as_string(), base::to_hex(wire::sample_run()));
  EXPECT_EQ(found.at("epoch").to_number<int>(), 1);
  EXPECT_EQ(found.at("members").as_array().size(), 1U);
  const auto& tag = found.at("tags").as_array().at(0).as_object();
  EXPECT_EQ(tag.at("tag").as_string(), "grads");
  EXPECT_EQ(tag.at("committed").to_number<int>(), 2);
}

TEST_F(JournalTest, a_torn_row_is_counted_and_stays_and_is_not_copied) {
  std::vector<wire::Row> rows = a_run();
  rows.back().crc ^= 1;
  write("run.db", rows);
  const auto found = boost::json::parse(journal_summary(where("run.db"), {}).value()).as_object();
  EXPECT_EQ(found.at("rows").to_number<int>(), 3);
  EXPECT_EQ(found.at("torn_rows").to_number<int>(), 1);
  ASSERT_EQ(copy_journal(where("run.db"), where("copy.db"), {}).value(), 3U);
  EXPECT_EQ(rows_of("run.db"), rows);
  rows.pop_back();
  EXPECT_EQ(rows_of("copy.db"), rows);
}

TEST_F(JournalTest, a_damaged_row_is_named_and_nothing_is_copied) {
  std::vector<wire::Row> rows = wire::sample_rows(9);
  rows[3].payload[0] ^= 1;
  write("run.db", rows);
  for (const auto& status :
       {journal_summary(where("run.db"), {}).status(),
        copy_journal(where("run.db"), where("copy.db"), {}).status(),
        export_journal(where("run.db"), {}, [](const std::string&) { return true; })}) {
    EXPECT_EQ(status.code, Code::kDamaged);
    EXPECT_NE(status.text.find("row 4"), std::string::npos) << status.text;
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "copy.db"));
}

TEST_F(JournalTest, a_copy_goes_into_an_empty_place_alone) {
  write("run.db", wire::sample_rows(600));
  write("other.db", wire::sample_rows(2));
  const auto onto = copy_journal(where("run.db"), where("other.db"), {}).status();
  EXPECT_EQ(onto.code, Code::kInvalid);
  EXPECT_NE(onto.text.find("has 2 rows already"), std::string::npos) << onto.text;
  EXPECT_EQ(rows_of("other.db").size(), 2U);
  EXPECT_EQ(copy_journal(where("run.db"), where("copy.db"), {}).value(), 600U);
  EXPECT_EQ(rows_of("copy.db"), rows_of("run.db"));
  EXPECT_EQ(copy_journal(where("run.db"), "memory:", {}).status().code, Code::kInvalid);
}

TEST_F(JournalTest, what_is_not_there_is_not_made_and_what_a_master_has_is_left_alone) {
  EXPECT_EQ(journal_summary(where("none.db"), {}).status().code, Code::kInvalid);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "none.db"));
  write("run.db", wire::sample_rows(3));
  const auto held = open_store(where("run.db"));
  const auto status = journal_summary(where("run.db"), {}).status();
  EXPECT_EQ(status.code, Code::kIo);
  EXPECT_NE(status.text.find("in use by another master"), std::string::npos) << status.text;
}

TEST_F(JournalTest, every_record_is_a_line_with_its_row_and_kind) {
  const auto records = wire::sample_records();
  wire::ChainWriter writer;
  std::vector<wire::Row> rows;
  for (const wire::Record& record : records) rows.push_back(writer.append(record));
  write("run.db", rows);
  std::vector<std::string> lines;
  std::set<std::string> kinds;
  ASSERT_TRUE(export_journal(where("run.db"), {}, [&](const std::string& line) {
                lines.push_back(line);
                return true;
              }).ok());
  ASSERT_EQ(lines.size(), records.size());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto one = boost::json::parse(lines[i]).as_object();
    EXPECT_EQ(one.at("row").to_number<std::size_t>(), i + 1);
    kinds.insert(std::string(one.at("kind").as_string()));
    EXPECT_EQ(lines[i].find('\n'), std::string::npos);
    if (const auto* commit = std::get_if<wire::CommitRecord>(&records[i])) {
      EXPECT_EQ(one.at("n").to_number<std::uint64_t>(), commit->round.n);
      EXPECT_EQ(one.at("result").as_string(), base::to_hex(commit->result));
      EXPECT_EQ(one.at("contributors").as_array().size(), commit->contributors.size());
    }
  }
  EXPECT_EQ(kinds.size(), std::variant_size_v<wire::Record>);
  EXPECT_EQ(export_journal(where("run.db"), {}, [](const std::string&) { return false; }).code,
            Code::kAborted);
}

}  // namespace
}  // namespace jccl::master
