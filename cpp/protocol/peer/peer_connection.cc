// The peer's control connection: dialing with back-off, the greeting, what is said again after a
// loss, eviction and the next life. Never gives up on the master by itself; calls do. Pure.
#include <algorithm>

#include "base/check.h"
#include "base/limits.h"
#include "base/planted.h"
#include "base/text.h"
#include "protocol/durations.h"
#include "protocol/members/roster.h"
#include "protocol/peer/peer_state.h"

namespace jccl::protocol {

using base::cat;
using base::Code;
using State = PeerMachine::State;

namespace {

constexpr base::Duration kPauseMax = base::kSecond;  // between lives
constexpr base::Duration kBeatMin = 20 * base::kMillisecond;
constexpr int kBeatsOfCall = 8;  // at least, of the time that it had left at START
constexpr base::Duration kDialPauseMax =
    300 * base::kMillisecond;  // a restarted master is found soon

bool terminal(Code code) {
  return code == Code::kAuth || code == Code::kVersion || code == Code::kWrongRun ||
         code == Code::kInvalid || code == Code::kLimit || code == Code::kBanned;
}

}  // namespace

void State::dial() {
  if (link_ != MasterConnection::kPaused) return;
  link_ = MasterConnection::kDialing;
  heard_ = now_;
  fx_.connect = true;
}

void State::pause() {
  if (up()) lost_at_ = now_;
  link_ = MasterConnection::kPaused;
  dial_at_ = now_ + pause_;
  pause_ = std::min(kDialPauseMax, pause_ * 2);
}

void State::on_connected() {
  if (link_ != MasterConnection::kDialing) return;
  link_ = MasterConnection::kGreeting;
  heard_ = now_;
  wire::Hello hello;
  hello.run = run_;
  hello.incarnation = incarnation_;
  hello.site = options_.site;
  hello.shard = options_.shard;
  hello.shards = options_.shards;
  hello.addresses = options_.addresses;
  hello.start_peers = options_.start_peers;
  hello.max_rate = options_.max_rate, hello.day_bytes = options_.day_bytes;
  fx_.send.push_back(std::move(hello));
}

void State::on_disconnected(const base::Status& cause) {
  if (link_ == MasterConnection::kEnded || link_ == MasterConnection::kPaused ||
      link_ == MasterConnection::kNoLife)
    return;
  // A token that was good once is good: the handshake met damaged bytes, or another master.
  if (cause.code == Code::kAuth && epoch_ == 0) return break_off(cause);
  // Unless it has expired since: then that is what everything waits for.
  if (cause.code == Code::kAuth && !JCCL_PLANTED("expired-tokens-unsaid")) refused_ = cause.text;
  if (departing_) {
    fx_.departed = true;
    link_ = MasterConnection::kEnded;
    return;
  }
  pause();
}

// Everything the master has to answer or know, then everything that still waits.
void State::on_welcome(const wire::Welcome& welcome) {
  if (link_ != MasterConnection::kGreeting) return;
  if (welcome.version < wire::kVersionOldest || welcome.version > wire::kVersion) {
    return break_off({Code::kVersion, base::cat("the master speaks protocol version ",
                                                welcome.version, ", this peer ", wire::kVersion,
                                                ", and was welcome: upgrade the master")});
  }
  // Another master follows this one, which doesn't know it yet.
  if (welcome.epoch < epoch_ && !JCCL_PLANTED("old-master-followed")) {
    fx_.disconnect = true;
    return pause();
  }
  link_ = MasterConnection::kUp;
  refused_.clear();
  pause_ = options_.reconnect_pause;
  run_ = welcome.run;
  epoch_ = std::max(epoch_, welcome.epoch);
  heartbeat_ = std::max(base::kMillisecond, bounded(welcome.heartbeat));
  silence_ = std::max(2 * heartbeat_, bounded(welcome.silence));
  constexpr auto kRateMin = static_cast<std::uint64_t>(base::kRateMin);
  run_rate_ = welcome.max_rate == 0 ? 0 : std::max(kRateMin, welcome.max_rate);
  next_beat_ = now_ + heartbeat_;
  next_ask_ = now_ + 2 * heartbeat_;
  wire::Resume resume;
  for (const auto& [tag, open] : calls_) {
    if (open.phase == CallPhase::kMoving || open.phase == CallPhase::kReported) {
      resume.unresolved.push_back({open.attempt, {tag, open.n}});
    }
  }
  for (const auto& [tag, doubt] : doubts_) resume.unresolved.push_back(doubt.about);
  for (const auto& [tag, held] : held_) {
    if (!JCCL_PLANTED("votes-not-said-again")) resume.held.push_back(held);
  }
  send(std::move(resume));
  for (const auto& [tag, open] : calls_) {
    if (open.phase == CallPhase::kWaiting)
      send_ready(open);
    else if (open.phase == CallPhase::kReported)
      report(open);
  }
  for (const auto& [tag, doubt] : doubts_) {
    if (doubt.report.has_value()) send(*doubt.report);
  }
  for (auto& [tag, open] : syncs_) {
    open.current = false;
    send_sync(open);
  }
  if (measured_.has_value()) send(*measured_);
  if (departing_) send(wire::Leave{});
}

void State::on_refuse(const wire::Refuse& refuse) {
  if (terminal(refuse.code)) return break_off({refuse.code, refuse.text});
  refused_ = refuse.text;
  fx_.disconnect = true;
  pause();
}

// Why there is no master, in words.
std::string State::cut_off() const {
  return refused_.empty() ? "not connected to the master"
                          : cat("turned away by the master: ", refused_);
}

// Of a call that comes when it has been so for too long.
std::string State::beyond_grace() const {
  return refused_.empty() ? "the master is unreachable beyond the grace period"
                          : cat(cut_off(), "; so it has been beyond the grace period");
}

void State::break_off(base::Status why) {
  JCCL_CHECK(!why.ok());
  std::vector<wire::Tag> tags;
  for (const auto& [tag, open] : calls_) tags.push_back(tag);
  link_ = MasterConnection::kEnded;
  for (const wire::Tag& tag : tags) give_up(tag, why.code, why.text);
  tags.clear();
  for (const auto& [tag, open] : syncs_) tags.push_back(tag);
  for (const wire::Tag& tag : tags) finish_sync(tag, why.code, why.text);
  fx_.disconnect = true;
  fx_.departed = departing_;
  fx_.broken = why;
  broken_ = std::move(why);
}

// The run goes on without this life. The next one starts as an observer, and asks what became of
// the attempts this one was in.
void State::on_evicted(const wire::Evicted& evicted) {
  fx_.disconnect = true;
  if (up()) lost_at_ = now_;
  if (departing_) {
    fx_.departed = true;
    link_ = MasterConnection::kEnded;
    return;
  }
  const MasterConnection link_was = std::exchange(link_, MasterConnection::kNoLife);
  fx_.rejoin = true;
  fx_.evicted = evicted.text;
  // Lives are numbered in order, so that somebody else may sit on the next ones.
  unwelcome_ = link_was == MasterConnection::kGreeting ? unwelcome_ + 1 : 0;
  fx_.renumber = unwelcome_ > 1;
  id_ = 0;
  for (const auto& [tag, held] : held_) resync_.insert(tag);
  for (auto& [tag, sync] : syncs_) sync.current = false;
  orphan_calls(evicted.text);
}

void State::on_new_life(const NewLife& life) {
  if (link_ != MasterConnection::kNoLife) return;
  JCCL_CHECK(life.incarnation != 0 && life.incarnation != incarnation_);
  incarnation_ = life.incarnation;
  link_ = MasterConnection::kPaused;
  dial_at_ = now_ + life_pause_;
  life_pause_ = std::min(kPauseMax, std::max(options_.reconnect_pause, 2 * life_pause_));
}

void State::on_roster(const wire::Roster& news) {
  if (!apply(news, &roster_)) {  // a master that lost count of what it told; a new one starts whole
    fx_.disconnect = true;
    fx_.send.clear();
    return pause();
  }
  epoch_ = std::max(epoch_, roster_.epoch);
  id_ = 0;
  for (const wire::Member& member : roster_.members) {
    if (member.incarnation == incarnation_) id_ = member.id;
  }
  for (const wire::TagInfo& info : news.tags) {
    // Of no call of this peer's: its state is behind, and publishing has to know.
    const auto held = held_.find(info.tag);
    const bool behind = held != held_.end() && held->second.revision < info.committed &&
                        committed_[info.tag] < info.committed && doubts_.count(info.tag) == 0 &&
                        calls_.count(info.tag) == 0;
    if (behind && !JCCL_PLANTED("behind-by-a-roster-unheard")) resync_.insert(info.tag);
    heard_commit(info.tag, info.committed);
  }
  fx_.roster = roster_;
  fx_.roster->why = news.why;
  finish_current_syncs();
}

void State::tend_connection() {
  if (link_ == MasterConnection::kPaused && now_ >= dial_at_ && !fx_.disconnect) dial();
  const bool open = link_ == MasterConnection::kUp || link_ == MasterConnection::kGreeting ||
                    link_ == MasterConnection::kDialing;
  if (open && now_ >= heard_ + silence_) {
    fx_.disconnect = true;
    fx_.send.clear();
    // So long a wait is pause enough. A master that stood still, and whose clock stood, too, counts
    // a member as gone a short grace after it reads that this end hung up.
    if (!JCCL_PLANTED("hang-ups-back-off")) pause_ = options_.reconnect_pause;
    pause();
  }
  if (!up() || now_ < next_beat_) return;
  base::Duration every = heartbeat_;
  for (const auto& [tag, call] : calls_) {
    if (call.phase == CallPhase::kMoving) every = std::min(every, call.beats);
  }
  next_beat_ = now_ + every;
  send(wire::Heartbeat{++sequence_, progress_, moving_});
  ask_again();
}

// Its call may be over before two heartbeats: the master would hear of who holds it too late.
void State::beat_for(OpenCall& open) {
  if (JCCL_PLANTED("short-calls-beat-slowly")) return;
  const base::Duration left = std::max<base::Duration>(0, open.call.deadline - now_);
  open.beats = std::max(kBeatMin, left / kBeatsOfCall);
  next_beat_ = std::min(next_beat_, now_ + open.beats);
}

bool State::master_lost() const { return !up() && now_ >= lost_at_ + options_.master_grace; }

}  // namespace jccl::protocol
