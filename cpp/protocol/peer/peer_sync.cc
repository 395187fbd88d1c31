// A peer's way to the newest revision of a state tag: ask, fetch, ask again, until the master says
// current and names this peer in the roster. Survives reconnects and new lives. Pure.
#include <algorithm>

#include "base/check.h"
#include "base/planted.h"
#include "base/text.h"
#include "protocol/peer/peer_state.h"

namespace jccl::protocol {

using base::cat;
using base::Code;
using State = PeerMachine::State;

namespace {

constexpr base::Duration kFetchPause = 100 * base::kMillisecond;

}  // namespace

void State::on_sync_call(const SyncCall& call) {
  base::Status no;
  if (broken_.has_value())
    no = *broken_;
  else if (departing_ || link_ == MasterConnection::kEnded)
    no = {Code::kClosed, "the communicator was closed"};
  else if (syncs_.count(call.tag) > 0 || calls_.count(call.tag) > 0) {
    no = {Code::kBusyTag, busy_text(call.tag)};
  } else if (master_lost()) {
    no = {Code::kMasterLost, beyond_grace()};
  }
  if (!no.ok()) {
    fx_.synced.push_back({call.tag, std::move(no), {call.tag, call.revision, call.digest}});
    return;
  }
  OpenSync& open = syncs_[call.tag];
  open.call = call;
  // Its thread may have stood since it looked, while another one published what followed.
  const auto held = held_.find(call.tag);
  const bool later = held != held_.end() && held->second.revision > call.revision;
  if (later && call.restore == wire::Wish::kNone && !JCCL_PLANTED("sync-says-what-was")) {
    open.call.revision = held->second.revision, open.call.digest = held->second.digest;
  }
  if (JCCL_PLANTED("sync-deadlines-too-long")) open.call.deadline += 3 * (call.deadline - now_);
  send_sync(open);
}

void State::send_sync(const OpenSync& open) {
  wire::Sync sync;
  sync.changed = changed_.erase(open.call.tag) > 0;
  sync.tag = open.call.tag;
  sync.source = open.call.source;
  sync.restore = open.call.restore;
  sync.fetching = open.fetching.has_value();
  sync.revision = sync.fetching ? open.fetching->revision : open.call.revision;
  sync.digest = sync.fetching ? open.fetching->digest : open.call.digest;
  sync.descriptor = open.call.descriptor;
  sync.summary = open.call.summary;
  sync.deadline = std::max<base::Duration>(0, open.call.deadline - now_);
  send(std::move(sync));
}

void State::on_sync_reply(const wire::SyncReply& reply) {
  const auto found = syncs_.find(reply.tag);
  if (found == syncs_.end()) return;
  OpenSync& open = found->second;
  switch (reply.verdict) {
    case wire::SyncVerdict::kWait:
      open.waiting = reply.text;
      return;
    case wire::SyncVerdict::kRefused:
      return finish_sync(wire::Tag(reply.tag), failure(reply.code), reply.text);
    case wire::SyncVerdict::kFetch:
      heard_commit(reply.tag, reply.revision);
      // Said again when a holder has left, with those that are left: it may cross the word that all
      // is here, or another question, the answer to which is what counts.
      if (!open.fetching.has_value() && open.call.digest == reply.digest) return;
      open.fetching = {reply.tag, reply.revision, reply.digest};
      open.again = base::kNever;
      fx_.fetch.push_back({*open.fetching, reply.holders, reply.links});
      return;
    case wire::SyncVerdict::kCurrent:
      heard_commit(reply.tag, reply.revision);
      if (open.fetching.has_value()) return;  // asks again when the fetch ends
      if (open.call.digest != reply.digest &&
          !(open.call.restore != wire::Wish::kNone && held_here(reply))) {
        return send_sync(open);
      }
      open.went_back = reply.restored > open.call.user_has;
      open.call.revision = reply.revision, open.call.digest = reply.digest;
      held_[reply.tag] = {reply.tag, reply.revision, reply.digest};
      open.current = true;
      open.waiting = "waits to be admitted";
      return finish_current_syncs();
  }
}

// Who wished another state back, as somebody had before, goes on with the run's.
bool State::held_here(const wire::SyncReply& reply) const {
  const auto held = held_.find(reply.tag);
  return held != held_.end() && held->second.digest == reply.digest;
}

void State::finish_current_syncs() {
  if (id_ == 0) return;
  std::vector<wire::Tag> done;
  for (const auto& [tag, open] : syncs_) {
    if (open.current) done.push_back(tag);
  }
  for (const wire::Tag& tag : done) finish_sync(tag, Code::kOk, "");
}

void State::finish_sync(const wire::Tag& tag, Code code, std::string text) {
  const auto found = syncs_.find(tag);
  JCCL_CHECK(found != syncs_.end());
  const auto& [call, went_back, fetching, disputed, current, again, waiting] = found->second;
  if (code == Code::kOk) resync_.erase(tag);
  fx_.synced.push_back(
      {tag, {code, std::move(text)}, {tag, call.revision, call.digest}, went_back});
  syncs_.erase(found);
}

// What comes after its sync was over, the user never got: it is not this peer's state.
void State::on_fetch_done(const FetchDone& done) {
  const auto found = syncs_.find(done.held.tag);
  if (found == syncs_.end() || found->second.fetching != done.held) return;
  OpenSync& open = found->second;
  held_[done.held.tag] = done.held;
  open.fetching.reset();
  open.call.revision = done.held.revision;
  open.call.digest = done.held.digest;
  open.call.restore = wire::Wish::kNone;  // this is the run's
  send_sync(open);
}

void State::on_fetch_failed(const FetchFailed& failed) {
  const auto found = syncs_.find(failed.tag);
  if (found == syncs_.end() || !found->second.fetching.has_value()) return;
  OpenSync& open = found->second;
  // Others may hold it by then, and have a say.
  if (failed.disputed && std::exchange(open.disputed, true)) {
    return finish_sync(wire::Tag(failed.tag), Code::kDisputed, failed.text);
  }
  open.fetching.reset();
  open.waiting = failed.text;
  open.again = now_ + (failed.disputed ? silence_ : kFetchPause);
}

void State::on_publish(const wire::Held& held) {
  wire::Held& own = held_.try_emplace(held.tag, held).first->second;
  if (own.revision > held.revision) return;  // by another thread, which was faster
  own = held;
  send(wire::Published{held});
  // Another thread synchronises meanwhile, and said that it stands at the revision before: nobody
  // else may have this one.
  const auto open = syncs_.find(held.tag);
  const bool waits = open != syncs_.end() && !open->second.fetching && !open->second.current;
  if (!waits || open->second.call.restore != wire::Wish::kNone ||
      JCCL_PLANTED("publish-unheard-by-own-sync"))
    return;
  open->second.call.revision = held.revision, open->second.call.digest = held.digest;
  send_sync(open->second);
}

// The next call waits for a SyncCall, whatever this peer published. A call that has not started
// ends; of a site with more shards it lasts until its START, which is answered in a way that ends
// the others' calls, too: else they would wait for this one.
void State::on_state_changed(const StateChanged& changed) {
  if (held_.count(changed.tag) > 0) {
    resync_.insert(changed.tag);
    changed_.insert(changed.tag);
  }
  const auto found = calls_.find(changed.tag);
  if (found == calls_.end() || found->second.phase != CallPhase::kWaiting) return;
  const bool alone = options_.shards == 1 || JCCL_PLANTED("shard-withdraws-alone");
  if (alone && found->second.call.is_state && !JCCL_PLANTED("changed-state-waits")) {
    give_up(changed.tag, Code::kResync, changed.why);
  }
}

}  // namespace jccl::protocol
