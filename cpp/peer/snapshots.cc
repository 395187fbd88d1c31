// What goes over links of a state: asks, parts, and the fetch that wants them. See snapshots.h.
#include "peer/snapshots.h"

#include <algorithm>
#include <cstring>

#include "base/crc32c.h"
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
// A fetcher has two or three asks under way for each tag that it fetches.
constexpr std::size_t kAsksMax = 3 * 32;

exchange::OutFrame framed(base::ByteView payload, wire::FrameHeader header,
                          std::shared_ptr<const void> keep_alive) {
  header.payload_bytes = static_cast<std::uint32_t>(payload.size());
  header.payload_crc = base::crc32c(payload);
  exchange::OutFrame frame;
  frame.header.resize(wire::kFrameHeaderBytes);
  wire::encode(header, frame.header.data());
  if (!payload.empty()) frame.payload.push_back(payload);
  frame.keep_alive = std::move(keep_alive);
  return frame;
}
exchange::OutFrame framed(std::shared_ptr<const base::Bytes> payload,
                          const wire::FrameHeader& header) {
  return framed(base::ByteView(*payload), header, payload);
}

}  // namespace

struct SnapshotTraffic::Fetch {
  wire::Held want;
  snapshot::Layout layout;
  std::uint64_t id = 0;
  std::map<Incarnation, wire::Member> holders;
  std::unique_ptr<snapshot::FetchPlan> plan;
  base::Bytes manifest_bytes;
  std::set<Incarnation> manifest_from;         // sent parts of it
  std::optional<snapshot::Manifest> manifest;  // known: the data is being fetched
  BufferRef data;
};

struct SnapshotTraffic::Outgoing {
  Incarnation to = 0;
  wire::FrameHeader header;
  base::Bytes own;  // an ask
  // An answer: parts [next, last) of a snapshot that may be gone when their turn comes.
  wire::Tag tag;
  std::uint32_t next = 0, last = 0;
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
  auto fetch = std::make_unique<Fetch>();
  fetch->want = order.want;
  fetch->layout = layout;
  fetch->id = next_fetch_++;
  fetch->manifest_bytes.resize(layout.manifest_bytes());
  fetch->plan =
      std::make_unique<snapshot::FetchPlan>(snapshot::FetchOptions{}, 0, layout.manifest_parts());
  for (const wire::Member& holder : order.holders) {
    fetch->holders[holder.incarnation] = holder;
    fetch->plan->add_holder(holder.incarnation, now);
  }
  Fetch& placed = *fetch;
  fetches_[order.want.tag] = std::move(fetch);
  for (const wire::Member& holder : order.holders) links_->use_link(holder);
  drive(placed);
}

void SnapshotTraffic::stop(const wire::Tag& tag) {
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
  for (const Incarnation incarnation : gone) {
    lose_holder(incarnation, "is no member any more");
    for (auto& [tag, fetch] : fetches_) {
      if (!JCCL_PLANTED("gone-holder-kept")) fetch->holders.erase(incarnation);
    }
  }
}

bool SnapshotTraffic::uses(Incarnation peer) const {
  return std::any_of(fetches_.begin(), fetches_.end(),
                     [&](const auto& f) { return f.second->holders.count(peer) > 0; });
}

// Sends what the plan asks for, and notices when there is nobody left to ask.
void SnapshotTraffic::drive(Fetch& fetch) {
  const wire::Tag tag = fetch.want.tag;
  for (const snapshot::FetchAsk& next : fetch.plan->next_asks(now_)) {
    wire::SnapshotAsk ask;
    ask.tag = tag;
    ask.revision = fetch.want.revision;
    ask.ask = (fetch.id << 32) | (next.ask & 0xFFFFFFFF);
    ask.first_part = next.first_part;
    ask.last_part = next.last_part;
    Outgoing out;
    out.header.kind = FrameKind::kSnapshotAsk;
    out.header.attempt = {ask.revision, ask.ask};
    out.own = wire::encode(ask);
    send(next.holder, std::move(out));
  }
  if (!fetch.plan->finished() && !fetch.plan->status().ok()) end(tag, fetch.plan->status());
}

