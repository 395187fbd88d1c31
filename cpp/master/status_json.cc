// Builds the status object. Names of fields are part of what tools read: add, never rename.
#include "master/status_json.h"

#include <boost/json.hpp>

#include "base/ids.h"
#include "base/limits.h"
#include "wire/messages.h"

namespace jccl::master {
namespace {

namespace json = boost::json;

json::object peer_json(const protocol::PeerView& peer) {
  json::array addresses;
  for (const auto& address : peer.member.addresses) addresses.emplace_back(address);
  return {{"id", peer.member.id},
          {"incarnation", base::to_hex(peer.member.incarnation)},
          {"site", peer.member.site},
          {"shard", peer.member.shard},
          {"shards", peer.member.shards},
          {"addresses", std::move(addresses)},
          {"connected", peer.connected},
          {"admitted", peer.admitted},
          {"silent_s", static_cast<double>(peer.silent) / 1e9},
          {"progress_bytes", peer.progress},
          {"waiting_for", peer.waiting_for}};
}

json::object tag_json(const protocol::TagView& tag) {
  return {{"tag", tag.info.tag},
          {"committed", tag.info.committed},
          {"is_state", tag.info.is_state},
          {"phase", tag.phase},
          {"attempt", tag.attempt.none() ? std::string() : base::to_text(tag.attempt)},
          {"waiting_for", tag.waiting_for},
          {"commits", tag.commits},
          {"aborts", tag.aborts}};
}

}  // namespace

std::string status_object(const protocol::MasterView& view, const DriverFacts& facts) {
  json::object out = {{"run", facts.run},
                      {"address", facts.address},
                      {"version", wire::kVersion},
                      {"tls", facts.tls},
                      {"epoch", view.epoch},
                      {"uptime_s", facts.uptime_s},
                      {"journal", {{"store", facts.store}, {"sequence", facts.journal_sequence}}},
                      {"start_peers", facts.start_peers},
                      {"min_peers", facts.min_peers},
                      {"connections", facts.connections},
                      {"pending", facts.pending},
                      {"strangers_closed", facts.strangers_closed},
                      {"failure", facts.failure}};
  json::array peers, tags;
  for (const auto& tag : view.tags) tags.emplace_back(tag_json(tag));
  for (const auto& peer : view.peers) peers.emplace_back(peer_json(peer));
  const std::size_t peers_all = peers.size(), tags_all = tags.size();
  for (;;) {  // drop the last half of the longer list until the text fits
    out["peers"] = peers;
    out["tags"] = tags;
    out["peers_left_out"] = peers_all - peers.size();
    out["tags_left_out"] = tags_all - tags.size();
    std::string text = json::serialize(out);
    if (text.size() <= base::kStatusBytesMax) return text;
    json::array& longer = peers.size() >= tags.size() ? peers : tags;
    JCCL_CHECK(!longer.empty());
    longer.resize(longer.size() * 3 / 4);
  }
}

}  // namespace jccl::master
