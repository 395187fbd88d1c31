// Lies in audited attempts: an owner that adds up wrong, roots of what was not sent or not
// received, answers that are forged or withheld. What comes of them the oracles know: no honest key
// is convicted, and where all cells are audited no wrong one is committed.
#include <algorithm>

#include "base/text.h"
#include "collective/plan.h"
#include "sim/network/plan.h"
#include "sim/network/plane.h"
#include "sim/world.h"

namespace jccl::sim {

using base::cat;

// Its own share is added up with another value than it is bound by: that is put back when the sum
// is made, before the roots are.
void DataPlane::tamper(const wire::Start& start, Own& own) {
  base::Rng& rng = world_.rng.frames;
  if (!peer_.lies() || !own.info->audited || !rng.chance(world_.mix.audit_lies / 2)) return;
  const auto plan = collective::decode(start.plan);
  const wire::PeerId self = peer_.machine->id();
  std::size_t at = 0;
  std::vector<std::size_t> mine;
  const auto sizes = chunk_bytes_of(plan.value(), own.call->agreed.aggregator);
  for (std::uint32_t chunk = 0; chunk < sizes.size(); ++chunk) {
    const bool owns = owner_of(plan.value(), chunk, own.call->agreed.aggregator) == self;
    for (std::size_t i = 0; i < sizes[chunk] / sizeof(float); ++i, ++at) {
      if (owns) mine.push_back(at);
    }
  }
  if (mine.empty()) return;
  own.info->audit_lied = true;
  own.tampered = mine[rng.below(mine.size())];
  own.call->memory[*own.tampered] += 3e6F;
  if (world_.mix.audit < 1) own.info->bent = true;  // perhaps nobody looks
  ++world_.counts.audit_lies;
  if (world_.tracing()) {
    world_.note(cat("     ", peer_.slot, " adds up wrong in ", to_text(own.attempt)));
  }
}

void DataPlane::mend(Own& own) {
  if (!own.tampered.has_value() || own.call == nullptr) return;
  own.call->memory[*own.tampered] = own.call->input[*own.tampered];
  own.tampered.reset();
}

void DataPlane::lie_in_roots(const Own& own, wire::AuditRoots* roots) {
  base::Rng& rng = world_.rng.frames;
  if (!peer_.lies() || roots->none() || !rng.chance(world_.mix.audit_lies / 4)) return;
  if (world_.tracing()) {
    world_.note(cat("     ", peer_.slot, " lies in what it is bound by in ", to_text(own.attempt)));
  }
  ++world_.counts.audit_lies;
  own.info->audit_lied = true;
  const std::size_t whose = rng.below(roots->parts.size());
  switch (rng.below(5)) {
    case 0:
      roots->parts[whose].root[0] ^= 1;
      break;
    case 1:
      roots->receipts[whose][0] ^= 1;
      break;
    case 2:
      roots->result[0] ^= 1;
      break;
    case 3:
      roots->cells += 1000;
      break;
    default:
      *roots = {};
  }
}

// False: it says nothing.
bool DataPlane::lie_in_audit(const wire::AuditAsk& ask, std::vector<wire::AuditPart>* parts) {
  base::Rng& rng = world_.rng.frames;
  if (!peer_.lies() || !rng.chance(world_.mix.audit_lies / 4)) return true;
  if (world_.tracing()) {
    world_.note(cat("     ", peer_.slot, " lies to the audit of ", to_text(ask.attempt)));
  }
  ++world_.counts.audit_lies;
  world_.history.attempts[ask.attempt].audit_lied = true;
  switch (rng.below(5)) {
    case 0:
      for (wire::AuditPart& part : *parts) part.bytes[0] ^= 1;
      return true;
    case 1:
      for (wire::AuditPart& part : *parts) part.terms[0] ^= 1;
      return true;
    case 2:
      parts->clear();
      return true;
    case 3:  // it is gone when it would be shown
      world_.post(world_.now + kMillisecond, Kind::kPeerGone, peer_.slot);
      world_.post(world_.now + 100 * kMillisecond, Kind::kPeerUp, peer_.slot, 1);
      return false;
    default:
      return false;
  }
}

// An honest one is never convicted: what convicts is bound by the key alone.
void World::check_convicted(const protocol::HistoryLine& line) {
  ++counts.convicted;
  for (const auto& [name, value] : line.fields) {
    if (name != "key") continue;
    for (const SimPeer& peer : peers) {
      const bool its = std::any_of(peer.lives.begin(), peer.lives.end(), [&](auto life) {
        return base::to_hex(key_of(peer.slot, life)) == value;
      });
      if (!its || peer.lies()) continue;
      history.fail("P11", cat("slot ", peer.slot, " is honest, and convicted by an audit"));
    }
  }
}

}  // namespace jccl::sim
