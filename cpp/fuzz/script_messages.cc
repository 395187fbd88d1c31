#include "fuzz/script_messages.h"

#include <algorithm>

#include "collective/hint.h"

namespace jccl::fuzz {
namespace {

constexpr std::size_t kNoted = 8;
constexpr base::Duration kBit = 100 * base::kMillisecond;

wire::Code any_code(Input& in) {
  const auto number = static_cast<std::uint8_t>(in.below(32));
  return base::is_code(number) ? static_cast<wire::Code>(number) : wire::Code::kInvalid;
}

}  // namespace

void ScriptMessages::note(const wire::Attempt& attempt, const wire::RoundName& round) {
  noted_.push_back({attempt, round});
  if (noted_.size() > kNoted) noted_.erase(noted_.begin());
}

wire::Attempt ScriptMessages::attempt() {
  const std::size_t which = in_.below(12);
  if (which < noted_.size()) return noted_[noted_.size() - 1 - which].attempt;
  return {1 + in_.below(4), 1 + in_.below(4)};
}

std::uint64_t ScriptMessages::number() {
  const std::size_t which = in_.below(10);
  if (which < noted_.size()) return noted_[noted_.size() - 1 - which].round.n;
  return which == 9 ? in_.u64() : 1 + in_.below(3);
}

// Any message at all, as long as it decodes.
std::optional<wire::Message> ScriptMessages::raw() {
  if (!any_bytes) return std::nullopt;
  const Bytes bytes = in_.bytes(96);
  const auto message = wire::decode(bytes);
  if (!message.ok()) return std::nullopt;
  return message.value();
}

wire::Hello ScriptMessages::hello() {
  wire::Hello hello;
  hello.incarnation = 1 + in_.below(8);
  hello.site = std::string(1, static_cast<char>('a' + in_.below(4)));
  hello.shards = in_.below(4) == 0 ? 2 : 1;
  hello.shard = static_cast<std::uint32_t>(in_.below(hello.shards));
  if (in_.flag()) hello.addresses = {"10.0.0.1:4001"};
  hello.start_peers = static_cast<std::uint32_t>(in_.below(3));
  if (in_.below(16) == 0) hello.version = in_.u16();
  if (in_.below(16) == 0) hello.oldest = in_.u16();
  if (in_.below(16) == 0) hello.run = {1};
  return hello;
}

wire::Message ScriptMessages::report() {
  switch (in_.below(4)) {
    case 0:
      return wire::Fail{attempt(), any_code(in_), static_cast<wire::PeerId>(in_.below(5)), words()};
    case 1:
      return wire::Query{unresolved()};
    default:
      return wire::Done{attempt(), digest()};
  }
}

wire::Message ScriptMessages::from_peer() {
  switch (in_.below(12)) {
    case 0: {
      wire::Resume resume;
      for (std::size_t count = in_.below(3); count > 0; --count) {
        resume.unresolved.push_back(unresolved());
      }
      for (std::size_t count = in_.below(3); count > 0; --count) resume.held.push_back(held());
      return resume;
    }
    case 1:
    case 2:
    case 3: {
      wire::Ready ready;
      ready.round = round();
      ready.descriptor = in_.below(8) == 0 ? digest() : wire::Digest{1, 0};
      ready.weight = in_.below(6) == 0 ? 0 : 1;
      ready.has_state = ready.round.tag == "model" && ready.round.n > 0;
      if (ready.has_state) ready.revision = ready.round.n - 1, ready.state = digest();
      ready.deadline = static_cast<base::Duration>(in_.u8()) * kBit;
      ready.call = in_.below(4);
      return ready;
    }
    case 4:
    case 5:
      return report();
    case 6:
      return wire::Withdraw{round()};
    case 7:
      return wire::Published{held()};
    case 8: {
      const wire::Held own = held();
      wire::Sync sync;
      sync.tag = own.tag;
      sync.source = in_.flag();
      sync.digest = own.digest;
      sync.revision = own.revision;
      // No bits of its own: stored inputs stay what they are.
      const std::uint64_t wish = own.revision % 8;
      sync.restore = static_cast<wire::Wish>(wish > 3 ? wish - 4 : 0);
      sync.changed = own.revision % 3 == 1;
      sync.descriptor = {1, 0};
      sync.summary = words();
      sync.deadline = static_cast<base::Duration>(in_.u8()) * kBit;
      return sync;
    }
    case 9:
      return wire::Heartbeat{in_.u8(), in_.u8()};
    case 10:
      if (in_.below(4) == 0) return wire::Leave{};
      return wire::Measured{in_.u64(), {{1, in_.u32(), in_.u64()}}, in_.u16()};
    default:
      break;
  }
  if (auto any = raw()) return *any;
  return word_of_peer();
}

// What is said once in a while, also by whom nobody expects it of.
wire::Message ScriptMessages::word_of_peer() {
  switch (in_.below(8)) {
    case 1:
      return wire::StatusAsk{};
    case 2:
    case 3:
    case 4: {
      wire::Outvoted out{held(), 1 + in_.below(8), static_cast<std::uint32_t>(in_.below(3))};
      return out;
    }
    case 5: {
      wire::Order order;
      order.verb = static_cast<wire::OrderVerb>(1 + in_.below(7));
      order.subject = std::string(1, static_cast<char>('a' + in_.below(4)));
      order.span = static_cast<base::Duration>(in_.u8()) * kBit;
      order.reason = words();
      return order;
    }
    case 6: {
      const auto kind = static_cast<std::uint8_t>(1 + in_.below(8));
      const auto peer = static_cast<wire::PeerId>(in_.below(5));
      if (kind <= 7)
        return wire::Violation{attempt(), peer, static_cast<wire::ViolationKind>(kind)};
      const auto policy = static_cast<wire::FindingPolicy>(in_.below(3));
      return wire::Finding{"m", in_.below(3), peer, in_.below(4) != 0, in_.u16(), policy};
    }
    case 7: {
      wire::AuditPart part;
      part.attempt = attempt(), part.cell = static_cast<std::uint32_t>(in_.below(4));
      part.result = in_.flag(), part.bytes = in_.bytes(4);
      return part;
    }
    default:
      return hello();
  }
}

wire::Outcome ScriptMessages::outcome() {
  wire::Outcome out;
  out.attempt = attempt();
  out.round = round();
  out.verdict = static_cast<wire::Verdict>(1 + in_.below(3));
  out.contributors = {{1, 1.0}, {2, 0.5}};
  out.world = 2;
  out.result = digest();
  out.retry = in_.flag();
  out.code = any_code(in_);
  return out;
}

wire::Roster ScriptMessages::roster() {
  wire::Roster out;
  out.epoch = 1 + in_.below(6);
  out.base = in_.below(3) == 0 ? in_.below(6) : 0;
  if (in_.flag()) out.members.push_back({1, self, "a", 0, 1, {}, 7});
  if (in_.flag()) out.members.push_back({2, 77, "b", 0, 1, {"10.0.0.1:4001"}, 7});
  if (out.base > 0 && in_.flag()) out.left.push_back(static_cast<wire::PeerId>(in_.below(4)));
  if (in_.flag()) out.tags.push_back({tag(), number(), in_.flag()});
  return out;
}

wire::SyncReply ScriptMessages::sync_reply() {
  wire::SyncReply out;
  const wire::Held newest = held();
  out.tag = newest.tag;
  out.verdict = static_cast<wire::SyncVerdict>(1 + in_.below(4));
  out.revision = newest.revision;
  out.restored = newest.revision % 3;
  out.digest = newest.digest;
  if (in_.flag()) out.holders.push_back({2, 77, "b", 0, 1, {"10.0.0.1:4001"}, 7});
  out.code = any_code(in_);
  return out;
}

wire::Message ScriptMessages::answer() {
  switch (in_.below(6)) {
    case 0:
      return wire::Reject{round(), any_code(in_), words(), in_.flag() ? call : in_.below(4)};
    case 1:
      return wire::Moved{round(), in_.below(4) == 0 ? in_.u64() : in_.below(5)};
    case 2:
      return wire::Waiting{round(), words()};
    default:
      return outcome();
  }
}

wire::Message ScriptMessages::from_master() {
  switch (in_.below(12)) {
    case 0:
    case 1:
      return wire::Welcome{wire::RunId{9}, in_.below(6),
                           in_.below(8) == 0 ? static_cast<base::Duration>(in_.u64()) : 5 * kBit,
                           in_.below(8) == 0 ? static_cast<base::Duration>(in_.u64()) : 30 * kBit};
    case 2:
      return wire::Refuse{any_code(in_), words()};
    case 3:
    case 4:
      return roster();
    case 5:
    case 6: {
      wire::Start start{attempt(), round(), {{1, 1.0}, {2, 1.0}}, {}, in_.bytes(4), call};
      if (in_.below(3) == 0) start.contributors.erase(start.contributors.begin());
      if (in_.below(4) == 0) start.call = in_.below(4);
      return start;
    }
    case 7:
    case 8:
      return answer();
    case 9:
      return sync_reply();
    case 10:
      if (in_.below(3) == 0) return wire::Evicted{words()};
      return wire::HeartbeatAck{in_.u8()};
    default:
      break;
  }
  if (auto any = raw()) return *any;
  return word_of_master();
}

wire::Message ScriptMessages::word_of_master() {
  switch (in_.below(8)) {
    case 1:
      return wire::Drain{words()};
    case 2:
      return wire::Notice{words()};
    case 3:
      return wire::OrderReply{any_code(in_), words()};
    case 4:
      return wire::StatusReply{in_.bytes(8)};
    case 5:
      return wire::AuditAsk{attempt(), {static_cast<std::uint32_t>(in_.below(4)), 4}};
    default:
      return roster();
  }
}

}  // namespace jccl::fuzz
