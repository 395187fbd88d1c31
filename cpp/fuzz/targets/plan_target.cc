// Plans and hints as bytes: what decodes is well formed, its bytes are the only ones it has, and
// every peer can derive its routes from it.
#include <algorithm>

#include "collective/hint.h"
#include "collective/plan.h"
#include "fuzz/input.h"
#include "fuzz/target.h"

namespace jccl::fuzz {
namespace {

void check_routes(const collective::Plan& plan, const std::vector<collective::Chunk>& chunks) {
  const std::size_t peers = plan.order.size();
  for (const collective::Chunk& chunk : chunks) {
    JCCL_CHECK(chunk.owner < peers);
    const collective::Route receiver = collective::receiver_route(plan, chunk);
    JCCL_CHECK(receiver.result_from < static_cast<std::int32_t>(peers));
    for (std::uint32_t me = 0; me < std::min<std::size_t>(peers, 8); ++me) {
      const collective::Route mine = collective::route(plan, chunk, me);
      for (const std::uint32_t one : mine.add_order) JCCL_CHECK(one < peers);
      for (const std::uint32_t one : mine.send_to) JCCL_CHECK(one < peers && one != me);
      for (const std::uint32_t one : mine.result_to) JCCL_CHECK(one < peers && one != me);
      JCCL_CHECK(collective::result_targets(plan, chunk, me, {}).size() <= peers);
    }
  }
}

}  // namespace

void run_plan(ByteView bytes) {
  Input in(bytes);
  const std::uint8_t which = in.u8();
  const std::size_t counts[] = {in.u16(), in.u8()};
  const bool coded = in.flag();
  const ByteView body = in.rest();
  if (which == 0) {
    const auto hint = collective::decode_hint(body);
    if (hint.ok()) JCCL_CHECK(std::ranges::equal(collective::encode_hint(hint.value()), body));
    return;
  }
  const auto plan = collective::decode(body);
  if (!plan.ok()) return;
  JCCL_CHECK(collective::check(plan.value()).ok());
  JCCL_CHECK(std::ranges::equal(collective::encode(plan.value()), body));
  JCCL_CHECK(!collective::name_of(plan.value().kind).empty());
  const codec::Codec codec = coded ? codec::Codec(codec::CodecId::kInt8) : codec::Codec();
  if (!collective::check_codec(plan.value().kind, codec).ok()) return;
  const std::vector<collective::LeafSpec> leaves = {{codec::Dtype::kF32, counts[0]},
                                                    {codec::Dtype::kBf16, counts[1]}};
  const auto chunks = collective::make_layout(plan.value(), leaves, codec, 4096);
  std::uint64_t elements = 0;
  for (const collective::Chunk& chunk : chunks) elements += chunk.elements;
  const bool slots = collective::fills_slots(plan.value().kind);
  JCCL_CHECK(elements == (counts[0] + counts[1]) * (slots ? plan.value().order.size() : 1));
  check_routes(plan.value(), chunks);
}

std::vector<Bytes> plan_seeds() {
  using collective::PlanKind;
  std::vector<Bytes> out;
  const auto add = [&out](std::uint8_t which, Bytes body) {
    body.insert(body.begin(), {which, 0, 16, 7, 1});
    out.push_back(std::move(body));
  };
  for (int kind = 1; kind <= 6; ++kind) {
    collective::Plan plan{static_cast<PlanKind>(kind), {1, 2, 5}, {}};
    add(1, collective::encode(plan));
    if (collective::has_shares(plan.kind)) {
      plan.shares = {3, 0, 9};
      add(1, collective::encode(plan));
    }
  }
  add(0, collective::encode_hint({collective::HintKind::kAuto, 1 << 20, 1 << 18, 1 << 21}));
  return out;
}

}  // namespace jccl::fuzz
