#include "fuzz/hostile/hostile_member.h"

#include <algorithm>
#include <iterator>
#include <type_traits>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/text.h"
#include "fuzz/fields/bender.h"
#include "wire/serialize.h"

namespace jccl::fuzz {
namespace {

constexpr int kActsMax = 48;
constexpr std::size_t kBareMax = 6;
constexpr base::Duration kFirst = 700 * base::kMillisecond;  // rounds are under way by then

template <typename T, typename... All>
constexpr std::size_t place_among(std::variant<All...>*) {
  const bool is[] = {std::is_same_v<T, All>...};
  return static_cast<std::size_t>(std::find(std::begin(is), std::end(is), true) - std::begin(is));
}

template <typename T>
constexpr std::size_t place_of() {
  return place_among<T>(static_cast<wire::Message*>(nullptr));
}

WorldOptions options_from(Input& in) {
  WorldOptions options;
  options.master.run = {9};
  options.master.silence = base::kSecond;
  options.master.heartbeat = 200 * base::kMillisecond;
  options.master.restart_grace = base::kSecond;
  options.master.straggler_after = 600 * base::kMillisecond;
  options.master.straggler = static_cast<protocol::Straggler>(in.below(3));
  // Short, so that the hostile member is soon back.
  options.master.ban = options.master.ban_max = options.master.out_max = base::kMillisecond;
  options.master.history = 1 + in.below(4);
  options.master.min_peers = in.below(4) == 0 ? 2 : 1;
  const std::size_t honest = 2 + in.below(2);
  const std::uint8_t form = in.u8();
  UserOptions user;
  user.with_state = (form & 1) != 0;
  user.private_out = (form & 2) != 0;
  constexpr peer::Collective kCollectives[] = {
      peer::Collective::kAllReduce, peer::Collective::kAllToAll, peer::Collective::kAllGather,
      peer::Collective::kReduceScatter};
  user.collective = kCollectives[(form >> 2) % std::size(kCollectives)];
  constexpr const char* kPlans[] = {"", "direct", "ring", "exchange", "fastest"};
  user.plan = kPlans[(form >> 4) % std::size(kPlans)];
  options.lying_master = in.below(6) == 5;
  const std::size_t at = in.below(honest + 1);
  for (std::size_t i = 0; i <= honest; ++i) {
    user.number = static_cast<std::uint32_t>(i);
    user.site = std::string(1, static_cast<char>('a' + i));
    user.hostile = i == at;
    user.source = user.with_state && (form >> 6) == i;
    options.users.push_back(user);
  }
  return options;
}

// The type of a message by its name in the variant, made from nothing.
template <std::size_t I = 0>
wire::Message blank(std::size_t type) {
  if constexpr (I + 1 < std::variant_size_v<wire::Message>) {
    if (type != I) return blank<I + 1>(type);
  }
  return std::variant_alternative_t<I, wire::Message>{};
}

const std::vector<Bend>& bends_at(std::size_t type) {
  static const auto all = [] {
    std::vector<std::vector<Bend>> out;
    for (std::size_t i = 0; i < std::variant_size_v<wire::Message>; ++i) {
      out.push_back(bends_of(wire::name_of(blank(i))));
    }
    return out;
  }();
  return all[type];
}

// Those of the messages in a part of the table.
std::vector<std::size_t> types_of(const std::vector<FieldsOf>& table) {
  std::vector<std::size_t> types;
  for (std::size_t i = 0; i < std::variant_size_v<wire::Message>; ++i) {
    const std::string_view name = wire::name_of(blank(i));
    if (std::ranges::count(table, name, &FieldsOf::owner) > 0) types.push_back(i);
  }
  return types;
}

// No master of the simulated world says it by itself.
bool is_rare(std::size_t type) {
  return type == place_of<wire::Drain>() || type == place_of<wire::Notice>() ||
         type == place_of<wire::OrderReply>() || type == place_of<wire::StatusReply>();
}

}  // namespace

HostileMember::HostileMember(ByteView bytes) : in_(bytes), values_(&in_, &seen_) {
  const WorldOptions options = options_from(in_);
  lying_ = options.lying_master;
  Seen::add(&seen_.tags, kGrads);
  world_.emplace(options, this);
}

void HostileMember::run() {
  world_->run_for(kFirst);
  for (int acts = 0; acts < kActsMax && !in_.done() && !world_->exhausted(); ++acts) {
    act();
    world_->run_for(
        in_.below(4) == 0 ? static_cast<base::Duration>(in_.u8()) * 10 * base::kMillisecond : 0);
  }
  world_->check_end();
  end();
  ++hostile_coverage().executions;
}

void HostileMember::act() {
  switch (in_.below(16)) {
    case 0:
    case 1:
    case 2:
      return lying_ && in_.below(4) > 0 ? arm_lie() : arm();
    case 3:
    case 4:
    case 5:
    case 6:
      return inject();
    case 7:
    case 8:
      return inject_bare();
    case 9:
    case 10:
      trick_ = static_cast<FrameTrick>(in_.below(7));
      trick_times_ = 1 + static_cast<std::uint32_t>(in_.below(32));
      return;
    case 11:
      return inject_frame();
    case 12:
      return ask_snapshots();
    case 13:
      return touch_honest();
    case 14:
      return act_rarely();
    default:
      return world_->run_for(static_cast<base::Duration>(in_.u8()) * 20 * base::kMillisecond);
  }
}

void HostileMember::act_rarely() {
  switch (in_.below(9)) {
    case 0:
      return crowd();
    case 1:
      return many_tags();
    case 2:
      return world_->restart_master();
    case 3:
      return world_->silence_links(in_.flag());
    case 4:
      return world_->cut(world_->hostile());
    case 5:
      return world_->evict(world_->hostile().site());
    case 6:
      if (!bare_.empty()) world_->close_bare(bare_[in_.below(bare_.size())]);
      return;
    case 7:  // moves its data, never says DONE, and takes its READY back
      armed_[place_of<wire::Done>()] = {2, 0, true, false};
      world_->run_for(300 * base::kMillisecond);
      return world_->say_hostile(wire::encode(wire::Withdraw{round_}));
    default:
      return world_->hostile().cancel(in_.flag() ? kGrads : kModel);
  }
}

// ---- what it says ------------------------------------------------------------------------------

void HostileMember::arm() {
  Armed armed;
  const std::size_t last = place_of<wire::Published>();
  std::size_t type = in_.below(last + 3);
  if (type == last + 1) type = place_of<wire::Measured>();
  if (type == last + 2) type = place_of<wire::Outvoted>();
  armed.times = 1 + static_cast<std::uint32_t>(in_.below(16));
  armed.fields = static_cast<std::uint8_t>(in_.below(4));
  armed.drop = armed.fields == 0;
  armed.twice = in_.below(4) == 0;
  armed_[type] = armed;
}

// One of those that only the master says.
void HostileMember::arm_lie() {
  Armed armed;
  static const std::vector<std::size_t> types = types_of(fields_to_peer());
  const std::size_t type = types[in_.below(types.size())];
  armed.times = 1 + static_cast<std::uint32_t>(in_.below(8));
  armed.fields = static_cast<std::uint8_t>(in_.below(4));
  armed.drop = armed.fields == 0 && in_.flag();
  armed.twice = in_.flag();
  armed.unasked = is_rare(type) || in_.below(4) == 0;
  lies_[type] = armed;
}

void HostileMember::from_master(const wire::Message& message, std::vector<Bytes>* out) {
  seen_.note(message);
  wire::Message told = message;
  const auto found = lies_.find(message.index());
  lie_unasked(out);
  if (found != lies_.end() && found->second.times > 0) {
    --found->second.times;
    if (found->second.drop) return;
    if (found->second.twice) out->push_back(wire::encode(message));
    bend(&told, found->second.fields);
  }
  if (auto bytes = bytes_of(told)) out->push_back(std::move(*bytes));
}

void HostileMember::lie_unasked(std::vector<Bytes>* out) {
  for (auto& [type, armed] : lies_) {
    if (!armed.unasked || armed.times == 0) continue;
    --armed.times;
    wire::Message made = drawn(type);
    bend(&made, armed.fields);
    if (auto bytes = bytes_of(made)) out->push_back(std::move(*bytes));
  }
}

void HostileMember::outgoing(const wire::Message& message, std::vector<Bytes>* out) {
  said_[message.index()] = message;
  wire::Message bent = message;
  const auto found = armed_.find(message.index());
  if (found != armed_.end() && found->second.times > 0) {
    --found->second.times;
    if (found->second.drop) return;
    bend(&bent, found->second.fields);
    if (found->second.twice) out->push_back(wire::encode(message));
  }
  if (auto bytes = bytes_of(bent)) out->push_back(std::move(*bytes));
}

void HostileMember::heard(const wire::Message& message) {
  seen_.note(message);
  if (const auto* start = std::get_if<wire::Start>(&message)) round_ = start->round;
}

wire::Message HostileMember::drawn(std::size_t type) {
  const auto found = said_.find(type);
  if (found != said_.end() && in_.below(4) < 3) return found->second;
  wire::Message made = blank(type);
  const wire::Attempt attempt = values_.attempt({1, 1});
  const wire::Tag tag = in_.flag() ? kGrads : kModel;
  const wire::RoundName round = in_.flag() ? round_ : wire::RoundName{tag, 1};
  std::visit(
      [&](auto& m) {
        if constexpr (requires { m.round.tag; }) m.round = round;
        if constexpr (requires { m.attempt; }) m.attempt = attempt;
        if constexpr (requires { m.tag; }) m.tag = tag;
        if constexpr (requires { m.held; } && !requires { m.unresolved; }) m.held.tag = tag;
        if constexpr (requires { m.about; }) m.about = {attempt, round};
      },
      made);
  return made;
}

void HostileMember::bend(wire::Message* message, std::size_t fields) {
  const std::vector<Bend>& bends = bends_at(message->index());
  for (; fields > 0 && !bends.empty(); --fields) {
    const std::size_t which = in_.below(bends.size());
    std::visit([&](auto& m) { bend_one(&m, bends, which, &values_); }, *message);
    ++hostile_coverage().bends[{message->index(), which}];
  }
}

// What has no bytes can't be said.
std::optional<Bytes> HostileMember::bytes_of(const wire::Message& message) {
  if (!wire::check(message).ok()) return std::nullopt;
  return wire::encode(message);
}

// Now and then some of the bytes are others.
std::optional<Bytes> HostileMember::drawn_bytes(const wire::Message& message) {
  std::optional<Bytes> made = bytes_of(message);
  if (!made || in_.below(24) != 23) return made;
  Bytes& bytes = *made;
  if (bytes.size() > 1) {
    const std::size_t at = in_.below(bytes.size());
    const double weight = values_.weight(1);
    const std::size_t size = std::min(sizeof(weight), bytes.size() - at);
    std::memcpy(bytes.data() + at, &weight, size);
  }
  return made;
}

void HostileMember::inject() {
  const std::size_t type = in_.below(std::variant_size_v<wire::Message>);
  const std::size_t fields = in_.below(4);
  const std::size_t times = in_.below(8) == 0 ? 2 + in_.below(30) : 1;
  for (std::size_t i = 0; i < times; ++i) {
    wire::Message message = drawn(type);
    bend(&message, fields);
    if (auto bytes = drawn_bytes(message)) world_->say_hostile(std::move(*bytes));
  }
}

// So many Syncs, or READYs, or snapshots, each of a tag of its own.
void HostileMember::many_tags() {
  constexpr std::size_t kTypes[] = {place_of<wire::Sync>(), place_of<wire::Ready>(),
                                    place_of<wire::Published>(), place_of<wire::Query>()};
  const std::size_t type = kTypes[in_.below(std::size(kTypes))];
  const std::size_t count = in_.below(4) == 0 ? 300 : 1 + in_.below(40);
  const base::Duration deadline = values_.time(base::kSecond);
  for (std::size_t i = 0; i < count; ++i) {
    wire::Message message = drawn(type);
    const wire::Tag tag = base::cat("t", i);
    if (auto* sync = std::get_if<wire::Sync>(&message)) sync->tag = tag, sync->deadline = deadline;
    if (auto* ready = std::get_if<wire::Ready>(&message)) {
      ready->round = {tag, 1};
      ready->has_state = false;
      ready->deadline = deadline;
    }
    if (auto* published = std::get_if<wire::Published>(&message)) published->held.tag = tag;
    if (auto* query = std::get_if<wire::Query>(&message)) query->about.round.tag = tag;
    if (auto bytes = bytes_of(message)) world_->say_hostile(std::move(*bytes));
  }
}

// ---- connections beside its own ----------------------------------------------------------------

wire::Hello HostileMember::bare_hello() {
  wire::Hello hello;
  if (const auto said = said_.find(place_of<wire::Hello>()); said != said_.end()) {
    hello = std::get<wire::Hello>(said->second);
  }
  hello.incarnation = (std::uint64_t{0xBAD0000} + ++lives_made_) << 16 | 1;
  hello.site = base::cat("h", in_.below(4));
  return hello;
}

ConnId HostileMember::bare() {
  if (!bare_.empty() && (bare_.size() >= kBareMax || in_.below(3) > 0)) {
    return bare_[in_.below(bare_.size())];
  }
  bare_.push_back(world_->open_bare());
  wire::Message hello = bare_hello();
  bend(&hello, in_.below(3));
  if (auto bytes = bytes_of(hello)) world_->say_bare(bare_.back(), std::move(*bytes));
  if (in_.below(4) > 0) {
    wire::Message resume = wire::Resume{};
    bend(&resume, in_.below(2));
    if (auto bytes = bytes_of(resume)) world_->say_bare(bare_.back(), std::move(*bytes));
  }
  return bare_.back();
}

void HostileMember::inject_bare() {
  if (in_.below(12) == 0) {  // whoever connects may ask
    return world_->say_bare(world_->open_bare(), wire::encode(wire::StatusAsk{}));
  }
  const ConnId conn = bare();
  const std::size_t type = in_.below(std::variant_size_v<wire::Message>);
  wire::Message message = drawn(type);
  bend(&message, in_.below(3));
  if (auto bytes = drawn_bytes(message)) world_->say_bare(conn, std::move(*bytes));
}

// One site of many shards, all of which are there.
void HostileMember::crowd() {
  constexpr std::uint32_t kSizes[] = {2, 3, 3, 8, 8, 40, 1024, 1025};
  std::uint32_t shards = kSizes[in_.below(std::size(kSizes))];
  const std::size_t types[] = {place_of<wire::Ready>(), place_of<wire::Sync>()};
  const std::size_t type = types[in_.below(2)];
  // Large ones take a hundred times as long.
  if (shards > 1000 && in_.below(8) != 7) shards = 100;
  for (std::uint32_t shard = 0; shard < shards; ++shard) {
    wire::Hello hello = bare_hello();
    hello.site = "crowd";
    hello.shard = shard;
    hello.shards = shards;
    const ConnId conn = world_->open_bare();
    if (auto bytes = bytes_of(hello)) world_->say_bare(conn, std::move(*bytes));
    world_->say_bare(conn, wire::encode(wire::Resume{}));
    if (auto bytes = bytes_of(drawn(type))) world_->say_bare(conn, std::move(*bytes));
  }
}

// ---- what happens to others meanwhile, and the end ---------------------------------------------

void HostileMember::touch_honest() {
  const std::size_t which = in_.below(4);
  switch (in_.below(4)) {
    case 0:
      return world_->kill(which, true);
    case 1:
      return world_->cut(*world_->honest()[which % world_->honest().size()]);
    case 2:
      return world_->honest()[which % world_->honest().size()]->cancel(in_.flag() ? kGrads
                                                                                  : kModel);
    default:
      return world_->run_for(300 * base::kMillisecond);
  }
}

// The hostile member falls silent, or goes: the others commit rounds again.
void HostileMember::end() {
  world_->end_hostile(in_.flag());
  if (world_->founded_by_hostile() || lying_) return;
  const std::vector<WorldPeer*> honest = world_->honest();
  std::map<const WorldPeer*, std::pair<std::uint64_t, std::uint64_t>> before;
  for (WorldPeer* peer : honest) {
    before[peer] = {peer->good_rounds(kGrads), peer->good_rounds(kModel)};
  }
  const auto goes_on = [&](const WorldPeer* peer) {
    const bool model = !peer->options().with_state || peer->lost_state() ||
                       peer->good_rounds(kModel) > before[peer].second + 1;
    const bool grads = peer->good_rounds(kGrads) > before[peer].first + 1 || peer->lost_state();
    return grads && model;
  };
  constexpr int kTurnsMax = 240;  // of a quarter of a second
  for (int turn = 0; turn < kTurnsMax; ++turn) {
    if (std::ranges::all_of(honest, goes_on)) return world_->check_end();
    world_->run_for(250 * base::kMillisecond);
  }
  for (WorldPeer* peer : honest) {
    std::fprintf(stderr, "%s stands still: grads waits for '%s', model for '%s'%s%s\n",
                 peer->site().c_str(), peer->machine().waiting_for(kGrads, world_->now()).c_str(),
                 peer->machine().waiting_for(kModel, world_->now()).c_str(),
                 peer->broken() ? ", broken: " : "",
                 peer->broken() ? peer->broken()->text.c_str() : "");
  }
  JCCL_CHECK(!"honest peers commit no rounds after the hostile member has gone");
}

}  // namespace jccl::fuzz
