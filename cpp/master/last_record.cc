// See last_record.h. A slot: magic u32, CRC32C of what follows u32, sequence u64, row's CRC32C u32.
#include "master/last_record.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/planted.h"
#include "base/text.h"

namespace jccl::master {
namespace {

using base::Code;
using base::Status;

constexpr std::uint32_t kMagic = 0x7473616C;  // "last"
constexpr std::size_t kSlotBytes = 20;
constexpr ::off_t kSlotStride = 64;

}  // namespace

LastRecord::~LastRecord() {
  if (fd_ < 0) return;
  (void)::fdatasync(fd_);
  ::close(fd_);
}

Status LastRecord::failed(const char* what) const {
  return {Code::kIo,
          base::cat("journal's ", path_, " can't be ", what, ": ", std::strerror(errno))};
}

Status LastRecord::open(const std::string& path) {
  path_ = path;
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd_ < 0) return failed("opened");
  for (int slot = 0; slot < 2; ++slot) {
    base::Bytes bytes(kSlotBytes);
    const ::ssize_t got = ::pread(fd_, bytes.data(), bytes.size(), slot * kSlotStride);
    if (got < 0) return failed("read");
    if (got != static_cast<::ssize_t>(kSlotBytes)) continue;
    base::Reader r(bytes);
    const bool known = r.u32() == kMagic;
    const std::uint32_t crc = r.u32();
    if (!known || crc != base::crc32c(base::ByteView(bytes).subspan(8))) continue;
    const std::uint64_t sequence = r.u64();
    if (sequence <= sequence_ || (JCCL_PLANTED("first-slot-wins") && sequence_ != 0)) continue;
    sequence_ = sequence;
    crc_ = r.u32();
  }
  return {};
}

Status LastRecord::note(std::uint64_t sequence, std::uint32_t crc) {
  base::Writer fields;
  fields.u64(sequence);
  fields.u32(crc);
  base::Writer slot;
  slot.u32(kMagic);
  slot.u32(base::crc32c(fields.bytes()));
  slot.raw(fields.bytes().data(), fields.bytes().size());
  const ::off_t at =
      static_cast<::off_t>(JCCL_PLANTED("last-record-one-slot") ? 0 : sequence % 2) * kSlotStride;
  const ::ssize_t put = ::pwrite(fd_, slot.bytes().data(), kSlotBytes, at);
  if (put != static_cast<::ssize_t>(kSlotBytes)) return failed("written");
  sequence_ = sequence;
  crc_ = crc;
  return {};
}

}  // namespace jccl::master
