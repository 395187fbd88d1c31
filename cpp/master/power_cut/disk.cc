// What a power cut leaves of the operations on a folder.
#include "master/power_cut/disk.h"

#include <algorithm>
#include <fstream>
#include <numeric>

#include "base/check.h"

namespace jccl::master::power_cut {
namespace {

constexpr std::size_t kSector = 512;

void put(std::string* file, std::uint64_t offset, std::string_view bytes) {
  if (bytes.empty()) return;
  if (file->size() < offset + bytes.size()) file->resize(offset + bytes.size());
  std::copy(bytes.begin(), bytes.end(), file->begin() + static_cast<long>(offset));
}

void carry_out(std::string* file, const Op& op) {
  if (op.kind == Op::Kind::kWrite) return put(file, op.offset, op.bytes);
  JCCL_CHECK(op.kind == Op::Kind::kTruncate);
  file->resize(op.offset);
}

// How much of what was not synced is there. One draw for a whole cut, so that the corners, all and
// nothing, are as likely as what lies between.
struct Survival {
  double writes, sectors, garbage, prefix;
  explicit Survival(base::Rng& rng) {
    constexpr double kShares[] = {0, 1, 0.5, 0.1, 0.9};
    writes = kShares[rng.below(5)];
    sectors = rng.chance(0.5) ? 1 : kShares[1 + rng.below(4)];
    garbage = rng.chance(0.3) ? 0.3 : 0;
    prefix = rng.chance(0.3) ? 1 : 0;  // in order up to some write, and nothing after it
  }
};

// Sector by sector of the file; of a torn one the beginning or the end is there.
void put_torn(std::string* file, const Op& op, const Survival& survival, base::Rng& rng) {
  for (std::size_t from = 0; from < op.bytes.size();) {
    const std::size_t room = kSector - (op.offset + from) % kSector;
    const std::size_t size = std::min(room, op.bytes.size() - from);
    std::string_view piece(op.bytes.data() + from, size);
    std::uint64_t at = op.offset + from;
    from += size;
    if (rng.chance(survival.garbage)) {
      std::string noise(size, '\0');
      for (char& byte : noise) byte = static_cast<char>(rng.next());
      put(file, at, noise);
    } else if (rng.chance(survival.sectors)) {
      put(file, at, piece);
    } else if (rng.chance(0.3)) {
      const std::size_t cut = rng.below(size);
      rng.chance(0.5) ? put(file, at, piece.substr(0, cut))
                      : put(file, at + cut, piece.substr(cut));
    }
  }
}

void put_some(std::string* file, const std::vector<Op>& pending, const Survival& survival,
              base::Rng& rng) {
  const std::size_t whole = rng.below(pending.size() + 1);
  for (std::size_t i = 0; i < pending.size(); ++i) {
    const Op& op = pending[i];
    if (survival.prefix > 0 && i < whole) {
      carry_out(file, op);
    } else if (survival.prefix > 0 && i > whole) {
      return;
    } else if (survival.prefix > 0 || rng.chance(survival.writes)) {
      if (op.kind == Op::Kind::kWrite) {
        put_torn(file, op, survival, rng);
      } else {
        carry_out(file, op);
      }
    }
  }
}

}  // namespace

Disk::Disk(const Image& before) {
  std::uint64_t id = 0;
  for (const auto& [name, bytes] : before) {
    files_[++id].durable = bytes;
    names_[name] = {id};
  }
}

void Disk::apply(const Op& op) {
  switch (op.kind) {
    case Op::Kind::kWrite:
    case Op::Kind::kTruncate:
      files_[op.file].pending.push_back(op);
      break;
    case Op::Kind::kSync: {
      File& file = files_[op.file];
      for (const Op& one : file.pending) carry_out(&file.durable, one);
      file.pending.clear();
      break;
    }
    case Op::Kind::kCreate:
    case Op::Kind::kUnlink: {
      auto& states = names_[op.name];
      if (states.empty()) states.push_back(0);
      states.push_back(op.kind == Op::Kind::kCreate ? op.file : 0);
      break;
    }
    case Op::Kind::kSyncFolder:
      for (auto& [name, states] : names_) states.erase(states.begin(), states.end() - 1);
      break;
  }
}

Image Disk::whole() const {
  Image image;
  for (const auto& [name, states] : names_) {
    if (states.back() == 0) continue;
    const auto file = files_.find(states.back());
    std::string& bytes = image[name];
    if (file == files_.end()) continue;
    bytes = file->second.durable;
    for (const Op& op : file->second.pending) carry_out(&bytes, op);
  }
  return image;
}

Image Disk::after_cut(base::Rng& rng) const {
  const Survival survival(rng);
  const std::uint64_t names = rng.below(3);  // as synced, as the process saw them, or any
  Image image;
  for (const auto& [name, states] : names_) {
    const std::uint64_t id = names == 0   ? states.front()
                             : names == 1 ? states.back()
                                          : states[rng.below(states.size())];
    if (id == 0) continue;
    std::string& bytes = image[name];
    const auto file = files_.find(id);
    if (file == files_.end()) continue;
    bytes = file->second.durable;
    put_some(&bytes, file->second.pending, survival, rng);
  }
  return image;
}

void write_folder(const std::filesystem::path& folder, const Image& image) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::filesystem::remove(entry.path());
  }
  for (const auto& [name, bytes] : image) {
    std::ofstream(folder / name, std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
}

Image read_folder(const std::filesystem::path& folder) {
  Image image;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    image[entry.path().filename()] = {std::istreambuf_iterator<char>(file), {}};
  }
  return image;
}

}  // namespace jccl::master::power_cut
