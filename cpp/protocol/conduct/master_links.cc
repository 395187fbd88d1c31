// Links that carried nothing, or what nobody can use: who says so, whom that is about, and which
// links plans then do without. Pure; one event at a time.
#include <algorithm>
#include <array>

#include "base/planted.h"
#include "base/text.h"
#include "protocol/master/master_state.h"

namespace jccl::protocol {

using base::cat;
using base::Code;
using base::Status;

namespace {

constexpr base::Duration kCutMin = 10 * base::kSecond;
constexpr base::Duration kCutMax = 600 * base::kSecond;
constexpr std::uint32_t kRoundsOften = 3;  // it fails in each, once: one end has to go, if it must
constexpr base::Duration kSeniority = 3600 * base::kSecond;

}  // namespace

void LinkFaults::remember_link(Round& round, const wire::Attempt& attempt, wire::PeerId reporter,
                               wire::PeerId named, bool juniors_pay) {
  const bool gone = member_record(reporter) == nullptr || member_record(named) == nullptr;
  if (named == reporter || gone) return;
  const auto [one, two] = std::minmax(reporter, named);
  const base::Time since = round.running ? round.running->since : round.memory.failed_since;
  const auto failed = round.memory.link_failures.try_emplace({one, two}, LinkFailures{{}, since});
  auto& attempts = failed.first->second.attempts;
  round.memory.named[named].insert(reporter);
  if (!attempts.insert(attempt).second) return;
  std::erase_if(cuts_, [&](const auto& cut) { return now() >= cut.second.until + kFaultHalfLife; });
  const auto [cut, first] = cuts_.try_emplace(keys_of(one, two), Cut{now(), 0, 0});
  if (attempts.size() == 1) ++cut->second.rounds;
  const bool often = (cut->second.rounds >= kRoundsOften && !JCCL_PLANTED("any-round-forgives")) ||
                     (one_has_yielded(one, two) && !JCCL_PLANTED("who-yielded-begins-anew"));
  if (attempts.size() >= 2 || often) {
    cut_link(round, one, two);
  } else if (!first && !JCCL_PLANTED("links-fail-anew-in-each-round")) {
    avoid_link(one, two);
  }
  hold_against_an_end(one, two, since, juniors_pay);
}

// Who leaves and comes again has another id.
std::pair<wire::PublicKey, wire::PublicKey> LinkFaults::keys_of(wire::PeerId one,
                                                                wire::PeerId two) const {
  const auto key = [&](wire::PeerId id) { return ledger().members().at(id).key; };
  return std::minmax(key(one), key(two));
}

// Between members, that plans do without for a while.
LinkSet LinkFaults::avoided_links(base::Time now) const {
  LinkSet avoided;
  for (const auto& [keys, cut] : cuts_) {
    if (now >= cut.until) continue;
    std::vector<const wire::Member*> ones, others;
    for (const auto& [id, member] : ledger().members()) {
      if (member.key == keys.first) ones.push_back(&member);
      if (member.key == keys.second) others.push_back(&member);
    }
    for (const wire::Member* one : ones) {
      for (const wire::Member* other : others) {
        if (one->shard == other->shard) avoided.insert(std::minmax(one->id, other->id));
      }
    }
  }
  return avoided;
}

// A link that fails is held against both its ends: nobody can tell which is to blame. Who has such
// links with several, as often as with that one, and the other end with fewer, has held the others;
// so has a free key beside one that has served. If one end is cut off or goes, it is known why, and
// says nothing of the other.
void LinkFaults::hold_against_an_end(wire::PeerId one, wire::PeerId two, base::Time since,
                                     bool juniors_pay) {
  const auto counts = [&](const ProcessRecord* process, const ProcessRecord* other) {
    return process != nullptr && other != nullptr &&
           (other->connected() || JCCL_PLANTED("the-gone-leave-broken-links"));
  };
  const std::array ends{std::pair{member_record(one), member_record(two)},
                        std::pair{member_record(two), member_record(one)}};
  for (const auto& [process, other] : ends) {
    if (!counts(process, other) || weighs_nothing(*process, *other)) continue;
    conduct().blame_.broke(process->key, broken_with(*other), now());
  }
  const auto common = [&](const auto& end) {
    const auto& [process, other] = end;
    if (!counts(process, other)) return false;
    const bool more = conduct().blame_.broken(process->key, 1, now()) >
                      conduct().blame_.broken(other->key, 1, now());
    const bool often =
        conduct().blame_.broken_elsewhere(process->key, broken_with(*other), now()) >= 0;
    return more && (often || JCCL_PLANTED("an-accident-makes-a-common-end")) &&
           !JCCL_PLANTED("one-link-after-the-other-is-free");
  };
  const std::array is_common{common(ends[0]), common(ends[1])};
  for (std::size_t i = 0; i < ends.size(); ++i) {
    const auto& [process, other] = ends[i];
    if (!counts(process, other)) continue;
    const bool junior = juniors_pay && is_junior(*process, *other) && !is_common[1 - i] &&
                        !JCCL_PLANTED("free-keys-hold-nobody");
    if (!is_common[i] && !junior) continue;
    wait_charges().note_absence(process->site,
                                junior ? wait_charges().in_trouble_since(*process) : since);
  }
}

// What links with one that has lied say of who has not is as good as its word.
bool LinkFaults::is_liar_beside(const ProcessRecord& other, const ProcessRecord& process) const {
  return conduct().blame_.is_blamed(other.key, now()) &&
         !conduct().blame_.is_blamed(process.key, now()) &&
         !JCCL_PLANTED("liars-links-weigh-as-much");
}

// Of a link with a junior, against the one that has served: unless its links with as many juniors
// as half of the others that are here have failed. That is no single one that breaks links under
// one free key after the other.
bool LinkFaults::weighs_nothing(const ProcessRecord& process, const ProcessRecord& junior) const {
  if (is_liar_beside(junior, process)) return true;
  if (!is_junior(junior, process)) return false;
  if (JCCL_PLANTED("links-with-juniors-weigh-nothing")) return true;
  std::size_t broken = 0, others = 0;
  for (const auto& [id, member] : ledger().members()) {
    const ProcessRecord* other = connections().record_of(member.incarnation);
    if (other == nullptr || !other->connected() || member.site == process.site) continue;
    ++others;
    const bool failed = cuts_.count(std::minmax(process.key, member.key)) > 0;
    broken += failed && is_junior(*other, process);
  }
  return broken < 2 || 2 * broken < others;
}

// A token of one use is somebody's, and so are all keys that came by it.
std::string LinkFaults::broken_with(const ProcessRecord& other) {
  return other.uses == 1 ? other.token : base::to_hex(other.key);
}

// Whether one of the two had to go of late for a link with just the other.
bool LinkFaults::one_has_yielded(wire::PeerId one, wire::PeerId two) const {
  const ProcessRecord *process = member_record(one), *other = member_record(two);
  if (process == nullptr || other == nullptr) return false;
  return conduct().blame_.yielded(process->key, other->key, now()) ||
         conduct().blame_.yielded(other->key, process->key, now());
}

// Not those with one that was put out for them.
void LinkFaults::forgive_links_with(wire::Incarnation incarnation) {
  const ProcessRecord* process = connections().record_of(incarnation);
  if (process == nullptr || JCCL_PLANTED("the-gone-leave-broken-links")) return;
  conduct().blame_.forgive_links_with(broken_with(*process));
}

const ProcessRecord* LinkFaults::member_record(wire::PeerId id) const {
  const auto found = ledger().members().find(id);
  return found == ledger().members().end() ? nullptr
                                           : connections().record_of(found->second.incarnation);
}

// Values that no encoder writes, from one of three or more. Who of the two is wrong nobody can
// tell, so it is their link's: no round goes over it again, and whoever has most such links goes.
bool LinkFaults::says_what_another_sent(const MasterAttempt& running, const Participant& part,
                                        const wire::Fail& fail) {
  return fail.cause == Code::kCorrupt && running.sites_left() >= 3 &&
         names_another(running, part, fail) && !JCCL_PLANTED("corrupt-ends-all");
}

bool LinkFaults::names_another(const MasterAttempt& running, const Participant& part,
                               const wire::Fail& fail) {
  const bool other = fail.peer != part.id && running.parts().count(fail.peer) > 0;
  return other || (fail.cause == Code::kLinkLost && JCCL_PLANTED("links-to-nobody-break"));
}

std::string_view LinkFaults::words_of(wire::ViolationKind kind) {
  switch (kind) {
    case wire::ViolationKind::kChunk:
      return "has a chunk that is not in the plan";
    case wire::ViolationKind::kLength:
      return "has another length than its chunk";
    case wire::ViolationKind::kSender:
      return "is not its sender's to send";
    case wire::ViolationKind::kPhase:
      return "is a result that came before all of its inputs";
    case wire::ViolationKind::kValues:
      return "has bytes that no encoder with a guard writes";
    case wire::ViolationKind::kRepeats:
      return "came again and again";
    case wire::ViolationKind::kAck:
      return "acks frames that were never sent";
  }
  return {};
}

// One's word weighs little, and counts as such words of joiners do (blame.h): nobody is framed by
// it. What most others saw is a fault like another result.
void LinkFaults::on_violation(const ProcessRecord& process, const wire::Violation& said) {
  const ProcessRecord* sender = member_record(said.peer);
  if (process.id == 0 || sender == nullptr) return;
  if (sender->key == process.key || sender->site == process.site) return;
  std::set<std::string> others = membership().member_sites();
  others.erase(sender->site);
  // Of two nobody can say which is wrong, and one is most of the others.
  const bool counts = ledger().sites() >= 3 && !JCCL_PLANTED("violations-are-free");
  const bool by_most =
      counts && conduct().blame_.seen_by_most(sender->key, process.site, others, now());
  const bool fresh = !by_most && conduct().blame_.accused(sender->key, process.key, now());
  if (!by_most && !fresh) return;  // written down once, however often it is said
  const std::string what = cat("a frame of round data ", words_of(said.kind));
  note("violation", {{"site", sender->site},
                     {"key", base::to_hex(sender->key)},
                     {"by", process.site},
                     {"text", what}});
  if (by_most) {
    conduct().charge(*sender, Fault::kFrames, cat(what, ", as most others say"));
    end_attempts_of(*sender, cat(wording().name(*sender), " sent what no plan allows"));
  } else if (counts) {
    conduct().charge(*sender, Fault::kFrame, cat(what, ", as ", process.site, " says"));
  }
}

// Who sends that, and not what the others wait for, would hold them to their deadlines.
void LinkFaults::end_attempts_of(const ProcessRecord& process, const std::string& why) {
  std::vector<wire::Tag> tags;
  for (auto& [tag, round] : rounds()) {
    const Participant* part = round.running ? round.running->part_of(process.incarnation) : nullptr;
    if (part != nullptr && part->contributes() && !part->evicted) tags.push_back(tag);
  }
  for (const wire::Tag& tag : tags) {
    stragglers().note_spoilt(tag, std::string(process.site));
    attempts().abort(tag, Code::kCorrupt, why, true);
  }
}

bool LinkFaults::hears_out(MasterAttempt& running) {
  if (running.heard_out || JCCL_PLANTED("judged-unheard")) return false;
  if (!stragglers().is_to_be_heard(running)) return false;
  running.heard_out = true;
  running.judged_at = now() + options().silence / 4;
  return true;
}

// Its START was lost with a connection, or with a master that stood still, so it could not send
// yet what the others wait for. That is so once in a round: it might lose each START on purpose.
bool LinkFaults::began_late(Round& round, const Participant& part) {
  if (part.told_again == 0 || JCCL_PLANTED("lost-starts-are-silence")) return false;
  if (now() - part.told_again >= options().silence) return false;
  return round.memory.began_late.insert(part.id).second;
}

// Somebody waits for data that does not come. Whoever the master has not heard for long either
// hangs; between two that it hears the link is cut.
void LinkFaults::judge(const wire::Tag& tag) {
  Round& round = rounds().at(tag);
  MasterAttempt& running = *round.running;
  std::string text;
  std::map<std::string, std::string> hung;  // by site
  std::set<std::pair<wire::PeerId, wire::PeerId>> cut;
  bool late = false;
  for (const auto& [named, reporters] : running.silent) {
    for (const auto& [reporter, words] : reporters) text += cat(text.empty() ? "" : "; ", words);
    const Participant& part = running.parts().at(named);
    const ProcessRecord* process =
        part.evicted ? nullptr : connections().record_of(part.incarnation);
    if (process == nullptr) continue;
    const base::Duration silent = now() - process->heard;
    if (silent >= options().silence / 2) {
      hung[part.site] = cat(wording().name(*process), " hangs: no heartbeat for ",
                            silent / base::kMillisecond, " ms; ", reporters.begin()->second);
      continue;
    }
    if (began_late(round, part)) {
      late = true;
      continue;
    }
    for (const auto& [reporter, words] : reporters) {
      if (!running.excused(named, reporter)) cut.emplace(reporter, named);
    }
  }
  if (hung.empty() && cut.empty() && !late) {  // they wait in a circle
    for (const auto& [named, reporters] : running.silent) {
      for (const auto& [reporter, words] : reporters) cut.emplace(reporter, named);
    }
  }
  for (const auto& [reporter, named] : cut) {
    remember_link(round, running.attempt(), reporter, named);
    cut_link(round, reporter, named);
    ProcessRecord* process = connections().record_of(running.parts().at(named).incarnation);
    if (process != nullptr) process->waited_since = std::min(process->waited_since, running.since);
  }
  attempts().abort(tag, Code::kPeerLost, text, true);
  for (const auto& [site, why] : hung) connections().depart(site, why, "evict");
}

// Plans do without the link for a while; each time it proves cut again, for longer. Where it held
// an attempt, for as long as whoever holds one is out: one of its ends may do so on purpose.
void LinkFaults::cut_link(Round& round, wire::PeerId a, wire::PeerId b, base::Duration held) {
  const auto [one, two] = std::minmax(a, b);
  if (ledger().members().count(a) == 0 || ledger().members().count(b) == 0) return;
  if (round.memory.cut.insert({one, two}).second) avoid_link(one, two, held);
}

void LinkFaults::avoid_link(wire::PeerId one, wire::PeerId two, base::Duration held) {
  Cut& cut = cuts_[keys_of(one, two)];
  if (now() < cut.until) return;
  const base::Duration paid = JCCL_PLANTED("links-hold-for-nothing") ? 0 : Held::kBack * held;
  const base::Duration usual = std::min(kCutMax, kCutMin << std::min(cut.times, 10U));
  cut.until = now() + std::max(usual, std::min(paid, kSeniority));
  ++cut.times;
  note("cut", {{"link", cat(wording().name(one), " ", wording().name(two))},
               {"avoided_s", cat((cut.until - now()) / base::kSecond)}});
}

// In commits, as a member; what is more than kSeniority says nothing more.
base::Duration LinkFaults::served(const ProcessRecord& process) const {
  const base::Duration now = process.in_commit ? process.served_to - process.served_since : 0;
  return std::min(kSeniority, conduct().blame_.served(process.key) + now);
}

// Not half as much; and not since it had to go for a link with just that one.
bool LinkFaults::served_less(const ProcessRecord& process, const ProcessRecord& other) const {
  const bool yielded = conduct().blame_.yielded(process.key, other.key, now());
  return 2 * served(process) < served(other) &&
         (!yielded || JCCL_PLANTED("who-yielded-is-a-junior"));
}

// It came with a token for many, or with none, and has served for less: such keys are free, so that
// a broken link weighs nothing against the other end.
bool LinkFaults::is_junior(const ProcessRecord& process, const ProcessRecord& other) const {
  const bool paid_for = process.uses == 1 && !JCCL_PLANTED("tokens-of-one-use-are-free");
  return !paid_for && served_less(process, other) && !JCCL_PLANTED("fresh-keys-weigh-as-much");
}

// With so many others it broke links of late: with each twice or more often, or with a third, too.
std::size_t LinkFaults::often_broken(const wire::PublicKey& key) const {
  const std::size_t all = conduct().blame_.broken(key, 1, now());
  const bool several = all >= 3 && !JCCL_PLANTED("links-broken-once-leave-no-trace");
  return several ? all : conduct().blame_.broken(key, 2, now());
}

// No plan avoids the links that failed: the peer with the most of them has to go, whoever reported
// them. (By those that name a peer alone, one that names all others would put them all out.) Of two
// with as many, the one that has broken links with more others of late, again and again: a link is
// held against both its ends, so one that breaks links with several goes at last. Then the one that
// has lied; then the one that has served for less; then the one that had to go less often, so that
// the same two go by turns; at first the one that more others name, for mostly that one hangs.
void LinkFaults::evict_worst_link(const wire::Tag& tag, const Status& why) {
  RoundMemory& memory = rounds().at(tag).memory;
  std::map<wire::PeerId, std::set<wire::PeerId>> links, light;  // with whom
  std::set<wire::PeerId> juniors;
  for (const auto& [link, failures] : memory.link_failures) {
    for (const auto& [id, by] : {link, std::pair(link.second, link.first)}) {
      const ProcessRecord *process = member_record(id), *other = member_record(by);
      if (process == nullptr || other == nullptr) continue;
      (weighs_nothing(*process, *other) ? light : links)[id].insert(by);
      if (served_less(*process, *other)) juniors.insert(id);
    }
  }
  // Of a newcomer and one that has lied neither end counts, and yet one of them has to go.
  if (links.empty() && !JCCL_PLANTED("light-links-put-nobody-out")) links = light;
  wire::PeerId worst = 0;
  // Links, others of late, lies, service, less the departures, by how many it is named.
  std::tuple<std::size_t, std::size_t, bool, bool, std::int64_t, std::size_t> most;
  for (const auto& [id, others] : links) {
    const wire::PublicKey& key = ledger().members().at(id).key;
    const auto gone = static_cast<std::int64_t>(conduct().blame_.departures(key));
    const auto named = memory.named.find(id);
    const std::tuple rank{others.size(),
                          JCCL_PLANTED("links-leave-no-trace") ? 0 : often_broken(key),
                          conduct().blame_.is_blamed(key, now()),
                          juniors.count(id) > 0,
                          JCCL_PLANTED("the-same-one-goes") ? 0 : -gone,
                          named == memory.named.end() ? std::size_t{0} : named->second.size()};
    if (worst != 0 && rank < most) continue;
    worst = id;  // ids ascend, so the higher one wins a tie
    most = rank;
  }
  if (worst == 0) return evict_one_that_only_dials(tag, why);
  const ProcessRecord& process = *member_record(worst);
  for (const wire::PeerId by : links.at(worst)) {
    const ProcessRecord& other = *member_record(by);
    if (!is_junior(process, other)) conduct().blame_.yield(process.key, other.key, now());
  }
  const std::string site = ledger().members().at(worst).site;
  // For as long as it has cost the others, at least.
  const base::Time since = std::min(now(), wait_charges().in_trouble_since(process));
  conduct().put_out(site, std::max(options().silence, now() - since));
  connections().evict(site,
                      cat(wording().name(worst), " has no link to ", std::get<0>(most),
                          " of its peers; ", why.text),
                      "evict");
  // It may be why the others' failed, too: what it sent became something else on all of them.
  if (JCCL_PLANTED("what-one-broke-puts-others-out")) return;
  memory.link_failures.clear(), memory.named.clear(), memory.cut.clear();
}

// Some plans want that of two at least one can be dialled. The one that has served for less goes,
// if there is a plan without it: anybody can say that it has no address.
void LinkFaults::evict_one_that_only_dials(const wire::Tag& tag, const Status& why) {
  const std::vector<Participant> parts = forming().parts_for(tag);
  const ProcessRecord* least = nullptr;
  std::size_t dial = 0;
  for (const Participant& part : parts) {
    const ProcessRecord* process = connections().record_of(part.incarnation);
    if (process == nullptr || !process->addresses.empty()) continue;
    ++dial;
    if (least == nullptr || served(*process) <= served(*least)) least = process;
  }
  if (dial >= 2 && ledger().sites() >= 3 && !JCCL_PLANTED("two-that-only-dial-end-all")) {
    std::vector<Participant> others;
    std::copy_if(parts.begin(), parts.end(), std::back_inserter(others),
                 [&](const Participant& part) { return part.site != least->site; });
    if (forming().plans_for(tag, others, forming().bad_links(tag, false)).ok()) {
      const std::string site = least->site;
      conduct().put_out(site, options().silence);
      return connections().evict(
          site, cat(wording().name(*least), " can only dial out; ", why.text), "evict");
    }
  }
  forming().reject_all(tag, why.code, why.text);
}

}  // namespace jccl::protocol
