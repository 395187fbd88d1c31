// What happened in a scenario, in words. See scenario_world.h; part of the test program alone.
#include "base/text.h"
#include "protocol/recorder/replay.h"
#include "protocol/scenario_world.h"

namespace jccl::protocol {

using base::cat;

void ScenarioWorld::show(const Parsed& p) {
  if (p.rest.at(0) == "master") {
    const MasterView view = master_->view(now_);
    for (const PeerView& one : view.peers) {
      say(cat(one.member.site, one.admitted ? " member " : " observer",
              one.admitted ? std::to_string(one.member.id) : "",
              one.connected ? "" : ", not connected",
              one.trouble.empty() ? "" : ", trouble: " + one.trouble,
              one.waiting_for.empty() ? "" : ", " + one.waiting_for));
    }
    for (const TagView& one : view.tags) {
      say(cat(one.info.tag, " ", one.info.committed, " ", one.phase,
              one.waiting_for.empty() ? "" : ": " + one.waiting_for));
    }
    return;
  }
  for (const auto& [name, peer] : peers_) {
    if (!peer.alive) continue;
    for (const wire::Tag& tag : p.rest) {
      const PeerMachine& m = *peer.machine;
      say(cat(name, ": ", m.member() ? "member" : "observer", ", ", tag, " ", m.committed(tag),
              m.needs_resync(tag) ? ", needs resync" : "",
              ", waits for: ", m.waiting_for(tag, now_)));
    }
  }
}

void ScenarioWorld::tell(const std::string& name, const PeerEffects& effects) {
  for (const auto& attempt : effects.discard) say(cat(name, ": discards ", base::to_text(attempt)));
  for (const auto& run : effects.run) {
    if (run.receiver) say(cat(name, ": only receives ", base::to_text(run.start.attempt)));
  }
  for (const auto& attempt : effects.commit) say(cat(name, ": keeps ", base::to_text(attempt)));
  for (const CompleteCall& done : effects.complete) {
    std::string line = cat(name, ": ", done.tag, " ", done.n, " ", base::name_of(done.status.code));
    if (done.world > 0) line += cat(", world ", done.world, ", attempts ", done.attempts);
    if (!done.status.text.empty()) line += cat(" (", done.status.text, ")");
    say(line);
  }
  for (const FetchSnapshot& fetch : effects.fetch) {
    std::string from;
    for (const wire::Member& holder : fetch.holders) from += cat(" ", holder.site);
    say(cat(name, ": fetches ", fetch.want.tag, " ", fetch.want.revision, " from", from));
  }
  for (const CompleteSync& done : effects.synced) {
    std::string line = cat(name, ": sync ", done.tag, " ", base::name_of(done.status.code));
    if (done.status.ok())
      line += cat(", revision ", done.held.revision, " ", base::to_hex(done.held.digest));
    if (!done.status.text.empty()) line += cat(" (", done.status.text, ")");
    say(line);
  }
  if (effects.rejoin) say(cat(name, ": was evicted, takes a new life"));
  if (effects.departed) say(cat(name, ": departed"));
  if (effects.broken.has_value()) {
    say(cat(name, ": broken, ", base::name_of(effects.broken->code), " (", effects.broken->text,
            ")"));
  }
}

template <typename Side>
void ScenarioWorld::replay_it(const std::unique_ptr<Recorder<Side>>& recorder) {
  if (recorder == nullptr || !recorder->any()) return;
  const base::Bytes file = recorder->file({});
  const auto recording = read_recording(file);
  const auto counts = recording.ok()
                          ? replay(recording.value(),
                                   [this](const Replayed& one) {
                                     for (const std::string& what : one.differences) {
                                       replay_trouble_ += cat(one.event, ": ", what, "\n");
                                     }
                                   })
                          : base::Result<ReplayCounts>(recording.status());
  if (!counts.ok()) {
    replay_trouble_ += counts.status().text + "\n";
  } else {
    replayed_events_ += counts.value().events;
  }
}

template void ScenarioWorld::replay_it(const std::unique_ptr<Recorder<MasterSide>>&);
template void ScenarioWorld::replay_it(const std::unique_ptr<Recorder<PeerSide>>&);

const std::string& ScenarioWorld::replayed() {
  replay_it(recorder_);
  for (const auto& [name, peer] : peers_) replay_it(peer.recorder);
  return replay_trouble_;
}

std::string ScenarioWorld::words(const HistoryLine& line) {
  std::string text = line.kind;
  for (const auto& [key, value] : line.fields) {
    if (!value.empty())
      text += cat(" ", key, "=", value.find(' ') == std::string::npos ? value : "[" + value + "]");
  }
  return text;
}

base::Digest ScenarioWorld::digest(const std::string& name) {
  base::Digest digest{0xcbf29ce484222325ULL, 1};
  for (const char c : name)
    digest.low = (digest.low ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  digest_names_[base::to_hex(digest)] = "<" + name + ">";
  return digest;
}

std::string ScenarioWorld::named(std::string text) const {
  for (const auto& [hex, name] : digest_names_) {
    for (auto at = text.find(hex); at != std::string::npos; at = text.find(hex)) {
      text.replace(at, hex.size(), name);
    }
  }
  return text;
}

}  // namespace jccl::protocol
