#include "fuzz/hostile/hostile_coverage.h"

#include <iomanip>
#include <sstream>

#include "base/text.h"
#include "fuzz/fields/fields_table.h"
#include "wire/serialize.h"

namespace jccl::fuzz {
namespace {

constexpr const char* kHeardNames[kHeardKinds] = {"quiet", "answered", "spread", "closed"};
constexpr const char* kFateNames[kFates] = {"taken",   "drained", "paused",
                                            "refused", "damaged", "none"};
constexpr const char* kFrameNames[kFrameKinds] = {
    "no header",     "contribution",  "partial", "result",    "snapshot ask",
    "snapshot part", "snapshot gone", "arrived", "proof ask", "proof"};

template <std::size_t I = 0>
std::string name_at(std::size_t type) {
  if constexpr (I + 1 < HostileCoverage::kMessages) {
    if (type != I) return name_at<I + 1>(type);
  }
  return std::string(wire::name_of(wire::Message(std::variant_alternative_t<I, wire::Message>{})));
}

// "c" for a closed connection and so on: which outcomes of a message are demanded.
struct Demand {
  std::string_view name, outcomes;
};
constexpr std::string_view kHeardLetters = "qasc";  // of kHeardNames
constexpr Demand kDemanded[] = {
    {"Hello", "ac"},    {"Resume", "asc"},  {"Ready", "qasc"},   {"Done", "qas"},
    {"Fail", "qas"},    {"Withdraw", "qs"}, {"Query", "a"},      {"Heartbeat", "a"},
    {"Leave", "c"},     {"Sync", "as"},     {"Published", "qs"}, {"StatusAsk", "ac"},
    {"Measured", "q"},  {"Order", "c"},     {"Outvoted", "q"},   {"Violation", ""},
    {"AuditPart", "q"}, {"Finding", ""}};           // nobody there lies so that it is said
constexpr std::string_view kFateLetters = "tdprx";  // of kFateNames
constexpr Demand kDemandedFrames[] = {{"no header", "r"},      {"contribution", "tdprx"},
                                      {"partial", "tdprx"},    {"result", "tdprx"},
                                      {"snapshot ask", "trx"}, {"snapshot part", "tdr"},
                                      {"snapshot gone", "t"},  {"arrived", "d"},
                                      {"proof ask", "tr"},     {"proof", "tr"}};

std::string_view demanded(std::string_view name) {
  for (const Demand& one : kDemanded) {
    if (one.name == name) return one.outcomes;
  }
  return "c";  // what only the master says
}

template <typename Row>
void write_row(std::ostringstream& out, const std::string& name, const Row& row) {
  out << std::left << std::setw(16) << name << std::right;
  for (const std::uint64_t count : row) out << std::setw(12) << count;
  out << "\n";
}

template <typename Names>
void write_head(std::ostringstream& out, const std::string& title, const Names& names) {
  out << std::left << std::setw(16) << title << std::right;
  for (const char* name : names) out << std::setw(12) << name;
  out << "\n";
}

}  // namespace

bool hostile_trace = false;

HostileCoverage& hostile_coverage() {
  static HostileCoverage all;
  return all;
}

std::set<std::string> reached() {
  const HostileCoverage& all = hostile_coverage();
  std::set<std::string> out;
  for (std::size_t i = 0; i < all.at_master.size(); ++i) {
    for (std::size_t k = 0; k < kHeardKinds; ++k) {
      if (all.at_master[i][k] > 0)
        out.insert(base::cat(name_at(i), " at the master: ", kHeardNames[k]));
    }
    for (std::size_t k = 0; k < 2; ++k) {
      if (all.at_peer[i][k] > 0) out.insert(base::cat(name_at(i), " at a peer: ", k));
    }
  }
  for (std::size_t i = 0; i < kFrameKinds; ++i) {
    for (std::size_t k = 0; k < kFates; ++k) {
      if (all.frames[i][k] > 0)
        out.insert(base::cat("frame ", kFrameNames[i], ": ", kFateNames[k]));
    }
  }
  for (const auto& [bend, count] : all.bends) {
    out.insert(base::cat(name_at(bend.first), " field ", bend.second, ": bent"));
  }
  if (all.undecodable > 0) out.insert("no message");
  return out;
}

std::vector<std::string> not_reached() {
  const HostileCoverage& all = hostile_coverage();
  const std::set<std::string> got = reached();
  std::vector<std::string> missing;
  const auto demand = [&](const std::string& what) {
    if (got.count(what) == 0) missing.push_back(what);
  };
  for (std::size_t i = 0; i < all.at_master.size(); ++i) {
    const std::string name = name_at(i);
    for (std::size_t k = 0; k < kHeardKinds; ++k) {
      const bool wanted = demanded(name).find(kHeardLetters[k]) != std::string_view::npos;
      if (wanted) demand(base::cat(name, " at the master: ", kHeardNames[k]));
    }
    const std::vector<Bend> bends = bends_of(name);
    for (std::size_t field = 0; field < bends.size(); ++field) {
      if (bends[field] != Bend::kNone) demand(base::cat(name, " field ", field, ": bent"));
    }
  }
  for (std::size_t i = 0; i < kFrameKinds; ++i) {
    for (std::size_t k = 0; k < kFateLetters.size(); ++k) {
      const bool wanted =
          kDemandedFrames[i].outcomes.find(kFateLetters[k]) != std::string_view::npos;
      if (wanted) demand(base::cat("frame ", kFrameNames[i], ": ", kFateNames[k]));
    }
  }
  for (const char* name :
       {"Welcome", "Refuse", "Roster", "Start", "Outcome", "Reject", "Moved", "Waiting", "Evicted",
        "HeartbeatAck", "SyncReply", "Drain", "Notice", "OrderReply", "StatusReply"}) {
    const bool quiet = got.count(base::cat(name, " at a peer: 0")) > 0;
    if (!quiet) demand(base::cat(name, " at a peer: 1"));
  }
  demand("no message");
  return missing;
}

std::string coverage_text() {
  const HostileCoverage& all = hostile_coverage();
  std::ostringstream out;
  out << all.executions << " executions, " << all.rounds << " rounds committed, " << all.evictions
      << " evictions, " << all.restarts << " restarts of the master, " << all.undecodable
      << " messages that no decoder takes\n";
  write_head(out, "to the master", kHeardNames);
  for (std::size_t i = 0; i < all.at_master.size(); ++i) {
    write_row(out, name_at(i), all.at_master[i]);
  }
  constexpr const char* kPeerNames[] = {"quiet", "acted"};
  write_head(out, "to a peer", kPeerNames);
  for (std::size_t i = 0; i < all.at_peer.size(); ++i) {
    if (all.at_peer[i][0] + all.at_peer[i][1] > 0) write_row(out, name_at(i), all.at_peer[i]);
  }
  write_head(out, "frames", kFateNames);
  for (std::size_t i = 0; i < kFrameKinds; ++i) write_row(out, kFrameNames[i], all.frames[i]);
  return out.str();
}

}  // namespace jccl::fuzz
