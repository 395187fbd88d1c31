// Audits: whether the owners of a round's cells added them up right. Every contributor is bound by
// the roots in its DONE before anybody knows which cells are looked at; then each shows its part of
// those, and the master adds them up itself. It believes nobody's word about anybody else: a proof
// convicts whoever is bound by it, and where two say different things of what went between them it
// is their link's. Nothing that was drawn commits before it is judged. Pure; one event at a time.
#include <algorithm>
#include <cmath>
#include <set>

#include "base/audit_limits.h"
#include "base/check.h"
#include "base/planted.h"
#include "base/rng.h"
#include "base/text.h"
#include "protocol/master/master_state.h"
#include "wire/cell_leaf.h"

namespace jccl::protocol {

using base::cat;
using base::Code;

namespace {

using Group = std::vector<const Participant*>;  // contributors of a shard; by position in its plan

Group group_of(const MasterAttempt& running, std::uint32_t shard) {
  Group group;
  for (const auto& [id, part] : running.parts()) {
    if (part.contributes() && part.shard == shard) group.push_back(&part);
  }
  return group;
}

// Where each owner's cells begin, and after the last where all end.
std::vector<std::uint64_t> begins_of(const Group& group) {
  std::vector<std::uint64_t> begins{0};
  for (const Participant* owner : group) begins.push_back(begins.back() + owner->audit.cells);
  return begins;
}

std::size_t owner_of(const std::vector<std::uint64_t>& begins, std::uint32_t cell) {
  const auto after = std::upper_bound(begins.begin(), begins.end(), cell);
  return static_cast<std::size_t>(after - begins.begin()) - 1;
}

// All parts of one, and the result.
std::size_t cell_bytes(std::size_t contributors) {
  return (contributors + 1) * base::kCellBytesMax;
}

// What its parts are bound by, and where in there the cell stands.
bool is_bound(const Auditor& auditor, const MasterAttempt& running, const Group& group,
              const Participant& part, const wire::AuditPart& shown) {
  const std::vector<std::uint64_t> begins = begins_of(group);
  const std::size_t owner = owner_of(begins, shown.cell);
  if (JCCL_PLANTED("parts-need-no-proof")) return true;
  const wire::RunId& run = running.starts[part.shard].audit;
  const wire::Sha256 leaf = auditor.leaf(
      wire::cell_head(run, running.attempt(), shown.result ? 0 : part.id, shown.cell, shown.terms),
      shown.bytes);
  if (shown.result) {
    return base::proves(shown.path, leaf, shown.cell, begins.back(), part.audit.result);
  }
  const wire::PartsRoot& root = part.audit.parts[owner];
  return base::proves(shown.path, leaf, shown.cell - begins[owner], root.cells, root.root);
}

// Each with the chance; all that are skipped at once.
std::vector<std::uint32_t> drawn(base::Rng& rng, std::uint64_t all, double chance) {
  std::vector<std::uint32_t> cells;
  if (chance <= 0) return cells;
  const double miss = chance >= 1 ? 0 : std::log1p(-chance);
  for (double at = 0;; at += 1) {
    if (miss < 0) at += std::floor(std::log1p(-rng.unit()) / miss);
    if (!(at < static_cast<double>(all))) return cells;
    cells.push_back(static_cast<std::uint32_t>(at));
  }
}

}  // namespace

// ---- before the attempt -------------------------------------------------------------------------

// Whether the attempt that is about to start can be audited; what keeps it from that is said once.
bool Audits::may_audit(const wire::Tag& tag, const std::vector<Participant>& parts,
                       const std::vector<base::Bytes>& plans) {
  if (options().audit <= 0) return false;
  Round& round = rounds().at(tag);
  std::map<std::uint32_t, std::vector<const Participant*>> groups;
  for (const Participant& part : parts) {
    if (part.contributes()) groups[part.shard].push_back(&part);
  }
  std::string why;
  for (const auto& [shard, group] : groups) {
    if (!why.empty()) break;
    if (group.size() < 2) {
      why = "of one contribution the sum is its own";
    } else if (group.size() > base::kAuditPeersMax) {
      why = cat(group.size(), " peers contribute, and audits have at most ", base::kAuditPeersMax);
    } else if (why.empty()) {
      why = options().auditor.refusal(round.ready.at(group.front()->incarnation).ready.hint,
                                      plans[shard]);
    }
  }
  if (!why.empty()) note_audit(tag, cat("not audited: ", why));
  return why.empty();
}

void Audits::note_audit(const wire::Tag& tag, const std::string& text) {
  std::string& told = rounds().at(tag).audit;
  if (told == text || JCCL_PLANTED("unaudited-in-silence")) return;
  told = text;
  note("audit", {{"tag", tag}, {"text", text}});
}

// ---- when all are DONE --------------------------------------------------------------------------

// What came with DONE, if it has the form that the plan gives it. What has not is nobody's root,
// and differs from everybody's.
void Audits::keep_roots(const MasterAttempt& running, Participant& part,
                        const wire::AuditRoots& roots) {
  if (!running.audit.has_value()) return;
  const std::size_t count = group_of(running, part.shard).size();
  if (roots.parts.size() == count && roots.receipts.size() == count) part.audit = roots;
}

// Both ends of what it sent to itself are its own words, and of no cells there is no hash.
bool Audits::contradicts_itself(const MasterAttempt& running, const Participant& part) {
  const Group group = group_of(running, part.shard);
  const auto at =
      static_cast<std::size_t>(std::find(group.begin(), group.end(), &part) - group.begin());
  const wire::AuditRoots& roots = part.audit;
  if (roots.none() || JCCL_PLANTED("own-receipts-not-compared")) return false;
  if (roots.parts[at].cells != roots.cells || roots.parts[at].root != roots.receipts[at])
    return true;
  if (JCCL_PLANTED("hashes-of-nothing")) return false;
  const auto made_up = [](std::uint32_t cells, const wire::Sha256& root) {
    return cells == 0 && root != wire::Sha256{};
  };
  for (const wire::PartsRoot& sent : roots.parts) {
    if (made_up(sent.cells, sent.root)) return true;
  }
  return std::any_of(roots.receipts.begin(), roots.receipts.end(),
                     [&](const wire::Sha256& root) { return made_up(roots.cells, root); });
}

// Between whom not the same went out as came in, as they say; or one of the two lies.
LinkSet Audits::crossed_roots(const MasterAttempt& running, bool of_gone) {
  LinkSet links;
  for (std::uint32_t shard = 0; shard < running.starts.size(); ++shard) {
    const Group group = group_of(running, shard);
    for (std::size_t i = 0; i < group.size(); ++i) {
      for (std::size_t o = 0; o < group.size(); ++o) {
        const bool gone = group[i]->evicted || group[o]->evicted;
        if (gone != of_gone && !JCCL_PLANTED("the-gone-cross-roots")) continue;
        const wire::AuditRoots& sent = group[i]->audit;
        const wire::AuditRoots& got = group[o]->audit;
        const bool same =
            !sent.none() && !got.none() && sent.parts[o].cells == got.cells &&
            (sent.parts[o].root == got.receipts[i] || JCCL_PLANTED("receipts-not-compared"));
        const auto ends = std::minmax(group[i]->id, group[o]->id);
        if (!same) links.insert({ends.first, ends.second});
      }
    }
  }
  return links;
}

void Audits::draw(const wire::Tag& tag) {
  Round& round = rounds().at(tag);
  MasterAttempt& running = *round.running;
  Audit& audit = *running.audit;
  audit.drawn = true;
  base::Rng rng(options().auditor.random());
  double least = options().audit;
  for (std::uint32_t shard = 0; shard < running.starts.size(); ++shard) {
    const Group group = group_of(running, shard);
    const auto all = std::min<std::uint64_t>(begins_of(group).back(), UINT32_MAX);
    const std::size_t most =
        std::max<std::size_t>(1, kAuditBytesMax / cell_bytes(group.size()) / running.starts.size());
    const double share = all == 0 ? 1 : static_cast<double>(most) / static_cast<double>(all);
    const double chance = std::min(options().audit, share);
    least = std::min(least, chance);
    for (const std::uint32_t cell :
         drawn(rng, all, JCCL_PLANTED("nothing-is-drawn") ? 0 : chance)) {
      audit.cells.push_back({shard, cell});
    }
  }
  if (least < options().audit) {
    note_audit(tag, cat("audited at a share of ", least, " instead of ", options().audit,
                        ": more would bring over ", base::bytes_text(kAuditBytesMax),
                        " of each round to the master"));
  } else {
    note_audit(tag, cat("audited at a share of ", options().audit));
  }
}

// Its part of each, and the results of those that it owns.
std::size_t Audits::pieces_of(const MasterAttempt& running, const Participant& part,
                              const std::vector<std::uint32_t>& cells) {
  const Group group = group_of(running, part.shard);
  const std::vector<std::uint64_t> begins = begins_of(group);
  const auto owned = std::count_if(cells.begin(), cells.end(), [&](std::uint32_t cell) {
    return group[owner_of(begins, cell)]->id == part.id;
  });
  return cells.size() + (JCCL_PLANTED("owners-are-as-quick") ? 0 : static_cast<std::size_t>(owned));
}

// The next cells, when the last are judged: what comes at once is bounded.
void Audits::ask_for_cells(const wire::Tag& tag) {
  MasterAttempt& running = *rounds().at(tag).running;
  Audit& audit = *running.audit;
  if (!audit.open.empty() || audit.asked == audit.cells.size()) return;
  std::map<std::uint32_t, std::vector<std::uint32_t>> cells;  // by shard
  const std::size_t end = std::min(audit.cells.size(), audit.asked + base::kCellsAskedMax);
  for (std::size_t bytes = 0; audit.asked < end; ++audit.asked) {
    const CellName& name = audit.cells[audit.asked];
    const std::size_t shown_by = JCCL_PLANTED("windows-of-all-parts")
                                     ? running.parts().size()
                                     : group_of(running, name.shard).size();
    bytes += cell_bytes(shown_by);
    if (bytes > kAuditBytesAtOnce && !audit.open.empty()) break;
    audit.open.try_emplace(name);
    cells[name.shard].push_back(name.cell);
  }
  audit.since.clear();
  audit.batch = audit.open.size();
  ++audit.batches;
  for (const auto& [shard, asked] : cells) {
    for (const Participant* part : group_of(running, shard)) {
      audit.since[part->id] = now();
      audit.pieces[part->id] += pieces_of(running, *part, asked);
      const ProcessRecord* process = connections().record_of(part->incarnation);
      if (process != nullptr && process->resumed)
        send(*process, wire::AuditAsk{running.attempt(), asked});
    }
  }
}

// Of the cells that are asked for: those of which the contributor owes its part, or the result.
std::vector<std::uint32_t> Audits::owed_cells(const MasterAttempt& running,
                                              const Participant& part) {
  std::vector<std::uint32_t> owed;
  const Group group = group_of(running, part.shard);
  const std::vector<std::uint64_t> begins = begins_of(group);
  for (const auto& [name, cell] : running.audit->open) {
    if (name.shard != part.shard) continue;
    const bool owns = group[owner_of(begins, name.cell)]->id == part.id;
    if (cell.parts.count(part.id) == 0 || (owns && !cell.result.has_value())) {
      owed.push_back(name.cell);
    }
  }
  return owed;
}

// It goes, or ends its call, while an audit asks for cells that it added up: who went whenever a
// wrong sum of its is drawn would never be convicted.
void Audits::note_unshown(const ProcessRecord& process, const MasterAttempt& running,
                          const Participant& part) {
  if (!running.audit.has_value() || JCCL_PLANTED("who-flees-an-audit-is-free")) return;
  const Group group = group_of(running, part.shard);
  const std::vector<std::uint64_t> begins = begins_of(group);
  for (const std::uint32_t cell : owed_cells(running, part)) {
    if (group[owner_of(begins, cell)]->id != part.id) continue;
    return hold_against(process, Fault::kWithheld,
                        "left before it showed a sum that an audit drew");
  }
}

// On a new connection: what was said on the old one may be lost.
void Audits::ask_anew(const ProcessRecord& process) {
  for (auto& [tag, round] : rounds()) {
    if (!round.running.has_value() || !round.running->audit.has_value()) continue;
    MasterAttempt& running = *round.running;
    const Participant* part = running.part_of(process.incarnation);
    if (part == nullptr || !part->contributes() || part->evicted) continue;
    if (const auto owed = owed_cells(running, *part); !owed.empty()) {
      running.audit->since.try_emplace(part->id, now());  // to come back anew buys no time
      if (!JCCL_PLANTED("lost-asks-stay-lost"))
        send(process, wire::AuditAsk{running.attempt(), owed});
    }
  }
}

// What nobody asked for is not kept: each cell counts once, from each that owes it.
void Audits::on_audit_part(ProcessRecord& process, const wire::AuditPart& shown) {
  const wire::Tag tag = attempts().running_tag(shown.attempt);
  if (tag.empty()) return;
  MasterAttempt& running = *rounds().at(tag).running;
  const Participant* part = running.part_of(process.incarnation);
  if (part == nullptr || !part->contributes() || part->evicted || !running.audit.has_value())
    return;
  const auto open = running.audit->open.find({part->shard, shown.cell});
  if (open == running.audit->open.end()) return;
  AuditedCell& cell = open->second;
  const Group group = group_of(running, part->shard);
  const std::size_t owner = owner_of(begins_of(group), shown.cell);
  const bool owed = shown.result ? group[owner]->id == part->id && !cell.result.has_value()
                                 : cell.parts.count(part->id) == 0;
  if (!owed) return;
  if (JCCL_PLANTED("each-cell-buys-time")) running.audit->since[part->id] = now();
  ++running.audit->shown[part->id];
  rounds().at(tag).audit_bytes += shown.bytes.size();
  if (!is_bound(options().auditor, running, group, *part, shown)) {
    return convict(tag, *part,
                   cat("showed another ", shown.result ? "result" : "part", " of cell ", shown.cell,
                       " than its DONE named"));
  }
  if (shown.result) {
    cell.result = shown;
  } else {
    cell.parts.emplace(part->id, shown);
  }
  if (owed_cells(running, *part).empty()) {
    note_shown(running, *part);
    touch(tag);  // how long the others may take follows from that
  }
  if (!cell.result.has_value() || cell.parts.size() < group.size()) return;
  touch(tag);
  if (judge_cell(tag, {part->shard, shown.cell})) running.audit->open.erase(open);
}

// All of it is here. False: somebody was convicted, and the attempt is over.
bool Audits::judge_cell(const wire::Tag& tag, const CellName& name) {
  MasterAttempt& running = *rounds().at(tag).running;
  const AuditedCell& cell = running.audit->open.at(name);
  const Group group = group_of(running, name.shard);
  const Participant& owner = *group[owner_of(begins_of(group), name.cell)];
  ShownCell shown;
  shown.plan = running.starts[name.shard].plan;
  shown.terms = cell.result->terms, shown.result = cell.result->bytes;
  shown.n = running.round().n;
  for (const Participant* part : group) {
    const wire::AuditPart& one = cell.parts.at(part->id);
    // All members are bound to the owner's terms by the root of the result, which is theirs, too.
    if (one.terms != cell.result->terms && !JCCL_PLANTED("terms-not-compared")) {
      convict(tag, *part, cat("took cell ", name.cell, " for something else than all others"));
      return false;
    }
    shown.weights.push_back(part->weight);
    shown.parts.emplace_back(one.bytes);
  }
  const Sum sum = options().auditor.add_up(shown);
  if (sum.wrong.has_value()) {
    convict(tag, *group[*sum.wrong],
            cat("sent a part of cell ", name.cell, " that no encoder writes: ", sum.why));
    return false;
  }
  if (!sum.right && !JCCL_PLANTED("sums-not-compared")) {
    convict(tag, owner,
            cat("added up cell ", name.cell, " wrong", sum.why.empty() ? "" : ": ", sum.why));
    return false;
  }
  ++rounds().at(tag).audited;
  return true;
}

// ---- what follows -------------------------------------------------------------------------------

// Counts with two sites as well: what proves it is nobody's word.
void Audits::hold_against(const ProcessRecord& process, Fault fault, const std::string& why) {
  const double sum = conduct().blame_.charge(process.key, process.token, fault, now());
  note("fault", {{"site", process.site}, {"key", base::to_hex(process.key)}, {"text", why}});
  if (sum >= kBanAt) conduct().guilty_[process.key] = process.site;
}

// The attempt is over, and goes again without it. `part` and the attempt end here.
void Audits::convict(const wire::Tag& tag, const Participant& part, const std::string& what) {
  const MasterAttempt& running = *rounds().at(tag).running;
  const std::string site = part.site;
  const std::string why =
      cat(wording().name(part.id), " ", what, ", in round ", running.round().n, " of ", tag);
  const ProcessRecord* process = connections().record_of(part.incarnation);
  note("convicted", {{"tag", tag},
                     {"n", cat(running.round().n)},
                     {"attempt", base::to_text(running.attempt())},
                     {"site", site},
                     {"key", process == nullptr ? "" : base::to_hex(process->key)},
                     {"text", why}});
  if (process != nullptr && !JCCL_PLANTED("the-convicted-pay-nothing")) {
    hold_against(*process, Fault::kAudit, why);
  }
  attempts().abort(tag, Code::kCorrupt, why, true);
  if (JCCL_PLANTED("the-convicted-stay-in")) return;
  conduct().put_out(site, options().silence);
  connections().depart(site, why, "evict");
}

// Between the two nobody can say which is wrong: as a link that breaks in this round, and in the
// next attempt again. Of two sites the round ends for both, as with any result that differs.
void Audits::hold_roots_against_links(const wire::Tag& tag, const LinkSet& links) {
  Round& round = rounds().at(tag);
  MasterAttempt& running = *round.running;
  std::string text = "their hashes of the same data are not equal: ";
  std::size_t told = 0;
  for (const auto& [a, b] : links) {
    if (++told <= 8)
      text += cat(told == 1 ? "" : ", ", wording().name(a), " and ", wording().name(b));
  }
  if (running.sites_left() < 3) {
    ++round.memory.corrupt;
    return attempts().abort(tag, Code::kCorrupt, text, round.memory.corrupt < 2);
  }
  for (const auto& [a, b] : links) {
    link_faults().remember_link(round, running.attempt(), a, b);
    link_faults().remember_link(round, running.attempt(), b, a);
  }
  attempts().abort(tag, Code::kCorrupt, text, true);
}

// All contributors are DONE, and alike.
Audits::Step Audits::audit(const wire::Tag& tag) {
  MasterAttempt& running = *rounds().at(tag).running;
  if (!running.audit.has_value()) return Step::kPassed;
  Audit& audit = *running.audit;
  if (!audit.drawn) {
    for (const auto& [id, part] : running.parts()) {
      if (!part.contributes() || part.evicted || !contradicts_itself(running, part)) continue;
      convict(tag, part, "says that it received something else from itself than it sent");
      return Step::kEnded;
    }
    if (const LinkSet links = crossed_roots(running, false); !links.empty()) {
      hold_roots_against_links(tag, links);
      return Step::kEnded;
    }
    // Nobody is there to answer for it: the attempt goes again, and no link pays.
    if (!crossed_roots(running, true).empty() && !JCCL_PLANTED("what-the-gone-sent-counts")) {
      attempts().abort(tag, Code::kPeerLost, "a peer that has left and a receiver disagree", true);
      return Step::kEnded;
    }
    draw(tag);
  }
  const bool judged = audit.asked == audit.cells.size() && audit.open.empty();
  if (!judged && !JCCL_PLANTED("audits-without-the-dead")) {
    for (const auto& [id, part] : running.parts()) {
      if (!part.contributes() || !part.evicted) continue;
      attempts().abort(tag, Code::kPeerLost, cat(part.site, " left before it was audited"), true);
      return Step::kEnded;
    }
  }
  if (judged || JCCL_PLANTED("commits-before-the-audit")) return Step::kPassed;
  if (ends_by_withholding(tag)) return Step::kEnded;
  ask_for_cells(tag);
  return Step::kWaits;
}

std::string Audits::audit_text(const MasterAttempt& running) const {
  std::string names;
  for (const auto& [id, part] : running.parts()) {
    if (!part.contributes() || part.evicted || owed_cells(running, part).empty()) continue;
    names += cat(names.empty() ? "" : ", ", wording().name(id));
  }
  const Audit& audit = *running.audit;
  return cat("attempt ", base::to_text(running.attempt()), " is audited, ",
             audit.asked - audit.open.size(), " of ", audit.cells.size(),
             " cells are judged; waits for cells of ", names.empty() ? "nobody" : names);
}

}  // namespace jccl::protocol
