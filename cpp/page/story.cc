// Takes events in, and tells rounds, joins and sums of them.
#include "page/story.h"

#include <boost/json.hpp>
#include <cmath>

#include "base/planted.h"
#include "base/text.h"
#include "base/utf8.h"

namespace jccl::page {
namespace {

namespace json = boost::json;

std::string field(const Event& event, std::string_view name) {
  for (const auto& [key, value] : event.fields) {
    if (key == name) return value.substr(0, Story::kFieldBytesMax);
  }
  return {};
}

double rounded(double seconds) { return std::round(seconds * 1e6) / 1e6; }

json::value moment(double t) { return t < 0 ? json::value(nullptr) : json::value(rounded(t)); }

}  // namespace

void Story::add(const Event& event) {
  if (event.is_mark) return mark(event);
  keep(event);
  note_round(event);
  note_site(event);
}

void Story::keep(const Event& event) {
  json::object out{{"id", ++last_}, {"t", rounded(event.t)}, {"kind", event.kind}};
  for (const auto& [name, value] : event.fields) {
    const bool cut = value.size() > kFieldBytesMax;
    out[name] = cut ? value.substr(0, kFieldBytesMax) + "…" : value;
  }
  events_.push_back({last_, base::printable(base::to_utf8(json::serialize(out)))});
  if (events_.size() > kEventsMax && !JCCL_PLANTED("page-keeps-every-event")) events_.pop_front();
  if (counts_.size() < kKindsMax || counts_.count(event.kind) > 0) ++counts_[event.kind];
}

std::vector<const Story::Numbered*> Story::after(std::uint64_t id) const {
  std::vector<const Numbered*> out;
  for (const Numbered& one : events_) {
    if (one.id > id) out.push_back(&one);
  }
  return out;
}

void Story::mark(const Event& event) {
  if (event.kind == "ready") {
    const std::string tag = field(event, "tag");
    if (forming_.size() < kTagsMax) forming_.try_emplace(tag, event.t);
  } else if (Round* round = running(field(event, "attempt")); round != nullptr) {
    round->done = event.t;  // of the last peer, at last
  }
}

Story::Round* Story::running(std::string_view attempt) {
  for (auto round = rounds_.rbegin(); round != rounds_.rend(); ++round) {
    if (round->attempt == attempt && round->ended < 0) return &*round;
  }
  return nullptr;
}

void Story::sum(Phase phase, const std::string& tag, double from, double to) {
  auto& sums = sums_[static_cast<std::size_t>(phase)];
  if (from < 0 || to < from || (sums.size() >= kTagsMax && sums.count(tag) == 0)) return;
  sums[tag].seconds += to - from;
  ++sums[tag].count;
}

void Story::note_round(const Event& event) {
  const std::string tag = field(event, "tag");
  if (event.kind == "start") {
    Round round{
        tag, field(event, "n"), field(event, "attempt"), field(event, "contributors"), "", "", ""};
    if (const auto first = forming_.find(tag); first != forming_.end()) {
      round.formed = first->second;
      forming_.erase(first);
    }
    round.started = event.t;
    sum(Phase::kForming, tag, round.formed, round.started);
    rounds_.push_back(std::move(round));
    if (rounds_.size() > kRoundsMax) rounds_.pop_front();
    return;
  }
  if (event.kind != "commit" && event.kind != "abort") return;
  Round* round = running(field(event, "attempt"));
  if (round == nullptr) return;
  round->ended = event.t;
  round->end = event.kind;
  round->world = field(event, "world");
  round->why = field(event, "text");
  if (event.kind == "abort") return;
  sum(Phase::kMoving, tag, round->started, round->done);
  sum(Phase::kDeciding, tag, round->done, round->ended);
}

void Story::note_site(const Event& event) {
  const std::string site = field(event, "site");
  if (event.kind == "admit" && joined_.size() < kSitesMax) joined_[site] = event.t;
  if (event.kind == "evict" || event.kind == "leave") joined_.erase(site);
}

json::array Story::rounds() const {
  json::array out;
  for (const Round& round : rounds_) {
    out.push_back({{"tag", round.tag},
                   {"n", round.n},
                   {"attempt", round.attempt},
                   {"contributors", round.contributors},
                   {"world", round.world},
                   {"formed", moment(round.formed)},
                   {"started", moment(round.started)},
                   {"done", moment(round.done)},
                   {"ended", moment(round.ended)},
                   {"end", round.end.empty() ? "running" : round.end},
                   {"why", round.why}});
  }
  return out;
}

json::object Story::joined() const {
  json::object out;
  for (const auto& [site, t] : joined_) out[site] = rounded(t);
  return out;
}

}  // namespace jccl::page
