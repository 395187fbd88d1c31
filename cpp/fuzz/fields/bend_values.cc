#include "fuzz/fields/bend_values.h"

#include <cmath>
#include <limits>

#include "collective/hint.h"

namespace jccl::fuzz {
namespace {

constexpr std::uint64_t kU64Max = std::numeric_limits<std::uint64_t>::max();
constexpr std::int64_t kI64Max = std::numeric_limits<std::int64_t>::max();
// What breaks a terminal, a log line, a markup or a shell, when it is shown unescaped.
constexpr std::string_view kUgly = "[/red]\x1b[31m\n2026 master: evict site=a\x07'\"<b>";

}  // namespace

void Seen::note(const wire::Message& message) {
  if (const auto* roster = std::get_if<wire::Roster>(&message)) {
    for (const wire::Member& member : roster->members) {
      add(&peers, member.id);
      add(&lives, member.incarnation);
      add(&sites, member.site);
    }
    for (const wire::TagInfo& info : roster->tags) {
      add(&tags, info.tag);
      add(&numbers, info.committed);
    }
  } else if (const auto* start = std::get_if<wire::Start>(&message)) {
    add(&attempts, start->attempt);
    add(&tags, start->round.tag);
    add(&numbers, start->round.n);
  } else if (const auto* outcome = std::get_if<wire::Outcome>(&message)) {
    add(&attempts, outcome->attempt);
    add(&digests, outcome->result);
  } else if (const auto* reply = std::get_if<wire::SyncReply>(&message)) {
    add(&digests, reply->digest);
    add(&numbers, reply->revision);
    for (const wire::Member& member : reply->holders) add(&lives, member.incarnation);
  }
}

std::uint64_t BendValues::number(Bend bend, std::uint64_t now) {
  switch (bend) {
    case Bend::kPeer: {
      const std::size_t which = in_.below(4);
      if (which == 0) return in_.below(9);
      return which == 1 ? UINT32_MAX : any_of<wire::PeerId>(seen_.peers, 1);
    }
    case Bend::kLife: {
      const std::size_t which = in_.below(6);
      if (which == 0) return 0;
      if (which == 1) return in_.u64();
      return which == 2 ? now + 1 : any_of<wire::Incarnation>(seen_.lives, now + 1);
    }
    case Bend::kShards: {
      constexpr std::uint32_t kShards[] = {0, 1, 2, 3, 1023, 1024, 1025, UINT32_MAX};
      return kShards[in_.below(std::size(kShards))];
    }
    case Bend::kCounter: {
      const std::uint64_t kNear[] = {0, now - 1, now + 1, now + 2, now + (1 << 20), kU64Max};
      const std::size_t which = in_.below(std::size(kNear) + 2);
      return which < std::size(kNear) ? kNear[which] : any_of<std::uint64_t>(seen_.numbers, 1);
    }
    default: {
      const std::uint64_t kEdges[] = {
          0, 1, now + 1, now - 1, 1U << 31, UINT32_MAX, std::uint64_t(kI64Max), kU64Max};
      const std::size_t which = in_.below(std::size(kEdges) + 1);
      return which < std::size(kEdges) ? kEdges[which] : in_.u64();
    }
  }
}

std::int64_t BendValues::time(std::int64_t now) {
  const std::int64_t kTimes[] = {0,
                                 1,
                                 -1,
                                 base::kMillisecond,
                                 50 * base::kMillisecond,
                                 kI64Max,
                                 -kI64Max - 1,
                                 now / 2,
                                 10 * 365 * 86'400 * base::kSecond};
  return kTimes[in_.below(std::size(kTimes))];
}

double BendValues::weight(double now) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const double kWeights[] = {0,    1e300, 0x1p-1074, 0x1p100, -0.0,    std::nan(""),
                             kInf, 2,     0.5,       -1,      0x1p101, now + 1};
  return kWeights[in_.below(std::size(kWeights))];
}

wire::Attempt BendValues::attempt(const wire::Attempt& now) {
  switch (in_.below(8)) {
    case 0:
      return {};
    case 1:
      return {kU64Max, kU64Max};
    case 2:
      return {now.epoch, now.counter + 1};
    case 3:
      return {now.epoch + 1, 1};
    default:
      return any_of(seen_.attempts, wire::Attempt{1, 1});
  }
}

wire::Digest BendValues::digest(const wire::Digest& now) {
  switch (in_.below(4)) {
    case 0:
      return {};
    case 1:
      return {now.low ^ 1, now.high};
    default:
      return any_of(seen_.digests, wire::Digest{7, 7});
  }
}

std::string BendValues::text(Bend bend, const std::string& now, std::size_t bytes_max) {
  const std::size_t which = in_.below(6);
  if (which == 0) return {};
  if (which == 1) return std::string(bytes_max, 'x');
  if (which == 2) return std::string(kUgly.substr(0, bytes_max));
  if (bend == Bend::kTag) {
    if (which == 3) return std::string(1, static_cast<char>('a' + in_.below(26)));
    return any_of(seen_.tags, now);
  }
  if (bend == Bend::kSite) return any_of(seen_.sites, now);
  if (bend == Bend::kAddress) return which == 3 ? "127.0.0.1:22" : "nowhere at all";
  return now + now;
}

Bytes BendValues::blob(const Bytes& now, std::size_t bytes_max) {
  const std::size_t which = in_.below(10);
  if (which == 0) return {};
  if (which == 1) return Bytes(bytes_max, 0xFF);
  if (which == 2) return in_.bytes(32);
  auto hint =
      collective::decode_hint(now).ok() ? collective::decode_hint(now).value() : collective::Hint{};
  hint.kind = static_cast<collective::HintKind>(in_.below(8));
  if (which == 3) hint.data_bytes = hint.encoded_bytes = kU64Max;
  if (which == 4) hint.data_bytes = 0;
  if (which == 5) hint.audit = static_cast<collective::Auditable>(in_.below(3));
  return collective::encode_hint(hint);
}

}  // namespace jccl::fuzz