void SnapshotTraffic::send(Incarnation to, Outgoing outgoing) {
  while (outgoing_.count(next_item_) > 0) ++next_item_;
  const std::uint32_t item = next_item_++;
  outgoing.to = to;
  if (outgoing.own.empty()) ++open_[to];
  outgoing_[item] = std::make_unique<Outgoing>(std::move(outgoing));
  links_->enqueue_snapshot(to, item);
}

std::optional<exchange::OutFrame> SnapshotTraffic::produce(Incarnation, std::uint32_t item) {
  const auto found = outgoing_.find(item);
  if (found == outgoing_.end()) return std::nullopt;
  Outgoing out = std::move(*found->second);
  outgoing_.erase(found);
  if (const auto open = open_.find(out.to); out.own.empty() && open != open_.end()) {
    if (--open->second == 0) open_.erase(open);
  }
  if (out.header.kind == FrameKind::kSnapshotPart) return next_part(std::move(out));
  return framed(std::make_shared<const base::Bytes>(std::move(out.own)), out.header);
}

// One part, and the next one waits behind what others have asked for.
std::optional<exchange::OutFrame> SnapshotTraffic::next_part(Outgoing out) {
  const SnapshotRef held = store_->find(out.tag, out.header.attempt.epoch);
  if (!held || out.last > held->layout.all_parts()) {  // gone, or published anew, smaller
    out.header.kind = FrameKind::kSnapshotGone;
    return framed(std::make_shared<const base::Bytes>(), out.header);
  }
  const std::uint32_t part = out.next++;
  const std::uint32_t first_data = held->layout.manifest_parts();
  const bool of_manifest = part < first_data;
  const std::uint8_t* base = of_manifest ? held->manifest.data() : held->data->data();
  const std::uint64_t index = of_manifest ? part : part - first_data;
  out.header.chunk = part;
  const Incarnation to = out.to;
  const wire::FrameHeader header = out.header;
  if (out.next < out.last) send(to, std::move(out));
  const auto is_it = [&](const auto& one) { return one.lock() == held; };
  if (std::none_of(served_.begin(), served_.end(), is_it)) served_.push_back(held);
  return framed({base + index * held->layout.part_bytes(), held->layout.part_size(part)}, header,
                held);
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
  if (base::crc32c(buffer->span()) != header.payload_crc &&
      !JCCL_PLANTED("snapshot-crc-not-compared")) {
    return {Code::kCorrupt, "a snapshot frame arrived damaged (CRC32C differs)"};
  }
  if (header.kind == FrameKind::kSnapshotAsk) {
    const auto ask = wire::decode_snapshot_ask(buffer->span());
    if (!ask.ok()) return ask.status();
    serve(from, ask.value());
    return {};
  }
  Fetch* fetch = by_frame(header);
  if (fetch == nullptr || fetch->holders.count(from) == 0) return {};
  if (header.kind == FrameKind::kSnapshotGone) {
    fetch->plan->on_outdated(from);
    drive(*fetch);
    return {};
  }
  const bool good = verify(*fetch, header.chunk, buffer->span());
  const auto use =
      fetch->plan->on_part(from, header.attempt.counter & 0xFFFFFFFF, header.chunk, good, now_);
  base::failpoint(base::Failpoint::kPeerSnapshotFetching);
  if (use == snapshot::PartUse::kKeep) {
    const std::uint32_t first_data = fetch->layout.manifest_parts();
    const bool of_manifest = header.chunk < first_data;
    if (of_manifest) fetch->manifest_from.insert(from);
    std::uint8_t* base = of_manifest ? fetch->manifest_bytes.data() : fetch->data->data();
    const std::uint64_t index = of_manifest ? header.chunk : header.chunk - first_data;
    std::memcpy(base + index * fetch->layout.part_bytes(), buffer->data(), buffer->size());
  }
  if (fetch->plan->finished() && !fetch->manifest) {
    manifest_complete(*fetch);
    return {};
  }
  if (fetch->plan->finished()) {
    auto made = std::make_shared<StoredSnapshot>();
    made->held = fetch->want;
    made->layout = fetch->layout;
    made->manifest = std::move(fetch->manifest_bytes);
    made->data = fetch->data;
    store_->put(std::move(made));
    end(fetch->want.tag, {});
    return {};
  }
  drive(*fetch);
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

// A manifest that is not the wanted one: from the others, without whoever sent a part of it. False:
// there are none.
bool SnapshotTraffic::without_liars(Fetch& fetch) {
  for (const Incarnation liar : std::exchange(fetch.manifest_from, {})) {
    if (!JCCL_PLANTED("liar-asked-again")) fetch.holders.erase(liar);
  }
  if (fetch.holders.empty()) return false;
  fetch.id = next_fetch_++;
  fetch.plan = std::make_unique<snapshot::FetchPlan>(snapshot::FetchOptions{}, 0,
                                                     fetch.layout.manifest_parts());
  for (const auto& [incarnation, holder] : fetch.holders) {
    fetch.plan->add_holder(incarnation, now_);
  }
  drive(fetch);
  return true;
}

void SnapshotTraffic::manifest_complete(Fetch& fetch) {
  auto manifest = snapshot::decode_manifest(fetch.manifest_bytes, fetch.want, fetch.layout);
  if (!manifest.ok()) {
    if (manifest.status().code != Code::kCorrupt || !without_liars(fetch)) {
      end(fetch.want.tag, manifest.status());
    }
    return;
  }
  fetch.manifest = std::move(manifest.value());
  fetch.data = pool_->take(fetch.layout.total_bytes());
  fetch.id = next_fetch_++;
  fetch.plan = std::make_unique<snapshot::FetchPlan>(
      snapshot::FetchOptions{}, fetch.layout.manifest_parts(), fetch.layout.all_parts());
  for (const auto& [incarnation, holder] : fetch.holders) {
    fetch.plan->add_holder(incarnation, now_);
  }
  if (fetch.plan->finished()) {  // a state without elements
    auto made = std::make_shared<StoredSnapshot>();
    made->held = fetch.want;
    made->layout = fetch.layout;
    made->manifest = fetch.manifest_bytes;
    made->data = fetch.data;
    store_->put(std::move(made));
    end(fetch.want.tag, {});
    return;
  }
  drive(fetch);
}

void SnapshotTraffic::serve(Incarnation to, const wire::SnapshotAsk& ask) {
  base::failpoint(base::Failpoint::kPeerSnapshotServing);
  if (const auto open = open_.find(to);
      open != open_.end() && !JCCL_PLANTED("asks-not-bounded") && open->second >= kAsksMax) {
    ++ignored_;  // it takes nothing of what it has asked for
    return;
  }
  const SnapshotRef held = store_->find(ask.tag, ask.revision);
  Outgoing out;
  out.header.attempt = {ask.revision, ask.ask};
  const bool has = held && ask.last_part <= held->layout.all_parts();
  out.header.kind = has ? FrameKind::kSnapshotPart : FrameKind::kSnapshotGone;
  out.tag = ask.tag;
  out.next = ask.first_part;
  out.last = ask.last_part;
  send(to, std::move(out));
}

void SnapshotTraffic::forget(Incarnation peer) {
  std::erase_if(outgoing_, [&](const auto& one) {
    return !JCCL_PLANTED("answers-to-the-gone") && one.second->to == peer;
  });
  open_.erase(peer);
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

void SnapshotTraffic::stripe_lost(Incarnation peer) {
  if (uses(peer)) ask_anew_.insert(peer);
}

void SnapshotTraffic::link_failed(Incarnation peer) { lose_holder(peer, "the link broke"); }

void SnapshotTraffic::lose_holder(Incarnation holder, const std::string& why) {
  std::vector<wire::Tag> tags;
  for (auto& [tag, fetch] : fetches_) {
    if (fetch->holders.count(holder) == 0) continue;
    fetch->plan->on_holder_lost(holder, why);
    tags.push_back(tag);
  }
  for (const wire::Tag& tag : tags) {
    if (Fetch* fetch = find(tag)) drive(*fetch);
  }
}

void SnapshotTraffic::tick(base::Time now) {
  now_ = now;
  release_retired();
  for (const Incarnation peer : std::exchange(ask_anew_, {})) {
    for (auto& [tag, fetch] : fetches_) {
      if (fetch->holders.count(peer) == 0) continue;
      fetch->plan->on_holder_lost(peer, "a stripe broke");
      fetch->plan->add_holder(peer, now);
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
  fetches_.erase(found);
  if (status.ok()) base::failpoint(base::Failpoint::kPeerSnapshotFetched);
  links_->fetch_ended(tag, status, held);
}

}  // namespace jccl::peer
