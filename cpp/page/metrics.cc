// Writes metric families; each has its HELP, its TYPE and its samples together, as the format asks.
#include "page/metrics.h"

#include <boost/json.hpp>
#include <charconv>
#include <cmath>
#include <initializer_list>

#include "base/planted.h"
#include "base/text.h"
#include "base/utf8.h"

namespace jccl::page {
namespace {

namespace json = boost::json;
using base::cat;
using Labels = std::initializer_list<std::pair<std::string_view, std::string>>;

double number(const json::object& from, std::string_view name) {
  const json::value* value = from.if_contains(name);
  if (value == nullptr) return 0;
  if (value->is_bool()) return value->get_bool() ? 1 : 0;
  return value->is_number() ? value->to_number<double>() : 0;
}

std::string words(const json::object& from, std::string_view name) {
  const json::value* value = from.if_contains(name);
  if (value == nullptr) return {};
  if (value->is_string()) return std::string(value->get_string());
  return json::serialize(*value);
}

const json::array& list(const json::object& from, std::string_view name) {
  static const json::array none;
  const json::value* value = from.if_contains(name);
  return value != nullptr && value->is_array() ? value->get_array() : none;
}

const json::object& part(const json::object& from, std::string_view name) {
  static const json::object none;
  const json::value* value = from.if_contains(name);
  return value != nullptr && value->is_object() ? value->get_object() : none;
}

class Text {
 public:
  void family(std::string_view name, std::string_view type, std::string_view help) {
    name_ = name;
    out_ += cat("# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n");
  }
  void sample(double value, Labels labels = {}, std::string_view suffix = "") {
    out_ += cat(name_, suffix);
    const char* before = "{";
    for (const auto& [key, text] : labels) {
      out_ += cat(before, key, "=\"", label(text), "\"");
      before = ",";
    }
    if (labels.size() > 0) out_ += "}";
    char shown[32];
    const auto end = std::to_chars(shown, shown + sizeof shown, value).ptr;
    out_ += std::isfinite(value) ? cat(" ", std::string_view(shown, end), "\n") : " NaN\n";
  }
  void only(std::string_view name, std::string_view type, std::string_view help, double value) {
    family(name, type, help);
    sample(value);
  }
  std::string take() { return std::move(out_); }

