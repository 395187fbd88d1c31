// A folder of its own for each test, gone with it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/check.h"

namespace jccl::master {

// For thousands of openings: in memory, where a file system for that is there.
inline std::filesystem::path memory_or_disk() {
  const char* memory = "/dev/shm";
  return ::access(memory, W_OK) == 0 ? memory : std::filesystem::temp_directory_path();
}

class FolderTest : public testing::Test {
 protected:
  explicit FolderTest(const std::filesystem::path& home = std::filesystem::temp_directory_path()) {
    std::string pattern = (home / "jccl-test-XXXXXX").string();
    JCCL_CHECK(::mkdtemp(pattern.data()) != nullptr);
    folder_ = pattern;
  }
  ~FolderTest() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
};

}  // namespace jccl::master
