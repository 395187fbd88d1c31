// For tests: two ends of snapshot traffic without links, and holders that answer a fetcher, forgers
// among them.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "peer/snapshots/snapshots.h"
#include "snapshot/digest.h"
#include "snapshot/forger.h"

namespace jccl::peer {

using base::Code;
using base::Incarnation;
using wire::FrameKind;

inline constexpr Incarnation kAsker = 21;

// Two ends of snapshot traffic without links: what one queues is made when a test says so.
class SnapshotTrafficTest : public testing::Test, protected SnapshotLinks {
 protected:
  SnapshotTrafficTest() {
    for (std::size_t i = 0; i < values_.size(); ++i) values_[i] = static_cast<float>(i);
  }
  void enqueue_snapshot(Incarnation to, std::uint32_t item, bool first) override {
    first ? queued_[to].push_front(item) : queued_[to].push_back(item);
  }
  base::Result<net::MacKey> draw_key() override { return net::MacKey{++keys_}; }
  void holder_outvoted(const wire::Held& want, Incarnation holder, std::uint32_t part) override {
    outvoted_.push_back({want, holder, part});
  }
  void own_snapshot_frames() override { frames_.clear(); }
  void use_link(const wire::Member& holder) override {
    if (asks_back_ != nullptr) (void)asks_back_->uses(holder.incarnation);  // as the links do
  }
  bool checks_frames() const override { return !sealed_; }
  void fetch_ended(const wire::Tag&, const base::Status& status, const wire::Held& held) override {
    ended_.push_back(status);
    fetched_ = held;
  }

  SnapshotRef publish(std::uint64_t revision) {
    values_[0] = static_cast<float>(revision);
    return store_.add("s", revision, {leaf()});
  }
  Leaf leaf() {
    return {codec::Dtype::kF32, values_.size(), values_.data(), values_.data(), "w", {}};
  }
  static base::Status hand_in(SnapshotTraffic& traffic, Incarnation from, wire::FrameHeader header,
                              base::ByteView payload) {
    header.payload_bytes = static_cast<std::uint32_t>(payload.size());
    header.payload_check = snapshot::check_of(payload);
    const net::Placement at = traffic.place(from, header);
    if (at.kind == net::Placement::Kind::kRefuse) return at.status;
    if (at.kind != net::Placement::Kind::kInto) return {Code::kAborted, "not wanted"};
    if (!payload.empty()) std::memcpy(at.spans[0].data(), payload.data(), payload.size());
    return traffic.arrived(from, header, at.token);
  }
  static void ask(SnapshotTraffic& traffic, std::uint64_t revision, std::uint64_t number,
                  std::uint32_t first, std::uint32_t last) {
    wire::FrameHeader header;
    header.kind = FrameKind::kSnapshotAsk;
    header.attempt = {revision, number};
    EXPECT_TRUE(hand_in(traffic, kAsker, header,
                        wire::encode(wire::SnapshotAsk{"s", revision, number, first, last}))
                    .ok());
  }
  // The next frame that waits for somebody.
  std::optional<wire::FrameHeader> make(SnapshotTraffic& traffic, Incarnation to) {
    auto& queue = queued_[to];
    while (!queue.empty()) {
      const std::uint32_t item = queue.front();
      queue.pop_front();
      auto frame = traffic.produce(to, item);
      if (!frame) continue;
      const wire::FrameHeader header = wire::decode_frame_header(frame->header).value();
      frames_.push_back(std::move(*frame));
      return header;
    }
    return std::nullopt;
  }
  base::ByteView payload() const {
    const auto& parts = frames_.back().payload;
    return parts.empty() ? base::ByteView() : parts.front();
  }

