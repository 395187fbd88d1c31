// A proof as a stranger might send it, and chunks of any values: what parses is printed again as it
// was, what is built agrees with itself, and nothing else happens.
#include <algorithm>

#include "base/check.h"
#include "fuzz/input.h"
#include "fuzz/target.h"
#include "proof/field.h"
#include "proof/proof.h"

namespace jccl::fuzz {
namespace {

std::vector<std::uint16_t> halves_of(ByteView bytes) {
  std::vector<std::uint16_t> out;
  for (std::size_t i = 0; i + 1 < bytes.size(); i += 2) {
    out.push_back(static_cast<std::uint16_t>(bytes[i] | bytes[i + 1] << 8));
  }
  return out;
}

void check_parsed(ByteView bytes, const std::vector<proof::Point>& points) {
  const auto parsed = proof::parse(bytes);
  if (!parsed.ok()) {
    JCCL_CHECK(!parsed.status().text.empty());
    return;
  }
  JCCL_CHECK(std::ranges::equal(proof::print(parsed.value()), bytes));
  for (const proof::Format format : {proof::Format::kBf16, proof::Format::kFp16}) {
    const proof::Comparison found = proof::compare(parsed.value(), points, format);
    JCCL_CHECK(found.exponents + found.signs <= points.size());
    JCCL_CHECK(found.mean >= 0 && found.median >= 0);
  }
  JCCL_CHECK(proof::evaluate(parsed.value(), UINT32_MAX) < proof::kPrime);
}

}  // namespace

void run_proof(ByteView bytes) {
  Input in(bytes);
  const std::size_t k = 1 + in.below(proof::kPointsMax);
  const auto format = in.below(2) == 0 ? proof::Format::kBf16 : proof::Format::kFp16;
  const ByteView rest = in.rest();
  const auto points = proof::largest(halves_of(rest), std::min(k, rest.size() / 2), format);
  if (!points.ok()) return check_parsed(rest, {{0, 0}, {UINT32_MAX, 0xFFFF}});
  const auto made = proof::build(points.value());
  JCCL_CHECK(made.ok());
  const proof::Comparison same = proof::compare(made.value(), points.value(), format);
  JCCL_CHECK(same.exponents == 0 && same.signs == 0 && same.mean == 0 && same.median == 0);
  check_parsed(proof::print(made.value()), points.value());
  check_parsed(rest, points.value());
}

std::vector<Bytes> proof_seeds() {
  const std::vector<proof::Point> points = {{1, 0x3F80}, {70000, 0xC000}, {4503, 0x0001}};
  Bytes good = proof::print(proof::build(points).value());
  good.insert(good.begin(), 5, 0);  // k and the format
  return {good, Bytes(263, 0)};
}

}  // namespace jccl::fuzz
