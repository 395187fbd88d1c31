// Stored inputs of a target: many small ones in one file, so that a folder stays a folder. A file
// is "jccl corpus 1\n", then each input as u32 length and bytes.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "fuzz/target.h"

namespace jccl::fuzz {

// Every input under a file or folder: of corpus files all they hold, of other files their bytes.
std::vector<Bytes> read_inputs(const std::filesystem::path& path);
bool write_corpus(const std::filesystem::path& path, const std::vector<Bytes>& inputs);
// One file per input, named by its hash: what libFuzzer reads.
bool write_files(const std::filesystem::path& folder, const std::vector<Bytes>& inputs);

}  // namespace jccl::fuzz
