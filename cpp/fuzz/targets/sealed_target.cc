// A network in the middle of a sealed link: whatever it changes, cuts, repeats or moves, what is
// read is what was sealed, up to the first record that is not as it was, in whatever pieces it
// comes.
#include <algorithm>

#include "fuzz/input.h"
#include "fuzz/target.h"
#include "fuzz/targets/memory_stream.h"
#include "net/security/sealed_stream.h"

namespace jccl::fuzz {
namespace {

struct Sealed {
  std::vector<Bytes> records;
  std::vector<Bytes> plain;  // of each
};

Sealed seal_some(Input& in, const net::SealSecret& secret, std::uint64_t records_per_key) {
  net::Seal seal(net::Seal::Way::kSealing, secret, records_per_key);
  Sealed out;
  const std::size_t count = 1 + in.below(12);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint16_t size = in.u16();
    Bytes plain(size % 4 == 0 ? size : size % 97, in.u8());
    Bytes record(plain.size() + net::kSealOverhead);
    net::Seal::put_size(plain.size(), record.data());
    seal.begin(record.data());
    seal.add(plain, record.data() + net::kSealHeadBytes);
    seal.end_sealing(record.data() + net::kSealHeadBytes + plain.size());
    out.plain.push_back(std::move(plain));
    out.records.push_back(std::move(record));
    if (out.plain.back().empty()) break;  // an end
  }
  return out;
}

Bytes joined(const std::vector<Bytes>& records) {
  Bytes out;
  for (const Bytes& record : records) out.insert(out.end(), record.begin(), record.end());
  return out;
}

// What the network makes of it.
Bytes tampered(Input& in, std::vector<Bytes> records) {
  for (std::size_t times = in.below(4); times > 0 && !records.empty(); --times) {
    const std::size_t at = in.below(records.size()), other = in.below(records.size());
    switch (in.below(5)) {
      case 0:
        records.erase(records.begin() + static_cast<std::ptrdiff_t>(at));
        break;
      case 1:
        records.insert(records.begin() + static_cast<std::ptrdiff_t>(at), Bytes(records[other]));
        break;
      case 2:
        std::swap(records[at], records[other]);
        break;
      case 3:
        records[at][in.below(records[at].size())] ^= static_cast<std::uint8_t>(1 << in.below(8));
        break;
      default:
        records.insert(records.begin() + static_cast<std::ptrdiff_t>(at), in.bytes(60));
        if (records[at].empty()) records[at].push_back(in.u8());
    }
  }
  Bytes out = joined(records);
  if (in.below(4) == 0) out.resize(in.below(out.size() + 1));
  return out;
}

// All that may be read: of the records that are as they were, one after another, from the first.
Bytes readable(const Sealed& sealed, ByteView sent) {
  Bytes out;
  for (std::size_t i = 0; i < sealed.records.size(); ++i) {
    const Bytes& record = sealed.records[i];
    if (sent.size() < record.size() || !std::ranges::equal(sent.first(record.size()), record))
      break;
    out.insert(out.end(), sealed.plain[i].begin(), sealed.plain[i].end());
    sent = sent.subspan(record.size());
  }
  return out;
}

}  // namespace

void run_sealed(ByteView bytes) {
  Input in(bytes);
  const std::size_t step = 1 + in.below(256) * in.below(64);
  const std::uint64_t records_per_key = 1 + in.below(4);
  net::SealSecrets secrets;
  secrets.reading.fill(7);
  const Sealed sealed = seal_some(in, secrets.reading, records_per_key);
  const Bytes sent = tampered(in, sealed.records);
  auto memory = std::make_unique<MemoryStream>(sent);
  MemoryStream* lower = memory.get();
  const auto stream = net::sealed_stream(std::move(memory), secrets, records_per_key);
  Bytes got;
  for (bool ended = false; !ended;) {
    if (lower->unread() > 0) {
      lower->arrive(step);
    } else {
      lower->end();
      ended = true;
    }
    for (;;) {
      Bytes first(in.below(100)), second(1 + in.below(20'000));
      const net::MutableView parts[] = {first, second};
      const std::size_t n = stream->read_now(parts);
      if (n == 0) break;
      first.insert(first.end(), second.begin(), second.end());
      got.insert(got.end(), first.begin(), first.begin() + static_cast<std::ptrdiff_t>(n));
    }
    if (!stream->failure().ok()) ended = true;
  }
  JCCL_CHECK(!stream->failure().ok());
  JCCL_CHECK(got == readable(sealed, sent));
}

}  // namespace jccl::fuzz
