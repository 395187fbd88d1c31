// Blocks as a hostile peer may send them, into memory of exactly the right size: decoding writes
// every element and nothing else, and gives the same bits on every instruction set. And the names
// and addresses that people type.
#include <algorithm>
#include <memory>

#include "base/ids.h"
#include "codec/codec.h"
#include "codec/guard.h"
#include "codec/kernels/isa.h"
#include "collective/op.h"
#include "fuzz/input.h"
#include "fuzz/target.h"
#include "net/security/credentials.h"
#include "net/socket/address.h"

namespace jccl::fuzz {
namespace {

constexpr std::size_t kElementsMax = 9000;  // more than two of the largest blocks

// Memory of just this size, at any alignment, that a sanitizer watches the ends of.
class Exact {
 public:
  Exact(std::size_t size, std::size_t offset, std::uint8_t fill)
      : bytes_(new std::uint8_t[size + offset]), size_(size), offset_(offset) {
    std::fill_n(bytes_.get(), size + offset, fill);
  }
  std::uint8_t* data() { return bytes_.get() + offset_; }
  ByteView view() const { return {bytes_.get() + offset_, size_}; }

 private:
  std::unique_ptr<std::uint8_t[]> bytes_;
  std::size_t size_, offset_;
};

// Repeats the bytes until they fill the place: what the search finds in small reaches the end.
void fill(ByteView from, Exact* to, std::size_t size) {
  for (std::size_t at = 0; at < size; ++at) {
    to->data()[at] = from.empty() ? 0 : from[at % from.size()];
  }
}

codec::Codec any_codec(Input& in) {
  codec::Codec codec = static_cast<codec::CodecId>(in.below(codec::kCodecNumberMax + 1));
  if (codec::is_sparse(codec.id)) codec.kept = static_cast<std::uint16_t>(in.u16() % 5000);
  if (in.below(4) == 0) {
    codec.stochastic = true;
    codec.seed = in.u64();
  }
  return codec;
}

}  // namespace

void run_codec(ByteView bytes) {
  Input in(bytes);
  const codec::Codec codec = any_codec(in);
  const auto name = codec::name_of(codec);
  const auto again = codec::codec_from_name(name);
  JCCL_CHECK(again.has_value() == codec::check(codec).ok());
  if (!again.has_value()) return;
  JCCL_CHECK(*again == codec);
  const auto dtype = codec::dtype_from_number(static_cast<std::uint8_t>(1 + in.below(12)));
  if (!dtype.has_value() || (codec::is_lossy(codec) && !codec::is_float(*dtype))) return;
  const std::size_t count = in.u16() % kElementsMax, offset = in.below(8);
  const std::size_t size = codec::encoded_bytes(codec, *dtype, count);
  const std::size_t plain = count * codec::size_of(*dtype);
  const ByteView rest = in.rest();

  Exact encoded(size, offset, 0);
  fill(rest, &encoded, size);
  Bytes first;
  for (const codec::Isa isa : codec::available_isas()) {
    codec::force_isa(isa);
    Exact ones(plain, offset, 0xFF), zeros(plain, 0, 0);
    codec::decode(codec, *dtype, encoded.view().data(), count, ones.data());
    codec::decode(codec, *dtype, encoded.view().data(), count, zeros.data());
    JCCL_CHECK(std::ranges::equal(ones.view(), zeros.view()));  // every element was written
    // What a NaN turns into is nobody's promise.
    if (!codec::all_finite(*dtype, ones.view().data(), count)) continue;
    if (first.empty()) first.assign(ones.view().begin(), ones.view().end());
    JCCL_CHECK(std::ranges::equal(ones.view(), first));
  }

  // The other way: any bits as elements, whatever they mean.
  Exact elements(plain, offset, 0);
  fill(rest, &elements, plain);
  const bool finite = codec::all_finite(*dtype, elements.view().data(), count);
  JCCL_CHECK(codec::scan(*dtype, elements.view().data(), count).finite == finite);
  Exact out(size, 0, 0);
  Bytes sent;
  for (const codec::Isa isa : codec::available_isas()) {
    codec::force_isa(isa);
    const bool seen = codec::encode_checked(codec, *dtype, elements.view().data(), count,
                                            out.data(), {codec.seed, 0});
    JCCL_CHECK(seen == finite);
    if (sent.empty()) sent.assign(out.view().begin(), out.view().end());
    if (finite) JCCL_CHECK(std::ranges::equal(out.view(), sent));
  }
}

void run_text(ByteView bytes) {
  Input in(bytes);
  const std::uint8_t which = in.u8();
  const ByteView rest = in.rest();
  const std::string text(rest.begin(), rest.end());
  if (which == 0) {
    const auto address = net::parse_address(text);
    if (!address.ok()) return;
    const auto again = net::parse_address(net::to_text(address.value()));
    JCCL_CHECK(again.ok() && again.value() == address.value());
    (void)net::is_loopback(address.value());
  } else if (which == 1) {
    const auto all = net::parse_addresses(text);
    if (!all.ok()) return;
    const auto again = net::parse_addresses(net::to_text(all.value()));
    JCCL_CHECK(again.ok() && again.value() == all.value());
  } else if (which == 2) {
    const auto token = net::parse_token(text);
    if (!token.ok()) {
      // The error never repeats a secret: no long run of its digits.
      for (std::size_t at = 0; at + 16 <= text.size(); ++at) {
        const std::string part = text.substr(at, 16);
        const bool digits = part.find_first_not_of("0123456789abcdef") == std::string::npos;
        if (digits) JCCL_CHECK(token.status().text.find(part) == std::string::npos);
      }
      return;
    }
    JCCL_CHECK(net::parse_token(net::to_text(token.value())).value() == token.value());
  } else if (which == 3) {
    base::RunId run{};
    if (base::from_hex(text, &run)) JCCL_CHECK(base::to_hex(run).size() == text.size());
  } else {
    const auto codec = codec::codec_from_name(text);
    if (codec.has_value()) JCCL_CHECK(codec::codec_from_name(codec::name_of(*codec)) == codec);
    (void)codec::dtype_from_name(text);
  }
}

std::vector<Bytes> text_seeds() {
  std::vector<Bytes> out;
  const auto add = [&out](std::uint8_t which, std::string_view text) {
    Bytes& bytes = out.emplace_back(1, which);
    bytes.insert(bytes.end(), text.begin(), text.end());
  };
  for (const char* text : {"host.example:4001", "[::1]:80", ":0", "10.0.0.1:65535"}) add(0, text);
  add(1, "10.0.0.1:1,[fe80::1]:2,name:3");
  const std::string run(32, 'a'), key(64, 'b'), secret(64, 'c');
  add(2, "jccl2." + run + "." + key + ".p-0-0-0-0011aabb." + secret);
  add(2, "jccl2." + run + "." + key + ".o-1900000000-0123456789abcdef-0011aabb." + secret);
  add(2, "jccl2run." + run + "." + key + "." + run);
  add(3, run);
  for (const char* text :
       {"int8", "int8:stochastic:seed=7", "topk:kept=64", "stat2", "topk2:kept=64", "none"})
    add(4, text);
  return out;
}

}  // namespace jccl::fuzz