 private:
  std::string name_, out_;
};

std::string state_of(const json::object& peer) {
  if (number(peer, "connected") == 0) return "lost";
  return number(peer, "admitted") != 0 ? "member" : "observer";
}

void master_families(const json::object& status, double age_s, Text* text) {
  text->family("jccl_master_info", "gauge", "Always 1; says which run and wire version.");
  text->sample(1, {{"run", words(status, "run")}, {"version", words(status, "version")}});
  text->only("jccl_master_failed", "gauge", "1 after the journal failed: the master stops.",
             words(status, "failure").empty() ? 0 : 1);
  text->only("jccl_master_uptime_seconds", "gauge", "Since this master started.",
             number(status, "uptime_s"));
  text->only("jccl_master_snapshot_age_seconds", "gauge",
             "Age of the values shown here; it grows when the master's loop does not answer.",
             age_s);
  text->only("jccl_master_journal_records_total", "counter", "Records of the journal.",
             number(part(status, "journal"), "sequence"));
  text->only("jccl_master_connections", "gauge", "Control connections.",
             number(status, "connections"));
  text->only("jccl_master_pending_sockets", "gauge", "Sockets that have not said hello.",
             number(status, "pending"));
  text->only("jccl_master_strangers_closed_total", "counter",
             "Connections closed before they proved anything.", number(status, "strangers_closed"));
  text->only("jccl_master_memory_held_bytes", "gauge",
             "Memory for data that others sent or do not read.",
             number(part(status, "memory"), "held"));
  text->only("jccl_master_memory_max_bytes", "gauge", "Limit of that memory.",
             number(part(status, "memory"), "max"));
  text->only("jccl_epoch", "gauge", "Number of the membership; grows with every change.",
             number(status, "epoch"));
  text->only("jccl_min_peers", "gauge", "Sites that every commit needs.",
             number(status, "min_peers"));
  text->family("jccl_group_sites", "gauge", "Sites that are members of an open group of the run.");
  for (const json::value& one : list(status, "groups")) {
    const json::object& group = one.as_object();
    text->sample(number(group, "sites"), {{"group", words(group, "group")}});
  }
}

void one_per_peer(const json::object& status, Text* text, std::string_view name,
                  std::string_view type, std::string_view help,
                  double (*value)(const json::object&)) {
  text->family(name, type, help);
  for (const json::value& one : list(status, "peers")) {
    const json::object& peer = one.as_object();
    text->sample(value(peer), {{"site", words(peer, "site")},
                               {"shard", words(peer, "shard")},
                               {"incarnation", words(peer, "incarnation")}});
  }
}

void peer_families(const json::object& status, Text* text) {
  text->family("jccl_peers", "gauge", "Peers by state.");
  for (const char* state : {"member", "observer", "lost"}) {
    double count = 0;
    for (const json::value& peer : list(status, "peers"))
      count += state_of(peer.as_object()) == state;
    text->sample(count, {{"state", state}});
  }
  text->only("jccl_peers_left_out", "gauge", "Peers that are counted but not listed: too many.",
             number(status, "peers_left_out"));
  one_per_peer(status, text, "jccl_peer_connected", "gauge",
               "1 while its control connection is up.",
               [](const json::object& peer) { return number(peer, "connected"); });
  one_per_peer(status, text, "jccl_peer_member", "gauge", "1 for a member, 0 for an observer.",
               [](const json::object& peer) { return number(peer, "admitted"); });
  one_per_peer(status, text, "jccl_peer_silent_seconds", "gauge", "Since the master heard of it.",
               [](const json::object& peer) { return number(peer, "silent_s"); });
  one_per_peer(status, text, "jccl_peer_moved_bytes_total", "counter",
               "Payload bytes it sent and received in this life.",
               [](const json::object& peer) { return number(peer, "progress_bytes"); });
  one_per_peer(
      status, text, "jccl_peer_waiting", "gauge", "1 while its oldest call waits.",
      [](const json::object& peer) { return words(peer, "waiting_for").empty() ? 0.0 : 1.0; });
  one_per_peer(status, text, "jccl_peer_trouble", "gauge", "1 if lost, silent, cut off or slow.",
               [](const json::object& peer) { return words(peer, "trouble").empty() ? 0.0 : 1.0; });
  one_per_peer(status, text, "jccl_peer_faulted", "gauge", "1 if its key has faults.",
               [](const json::object& peer) { return words(peer, "faults").empty() ? 0.0 : 1.0; });
}

void one_per_tag(const json::object& status, Text* text, std::string_view name,
                 std::string_view type, std::string_view help, std::string_view field) {
  text->family(name, type, help);
  for (const json::value& one : list(status, "tags")) {
    text->sample(number(one.as_object(), field), {{"tag", words(one.as_object(), "tag")}});
  }
}

void tag_families(const json::object& status, const Story& story, Text* text) {
  one_per_tag(status, text, "jccl_tag_newest_round", "gauge",
              "Number of the newest round that committed.", "committed");
  one_per_tag(status, text, "jccl_tag_commits_total", "counter",
              "Rounds committed since this master started.", "commits");
  one_per_tag(status, text, "jccl_tag_aborts_total", "counter",
              "Attempts aborted since this master started.", "aborts");
  one_per_tag(status, text, "jccl_tag_holders", "gauge", "Sites that have the newest state.",
              "holders");
  one_per_tag(status, text, "jccl_tag_audited_cells_total", "counter",
              "Cells that the master added up anew.", "audited_cells");
  text->family("jccl_tag_waiting", "gauge",
               "1 while a round of the tag forms, runs or is disputed.");
  for (const json::value& one : list(status, "tags")) {
    const json::object& tag = one.as_object();
    text->sample(words(tag, "phase") == "idle" ? 0 : 1, {{"tag", words(tag, "tag")}});
  }
  text->family("jccl_round_phase_seconds", "summary",
               "Time of committed rounds by phase: forming, moving, deciding.");
  for (std::size_t phase = 0; phase < std::size(kPhases); ++phase) {
    for (const auto& [tag, sum] : story.phase_sums(static_cast<Phase>(phase))) {
      const std::string name(kPhases[phase]);
      text->sample(sum.seconds, {{"tag", tag}, {"phase", name}}, "_sum");
      text->sample(static_cast<double>(sum.count), {{"tag", tag}, {"phase", name}}, "_count");
    }
  }
}

void link_families(const json::object& status, Text* text) {
  const auto each = [&](const char* name, const char* help, const char* field, double unit) {
    text->family(name, "gauge", help);
    for (const json::value& one : list(status, "links")) {
      const json::object& link = one.as_object();
      text->sample(number(link, field) * unit,
                   {{"from", words(link, "from")}, {"to", words(link, "to")}});
    }
  };
  each("jccl_link_round_trip_seconds", "As its peer measured it, by ids of peers.", "rtt_ms", 1e-3);
  each("jccl_link_bytes_per_second", "As its peer measured it; 0: not yet.", "bytes_per_s", 1);
  text->family("jccl_peer_id", "gauge", "The id of a member, by which links name it.");
  for (const json::value& one : list(status, "peers")) {
    const json::object& peer = one.as_object();
    if (number(peer, "id") == 0) continue;
    text->sample(number(peer, "id"),
                 {{"site", words(peer, "site")}, {"shard", words(peer, "shard")}});
  }
}

void event_families(const Story& story, const Served& served, Text* text) {
  text->family("jccl_events_total", "counter", "Lines of the master's history, by kind.");
  // There from the start, so that the first of them is an increase.
  for (const char* kind : {"admit", "evict", "leave", "commit", "abort", "ban", "convicted",
                           "dispute", "fault", "restore", "skip"}) {
    if (story.counts().count(kind) == 0) text->sample(0, {{"kind", kind}});
  }
  for (const auto& [kind, count] : story.counts()) {
    text->sample(static_cast<double>(count), {{"kind", kind}});
  }
  const auto count = [](std::uint64_t n) { return static_cast<double>(n); };
  text->only("jccl_http_requests_total", "counter", "Requests answered here with 200.",
             count(served.requests));
  text->only("jccl_http_refused_total", "counter", "Requests answered with another code.",
             count(served.refused));
  text->only("jccl_http_dropped_total", "counter", "Connections closed late, broken or in excess.",
             count(served.dropped));
  text->only("jccl_http_connections", "gauge", "Connections to this page.",
             count(served.connections));
  text->only("jccl_http_event_streams", "gauge", "Of those, streams of events.",
             count(served.streams));
  text->only("jccl_http_events_left_out_total", "counter",
             "Events that came faster than this server took them.", count(served.events_left_out));
}

}  // namespace

std::string label(std::string_view value) {
  if (JCCL_PLANTED("metric-labels-raw")) return std::string(value);
  std::string out;
  for (const char c : base::printable(base::to_utf8(value))) {
    if (c == '\\' || c == '"') out += '\\';
    out += c;
  }
  return out;
}

std::string metrics_text(const json::object& status, double age_s, const Story& story,
                         const Served& served) {
  Text text;
  master_families(status, age_s, &text);
  peer_families(status, &text);
  tag_families(status, story, &text);
  link_families(status, &text);
  event_families(story, served, &text);
  return text.take();
}

}  // namespace jccl::page
