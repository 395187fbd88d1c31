// In words: who is waited for and why, what disagrees, and the view people may ask for. Decides
// nothing. Pure; one event at a time.
#include <algorithm>
#include <set>

#include "base/text.h"
#include "protocol/master/master_state.h"

namespace jccl::protocol {

using base::cat;
using base::Code;

namespace {

constexpr std::size_t kNamesMax = 8;  // in one text
constexpr std::uint64_t kMillisecondsPerSecond = 1000;

}  // namespace

std::string Wording::name(const ProcessRecord& process) const {
  return process.shards > 1 ? cat(process.site, "/", process.shard) : process.site;
}

std::string Wording::came_back(const ProcessRecord& process) const {
  return cat(name(process), " came back as a new incarnation; if both are alive, give each a site ",
             "or shard of its own");
}

std::string Wording::name(wire::PeerId id) const {
  const auto found = ledger().members().find(id);
  if (found == ledger().members().end()) return cat("peer ", id);
  const wire::Member& member = found->second;
  return member.shards > 1 ? cat(member.site, "/", member.shard) : member.site;
}

std::string Wording::silence_of(const ProcessRecord& process) const {
  if (!process.connected())
    return process.seen ? " (not connected)" : " (not back since the restart)";
  const base::Duration silent = now() - process.heard;
  if (silent < options().silence / 2) return "";
  return cat(" (silent for ", silent / base::kMillisecond / 100 * 100, " ms)");
}

// What the peer hears: which key, why, for how long, and what ends it sooner.
std::string Wording::ban_text(const wire::PublicKey& key, std::uint64_t until_unix_ms,
                              const std::string& reason) const {
  std::string time;
  if (until_unix_ms != wire::kForGood) {
    const std::uint64_t left = until_unix_ms - std::min(until_unix_ms, conduct().unix_ms());
    const std::uint64_t seconds = (left + kMillisecondsPerSecond - 1) / kMillisecondsPerSecond;
    time = cat("for ", std::max<std::uint64_t>(1, seconds), " s, or ");
  }
  const std::string brief = brief_key(key);
  return cat("the key ", brief, "… is banned ", time, "until an operator pardons it (`jccl pardon ",
             brief, "`): ", reason);
}

std::string Wording::missing_members(const wire::Tag& tag) const {
  std::string names;
  std::size_t count = 0;
  for (const auto& [id, member] : ledger().members()) {
    if (forming().ready_of(tag, member) != nullptr || !stragglers().takes_part(tag, member))
      continue;
    if (++count > kNamesMax) continue;
    names += cat(count == 1 ? "" : ", ", name(id), silence_of(processes().at(member.incarnation)));
  }
  return count > kNamesMax ? cat(names, " and ", count - kNamesMax, " more") : names;
}

std::string Wording::waiting_text(const wire::Tag& tag) const {
  const Round& round = rounds().at(tag);
  if (round.running.has_value()) {
    if (round.running->phase() == AttemptPhase::kAgreed && round.running->audit.has_value()) {
      return audits().audit_text(*round.running);
    }
    return cat("attempt ", base::to_text(round.running->attempt()), " waits for DONE of ",
               running_waits(*round.running));
  }
  const std::string text = forming().forming_wait(tag).text;
  const bool outsiders_alone =
      !round.ready.empty() &&
      std::none_of(round.ready.begin(), round.ready.end(),
                   [&](const auto& entry) { return processes().at(entry.first).id != 0; });
  return text.empty() && outsiders_alone ? "waits for a site that contributes" : text;
}

// Who is not DONE, with what it has left to move.
std::string Wording::running_waits(const MasterAttempt& running) const {
  return running.waits_for(
      [&](const Participant& part) { return stragglers().left_text(running, part); });
}

// All members wait, each for a round that needs another: the calls were made in different orders.
std::string Wording::cross_wait() const {
  std::string text;
  std::set<wire::Tag> tags;
  for (const auto& [tag, round] : rounds()) {
    if (round.running.has_value()) return {};
  }
  for (const auto& [id, member] : ledger().members()) {
    std::string waits;
    for (const auto& [tag, round] : rounds()) {
      const bool calls = round.ready.count(member.incarnation) > 0;
      if (!calls && !forming().asks_in_vain(member, tag)) continue;
      tags.insert(tag);
      waits += cat(waits.empty() ? "" : " and ", calls ? "" : "the state of ", tag);
    }
    if (waits.empty()) return {};
    text += cat(text.empty() ? "" : ", ", name(id), " waits in ", waits);
  }
  return tags.size() < 2 ? "" : cat("cross wait: ", text);
}

// A site enters as a whole: whose other shards are not here, or have not called, waits for nobody
// else.
std::string Wording::missing_shards(const ProcessRecord& process, const wire::Tag& called) const {
  std::set<std::uint32_t> here;
  for (const wire::Incarnation incarnation : connections().processes_at(process.site)) {
    const ProcessRecord& other = processes().at(incarnation);
    const bool did = called.empty() || rounds().at(called).ready.count(incarnation) > 0;
    if (other.connected() && other.resumed && did) here.insert(other.shard);
  }
  std::string names;
  std::size_t count = 0;
  for (std::uint32_t shard = 0; shard < process.shards; ++shard) {
    if (here.count(shard) > 0 || JCCL_PLANTED("missing-shards-not-named")) continue;
    if (++count > kNamesMax) continue;
    names += cat(count == 1 ? "" : ", ", shard);
  }
  if (count == 0) return {};
  return cat("waits for ", count == 1 ? "shard " : "shards ", names,
             count > kNamesMax ? cat(" and ", count - kNamesMax, " more") : "", " of ",
             process.shards, " of its own site", called.empty() ? "" : cat(" to call ", called));
}

// `called`: the tag that it is READY for; empty: it synchronises.
std::string Wording::outsider_text(const ProcessRecord& process, const wire::Tag& called) const {
  std::string why = conduct().kept_outside(process.site);
  if (why.empty()) why = missing_shards(process);
  if (why.empty() && !called.empty()) why = missing_shards(process, called);
  return cat(name(process), why.empty() ? " is not admitted yet" : cat(" ", why));
}

// Only what stands still for a heartbeat is told, and only when it changed: a round that flows
// costs nothing.
void Wording::tell_waiting() {
  const std::string crossed = cross_wait();
  if (crossed.empty())
    crossed_since_ = base::kNever;
  else if (crossed_since_ == base::kNever)
    crossed_since_ = now();
  const bool cross = !crossed.empty() && now() - crossed_since_ >= 2 * options().heartbeat;
  for (auto& [tag, round] : rounds()) {
    tell_ready(tag, cross ? crossed : "");
    if (round.running.has_value()) {
      if (now() - round.running->since < options().heartbeat) continue;
      const std::string text = waiting_text(tag);
      if (text == round.running_told) continue;
      round.running_told = text;
      for (const auto& [id, part] : round.running->parts()) {
        const ProcessRecord* process =
            part.evicted ? nullptr : connections().record_of(part.incarnation);
        if (process != nullptr) send(*process, wire::Waiting{round.running->round(), text});
      }
    }
  }
}

// While an attempt runs only outsiders are READY, and what they wait for is another matter.
void Wording::tell_ready(const wire::Tag& tag, const std::string& crossed) {
  Round& round = rounds().at(tag);
  if (round.ready.empty()) return;
  const std::string text = crossed.empty() ? waiting_text(tag) : crossed;
  for (auto& [incarnation, open] : round.ready) {
    if (now() - open.since < options().heartbeat) continue;
    const ProcessRecord* process = connections().record_of(incarnation);
    const std::string own = process->id != 0 ? text : outsider_text(*process, tag);
    if (own == open.told) continue;
    open.told = own;
    send(*process, wire::Waiting{open.ready.round, own});
  }
}

// Lists who sent what, those that sent the same together.
// A list, of leaves say, as far as it is read.
std::string brief(const std::string& list) {
  constexpr std::size_t kShown = 320;
  if (list.size() <= kShown) return list;
  const std::size_t cut = list.rfind(", ", kShown);
  return cut == std::string::npos ? list : cat(list.substr(0, cut), ", …");
}

std::string first_difference(const std::string& one, const std::string& other) {
  if (brief(one) == one && brief(other) == other) return {};  // both are read
  const auto at = static_cast<std::size_t>(
      std::mismatch(one.begin(), one.end(), other.begin(), other.end()).first - one.begin());
  const auto part = [at](const std::string& list) {
    const std::size_t comma = at == 0 ? std::string::npos : list.rfind(", ", at - 1);
    const std::size_t begin = comma == std::string::npos ? 0 : comma + 2;
    return list.substr(begin, list.find(", ", std::max(begin, at)) - begin);
  };
  const std::string a = part(one), b = part(other);
  if (a == b) return "; they differ in a leaf further on";
  return cat("; the first difference: ", a.empty() ? "nothing" : a, " and ",
             b.empty() ? "nothing" : b);
}

std::string Wording::mismatch_text(const wire::Tag& tag) const {
  std::map<std::string, std::string> who;
  std::vector<std::string> order;
  const auto add = [&](const std::string& what, wire::PeerId id) {
    std::string& names = who[what];
    if (names.empty()) order.push_back(what);
    names += cat(names.empty() ? "" : ", ", name(id));
  };
  const auto listed = [&](const char* title) {
    std::string text =
        cat("round ", ledger().standing(tag).committed + 1, " of ", tag, ": ", title);
    for (const std::string& what : order) text += cat("; ", who[what], ": ", brief(what));
    return order.size() < 2 ? text : text + first_difference(order[0], order[1]);
  };
  for (const auto& [id, member] : ledger().members()) {
    if (stragglers().takes_part(tag, member)) add(cat(member.shards, " shards"), id);
  }
  if (order.size() > 1) return listed("sites have different numbers of shards");
  who.clear(), order.clear();
  std::map<std::uint32_t, std::set<wire::Digest>> descriptors;
  for (const auto& [id, member] : ledger().members()) {
    if (!stragglers().takes_part(tag, member)) continue;
    const wire::Ready& ready = forming().ready_of(tag, member)->ready;
    descriptors[member.shard].insert(ready.descriptor);
    add(ready.summary.empty() ? base::to_hex(ready.descriptor) : ready.summary, id);
  }
  for (const auto& [shard, set] : descriptors) {
    if (set.size() > 1) return listed("peers disagree");
  }
  who.clear(), order.clear();
  for (const auto& [id, member] : ledger().members()) {
    if (!stragglers().takes_part(tag, member)) continue;
    add(cat("fingerprint ", base::to_hex(forming().ready_of(tag, member)->ready.fingerprint)), id);
  }
  return listed("the state would not evolve alike");
}

MasterView Wording::view(base::Time now) const {
  MasterView view;
  view.epoch = ledger().epoch();
  std::map<wire::Tag, std::string> texts;  // made once: each names who is missing among all
  for (const auto& [tag, round] : rounds()) {
    if (round.running.has_value() || !round.ready.empty()) texts[tag] = waiting_text(tag);
  }
  for (const auto& [incarnation, process] : processes()) {
    PeerView peer;
    peer.member = membership().member_of(process);
    peer.connected = process.connected();
    peer.admitted = process.id != 0;
    peer.silent = std::max<base::Duration>(0, now - process.heard);
    peer.progress = process.progress;
    peer.moving = process.moving;
    peer.max_rate = base::tighter(process.max_rate, options().max_rate);
    peer.day_bytes = process.day_bytes;
    peer.trouble = stragglers().trouble_of(process, now);
    peer.faults = conduct().blame_.words(process.key, now);
    peer.token = process.token;
    base::Time oldest = base::kNever;
    for (const auto& [tag, round] : rounds()) {
      const auto open = round.ready.find(incarnation);
      if (open == round.ready.end() || open->second.since >= oldest) continue;
      oldest = open->second.since;
      peer.waiting_for = cat(tag, " ", texts.at(tag));
    }
    for (const auto& [tag, asked] : process.syncs) {
      if (peer.waiting_for.empty()) peer.waiting_for = cat("sync of ", tag, ": ", asked.told);
    }
    view.peers.push_back(std::move(peer));
  }
  std::sort(view.peers.begin(), view.peers.end(), [](const PeerView& a, const PeerView& b) {
    return std::pair(a.member.id == 0, a.member.id) < std::pair(b.member.id == 0, b.member.id);
  });
  std::set<wire::Tag> tags;
  for (const auto& [tag, standing] : ledger().tags()) tags.insert(tag);
  for (const auto& [tag, round] : rounds()) tags.insert(tag);
  for (const wire::Tag& tag : tags) {
    TagView one;
    one.info = {tag, ledger().standing(tag).committed, state_sync().is_state(tag)};
    one.phase = "idle";
    if (one.info.is_state) one.holders = state_sync().serving(tag, 0).holders.size();
    const auto round = rounds().find(tag);
    if (round != rounds().end()) {
      one.commits = round->second.commits;
      one.aborts = round->second.aborts;
      one.audit = round->second.audit;
      one.audited = round->second.audited;
      one.audit_bytes = round->second.audit_bytes;
      if (round->second.running.has_value()) {
        one.phase = "running";
        one.attempt = round->second.running->attempt();
      } else if (!round->second.ready.empty()) {
        one.phase = "forming";
      }
      if (one.phase != "idle") one.waiting_for = texts.at(tag);
      if (const std::string why = state_votes().dispute(tag); !why.empty()) {
        one.phase = "disputed";
        one.waiting_for = why;
      }
    }
    view.tags.push_back(std::move(one));
  }
  for (const auto& [key, ban] : ledger().bans()) {
    if (ban.until_unix_ms <= conduct().unix_ms()) continue;
    view.bans.push_back({key, ban.site, ban.reason, ban.until_unix_ms});
  }
  for (const auto& [name, use] : ledger().tokens()) {
    view.tokens.push_back({name, use.shards.size(), use.revoked});
  }
  view.findings = findings().newest(now);
  return view;
}

}  // namespace jccl::protocol
