#include "fuzz/hostile/hostile_peer.h"

#include <algorithm>

#include "base/check.h"
#include "base/rng.h"
#include "base/text.h"

namespace jccl::fuzz {
namespace {

constexpr std::size_t kFirstLeaf = 24;
constexpr std::uint32_t kSlots = 8;
constexpr std::size_t kPeerSendsPerEvent = 64;  // with so few tags

protocol::PeerOptions machine_options(const UserOptions& user) {
  protocol::PeerOptions options;
  options.site = user.site;
  options.addresses = {base::cat("10.0.0.", user.number + 1, ":4001")};
  return options;
}

// `blocks` of the values in the inputs, `each` of an input in the outputs.
std::vector<peer::Leaf> leaves_of(const float* in, float* out, std::size_t each,
                                  std::size_t blocks = 1) {
  const std::size_t first = kFirstLeaf * blocks, rest = (kUserValues - kFirstLeaf) * blocks;
  return {{codec::Dtype::kF32, first, in, out, "w", {}},
          {codec::Dtype::kF32, rest, in + first, out + first * each, "b", {}}};
}

// The elements that a reduce_scatter gives to the k-th of n.
std::vector<bool> scattered_to(std::size_t k, std::size_t n) {
  std::vector<bool> mine(kUserValues, false);
  const std::size_t counts[] = {kFirstLeaf, kUserValues - kFirstLeaf};
  std::size_t at = 0;
  for (const std::size_t count : counts) {
    if (k < n)
      std::fill(mine.begin() + at + count * k / n, mine.begin() + at + count * (k + 1) / n, true);
    at += count;
  }
  return mine;
}

}  // namespace

WorldPeer::WorldPeer(WorldSide* world, Oracle* oracle, UserOptions options,
                     wire::Incarnation incarnation)
    : world_(*world),
      oracle_(*oracle),
      options_(std::move(options)),
      machine_(machine_options(options_), incarnation, world->now()),
      plane_(this, &store_),
      state_(kUserValues, options_.hostile ? 3.0F : 1.0F) {
  plane_.set_self(incarnation);
  digest_ = store_.make(kModel, 0, state_leaves())->held.digest;
}

std::vector<peer::Leaf> WorldPeer::state_leaves() {
  return leaves_of(state_.data(), state_.data(), 1);
}

void WorldPeer::start() {
  apply(machine_.start(world_.now()));
  if (options_.with_state) sync();
}

void WorldPeer::event(const protocol::PeerEvent& event) {
  if (gone_) return;
  apply(machine_.on(event, world_.now()));
  settle();
}

void WorldPeer::settle() {
  while (!reported_.empty() && !gone_) {
    const protocol::PeerEvent next = std::move(reported_.front());
    reported_.pop_front();
    if (const auto* fetched = std::get_if<protocol::FetchDone>(&next)) {
      const peer::SnapshotRef newest = store_.find(fetched->held.tag, fetched->held.revision);
      JCCL_CHECK(newest && newest->held == fetched->held);
      JCCL_CHECK(peer::copy_out(*newest, state_leaves()));
    }
    apply(machine_.on(next, world_.now()));
  }
}

void WorldPeer::tick() {
  event(protocol::Progress{0, plane_.moving()});
  event(protocol::PeerTick{});
}

// As peer/control.cc does, in the same order.
void WorldPeer::apply(const protocol::PeerEffects& effects) {
  JCCL_CHECK(effects.send.size() <= kPeerSendsPerEvent);
  carry_out_data(effects);
  for (const protocol::CompleteCall& done : effects.complete) completed(done);
  for (const protocol::FetchSnapshot& order : effects.fetch) {
    if (syncing_) plane_.fetch(order, store_.make(kModel, 0, state_leaves())->layout, world_.now());
  }
  for (const protocol::CompleteSync& done : effects.synced) synced(done);
  for (const wire::Message& message : effects.send) world_.say(*this, message);
  if (effects.broken) broken_ = effects.broken;
  if (effects.departed || effects.broken) gone_ = true;
  if (effects.disconnect) world_.hang_up(*this);
  wake_ = effects.wake;
  if (effects.rejoin) {
    const protocol::NewLife life{machine_.incarnation() + 1};
    plane_.set_self(life.incarnation);
    apply(machine_.on(life, world_.now()));
  }
  if (effects.connect) world_.dial(*this);
}

void WorldPeer::carry_out_data(const protocol::PeerEffects& effects) {
  for (const wire::Attempt& attempt : effects.discard) plane_.discard(attempt);
  if (effects.roster) plane_.set_roster(*effects.roster);
  for (const protocol::RunAttempt& order : effects.run) {
    const auto found = calls_.find(order.start.round.tag);
    JCCL_CHECK(found != calls_.end());
    const wire::PeerId self = plane_.id_of(machine_.incarnation());
    found->second->self = self;
    double weight = 0;
    for (const wire::Contributor& one : order.start.contributors) {
      if (one.id == self) weight = one.weight;
    }
    if (weight > 0) {
      oracle_.enters(order.start.attempt, self, weight, found->second->in, options_.hostile);
    }
    plane_.run(order, found->second->record, world_.now());
    world_.started_attempt(*this);
  }
  for (const wire::AuditAsk& ask : effects.audit) {
    plane_event(protocol::AuditAnswer{ask.attempt, plane_.audit_parts(ask)});
  }
  for (const wire::Attempt& attempt : effects.commit) {
    JCCL_CHECK(plane_.commit(attempt));
    for (const auto& [tag, call] : calls_) {
      if (call->record->delivered) committed_[tag] = attempt;
    }
  }
}

void WorldPeer::user_turn() {
  if (gone_) return;
  if (options_.with_state && !standing_ && !syncing_ && calls_.count(kModel) == 0) sync();
  if (calls_.count(kGrads) == 0) call(kGrads);
  if (options_.with_state && standing_ && calls_.count(kModel) == 0) call(kModel);
}

void WorldPeer::call(const wire::Tag& tag) {
  const bool state = tag == kModel;
  auto made = std::make_shared<UserCall>();
  base::Rng rng(options_.number * 7919 + ++calls_made_);
  const bool transposes = !state && options_.collective == peer::Collective::kAllToAll;
  const std::size_t blocks = transposes ? kSlots : 1;
  for (std::size_t i = 0; i < kUserValues * blocks; ++i) {
    made->in.push_back(static_cast<float>(rng.below(1000)) - 500.0F);
  }
  auto record = std::make_shared<peer::CallRecord>();
  record->options.tag = tag;
  record->options.op = collective::Op::kSum;
  record->options.weight = options_.weight;
  record->options.collective = state ? peer::Collective::kAllReduce : options_.collective;
  record->options.slots = kSlots;
  record->options.plan = options_.plan;
  record->options.out_private = options_.private_out;
  const bool gathers = record->options.collective == peer::Collective::kAllGather;
  const std::size_t each = gathers ? kSlots : 1;
  made->out.assign(kUserValues * blocks * each, kUntouched);
  record->leaves = leaves_of(made->in.data(), made->out.data(), each, blocks);
  record->specs = exchange::specs_of(record->leaves, record->options);
  JCCL_CHECK(peer::check_call(record->leaves, record->options).ok());
  made->record = record;
  const peer::Descriptor words = peer::describe_call(*record, MemoryPlane::kChunkBytes);
  protocol::Call call;
  call.tag = tag;
  call.descriptor = words.digest;
  call.summary = words.summary;
  call.hint = words.hint;
  call.contributors_max = words.contributors_max, call.unit_weights = words.unit_weights;
  call.quorum = words.quorum;
  call.weight = options_.weight;
  call.is_state = state;
  call.deadline = world_.now() + options_.deadline;
  calls_[tag] = std::move(made);
  event(call);
}

void WorldPeer::sync() {
  syncing_ = true;
  const peer::Descriptor words = peer::describe_state(state_leaves());
  protocol::SyncCall call;
  call.tag = kModel;
  call.source = options_.source && revision_ == 0;
  call.revision = revision_;
  call.digest = digest_;
  call.descriptor = words.digest;
  call.summary = words.summary;
  call.deadline = world_.now() + 2 * options_.deadline;
  event(call);
}

void WorldPeer::completed(const protocol::CompleteCall& done) {
  const auto found = calls_.find(done.tag);
  JCCL_CHECK(found != calls_.end());
  const std::shared_ptr<UserCall> call = found->second;
  calls_.erase(found);
  plane_.release(call->record);
  const bool good = call->record->delivered;
  // A master that lies may name a code of success; one that does not, never without the result.
  JCCL_CHECK(good == base::holds_result(done.status.code) || !oracle_.holds());
  if (!good) {
    if (!options_.private_out) oracle_.failed(call->out);
  } else if (!options_.hostile) {
    UserResult result;
    result.collective = call->record->options.collective;
    result.attempt = committed_.at(done.tag);
    result.self = call->self;
    result.done = &done;
    result.out = &call->out;
    result.private_out = options_.private_out;
    if (result.collective == peer::Collective::kReduceScatter) {
      std::size_t position = done.contributors.size();
      for (std::size_t i = 0; i < done.contributors.size(); ++i) {
        if (done.contributors[i].id == call->self) position = i;
      }
      result.scattered = scattered_to(position, done.contributors.size());
    }
    oracle_.committed(result);
    ++good_[done.tag];
  }
  if (done.tag != kModel) return;
  if (good) return next_revision(done.n, call->out);
  if (base::remedy_of(done.status.code) == base::Remedy::kResync) standing_ = false;
}

void WorldPeer::next_revision(std::uint64_t n, const std::vector<float>& result) {
  for (std::size_t i = 0; i < state_.size(); ++i) state_[i] += result[i];
  revision_ = n;
  peer::SnapshotRef made = store_.make(kModel, n, state_leaves());
  digest_ = made->held.digest;
  const wire::Held held = made->held;
  store_.put(std::move(made));
  if (!options_.hostile) oracle_.published(held);
  reported_.push_back(protocol::PublishState{held});
  if (machine_.needs_resync(kModel)) standing_ = false;
}

void WorldPeer::synced(const protocol::CompleteSync& done) {
  syncing_ = false;
  lost_state_ = lost_state_ || done.status.code == base::Code::kStateLost;
  if (!done.status.ok()) {
    plane_.stop_fetch(done.tag);
    return;
  }
  peer::SnapshotRef own = store_.make(kModel, done.held.revision, state_leaves());
  JCCL_CHECK(own->held.digest == done.held.digest);
  revision_ = done.held.revision;
  digest_ = done.held.digest;
  store_.put(std::move(own));
  standing_ = true;
}

}  // namespace jccl::fuzz
