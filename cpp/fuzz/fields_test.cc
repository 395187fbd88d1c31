// The table of fields against PROTOCOL.md, against the code that reads the bytes, and against the
// page that is made of it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/text.h"
#include "fuzz/bender.h"
#include "fuzz/fields_table.h"
#include "wire/codec.h"

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
  for (const auto* all : {&fields_of_parts(), &fields_to_master(), &fields_to_peer(),
                          &fields_of_links(), &fields_of_journal()}) {
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
    ADD_FAILURE() << row << " has no row in cpp/fuzz/fields_*.cc: who may send it, its bound, "
                  << "what happens otherwise";
  }
  for (const std::string& row : extra) ADD_FAILURE() << row << " is not in PROTOCOL.md";
}

TEST(FieldsTest, the_rows_of_a_message_are_the_fields_that_its_bytes_have) {
#define X(name, number) EXPECT_EQ(bends_of(#name).size(), count_fields(wire::name{})) << #name;
  JCCL_MESSAGES(X) JCCL_RECORDS(X)
#undef X
}

TEST(FieldsTest, every_row_says_what_is_accepted_and_what_happens_otherwise) {
  for (const auto* all : {&fields_of_parts(), &fields_to_master(), &fields_to_peer(),
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
