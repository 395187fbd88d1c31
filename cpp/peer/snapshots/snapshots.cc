// What goes over links of a state: asks, parts, and the fetch that wants them. See snapshots.h.
#include "peer/snapshots/snapshots.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <span>

#include "base/failpoint.h"
#include "base/planted.h"
#include "base/text.h"
#include "snapshot/digest.h"

namespace jccl::peer {
namespace {

using base::cat;
using base::Code;
using base::Incarnation;
using base::Status;
using exchange::Placement;
using wire::FrameKind;

constexpr std::size_t kAskBytesMax = 256;
// Parts that are here and not proved: no more are asked for while there are so many.
constexpr std::size_t kUnprovedMax = 128;
constexpr base::Duration kHaltedMax = 60 * base::kSecond;

std::uint64_t ask_id(std::uint64_t fetch, std::uint64_t ask) {
  return (fetch << 32) | (ask & 0xFFFFFFFF);
}
std::uint64_t ask_of(const wire::FrameHeader& header) {
  return header.attempt.counter & 0xFFFFFFFF;
}

}  // namespace

// First of the manifest, then of the data: fetched and proved part by part.
struct SnapshotTraffic::Fetch {
  wire::Held want;
  snapshot::Layout layout;
  std::uint64_t id = 0;
  std::map<Incarnation, wire::Member> holders;
  std::unique_ptr<snapshot::FetchPlan> plan;
  std::unique_ptr<snapshot::ProofPlan> proof;
  struct Drawn {
    net::MacKey key;
    net::Mac mac;
  };
  std::map<std::uint32_t, Drawn> drawn;  // of parts that are here
  std::set<std::uint32_t> unproved;      // here since an earlier try
  base::Bytes manifest_bytes;
  std::map<std::uint32_t, Incarnation> manifest_from;  // who sent which part of it, not decoded yet
  std::optional<snapshot::Manifest> manifest;          // decoded
  bool of_data = false;                                // the manifest is proved
  BufferRef data;
  std::unique_ptr<Fetch> before;  // of another revision, with data that are here: till of_data
  base::Time halted_at = 0;

