// Runs scenarios/*.txt: commands, `----`, what must happen; a blank line ends a block and the next
// one continues in the same world. JCCL_REWRITE=1 writes what happened; the diff is then read.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "protocol/scenario_world.h"

namespace jccl::protocol {
namespace {

std::vector<std::string> scenario_files() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(JCCL_SCENARIOS)) {
    if (entry.path().extension() == ".txt") files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// The whole file again, with what really happened under each `----`.
std::string play(const std::string& path) {
  ScenarioWorld world;
  std::ifstream in(path);
  std::string out, happened;
  bool expecting = false;
  for (std::string line; std::getline(in, line);) {
    if (expecting) {
      if (!line.empty()) continue;  // the old expectation
      expecting = false;
    }
    out += line + "\n";
    if (line == "----") {
      out += happened;
      happened.clear();
      expecting = true;
    } else if (!line.empty() && line[0] != '#') {
      happened += world.run(line);
    }
  }
  EXPECT_EQ(world.replayed(), "") << path;
  EXPECT_GT(world.replayed_events(), 0U) << path;
  return out;
}

class ScenarioTest : public testing::TestWithParam<std::string> {};

TEST_P(ScenarioTest, happens_as_written) {
  std::ifstream in(GetParam());
  std::stringstream written;
  written << in.rdbuf();
  const std::string happened = play(GetParam());
  if (std::getenv("JCCL_REWRITE") != nullptr) {
    std::ofstream(GetParam()) << happened;
    return;
  }
  EXPECT_EQ(written.str(), happened);
  EXPECT_NE(written.str().find("----"), std::string::npos) << "expects nothing";
}

TEST(ScenarioFiles, a_scenario_gives_the_same_text_twice) {
  for (const std::string& file : scenario_files()) EXPECT_EQ(play(file), play(file)) << file;
}

TEST(ScenarioFiles, there_are_scenarios) { EXPECT_GE(scenario_files().size(), 25U); }

INSTANTIATE_TEST_SUITE_P(Files, ScenarioTest, testing::ValuesIn(scenario_files()),
                         [](const auto& info) {
                           std::string name = std::filesystem::path(info.param).stem().string();
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace jccl::protocol