  std::vector<float> values_ = std::vector<float>(900'000);  // four parts, the last shorter
  SnapshotStore store_, fetchers_;
  BufferPool pool_;
  bool sealed_ = false;  // the links
  SnapshotTraffic* asks_back_ = nullptr;
  std::map<Incarnation, std::deque<std::uint32_t>> queued_;
  std::deque<net::OutFrame> frames_;  // under way
  std::vector<base::Status> ended_;
  std::vector<wire::Outvoted> outvoted_;
  std::uint8_t keys_ = 0;
  wire::Held fetched_;
};

// Serves what the fetcher asks holder `from`; `lie` changes the payloads. A forger holds a state of
// its own, with the digests of the right one.
class FetchingTest : public SnapshotTrafficTest {
 protected:
  void fetch(const std::vector<Incarnation>& holders) {
    want_ = publish(4)->held;
    order(holders);
  }
  void order(const std::vector<Incarnation>& holders) {
    protocol::FetchSnapshot order;
    order.want = want_;
    for (const Incarnation holder : holders) order.holders.push_back(member(holder));
    fetcher_.fetch(order, store_.newest("s")->layout, now_);
  }
  static wire::Member member(Incarnation incarnation) {
    wire::Member out;
    out.id = static_cast<wire::PeerId>(incarnation);
    out.incarnation = incarnation;
    out.key = {static_cast<std::uint8_t>(incarnation)};
    return out;
  }
  // Of the first of its parts of data.
  void forge(Incarnation holder) {
    const SnapshotRef held = store_.newest("s");
    const std::uint8_t* from = held->data->data();
    base::Bytes& bytes = forged_[holder];
    bytes.assign(from, from + held->data->size());
    snapshot::forge_in_place({bytes.data(), held->layout.part_bytes()});
  }
  base::Bytes part_of(Incarnation holder, std::uint32_t part) {
    const SnapshotRef held = store_.newest("s");
    const std::uint32_t first_data = held->layout.manifest_parts();
    const std::uint64_t at =
        part < first_data ? 0 : (part - first_data) * std::uint64_t{held->layout.part_bytes()};
    const auto lie = forged_.find(holder);
    const std::uint8_t* from = part < first_data      ? held->manifest.data()
                               : lie != forged_.end() ? lie->second.data()
                                                      : held->data->data();
    return {from + at, from + at + held->layout.part_size(part)};
  }
  void reply(Incarnation holder, FrameKind kind, wire::Attempt attempt, std::uint32_t part,
             const base::Bytes& bytes) {
    wire::FrameHeader out;
    out.kind = kind;
    out.attempt = attempt;
    out.chunk = part;
    (void)hand_in(fetcher_, holder, out, bytes);
  }
  // One ask of that holder, answered; lies are told in every part, or in one. False: there is none.
  bool answer(Incarnation holder, bool lies, std::optional<std::uint32_t> lie = std::nullopt) {
    const auto header = make(fetcher_, holder);
    if (!header) return false;
    if (header->kind == FrameKind::kProofAsk) {
      const auto ask = wire::decode_proof_ask(payload());
      EXPECT_TRUE(ask.ok());
      keys_of_[ask.value().key].insert(ask.value().part);
      const net::Mac mac = net::mac_of(ask.value().key, part_of(holder, ask.value().part));
      ++proofs_[holder];
      reply(holder, FrameKind::kProof, {ask.value().revision, ask.value().ask}, ask.value().part,
            {mac.begin(), mac.end()});
      return true;
    }
    const auto ask = wire::decode_snapshot_ask(payload());
    EXPECT_TRUE(ask.ok());
    for (std::uint32_t part = ask.value().first_part; part < ask.value().last_part; ++part) {
      asked_.insert(part);
      if (asked_.size() > answered_most_) return gone(holder, ask.value()), true;
      base::Bytes bytes = part_of(holder, part);
      if (lies && lie.value_or(part) == part) bytes.back() ^= 1;
      reply(holder, FrameKind::kSnapshotPart, {ask.value().revision, ask.value().ask}, part, bytes);
    }
    return true;
  }
  // It has moved on.
  void gone(Incarnation holder, const wire::SnapshotAsk& ask) {
    reply(holder, FrameKind::kSnapshotGone, {ask.revision, ask.ask}, 0, {});
  }
  void run(const std::vector<Incarnation>& holders) {
    for (bool moved = true; moved;) {
      moved = false;
      for (const Incarnation holder : holders) moved = answer(holder, false) || moved;
    }
  }
  void expect_right() {
    ASSERT_EQ(ended_.size(), 1u);
    EXPECT_TRUE(ended_[0].ok()) << ended_[0].text;
    const SnapshotRef got = fetchers_.newest("s");
    ASSERT_NE(got, nullptr);
    EXPECT_EQ(got->held, want_);
    EXPECT_EQ(std::memcmp(got->data->data(), store_.newest("s")->data->data(), got->data->size()),
              0);
  }
  std::map<Incarnation, base::Bytes> forged_;
  std::map<Incarnation, int> proofs_;
  std::multiset<std::uint32_t> asked_;      // parts …
  std::size_t answered_most_ = UINT32_MAX;  // … after so many the holders have moved on
  std::map<net::MacKey, std::set<std::uint32_t>> keys_of_;  // the parts that were asked under each
  base::Time now_ = 0;
  wire::Held want_;
  SnapshotTraffic fetcher_{&fetchers_, &pool_, this};
};

}  // namespace jccl::peer
