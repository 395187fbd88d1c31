#include "fuzz/corpus.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "base/hash64.h"
#include "base/ids.h"

namespace jccl::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kHead = "jccl corpus 1\n";

Bytes read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void add_inputs(const Bytes& bytes, std::vector<Bytes>* out) {
  if (bytes.size() < kHead.size() ||
      !std::equal(kHead.begin(), kHead.end(), bytes.begin(),
                  [](char a, std::uint8_t b) { return static_cast<std::uint8_t>(a) == b; })) {
    out->push_back(bytes);
    return;
  }
  base::Reader in(ByteView(bytes).subspan(kHead.size()));
  while (in.left() > 0) out->push_back(in.blob(bytes.size()));
  JCCL_CHECK(in.finished());
}

}  // namespace

std::vector<Bytes> read_inputs(const fs::path& path) {
  std::vector<fs::path> files;
  if (fs::is_directory(path)) {
    for (const auto& entry : fs::recursive_directory_iterator(path)) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
  } else if (fs::exists(path)) {
    files.push_back(path);
  }
  std::vector<Bytes> out;
  for (const fs::path& file : files) add_inputs(read_file(file), &out);
  return out;
}

bool write_corpus(const fs::path& path, const std::vector<Bytes>& inputs) {
  base::Writer out;
  out.raw(kHead.data(), kHead.size());
  for (const Bytes& input : inputs) out.blob(input, input.size());
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(out.bytes().data()),
             static_cast<std::streamsize>(out.size()));
  return file.good();
}

bool write_files(const fs::path& folder, const std::vector<Bytes>& inputs) {
  fs::create_directories(folder);
  for (const Bytes& input : inputs) {
    std::ofstream file(folder / base::to_hex(base::hash64(input)), std::ios::binary);
    file.write(reinterpret_cast<const char*>(input.data()),
               static_cast<std::streamsize>(input.size()));
    if (!file.good()) return false;
  }
  return true;
}

}  // namespace jccl::fuzz
