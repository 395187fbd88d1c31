// Links to peers by who has the run's link secret and is not who the links are for: in the name of
// others, after it left, without reading, by the thousand.
#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "attack/crowd.h"
#include "attack/visits.h"
#include "codec/dtype.h"
#include "collective/op.h"
#include "exchange/stress_oracle.h"
#include "snapshot/digest.h"
#include "wire/serialize.h"

namespace jccl::attack {
namespace {

using base::kMillisecond;

constexpr std::size_t kMadeUp = 1100;  // of each peer
constexpr std::uint32_t kPartsAsked = 2;
constexpr auto kHeardOf = std::chrono::seconds(1);  // by then all have heard that it left
constexpr base::Duration kRoundsMax = 30 * base::kSecond;

base::Bytes data_frame(wire::FrameHeader header, const base::Bytes& payload, bool checked) {
  header.payload_bytes = static_cast<std::uint32_t>(payload.size());
  header.payload_check = checked ? snapshot::check_of(payload) : 0;
  base::Bytes frame(wire::kFrameHeaderBytes);
  wire::encode(header, frame.data());
  frame.insert(frame.end(), payload.begin(), payload.end());
  return frame;
}

// Of the newest revision of the state, many times over; or of one that nobody has.
base::Bytes questions(const CrowdOptions& options, bool of_none = false) {
  const Known known = options.known();
  const auto start = known.starts.find("model");
  base::Bytes all;
  if (start == known.starts.end()) return all;
  wire::SnapshotAsk ask;
  ask.tag = "model", ask.last_part = kPartsAsked;
  for (std::uint64_t id = 1; id <= 64; ++id) {
    ask.revision = of_none ? UINT32_MAX : start->second.revision, ask.ask = id;
    wire::FrameHeader header;
    header.kind = wire::FrameKind::kSnapshotAsk;
    header.attempt = {ask.revision, ask.ask};
    const base::Bytes frame = data_frame(header, wire::encode(ask), options.secret.empty());
    all.insert(all.end(), frame.begin(), frame.end());
  }
  return all;
}

// Of the attempts that are under way.
base::Bytes made_up_data(const CrowdOptions& options, const Known& known) {
  base::Bytes all;
  for (const auto& [tag, start] : known.starts) {
    for (const auto kind : {wire::FrameKind::kContribution, wire::FrameKind::kPartial,
                            wire::FrameKind::kResult, wire::FrameKind::kArrived}) {
      for (std::uint32_t chunk = 0; chunk < 4; ++chunk) {
        wire::FrameHeader header;
        header.kind = kind, header.attempt = start.attempt, header.chunk = chunk;
        const bool empty = kind == wire::FrameKind::kArrived;
        const base::Bytes payload(empty ? 0 : options.elements, 0x3F);  // a share of four
        const base::Bytes frame = data_frame(header, payload, options.secret.empty());
        all.insert(all.end(), frame.begin(), frame.end());
      }
    }
  }
  return all;
}

// As from that life; as whoever has the key of `own`.
std::optional<Visit> link_to(const wire::Member& peer, base::Incarnation from, const Known& known,
                             net::Credentials own) {
  if (peer.addresses.empty() || known.links.generation == 0) return std::nullopt;
  const auto address = net::parse_address(peer.addresses[0]);
  if (!address.ok()) return std::nullopt;
  wire::LinkHello hello;
  hello.run = known.run, hello.from = from, hello.to = peer.incarnation;
  Visit visit;
  visit.to = address.value();
  visit.purpose = net::Purpose::kLink;
  visit.credentials = std::move(own);
  visit.credentials.run = known.run;
  visit.credentials.shared = net::link_key(known.run, known.links.generation, known.links.secret);
  visit.hello = wire::encode(hello);
  return visit;
}

// Takes part until it was in a round, and leaves. What it knew then; its life by `life`.
Known leave(const CrowdOptions& options, base::Incarnation* life, const std::atomic<bool>& stop) {
  peer::ConnectOptions o;
  o.master = options.master, o.token = token_for_one(options.secret);
  o.site = "hostile-former", o.key_file = options.key_file;
  const auto comm = peer::Communicator::connect(o);
  if (!comm.ok()) return {};
  bool was_in = false;
  while (!stop && !was_in) {
    auto x = exchange::stress::input_of<float>(peer::RoundOptions{}.weight, options.elements);
    peer::RoundOptions round;
    round.tag = "grads", round.op = collective::Op::kSum, round.fingerprint = {7, 7};
    round.deadline = kRoundsMax;
    const auto result =
        comm.value()->run({{codec::Dtype::kF32, x.size(), x.data(), x.data(), "x", {}}}, round);
    was_in = result.status.ok();
  }
  *life = comm.value()->attributes().incarnation;
  const Known known = options.known();
  comm.value()->close();
  std::this_thread::sleep_for(kHeardOf);
  return known;
}

}  // namespace

void impersonate(const CrowdOptions& options, const std::atomic<bool>& stop,
                 std::atomic<std::uint64_t>& count) {
  std::uint64_t turn = 0;
  Pool pool;
  pool.answered = options.answered;
  pool.places = 12;
  pool.breath = 5 * kMillisecond;
  pool.next = [&](std::size_t) -> std::optional<Visit> {
    const Known known = options.known();
    const auto honest = known.honest();
    if (honest.size() < 2) return std::nullopt;
    const std::size_t victim = ++turn % honest.size();
    const std::size_t other = (victim + 1 + turn / 7 % (honest.size() - 1)) % honest.size();
    const bool stranger = turn % 4 == 0;
    auto visit = link_to(honest[victim], stranger ? fresh_life() : honest[other].incarnation, known,
                         fresh_credentials(options.secret));
    if (!visit) return visit;
    if (turn % 5 < 3) visit->behind = made_up_data(options, known);  // else it swallows
    visit->refused = !stranger;
    return visit;
  };
  keep_visiting(pool, stop, count);
}

void ask_after_leaving(const CrowdOptions& options, const std::atomic<bool>& stop,
                       std::atomic<std::uint64_t>& count) {
  base::Incarnation life = 0;
  const Known known = leave(options, &life, stop);
  const auto identity = net::Identity::open(options.key_file);
  const auto honest = known.honest();
  if (!identity.ok() || honest.empty()) return;
  std::uint64_t turn = 0;
  Pool pool;
  pool.answered = options.answered;
  pool.places = 12;
  pool.breath = 5 * kMillisecond;
  pool.next = [&](std::size_t) -> std::optional<Visit> {
    net::Credentials own = fresh_credentials(options.secret);
    const bool as_itself = ++turn % 2 == 0;
    if (as_itself) own.identity = std::make_shared<const net::Identity>(identity.value());
    auto visit = link_to(honest[turn % honest.size()], as_itself ? life : fresh_life(), known,
                         std::move(own));
    if (!visit) return visit;
    visit->again = [&options] { return questions(options); };
    visit->behind = visit->again(), visit->refused = true;
    return visit;
  };
  keep_visiting(pool, stop, count);
}

namespace {

void ask_unread(const CrowdOptions& options, bool of_none, const std::atomic<bool>& stop,
                std::atomic<std::uint64_t>& count) {
  std::uint64_t turn = 0;
  Pool pool;
  pool.answered = options.answered;
  pool.places = 12;
  pool.breath = 5 * kMillisecond;
  pool.next = [&](std::size_t) -> std::optional<Visit> {
    const Known known = options.known();
    const auto honest = known.honest();
    if (honest.empty()) return std::nullopt;
    auto visit = link_to(honest[++turn % honest.size()], fresh_life(), known,
                         fresh_credentials(options.secret));
    if (!visit) return visit;
    visit->again = [&options, of_none] { return questions(options, of_none); };
    visit->behind = visit->again(), visit->reads = false;
    return visit;
  };
  keep_visiting(pool, stop, count);
}

}  // namespace

void ask_and_not_read(const CrowdOptions& options, const std::atomic<bool>& stop,
                      std::atomic<std::uint64_t>& count) {
  ask_unread(options, false, stop, count);
}

void ask_for_none(const CrowdOptions& options, const std::atomic<bool>& stop,
                  std::atomic<std::uint64_t>& count) {
  ask_unread(options, true, stop, count);
}

void make_up_links(const CrowdOptions& options, const std::atomic<bool>& stop,
                   std::atomic<std::uint64_t>& count) {
  Pool pool;
  pool.answered = options.answered;
  pool.places = kMadeUp * std::max<std::size_t>(1, options.known().honest().size());
  pool.breath = 2 * kMillisecond;
  pool.next = [&](std::size_t place) -> std::optional<Visit> {
    const Known known = options.known();
    const auto honest = known.honest();
    if (honest.empty()) return std::nullopt;
    return link_to(honest[place % honest.size()], fresh_life(), known,
                   fresh_credentials(options.secret));
  };
  keep_visiting(pool, stop, count);
}

}  // namespace jccl::attack
