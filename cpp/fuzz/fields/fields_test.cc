// The table of fields against PROTOCOL.md, against the code that reads the bytes, and against the
// page that is made of it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "base/text.h"
#include "fuzz/fields/bender.h"
#include "fuzz/fields/fields_table.h"
#include "fuzz/targets/introduction_judge.h"
#include "net/security/seal.h"
#include "wire/serialize.h"

namespace jccl::fuzz {
namespace {

std::filesystem::path wire_folder() {
  return std::filesystem::path(JCCL_TEST_DATA) / ".." / ".." / "cpp" / "wire";
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string cell_of(const std::string& line, int which) {
  std::istringstream in(line);
  std::string cell;
  for (int i = 0; i <= which; ++i) std::getline(in, cell, '|');
  const std::size_t first = cell.find_first_not_of(" `");
  const std::size_t last = cell.find_last_not_of(" `");
  return first == std::string::npos ? "" : cell.substr(first, last - first + 1);
}

// Rows of PROTOCOL.md as "owner.field type": of "### Name = 1", of "### `part`", and of the tables
// whose first heading names what they describe ("| link hello, 50 bytes | type | …").
std::vector<std::string> documented() {
  std::istringstream text(text_of(wire_folder() / "PROTOCOL.md"));
  std::vector<std::string> rows;
  std::string owner;
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("#")) {
      owner = line.starts_with("### ") ? line.substr(4, line.find(" =") - 4) : "";
      std::erase(owner, '`');
    } else if (!line.starts_with("|")) {
      continue;
    } else if (cell_of(line, 2) == "type") {
      const std::string named = cell_of(line, 1);
      if (named != "field") owner = named.substr(0, named.find(','));
    } else if (!owner.empty() && !line.starts_with("|---") && line.find("| `") < line.size()) {
      rows.push_back(base::cat(owner, ".", cell_of(line, 1), " ", cell_of(line, 2)));
    }
  }
  return rows;
}

std::vector<std::string> listed() {
  std::vector<std::string> rows;
  for (const auto* all : {&fields_of_connections(), &fields_of_parts(), &fields_to_master(),
                          &fields_to_peer(), &fields_of_links(), &fields_of_journal()}) {
    for (const FieldsOf& one : *all) {
      for (const FieldRow& row : one.rows) {
        rows.push_back(base::cat(one.owner, ".", row.field, " ", row.type));
      }
    }
  }
  return rows;
}

TEST(FieldsTest, every_field_of_the_protocol_has_a_row_and_every_row_a_field) {
  std::vector<std::string> in_page = documented(), in_table = listed();
  EXPECT_GT(in_page.size(), 150u) << "the tables of PROTOCOL.md are not read";
  std::sort(in_page.begin(), in_page.end());
  std::sort(in_table.begin(), in_table.end());
  std::vector<std::string> missing, extra;
  std::set_difference(in_page.begin(), in_page.end(), in_table.begin(), in_table.end(),
                      std::back_inserter(missing));
  std::set_difference(in_table.begin(), in_table.end(), in_page.begin(), in_page.end(),
                      std::back_inserter(extra));
  for (const std::string& row : missing) {
    ADD_FAILURE() << row
                  << " has no row in cpp/fuzz/fields/fields_*.cc: who may send it, its bound, "
                  << "what happens otherwise";
  }
  for (const std::string& row : extra) ADD_FAILURE() << row << " is not in PROTOCOL.md";
}

TEST(FieldsTest, the_rows_of_a_message_are_the_fields_that_its_bytes_have) {
#define X(name, number) EXPECT_EQ(bends_of(#name).size(), count_fields(wire::name{})) << #name;
  JCCL_MESSAGES(X) JCCL_RECORDS(X)
#undef X
}

// Of a table whose second heading is another, no row would be looked for.
TEST(FieldsTest, every_table_of_the_protocol_but_these_is_one_of_fields) {
  const std::set<std::string> others = {"type", "number", "kind", "frame"};
  std::istringstream text(text_of(wire_folder() / "PROTOCOL.md"));
  std::set<std::string> seen;
  std::string before;
  for (std::string line; std::getline(text, line); before = line) {
    if (!line.starts_with("|---") || cell_of(before, 2) == "type") continue;
    const std::string first = cell_of(before, 1);
    EXPECT_TRUE(others.contains(first) && seen.insert(first).second)
        << before << ": name its rows' types in the second column";
  }
}

// Bytes of a row's type; of a name those of an empty one.
std::size_t bytes_of(std::string_view type) {
  if (type == "introduction head") return 8;
  if (type == "run") return 16;
  if (type.starts_with("name ")) return 2;
  const std::size_t digits = type.find_first_of("0123456789");
  const std::size_t n = std::stoul(std::string(type.substr(std::min(digits, type.size() - 1))));
  return type.starts_with("u") ? n / 8 : n;
}

std::size_t bytes_of_rows(std::string_view owner) {
  std::size_t sum = 0;
  for (const FieldRow& row : fields_of(owner)->rows) {
    if (row.type != "n bytes") sum += bytes_of(row.type);
  }
  return sum;
}

TEST(FieldsTest, the_rows_of_an_introduction_and_of_a_record_are_all_their_bytes) {
  const std::vector<Bytes> said = honest_introduction();
  ASSERT_EQ(said.size(), 3u);
  EXPECT_EQ(bytes_of_rows("introduction head"), bytes_of("introduction head"));
  EXPECT_EQ(bytes_of_rows("greeting"), said[0].size());
  EXPECT_EQ(bytes_of_rows("answer"), said[1].size());
  EXPECT_EQ(bytes_of_rows("proof"), said[2].size());
  EXPECT_EQ(bytes_of_rows("sealed record"), net::kSealOverhead);
}

TEST(FieldsTest, the_rows_of_a_token_s_name_are_its_parts) {
  const std::string name = net::to_text(net::new_rights().value());
  const auto parts = std::count(name.begin(), name.end(), '-') + 1;
  EXPECT_EQ(std::ssize(fields_of("token name")->rows), parts) << name;
}

TEST(FieldsTest, every_row_says_what_is_accepted_and_what_happens_otherwise) {
  for (const auto* all :
       {&fields_of_connections(), &fields_of_parts(), &fields_to_master(), &fields_to_peer(),
        &fields_of_links(), &fields_of_journal(), &fields_of_texts()}) {
    for (const FieldsOf& one : *all) {
      EXPECT_TRUE(all == &fields_of_parts() || !one.sender.empty()) << one.owner;
      for (const FieldRow& row : one.rows) {
        EXPECT_FALSE(row.bound.empty() || row.otherwise.empty()) << one.owner << "." << row.field;
      }
    }
  }
}

TEST(FieldsTest, the_page_is_made_of_the_table) {
  const std::filesystem::path page = wire_folder() / "FIELDS.md";
  const char* rewrite = std::getenv("JCCL_REWRITE");
  if (rewrite != nullptr && *rewrite == '1') std::ofstream(page) << fields_markdown();
  EXPECT_EQ(text_of(page), fields_markdown()) << "JCCL_REWRITE=1 writes it";
}

}  // namespace
}  // namespace jccl::fuzz
