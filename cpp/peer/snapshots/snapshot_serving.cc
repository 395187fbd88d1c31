// What a holder answers: parts of a state, and MACs of its parts. See snapshots.h.
#include <algorithm>

#include "base/failpoint.h"
#include "base/planted.h"
#include "net/security/mac.h"
#include "peer/snapshots/snapshots.h"
#include "snapshot/digest.h"

namespace jccl::peer {
namespace {

using base::Incarnation;
using wire::FrameKind;

// A fetcher has two or three asks for parts under way for each tag that it fetches, and sixteen for
// proofs.
constexpr std::size_t kAsksMax = (3 + 16) * 32;
// MACs of so many parts (1 MiB) at once, then so many a second: an eighth of a core's time.
constexpr net::Rate kProofs{.burst = 512, .per_second = 1024};

// `checked`: not on sealed links, where what arrives is what was sent.
net::OutFrame framed(base::ByteView payload, wire::FrameHeader header,
                     std::shared_ptr<const void> keep_alive, bool checked) {
  header.payload_bytes = static_cast<std::uint32_t>(payload.size());
  header.payload_check = checked ? snapshot::check_of(payload) : 0;
  net::OutFrame frame;
  frame.header.resize(wire::kFrameHeaderBytes);
  wire::encode(header, frame.header.data());
  if (!payload.empty()) frame.payload.push_back(payload);
  frame.keep_alive = std::move(keep_alive);
  return frame;
}
net::OutFrame framed(base::Bytes payload, const wire::FrameHeader& header, bool checked) {
  const auto own = std::make_shared<const base::Bytes>(std::move(payload));
  return framed(base::ByteView(*own), header, own, checked);
}

// Of either kind: of the manifest or of the data.
base::ByteView bytes_of(const StoredSnapshot& held, std::uint32_t part) {
  const std::uint32_t first_data = held.layout.manifest_parts();
  const bool of_manifest = part < first_data;
  const std::uint8_t* base = of_manifest ? held.manifest.data() : held.data->data();
  const std::uint64_t index = of_manifest ? part : part - first_data;
  return {base + index * held.layout.part_bytes(), held.layout.part_size(part)};
}

}  // namespace

void SnapshotTraffic::send(Incarnation to, Outgoing outgoing) {
  while (outgoing_.count(next_item_) > 0) ++next_item_;
  const std::uint32_t item = next_item_++;
  outgoing.to = to;
  const bool parts = outgoing.header.kind == FrameKind::kSnapshotPart;
  outgoing_[item] = std::make_unique<Outgoing>(std::move(outgoing));
  links_->enqueue_snapshot(to, item, !parts);
}

std::optional<net::OutFrame> SnapshotTraffic::produce(Incarnation, std::uint32_t item) {
  const auto found = outgoing_.find(item);
  if (found == outgoing_.end()) return std::nullopt;
  Outgoing out = std::move(*found->second);
  outgoing_.erase(found);
  if (!out.own.empty()) {
    return framed(std::move(out.own), out.header, links_->checks_frames());
  }
  if (const auto open = open_.find(out.to); open != open_.end()) {
    if (--open->second == 0) open_.erase(open);
  }
  const SnapshotRef held = store_->find(out.tag, out.header.attempt.epoch);
  if (!held || out.last > held->layout.all_parts()) {  // gone, or published anew, smaller
    out.header.kind = FrameKind::kSnapshotGone;
    return framed(base::Bytes(), out.header, false);
  }
  return out.header.kind == FrameKind::kProof ? proof(out, *held) : next_part(std::move(out), held);
}

// One part, and the next one waits behind what others have asked for.
net::OutFrame SnapshotTraffic::next_part(Outgoing out, const SnapshotRef& held) {
  const std::uint32_t part = out.next++;
  out.header.chunk = part;
  const Incarnation to = out.to;
  const wire::FrameHeader header = out.header;
  if (out.next < out.last) {
    ++open_[to];
    send(to, std::move(out));
  }
  const auto is_it = [&](const auto& one) { return one.lock() == held; };
  if (std::none_of(served_.begin(), served_.end(), is_it)) served_.push_back(held);
  return framed(bytes_of(*held, part), header, held, links_->checks_frames());
}

net::OutFrame SnapshotTraffic::proof(const Outgoing& out, const StoredSnapshot& held) const {
  const net::Mac mac = net::mac_of(out.key, bytes_of(held, out.next));
  wire::FrameHeader header = out.header;
  header.chunk = out.next;
  return framed(base::Bytes(mac.begin(), mac.end()), header, links_->checks_frames());
}

bool SnapshotTraffic::takes_ask(Incarnation from) {
  base::failpoint(base::Failpoint::kPeerSnapshotServing);
  std::size_t& open = open_[from];
  if (open >= kAsksMax && !JCCL_PLANTED("asks-not-bounded")) {
    ++ignored_;  // it takes nothing of what it has asked for
    return false;
  }
  ++open;
  return true;
}

void SnapshotTraffic::serve(Incarnation to, const wire::SnapshotAsk& ask) {
  if (!takes_ask(to)) return;
  Outgoing out;
  out.header.attempt = {ask.revision, ask.ask};
  out.header.kind = FrameKind::kSnapshotPart;
  out.tag = ask.tag;
  out.next = ask.first_part;
  out.last = ask.last_part;
  send(to, std::move(out));
}

void SnapshotTraffic::serve(Incarnation to, const wire::ProofAsk& ask) {
  if (!takes_ask(to)) return;
  Outgoing out;
  out.header.attempt = {ask.revision, ask.ask};
  out.header.kind = FrameKind::kProof;
  out.tag = ask.tag;
  out.next = ask.part;
  out.last = ask.part == UINT32_MAX ? ask.part : ask.part + 1;
  out.key = ask.key;
  proofs_[to].push_back(std::move(out));
  release_proofs();
}

// As many as the allowance has, of those that ask in turn: who asks for many has its own wait.
void SnapshotTraffic::release_proofs() {
  while (!proofs_.empty() &&
         (proof_allowance_.take(kProofs, now_) || JCCL_PLANTED("proofs-without-quota"))) {
    auto at = proofs_.upper_bound(proved_to_);
    if (at == proofs_.end() || JCCL_PLANTED("proofs-not-in-turn")) at = proofs_.begin();
    proved_to_ = at->first;
    Outgoing out = std::move(at->second.front());
    at->second.pop_front();
    if (at->second.empty()) proofs_.erase(at);
    send(proved_to_, std::move(out));
  }
}

void SnapshotTraffic::forget(Incarnation peer) {
  std::erase_if(outgoing_, [&](const auto& one) {
    return !JCCL_PLANTED("answers-to-the-gone") && one.second->to == peer;
  });
  proofs_.erase(peer);
  open_.erase(peer);
  if (!JCCL_PLANTED("fetches-from-the-gone")) {
    lose_holder(peer, "has no link any more", Lost::kForGood);
  }
}

std::size_t SnapshotTraffic::open_items() const {
  std::size_t items = outgoing_.size();
  for (const auto& [peer, waiting] : proofs_) items += waiting.size();
  return items;
}

std::size_t SnapshotTraffic::retired() const {
  return static_cast<std::size_t>(
      std::count_if(served_.begin(), served_.end(), [this](const auto& one) {
        const SnapshotRef held = one.lock();
        return held && store_->find(held->held.tag, held->held.revision) != held;
      }));
}

// A frame that nobody reads would keep a whole state alive, one for each connection.
void SnapshotTraffic::release_retired() {
  std::erase_if(served_, [](const auto& one) { return one.expired(); });
  if (retired() > 0 && !JCCL_PLANTED("retired-not-released")) links_->own_snapshot_frames();
}

}  // namespace jccl::peer
