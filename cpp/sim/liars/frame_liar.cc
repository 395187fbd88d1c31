// Lies in frames: what a hostile member sends over its links, and what it does with what comes.
// Each has a name in the trace. Where a lie is one that no plan allows, its frame says so, and the
// receiver is held to it: it neither takes the frame nor is silent about it. Finite values that are
// not the own ones are no violation; then the sum is anybody's guess, and the same for all.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "collective/plan.h"
#include "sim/network/plan.h"
#include "sim/network/plane.h"
#include "sim/world.h"
#include "snapshot/digest.h"

namespace jccl::sim {

using base::cat;
using wire::FrameKind;
using wire::ViolationKind;

namespace {

constexpr std::uint32_t kNoSuchChunk = 1000;
constexpr std::uint32_t kFlood = 400;  // copies: more than any attempt here repeats honestly

struct Named {
  FrameLie lie;
  std::string_view name;
  double weight;  // against the others
};
// What holds a round up is rare, as in liar.cc.
constexpr Named kLies[] = {{FrameLie::kValues, "other values", 4},
                           {FrameLie::kNotANumber, "NaN in the last chunk", 2},
                           {FrameLie::kNoChunk, "a chunk that is none", 2},
                           {FrameLie::kOtherChunk, "another chunk", 2},
                           {FrameLie::kLength, "another length", 2},
                           {FrameLie::kKind, "another kind", 2},
                           {FrameLie::kResult, "a result that is not its own", 2},
                           {FrameLie::kEarly, "a result before its parts", 4},
                           {FrameLie::kOver, "an attempt that is over", 1},
                           {FrameLie::kDoubled, "doubled", 2},
                           {FrameLie::kFlood, "again and again", 0.5},
                           {FrameLie::kWithheld, "withheld", 0.3}};

const Named& drawn(base::Rng& rng) {
  double all = 0;
  for (const Named& one : kLies) all += one.weight;
  double at = rng.unit() * all;
  for (const Named& one : kLies) {
    if (at < one.weight) return one;
    at -= one.weight;
  }
  return kLies[0];
}

base::Bytes copy_of(const exchange::OutFrame& frame) {
  base::Bytes all;
  for (const auto& view : frame.payload) all.insert(all.end(), view.begin(), view.end());
  return all;
}

void set_header(exchange::OutFrame* frame, wire::FrameHeader header, bool checked) {
  if (checked) header.payload_check = snapshot::check_of(copy_of(*frame));
  wire::encode(header, frame->header.data());
}

void set_payload(exchange::OutFrame* frame, base::Bytes bytes) {
  const auto owned = std::make_shared<base::Bytes>(std::move(bytes));
  frame->payload = {base::ByteView(*owned)};
  frame->keep_alive = owned;
}

void set_value(base::Bytes* bytes, std::size_t index, float value) {
  std::memcpy(bytes->data() + sizeof(float) * index, &value, sizeof value);
}

}  // namespace

bool DataPlane::gave(const wire::Attempt& attempt, std::uint32_t chunk) const {
  return gave_.count({attempt, chunk}) > 0;
}

// What makes a frame out of the plan, or nothing does.
void DataPlane::bend(FrameLie lie, const Own& own, Transit* transit) {
  base::Rng& rng = world_.rng.frames;
  exchange::OutFrame& frame = transit->frame;
  wire::FrameHeader header = wire::decode_frame_header(frame.header).value();
  const auto& part = own.info->parts.at(peer_.machine->id());
  const collective::Plan plan = collective::decode(part.plan).value();
  const bool direct = plan.kind == collective::PlanKind::kDirect;
  const bool ring = plan.kind == collective::PlanKind::kRing;
  const wire::PeerId owner = owner_of(plan, header.chunk, own.call->agreed.aggregator);
  base::Bytes bytes = copy_of(frame);
  switch (lie) {
    case FrameLie::kValues:
      bytes[rng.below(bytes.size() / 4) * 4 + 1] ^= 1;  // of a mantissa
      break;
    case FrameLie::kNotANumber:
      set_value(&bytes, rng.below(bytes.size() / 4), NAN);
      if (header.kind == FrameKind::kContribution) transit->violates = ViolationKind::kValues;
      break;
    case FrameLie::kNoChunk:
      header.chunk += kNoSuchChunk;
      transit->violates = ViolationKind::kChunk;
      break;
    case FrameLie::kOtherChunk:
      header.chunk = header.chunk == 0 ? 1 : 0;
      break;
    case FrameLie::kLength:
      bytes.resize(bytes.size() + 4);
      header.payload_bytes += 4;
      transit->violates = ViolationKind::kLength;
      break;
    case FrameLie::kKind:
      header.kind = ring ? FrameKind::kContribution : FrameKind::kPartial;
      transit->violates = ViolationKind::kSender;
      break;
    case FrameLie::kResult:
      if (!direct || owner == peer_.machine->id()) return;
      header.kind = FrameKind::kResult;
      transit->violates = ViolationKind::kSender;
      break;
    case FrameLie::kOver:
      header.attempt.counter = 0;
      break;
    default:
      return;
  }
  own.info->bent = own.info->bent || !own.info->audited;
  own.info->audit_lied = own.info->audited;
  set_payload(&frame, std::move(bytes));
  set_header(&frame, header, checks_frames());
}

// A result of a chunk that this one is to add up: made up, before anybody's part of it is here.
std::optional<Transit> DataPlane::early_result(const Own& own) {
  const auto& part = own.info->parts.at(peer_.machine->id());
  const collective::Plan plan = collective::decode(part.plan).value();
  if (plan.kind != collective::PlanKind::kDirect) return std::nullopt;
  const auto sizes = chunk_bytes_of(plan, own.call->agreed.aggregator);
  for (std::uint32_t chunk = 0; chunk < sizes.size(); ++chunk) {
    if (owner_of(plan, chunk, own.call->agreed.aggregator) != peer_.machine->id()) continue;
    Transit transit;
    transit.violates = ViolationKind::kPhase;
    wire::FrameHeader header;
    header.kind = FrameKind::kResult, header.attempt = own.attempt, header.chunk = chunk;
    header.payload_bytes = static_cast<std::uint32_t>(sizes[chunk]);
    transit.frame.header.resize(wire::kFrameHeaderBytes);
    set_payload(&transit.frame, base::Bytes(sizes[chunk], 0));
    set_header(&transit.frame, header, checks_frames());
    // Who has given its part already takes it for the result, and perhaps nobody looks.
    if (!own.info->audited || world_.mix.audit < 1) own.info->bent = true;
    return transit;
  }
  return std::nullopt;
}

// What goes instead of a frame: nothing, another one, or several.
std::vector<Transit> DataPlane::lie_in_frame(wire::Incarnation to, Transit transit) {
  std::vector<Transit> out;
  const Own* own = find(wire::decode_frame_header(transit.frame.header).value().attempt);
  base::Rng& rng = world_.rng.frames;
  const bool known = own != nullptr && own->call != nullptr && !own->committed;
  if (!known || !rng.chance(world_.mix.frame_lies)) {
    out.push_back(std::move(transit));
    return out;
  }
  const Named& lie = drawn(rng);
  const auto header = wire::decode_frame_header(transit.frame.header).value();
  if (world_.tracing()) {
    world_.note(cat("     ", peer_.slot, " lies in a frame to ", world_.slots.at(to), ", ",
                    to_text(header.attempt), " chunk ", header.chunk, ": ", lie.name));
  }
  ++world_.counts.frame_lies;
  if (lie.lie == FrameLie::kWithheld) return out;
  if (lie.lie == FrameLie::kEarly) {
    if (auto early = early_result(*own)) out.push_back(std::move(*early));
  }
  const std::uint32_t copies = lie.lie == FrameLie::kFlood     ? kFlood
                               : lie.lie == FrameLie::kDoubled ? 2
                                                               : 1;
  if (copies == 1) bend(lie.lie, *own, &transit);
  if (copies > 1) exchange::own_payload(&transit.frame);
  for (std::uint32_t i = 1; i < copies; ++i) {
    Transit copy;
    copy.frame = transit.frame;
    out.push_back(std::move(copy));
  }
  out.push_back(std::move(transit));
  return out;
}

bool DataPlane::drops_what_it_acknowledges() {
  return peer_.lies() && world_.rng.frames.chance(world_.mix.frame_lies / 16);
}

std::uint64_t DataPlane::overcount() {
  const bool lies = peer_.lies() && world_.mix.frame_lies > 0;
  return lies && world_.rng.frames.chance(world_.mix.frame_lies / 4) ? 1000 : 0;
}

// ---- what honest ones are held to ---------------------------------------------------------------

void DataPlane::violation(const wire::Attempt& attempt, base::PeerId from, ViolationKind kind) {
  const auto sender = world_.history.everybody.find(from);
  const bool guilty = sender != world_.history.everybody.end() &&
                      world_.history.liars.count(sender->second.incarnation) > 0;
  if (!guilty && !peer_.lies()) {
    world_.history.fail(
        "P4", cat("slot ", peer_.slot, " holds a frame of attempt ", to_text(attempt),
                  " against member ", from, ", which is honest: ", static_cast<int>(kind)));
  }
  accused_.insert({attempt, from});
  if (world_.tracing()) {
    world_.note(cat("     ", peer_.slot, " saw a frame of member ", from, " that does not fit"));
  }
  peer_.queue(protocol::FrameViolation{{attempt, from, kind}});
}

// The other end acknowledges what never left.
void DataPlane::overcounted(Pipe& pipe, std::size_t end) {
  const wire::Incarnation other = pipe.life[1 - end];
  if (world_.history.liars.count(other) == 0) {
    world_.history.fail("P9", cat("slot ", peer_.slot, " is told of frames that it never sent"));
  }
  for (const auto& [id, member] : world_.history.everybody) {
    if (member.incarnation == other) violation({}, id, wire::ViolationKind::kAck);
  }
  lose_stripe(pipe, end, "it acknowledges what was never sent");
}

// Of a frame that is one for certain, where its attempt runs.
void DataPlane::check_violation(const Pipe& pipe, std::size_t end, const Transit& transit,
                                const wire::FrameHeader& header, bool taken) {
  if (!transit.violates || transit.flip || peer_.lies()) return;
  if (*transit.violates == ViolationKind::kValues) return;  // see check_values
  const exchange::Attempt* run = attempts_.find(header.attempt);
  const wire::Member* sender = nullptr;
  for (const auto& [id, member] : world_.history.everybody) {
    if (member.incarnation == pipe.life[1 - end]) sender = &member;
  }
  const Own* own = find(header.attempt);
  if (run == nullptr || sender == nullptr || own == nullptr || own->failed || own->committed)
    return;
  const bool phase = *transit.violates == ViolationKind::kPhase;
  if (phase && (gave(header.attempt, header.chunk) || !run->contributes())) return;
  if (taken) {
    world_.history.fail(
        "P9", cat("slot ", peer_.slot, " takes a frame of chunk ", header.chunk, " of attempt ",
                  to_text(header.attempt), " that its plan does not allow"));
  }
  if (accused_.count({header.attempt, sender->id}) > 0) return;
  world_.history.fail(
      "P9", cat("slot ", peer_.slot, " says nothing of a frame of chunk ", header.chunk,
                " of attempt ", to_text(header.attempt), " that its plan does not allow"));
}

// What made an attempt fail, since no encoder writes it.
void DataPlane::check_values(const Transit& transit, const wire::FrameHeader& header) {
  const bool values = transit.violates == ViolationKind::kValues && !transit.flip;
  const Own* own = find(header.attempt);
  if (!values || peer_.lies() || own == nullptr || !own->failed) return;
  const bool said = std::any_of(accused_.begin(), accused_.end(),
                                [&](const auto& one) { return one.first == header.attempt; });
  if (said) return;
  world_.history.fail("P9",
                      cat("slot ", peer_.slot, " says nothing of what it was sent in attempt ",
                          to_text(header.attempt), ", and fails by it"));
}

}  // namespace jccl::sim
