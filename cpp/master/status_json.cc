// Builds the status object. Names of fields are part of what tools read: add, never rename.
#include "master/status_json.h"

#include <algorithm>
#include <boost/json.hpp>
#include <set>

#include "base/ids.h"
#include "base/limits.h"
#include "base/planted.h"
#include "base/text.h"
#include "base/utf8.h"
#include "wire/messages.h"

namespace jccl::master {
namespace {

namespace json = boost::json;

json::object peer_json(const protocol::PeerView& peer, Audience audience) {
  json::array addresses;
  if (audience == Audience::kOperator || JCCL_PLANTED("addresses-for-all")) {
    for (const auto& address : peer.member.addresses) addresses.emplace_back(address);
  }
  json::array moving;
  for (const wire::Moving& one : peer.moving) {
    moving.push_back({{"attempt", base::to_text(one.attempt)},
                      {"left_bytes", one.left},
                      {"all_bytes", one.all},
                      {"waits_on", one.waits_on}});
  }
  return {{"id", peer.member.id},
          {"incarnation", base::to_hex(peer.member.incarnation)},
          {"key", base::to_hex(peer.member.key)},
          {"token", peer.token},
          {"site", peer.member.site},
          {"shard", peer.member.shard},
          {"shards", peer.member.shards},
          {"addresses", std::move(addresses)},
          {"connected", peer.connected},
          {"max_rate", peer.max_rate},
          {"day_bytes", peer.day_bytes},
          {"admitted", peer.admitted},
          {"silent_s", static_cast<double>(peer.silent) / 1e9},
          {"progress_bytes", peer.progress},
          {"moving", std::move(moving)},
          {"trouble", peer.trouble},
          {"faults", peer.faults},
          {"waiting_for", peer.waiting_for}};
}

json::object tag_json(const protocol::TagView& tag) {
  return {{"tag", tag.info.tag},
          {"committed", tag.info.committed},
          {"is_state", tag.info.is_state},
          {"holders", tag.holders},
          {"phase", tag.phase},
          {"attempt", tag.attempt.none() ? std::string() : base::to_text(tag.attempt)},
          {"waiting_for", tag.waiting_for},
          {"audit", tag.audit},
          {"audited_cells", tag.audited},
          {"audited_bytes", tag.audit_bytes},
          {"commits", tag.commits},
          {"aborts", tag.aborts}};
}

json::object ban_json(const protocol::BanView& ban) {
  return {{"key", base::to_hex(ban.key)},
          {"site", ban.site},
          {"until_unix_ms", ban.until_unix_ms == wire::kForGood ? json::value(nullptr)
                                                                : json::value(ban.until_unix_ms)},
          {"reason", ban.reason}};
}

json::object token_json(const protocol::TokenView& token) {
  return {{"name", token.name}, {"keys", token.keys}, {"revoked", token.revoked}};
}

constexpr std::size_t kLinksMax = 1024;                        // a thousand peers have a million
constexpr std::size_t kRowsMax = base::kStatusBytesMax / 180;  // more rows never fit

json::array links_json(const PlanCache& planner, const protocol::MasterView& view,
                       std::size_t* all) {
  std::set<wire::PeerId> members;
  for (const auto& peer : view.peers) {
    if (peer.admitted) members.insert(peer.member.id);
  }
  json::array links;
  for (const auto& [from, measured] : planner.measured()) {
    if (members.count(from) == 0 && !JCCL_PLANTED("links-of-the-gone")) continue;
    for (const wire::LinkMeasured& link : measured.links) {
      if (members.count(link.peer) == 0 || ++*all > kLinksMax) continue;
      links.push_back({{"from", from},
                       {"to", link.peer},
                       {"rtt_ms", link.rtt_us / 1e3},
                       {"bytes_per_s", link.bytes_per_s}});
    }
  }
  return links;
}

json::array uplinks_json(const PlanCache& planner, const protocol::MasterView& view) {
  json::array uplinks;
  for (const auto& peer : view.peers) {
    const auto found = planner.measured().find(peer.member.id);
    if (!peer.admitted || found == planner.measured().end()) continue;
    uplinks.push_back({{"peer", found->first}, {"bytes_per_s", found->second.up_bytes_per_s}});
  }
  return uplinks;
}

json::object candidate_json(const collective::Candidate& candidate) {
  json::object out = {{"plan", collective::name_of(candidate.plan.kind)},
                      {"predicted_s", candidate.seconds}};
  if (candidate.plan.kind == collective::PlanKind::kRing) {
    out["order"] = json::value_from(candidate.plan.order);
  }
  if (!candidate.plan.shares.empty()) out["shares"] = json::value_from(candidate.plan.shares);
  return out;
}

json::object finding_json(const protocol::FindingView& finding) {
  return {{"site", finding.site},           {"tag", finding.tag},
          {"round", finding.round},         {"repeated", finding.repeated},
          {"different", finding.different}, {"worst", finding.worst},
          {"convicted", finding.convicted}, {"age_s", static_cast<double>(finding.age) / 1e9}};
}

json::object plan_json(const PlanView& plan) {
  json::array candidates;
  for (const auto& candidate : plan.candidates) candidates.emplace_back(candidate_json(candidate));
  const bool pinned = !collective::is_open(plan.hint.kind);
  return {{"contributors", json::value_from(plan.contributors)},
          {"pinned", pinned},
          {"any_order", plan.hint.kind == collective::HintKind::kFastest},
          {"data_bytes", plan.hint.data_bytes},
          {"encoded_bytes", plan.hint.encoded_bytes},
          {"attempts", plan.uses},
          {"candidates", std::move(candidates)}};  // the plan in use first
}

}  // namespace

std::string status_object(const protocol::MasterView& view, const DriverFacts& facts,
                          const PlanCache& planner, Audience audience) {
  json::array groups;
  for (const DriverFacts::Group& group : facts.groups) {
    groups.push_back({{"group", group.name},
                      {"sites", group.sites},
                      {"connections", group.connections},
                      {"journal_sequence", group.journal_sequence}});
  }
  json::object out = {{"run", facts.run},
                      {"address", facts.address},
                      {"version", wire::kVersion},
                      {"tls", facts.tls},
                      {"epoch", view.epoch},
                      {"uptime_s", facts.uptime_s},
                      {"journal", {{"store", facts.store}, {"sequence", facts.journal_sequence}}},
                      {"start_peers", facts.start_peers},
                      {"min_peers", facts.min_peers},
                      {"silence_s", facts.silence_s},
                      {"straggler", facts.straggler},
                      {"audit", facts.audit},
                      {"max_rate", facts.max_rate},
                      {"connections", facts.connections},
                      {"memory", {{"held", facts.memory_held}, {"max", facts.memory_max}}},
                      {"answers_made", facts.answers_made},
                      {"pending", facts.pending},
                      {"strangers_closed", facts.strangers_closed},
                      {"failure", facts.failure},
                      {"group", facts.group},
                      {"groups", std::move(groups)}};
  json::array peers, tags, plans, bans, tokens, findings;
  for (const auto& ban : view.bans) {
    if (bans.size() < kRowsMax) bans.emplace_back(ban_json(ban));
  }
  for (const auto& token : view.tokens) {
    if (tokens.size() < kRowsMax) tokens.emplace_back(token_json(token));
  }
  for (const auto& finding : view.findings) {
    if (findings.size() < kRowsMax) findings.emplace_back(finding_json(finding));
  }
  json::array uplinks = uplinks_json(planner, view);
  std::size_t links_all = 0;
  json::array links = links_json(planner, view, &links_all);
  for (const auto& plan : planner.plans()) plans.emplace_back(plan_json(plan));
  for (const auto& tag : view.tags) tags.emplace_back(tag_json(tag));
  for (const auto& peer : view.peers) {  // members first
    if (peers.size() < kRowsMax) peers.emplace_back(peer_json(peer, audience));
  }
  struct List {
    const char* name;
    json::array& items;
    std::size_t all;
  };
  // What is known of links, plans, bans, tokens and findings goes before peers and tags do.
  constexpr std::size_t kFirstToGo = 6;
  const List lists[] = {{"links", links, links_all},
                        {"plans", plans, plans.size()},
                        {"uplinks", uplinks, uplinks.size()},
                        {"bans", bans, view.bans.size()},
                        {"tokens", tokens, view.tokens.size()},
                        {"findings", findings, view.findings.size()},
                        {"peers", peers, view.peers.size()},
                        {"tags", tags, tags.size()}};
  for (;;) {  // drop the last quarter of the longest list until the text fits
    for (const List& list : lists) {
      out[list.name] = list.items;
      out[std::string(list.name) + "_left_out"] =
          JCCL_PLANTED("left-out-wrong") ? 0 : list.all - list.items.size();
    }
    // Paths may be any bytes, and names hold what drives a terminal.
    std::string text = base::printable(base::to_utf8(json::serialize(out)));
    if (text.size() <= base::kStatusBytesMax * (JCCL_PLANTED("status-not-cut") ? 2 : 1))
      return text;
    const bool gone =
        std::all_of(lists, lists + kFirstToGo, [](const List& list) { return list.items.empty(); });
    const auto first = lists + (JCCL_PLANTED("peers-go-before-links") || gone ? kFirstToGo : 0);
    const auto last = first == lists ? lists + kFirstToGo : std::end(lists);
    const List* longest = std::max_element(
        first, last, [](const List& a, const List& b) { return a.items.size() < b.items.size(); });
    JCCL_CHECK(!longest->items.empty());
    longest->items.resize(longest->items.size() * 3 / 4);
  }
}

}  // namespace jccl::master