  std::set<std::uint32_t> here() const {  // parts of the data; of_data
    std::set<std::uint32_t> parts;
    for (std::uint32_t part = layout.manifest_parts(); part < layout.all_parts(); ++part) {
      if (!plan->wants(part)) parts.insert(parts.end(), part);
    }
    return parts;
  }
  std::span<std::uint8_t> place_of(std::uint32_t part) {
    const std::uint32_t first_data = layout.manifest_parts();
    const bool of_manifest = part < first_data;
    std::uint8_t* base = of_manifest ? manifest_bytes.data() : data->data();
    const std::uint64_t index = of_manifest ? part : part - first_data;
    return {base + index * layout.part_bytes(), layout.part_size(part)};
  }
};

SnapshotTraffic::SnapshotTraffic(SnapshotStore* store, BufferPool* pool, SnapshotLinks* links)
    : store_(store), pool_(pool), links_(links) {}

SnapshotTraffic::~SnapshotTraffic() = default;

SnapshotTraffic::Fetch* SnapshotTraffic::find(const wire::Tag& tag) {
  const auto found = fetches_.find(tag);
  return found == fetches_.end() ? nullptr : found->second.get();
}

// Ask ids are (fetch id << 32 | ask of its plan).
SnapshotTraffic::Fetch* SnapshotTraffic::by_frame(const wire::FrameHeader& header) {
  for (auto& [tag, fetch] : fetches_) {
    if (fetch->id == header.attempt.counter >> 32 && fetch->want.revision == header.attempt.epoch) {
      return fetch.get();
    }
  }
  return nullptr;
}

void SnapshotTraffic::fetch(const protocol::FetchSnapshot& order, const snapshot::Layout& layout,
                            base::Time now) {
  now_ = now;
  const wire::Tag tag = order.want.tag;
  if (const Fetch* under_way = find(tag); under_way && under_way->want == order.want) {
    std::set<Incarnation> gone;
    for (const auto& [incarnation, holder] : under_way->holders) gone.insert(incarnation);
    for (const wire::Member& holder : order.holders) gone.erase(holder.incarnation);
    return drop_holders(gone);
  }
  std::unique_ptr<Fetch> fetch = std::move(halted_[tag]);
  halted_.erase(tag);
  const bool goes_on =
      fetch && fetch->want == order.want && fetch->layout.descriptor() == layout.descriptor();
  std::set<std::uint32_t> here;
  if (goes_on) {
    here = fetch->here();
  } else {
    auto under_way = fetches_.extract(tag);  // no empty one may stay
    std::unique_ptr<Fetch> before = std::move(under_way ? under_way.mapped() : fetch);
    if (before && !before->of_data) before = std::move(before->before);
    const bool fits = before && before->layout.descriptor() == layout.descriptor();
    fetch = std::make_unique<Fetch>();
    if (fits && !JCCL_PLANTED("outdated-parts-thrown-away")) fetch->before = std::move(before);
    fetch->want = order.want;
    fetch->layout = layout;
    fetch->manifest_bytes.resize(layout.manifest_bytes());
  }
  fetch->holders.clear();
  for (const wire::Member& holder : order.holders) fetch->holders[holder.incarnation] = holder;
  if (goes_on) {
    plan_for(*fetch, layout.manifest_parts(), layout.all_parts(), here);
  } else {
    plan_for(*fetch, 0, layout.manifest_parts());
  }
  for (const wire::Member& holder : order.holders) links_->use_link(holder);
  drive(*(fetches_[tag] = std::move(fetch)));
}

// `here` are parts that came before, and are proved anew: other holders have a say now.
void SnapshotTraffic::plan_for(Fetch& fetch, std::uint32_t first_part, std::uint32_t last_part,
                               const std::set<std::uint32_t>& here) {
  fetch.id = next_fetch_++;
  fetch.plan =
      std::make_unique<snapshot::FetchPlan>(snapshot::FetchOptions{}, first_part, last_part, here);
  snapshot::ProofPlan::Holders keys;
  for (const auto& [incarnation, holder] : fetch.holders) {
    fetch.plan->add_holder(incarnation, now_);
    keys[incarnation] = holder.key;
  }
  fetch.proof =
      std::make_unique<snapshot::ProofPlan>(snapshot::ProofOptions{}, keys, first_part, last_part);
  fetch.drawn.clear();
  fetch.unproved = here;
}

void SnapshotTraffic::stop(const wire::Tag& tag) {
  halted_.erase(tag);
  if (!JCCL_PLANTED("stopped-fetch-goes-on")) fetches_.erase(tag);
}

void SnapshotTraffic::set_members(const std::vector<wire::Member>& members) {
  std::set<Incarnation> present;
  for (const wire::Member& member : members) present.insert(member.incarnation);
  std::set<Incarnation> gone;
  for (const auto& [tag, fetch] : fetches_) {
    for (const auto& [incarnation, holder] : fetch->holders) {
      if (holder.id != 0 && !present.contains(incarnation)) gone.insert(incarnation);
    }
  }
  drop_holders(gone);
}

// The master has put them out.
void SnapshotTraffic::drop_holders(const std::set<Incarnation>& gone) {
  for (const Incarnation incarnation : gone) {
    for (auto& [tag, fetch] : fetches_) fetch->proof->on_holder_evicted(incarnation);
    lose_holder(incarnation, "is no member any more", Lost::kForGood);
  }
}

bool SnapshotTraffic::uses(Incarnation peer) const {
  return std::any_of(fetches_.begin(), fetches_.end(),
                     [&](const auto& f) { return f.second->holders.count(peer) > 0; });
}

// Does what the plans ask for, and notices what is whole, or can't be any more.
void SnapshotTraffic::drive(Fetch& fetch) {
  Status status;
  while (status.ok() && !fetch.unproved.empty() && fetch.proof->waiting() < kUnprovedMax) {
    const std::uint32_t part = *fetch.unproved.begin();
    fetch.unproved.erase(part);
    status = prove(fetch, part, 0);
  }
  ask_for_proofs(fetch);
  for (const snapshot::Outvoted& one : fetch.proof->take_outvoted()) {
    links_->holder_outvoted(fetch.want, one.holder, one.part);
    fetch.plan->distrust(one.holder, cat("has another part ", one.part, " than most"));
  }
  for (const snapshot::Unproved& one : fetch.proof->take_unproved()) {
    fetch.plan->distrust(one.from, cat("sent a part ", one.part, " that others contradict"));
    fetch.plan->fetch_again(one.part);
    if (!fetch.of_data) fetch.manifest.reset();
  }
  const bool proved = fetch.proof->finished() || JCCL_PLANTED("unproved-state-taken");
  if (status.ok() && fetch.plan->finished() && proved) return complete(fetch);
  if (fetch.proof->waiting() < kUnprovedMax) ask_for_parts(fetch);
  if (status.ok()) status = fetch.proof->status();
  if (status.ok() && !fetch.plan->finished()) status = fetch.plan->status();
  if (!status.ok()) end(fetch.want.tag, status);
}

void SnapshotTraffic::ask_for_parts(Fetch& fetch) {
  for (const snapshot::FetchAsk& next : fetch.plan->next_asks(now_)) {
    const std::uint64_t id = ask_id(fetch.id, next.ask);
    Outgoing out;
    out.header.kind = FrameKind::kSnapshotAsk;
    out.header.attempt = {fetch.want.revision, id};
    out.own = wire::encode(wire::SnapshotAsk{fetch.want.tag, fetch.want.revision, id,
                                             next.first_part, next.last_part});
    send(next.holder, std::move(out));
  }
}

void SnapshotTraffic::ask_for_proofs(Fetch& fetch) {
  for (const snapshot::ProofAsk& next : fetch.proof->next_asks(now_)) {
    const std::uint64_t id = ask_id(fetch.id, next.ask);
    Outgoing out;
    out.header.kind = FrameKind::kProofAsk;
    out.header.attempt = {fetch.want.revision, id};
    out.own = wire::encode(wire::ProofAsk{fetch.want.tag, fetch.want.revision, id, next.part,
                                          fetch.drawn.at(next.part).key});
    send(next.holder, std::move(out));
  }
}

// Parts that an outdated fetch brought, in its memory, and those of the peer's own state (from a
// checkpoint, say), copied. By their digests; holders have a say on them as on others.
std::set<std::uint32_t> SnapshotTraffic::take_what_is_here(Fetch& fetch) {
  std::set<std::uint32_t> here;
  if (const std::unique_ptr<Fetch> before = std::move(fetch.before)) {
    fetch.data = std::move(before->data);
    const auto same = parts_in_common(*before->manifest, *fetch.manifest, fetch.layout);
    std::ranges::set_intersection(before->here(), same, std::inserter(here, here.end()));
  } else {
    fetch.data = pool_->take(fetch.layout.total_bytes());
  }
  const SnapshotRef own = store_->newest(fetch.want.tag);
  if (!own || JCCL_PLANTED("own-parts-fetched-again")) return here;
  const auto manifest = snapshot::decode_manifest(own->manifest, own->held, fetch.layout);
  if (!manifest.ok()) return here;  // other leaves
  const std::size_t first_data = fetch.layout.manifest_parts();
  for (const std::uint32_t part :
       parts_in_common(manifest.value(), *fetch.manifest, fetch.layout)) {
    if (!here.insert(part).second) continue;
    const std::span<std::uint8_t> to = fetch.place_of(part);
    std::memcpy(to.data(), own->data->data() + (part - first_data) * fetch.layout.part_bytes(),
                to.size());
  }
  return here;
}

// What was asked for is here and proved: the manifest, then the data.
void SnapshotTraffic::complete(Fetch& fetch) {
  if (!fetch.of_data) {
    fetch.of_data = true;
    const std::set<std::uint32_t> here = take_what_is_here(fetch);
    plan_for(fetch, fetch.layout.manifest_parts(), fetch.layout.all_parts(), here);
    return drive(fetch);
  }
  auto made = std::make_shared<StoredSnapshot>();
  made->held = fetch.want;
  made->layout = fetch.layout;
  made->manifest = std::move(fetch.manifest_bytes);
  made->data = fetch.data;
  store_->put(std::move(made));
  end(fetch.want.tag, {});
}

Placement SnapshotTraffic::place(Incarnation from, const wire::FrameHeader& header) {
  std::size_t size_max = kAskBytesMax;
  if (header.kind == FrameKind::kSnapshotPart) {
    const Fetch* fetch = by_frame(header);
    const bool asked = fetch != nullptr && fetch->holders.count(from) > 0;
    if (!asked || header.chunk >= fetch->layout.all_parts()) {
      if (header.payload_bytes > snapshot::kPartBytes) {
        return Placement::refuse({Code::kCorrupt, "a snapshot part is too large"});
      }
      return Placement::drain(header.payload_bytes);
    }
    size_max = fetch->layout.part_size(header.chunk);
    if (header.payload_bytes > size_max ||
        (header.payload_bytes != size_max && !JCCL_PLANTED("part-size-not-compared"))) {
      return Placement::refuse({Code::kCorrupt, "a snapshot part has the wrong size"});
    }
    if (!fetch->plan->wants(header.chunk)) return Placement::drain(header.payload_bytes);
  }
  if (header.payload_bytes > size_max) {
    return Placement::refuse({Code::kCorrupt, "a snapshot question is too large"});
  }
  if (header.kind == FrameKind::kProof && header.payload_bytes != sizeof(net::Mac)) {
    return Placement::refuse({Code::kCorrupt, "a proof has the wrong size"});
  }
  BufferRef buffer = pool_->take(header.payload_bytes);
  const std::uint64_t token = next_token_++;
  Placement placement = Placement::into(buffer->span(), token);
  arriving_[token] = std::move(buffer);
  return placement;
}

Status SnapshotTraffic::arrived(Incarnation from, const wire::FrameHeader& header,
                                std::uint64_t token) {
  const auto found = arriving_.find(token);
  if (found == arriving_.end()) return {};
  const BufferRef buffer = std::move(found->second);
  arriving_.erase(found);
  const std::uint32_t check = links_->checks_frames() ? snapshot::check_of(buffer->span()) : 0;
  if (check != header.payload_check && !JCCL_PLANTED("snapshot-check-not-compared")) {
    return {Code::kCorrupt, "a snapshot frame arrived damaged (its check differs)"};
  }
  if (header.kind == FrameKind::kSnapshotAsk) {
    const auto ask = wire::decode_snapshot_ask(buffer->span());
    if (ask.ok()) serve(from, ask.value());
    return ask.status();
  }
  if (header.kind == FrameKind::kProofAsk) {
    const auto ask = wire::decode_proof_ask(buffer->span());
    if (ask.ok()) serve(from, ask.value());
    return ask.status();
  }
  Fetch* fetch = by_frame(header);
  if (fetch == nullptr || fetch->holders.count(from) == 0) return {};
  Status status;
  if (header.kind == FrameKind::kSnapshotGone) {
    fetch->plan->on_outdated(from);
    fetch->proof->on_holder_lost(from, "holds that revision no more");
  } else if (header.kind == FrameKind::kProof) {
    on_proof(*fetch, from, header, buffer->span());
  } else {
    status = on_part(*fetch, from, header, buffer->span());
  }
  if (!status.ok()) {
    end(fetch->want.tag, status);
  } else {
    drive(*fetch);
  }
  return {};
}

void SnapshotTraffic::on_proof(Fetch& fetch, Incarnation from, const wire::FrameHeader& header,
                               base::ByteView mac) {
  const auto part = fetch.proof->asked(from, ask_of(header));
  if (!part) return;
  const bool same = std::ranges::equal(mac, fetch.drawn.at(*part).mac);
  fetch.proof->on_answer(from, ask_of(header), same, now_);
}

// Not ok: the fetch is over.
Status SnapshotTraffic::on_part(Fetch& fetch, Incarnation from, const wire::FrameHeader& header,
                                base::ByteView bytes) {
  const std::uint32_t part = header.chunk;
  if (!JCCL_PLANTED("state-bytes-not-counted")) store_->count(fetch.want.tag, bytes.size());
  const bool good = verify(fetch, part, bytes);
  const auto use = fetch.plan->on_part(from, ask_of(header), part, good, now_);
  base::failpoint(base::Failpoint::kPeerSnapshotFetching);
  if (use != snapshot::PartUse::kKeep) return {};
  std::memcpy(fetch.place_of(part).data(), bytes.data(), bytes.size());
  if (fetch.of_data) return prove(fetch, part, from);
  fetch.manifest_from[part] = from;
  return fetch.plan->finished() ? manifest_here(fetch) : Status();
}

// The key is drawn when the bytes are here to stay: who sent them could not make them fit it.
Status SnapshotTraffic::prove(Fetch& fetch, std::uint32_t part, Incarnation from) {
  base::Result<net::MacKey> key = links_->draw_key();
  if (JCCL_PLANTED("key-before-the-bytes") && !fetch.drawn.empty()) {
    key = fetch.drawn.begin()->second.key;
  }
  if (!key.ok()) return key.status();
  fetch.drawn[part] = {key.value(), net::mac_of(key.value(), fetch.place_of(part))};
  fetch.proof->on_part(part, from);
  return {};
}

// Parts of the manifest are verified when it is complete, those of the data one by one.
bool SnapshotTraffic::verify(Fetch& fetch, std::uint32_t part, base::ByteView bytes) {
  const std::uint32_t first_data = fetch.layout.manifest_parts();
  if (part < first_data ||
      (JCCL_PLANTED("last-part-not-verified") && part + 1 == fetch.layout.all_parts()))
    return true;
  return fetch.manifest && (JCCL_PLANTED("part-not-verified") ||
                            snapshot::digest_of(bytes) == fetch.manifest->parts[part - first_data]);
}

// Its parts can only be judged together. One that is not the wanted one is fetched from the others,
// without whoever sent a part of it.
Status SnapshotTraffic::manifest_here(Fetch& fetch) {
  auto manifest = snapshot::decode_manifest(fetch.manifest_bytes, fetch.want, fetch.layout);
  const auto from = std::exchange(fetch.manifest_from, {});
  if (manifest.ok()) {
    fetch.manifest = std::move(manifest.value());
    Status status;
    for (const auto& [part, sender] : from) {
      if (status.ok()) status = prove(fetch, part, sender);
    }
    return status;
  }
  if (manifest.status().code != Code::kCorrupt) return manifest.status();
  for (const auto& [part, liar] : from) {
    if (!JCCL_PLANTED("liar-asked-again")) fetch.holders.erase(liar);
  }
  if (fetch.holders.empty()) return manifest.status();
  plan_for(fetch, 0, fetch.layout.manifest_parts());
  return {};
}

void SnapshotTraffic::stripe_lost(Incarnation peer) {
  if (uses(peer)) ask_anew_.insert(peer);
}

void SnapshotTraffic::link_failed(Incarnation peer) {
  lose_holder(peer, "the link broke", Lost::kForNow);
}

// Who is lost for good is none of the fetch's next part either, which may begin right here: when
// the manifest is proved without it, say.
void SnapshotTraffic::lose_holder(Incarnation holder, const std::string& why, Lost lost) {
  std::vector<wire::Tag> tags;
  for (auto& [tag, fetch] : fetches_) {
    if (fetch->holders.count(holder) == 0) continue;
    fetch->plan->on_holder_lost(holder, why);
    fetch->proof->on_holder_lost(holder, why);
    const bool keep = lost == Lost::kForNow || JCCL_PLANTED("gone-holder-kept");
    if (!keep) fetch->holders.erase(holder);
    tags.push_back(tag);
  }
  for (const wire::Tag& tag : tags) {
    if (Fetch* fetch = find(tag)) drive(*fetch);
  }
}

void SnapshotTraffic::tick(base::Time now) {
  now_ = now;
  release_retired();
  release_proofs();
  std::erase_if(halted_, [&](const auto& one) { return now - one.second->halted_at > kHaltedMax; });
  for (const Incarnation peer : std::exchange(ask_anew_, {})) {
    for (auto& [tag, fetch] : fetches_) {
      if (fetch->holders.count(peer) == 0) continue;
      fetch->plan->on_holder_lost(peer, "a stripe broke");
      fetch->plan->add_holder(peer, now);
      fetch->proof->on_holder_lost(peer, "a stripe broke");
      fetch->proof->on_holder_back(peer);
    }
  }
  std::vector<wire::Tag> tags;
  for (auto& [tag, fetch] : fetches_) tags.push_back(tag);
  for (const wire::Tag& tag : tags) {
    if (Fetch* fetch = find(tag)) drive(*fetch);
  }
}

// By value: the caller's tag may belong to the fetch that ends.
void SnapshotTraffic::end(wire::Tag tag, const Status& status) {
  const auto found = fetches_.find(tag);
  if (found == fetches_.end()) return;
  const wire::Held held = found->second->want;
  if (status.code == Code::kPeerLost) {
    std::unique_ptr<Fetch>& last = found->second;
    std::unique_ptr<Fetch> kept = std::move(last->of_data ? last : last->before);
    if (kept) kept->halted_at = now_, halted_[tag] = std::move(kept);
  }
  fetches_.erase(found);
  if (status.ok()) base::failpoint(base::Failpoint::kPeerSnapshotFetched);
  links_->fetch_ended(tag, status, held);
}

}  // namespace jccl::peer
