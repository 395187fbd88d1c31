// A snapshot's manifest as a holder might send it, and the fetcher's plan among holders that lie,
// vanish and dawdle.
#include <algorithm>
#include <set>

#include "fuzz/input.h"
#include "fuzz/target.h"
#include "snapshot/fetch_plan.h"
#include "snapshot/manifest.h"

namespace jccl::fuzz {
namespace {

constexpr std::uint32_t kPartsMax = 40;
constexpr int kTurnsMax = 400;

struct Snapshot {
  std::vector<snapshot::LeafShape> leaves;
  std::uint32_t part_bytes = 1;
};

Snapshot any_snapshot(Input& in) {
  Snapshot out;
  out.part_bytes = 1 + static_cast<std::uint32_t>(in.below(200));
  for (std::size_t count = in.below(5); count > 0; --count) {
    const std::uint64_t elements = in.below(64);
    out.leaves.push_back({"leaf", static_cast<std::uint8_t>(1 + in.below(12)), elements,
                          elements * (std::uint64_t{1} << in.below(4))});
  }
  return out;
}

snapshot::Manifest manifest_of(const snapshot::Layout& layout, std::uint8_t fill) {
  snapshot::ManifestBuilder builder(layout);
  builder.add(Bytes(layout.total_bytes(), fill));
  return builder.finish("model", 3);
}

}  // namespace

void run_manifest(ByteView bytes) {
  Input in(bytes);
  const Snapshot shape = any_snapshot(in);
  const snapshot::Layout layout(shape.leaves, shape.part_bytes);
  std::uint64_t sum = 0;
  for (std::uint32_t part = 0; part < layout.data_parts(); ++part) {
    for (const snapshot::Range& range : layout.ranges(part)) {
      JCCL_CHECK(range.leaf < shape.leaves.size());
      JCCL_CHECK(range.offset + range.bytes <= shape.leaves[range.leaf].bytes);
      sum += range.bytes;
    }
  }
  JCCL_CHECK(sum == layout.total_bytes());
  const snapshot::Manifest made = manifest_of(layout, in.u8());
  const snapshot::Manifest other = manifest_of(layout, in.u8());
  JCCL_CHECK(snapshot::parts_in_common(made, other, layout).size() <= layout.data_parts());
  const Bytes good = snapshot::encode(made);
  JCCL_CHECK(good.size() == layout.manifest_bytes());
  JCCL_CHECK(snapshot::decode_manifest(good, made.held, layout).value() == made);

  Bytes sent = good;
  if (in.flag()) {
    const ByteView rest = in.rest();
    sent.assign(rest.begin(), rest.end());
  } else {
    for (std::size_t flips = in.below(6); flips > 0; --flips) {
      sent[in.u16() % sent.size()] ^= static_cast<std::uint8_t>(1U << in.below(8));
    }
    if (in.flag()) sent.resize(in.u16() % (sent.size() + 1));
  }
  const auto found = snapshot::decode_manifest(sent, made.held, layout);
  JCCL_CHECK(found.ok() == (sent == good));
  if (!found.ok()) {
    JCCL_CHECK(found.status().code == base::Code::kMismatch ||
               found.status().code == base::Code::kCorrupt);
  }
}

void run_fetch(ByteView bytes) {
  Input in(bytes);
  const auto last = static_cast<std::uint32_t>(1 + in.below(kPartsMax));
  const auto first = static_cast<std::uint32_t>(in.below(last));
  std::set<std::uint32_t> have;
  for (std::size_t count = in.below(4); count > 0; --count) {
    have.insert(static_cast<std::uint32_t>(in.below(kPartsMax)));
  }
  snapshot::FetchPlan plan({1 + static_cast<std::uint32_t>(in.below(4)),
                            1 + static_cast<std::uint32_t>(in.below(3)), 100},
                           first, last, have);
  std::vector<snapshot::FetchAsk> asked;
  std::set<std::uint32_t> kept;
  base::Time now = 0;
  for (int step = 0; step < kTurnsMax && !in.done(); ++step) {
    const base::Incarnation holder = 1 + in.below(5);
    switch (in.below(6)) {
      case 0:
        plan.add_holder(holder, now);
        break;
      case 1:
        plan.on_holder_lost(holder, "gone");
        break;
      case 2:
        now += static_cast<base::Time>(in.u8());
        break;
      default: {
        if (asked.empty()) break;
        const snapshot::FetchAsk& ask = asked[in.below(asked.size())];
        const bool good = in.below(8) > 0;
        const std::uint64_t number = in.below(8) > 0 ? ask.ask : in.u8();
        const auto part =
            static_cast<std::uint32_t>(in.below(8) > 0 ? ask.first_part + in.below(4) : in.u8());
        const auto use = plan.on_part(ask.holder, number, part, good, now);
        if (use == snapshot::PartUse::kKeep) {
          JCCL_CHECK(good && part >= first && part < last && kept.insert(part).second);
        }
      }
    }
    for (const snapshot::FetchAsk& ask : plan.next_asks(now)) {
      JCCL_CHECK(ask.first_part >= first && ask.first_part < ask.last_part &&
                 ask.last_part <= last);
      asked.push_back(ask);
      if (asked.size() > 64) asked.erase(asked.begin());
    }
    JCCL_CHECK(plan.finished() == (plan.missing() == 0));
    if (!plan.finished()) JCCL_CHECK(!plan.waiting_for().empty());
    (void)plan.status();
  }
  // An honest holder that stays ends it, whatever came before.
  plan.add_holder(99, now);
  for (int turn = 0; turn < kTurnsMax && !plan.finished(); ++turn) {
    now += 1;
    for (const snapshot::FetchAsk& ask : plan.next_asks(now)) {
      if (ask.holder != 99) continue;
      for (std::uint32_t part = ask.first_part; part < ask.last_part; ++part) {
        (void)plan.on_part(99, ask.ask, part, true, now);
      }
    }
    if (plan.wake() != base::kNever) now = std::max(now, plan.wake());
  }
  JCCL_CHECK(plan.finished());
}

}  // namespace jccl::fuzz
