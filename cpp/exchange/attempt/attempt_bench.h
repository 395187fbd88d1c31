// All peers of one attempt in one thread, for tests of Attempt: no socket, no clock.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <deque>

#include "base/rng.h"
#include "base/text.h"
#include "collective/plan.h"
#include "exchange/attempt/attempt.h"
#include "exchange/stress_oracle.h"

namespace jccl::exchange {

using base::Code;
using collective::PlanKind;

inline constexpr wire::Attempt kAttempt{3, 1};

// Inputs that come as the test says.
struct TestIncoming final : Incoming {
  explicit TestIncoming(std::uint64_t bytes) : bytes(bytes) {}
  std::uint64_t here() const override { return at; }
  bool whole() const override { return at >= bytes; }
  std::optional<std::string> fault() const override { return why; }
  std::uint64_t bytes, at = 0;
  std::optional<std::string> why;
};

struct TestCall final : Call {
  const Terms& terms() const override { return options; }
  const Incoming* incoming() const override { return feed.get(); }
  Comparison comparison() const override { return compared; }
  std::string difference() const override { return differs; }
  void note_sent(std::uint64_t bytes) override { sent_bytes += bytes; }
  void note_received(std::uint64_t bytes) override { received_bytes += bytes; }
  Terms options;
  std::shared_ptr<TestIncoming> feed;
  Comparison compared = Comparison::kEqual;
  std::string differs;
  std::uint64_t sent_bytes = 0, received_bytes = 0;
};

// Memory that is never the same twice, so that a use after its end is seen by sanitizers.
struct TestMemory final : Memory {
  BufferRef take(std::size_t size) override {
    *held += size;
    return {new Buffer(size), [held = held, size](Buffer* buffer) {
              *held -= size;
              delete buffer;
            }};
  }
  std::shared_ptr<std::size_t> held = std::make_shared<std::size_t>(0);  // bytes
};

// All peers of one attempt, and between them a network that delivers in any order, twice, damaged,
// or only in part.
class Bench {
 public:
  struct Setting {
    PlanKind kind = PlanKind::kDirect;
    std::size_t peers = 3;
    std::size_t receivers = 0;
    std::size_t count = 5000;  // of an all_to_all: of each block
    bool out_private = false;
    codec::CodecId codec = codec::CodecId::kNone;
    std::uint64_t seed = 1;
    std::size_t second = 0;  // elements of one more leaf; then there is one of none, too
    bool feeds = false;      // inputs come in parts
    bool encoded = false;    // the first leaf, as the bytes of the codec
    // Of the contributors, who have stress::input_of() them; none: 1, as in a gather always.
    std::vector<double> weights = {};
    collective::Op op = collective::Op::kSum;
    std::vector<std::uint32_t> shares = {};  // see Plan
    bool sealed = false;                     // the links
    collective::Aggregator aggregator = {};
    std::size_t slots = 0;  // 0: one for each peer
  };

  explicit Bench(Setting setting) : setting_(setting), rng_(setting.seed) {
    collective::Plan plan;
    plan.kind = setting.kind;
    plan.shares = setting.shares;
    wire::Start start;
    start.attempt = kAttempt;
    start.round = {"x", 1};
    const std::size_t all = setting.peers + setting.receivers;
    for (std::size_t p = 0; p < all; ++p) {
      const auto id = static_cast<base::PeerId>(10 + p);
      if (p < setting.peers) {
        start.contributors.push_back({id, weight(p)});
        plan.order.push_back(id);
      } else {
        start.receivers.push_back(id);
      }
    }
    if (plan.kind == PlanKind::kRing && !setting.weights.empty()) {
      for (std::size_t i = plan.order.size(); i > 1; --i) {
        std::swap(plan.order[i - 1], plan.order[rng_.below(i)]);
      }
    }
    start.plan = collective::encode(plan);
    start_ = start;
    for (std::size_t p = 0; p < all; ++p) peers_.push_back(std::make_unique<Peer>(this, p));
  }

  struct Peer : AttemptHost {
    Peer(Bench* bench, std::size_t p) : bench(bench), index(p) {
      const Setting& setting = bench->setting_;
      call = std::make_shared<TestCall>();
      call->options.op = setting.op;
      call->options.codec = setting.codec;
      call->options.aggregator = setting.aggregator;
      call->options.out_private = setting.out_private;
      const std::size_t slots = setting.slots > 0 ? setting.slots : setting.peers;
      call->options.slots = static_cast<std::uint32_t>(slots);
      std::size_t blocks = 1, each = 1;  // of an input; results for each input
      if (setting.kind == PlanKind::kScatter) {
        call->options.collective = Collective::kReduceScatter;
      } else if (setting.kind == PlanKind::kGather) {
        call->options.collective = Collective::kAllGather;
        each = slots;
      } else if (setting.kind == PlanKind::kAllToAll) {
        call->options.collective = Collective::kAllToAll;
        blocks = slots;
      }
      if (p < setting.weights.size()) {
        call->options.weight = bench->weight(p);
        in = stress::input_of<float>(setting.weights[p], setting.count + setting.second);
      } else {
        in.assign((setting.count + setting.second) * blocks,
                  static_cast<float>(1 << std::min(p, 20UL)));
      }
      out.assign(in.size() * each, -1.0F);
      std::size_t at = 0;
      for (const std::size_t block : {setting.count, std::size_t{0}, setting.second}) {
        if (block == 0 && setting.second == 0) continue;  // one leaf
        const std::size_t count = block * blocks;
        call->leaves.push_back({codec::Dtype::kF32,
                                count,
                                in.data() + at,
                                out.data() + at * each,
                                base::cat("params/w", call->leaves.empty() ? "" : "2"),
                                {}});
        at += count;
      }
      call->specs = specs_of(call->leaves, call->options);
      if (setting.encoded) encode_input(call->leaves.front());
      if (setting.feeds) hide_inputs();
      start();
    }
    // An attempt of its own; of a retry the one before is over.
    void start() {
      run = std::make_unique<Attempt>(bench->start_, id(index), call, &bench->memory_, 4096, this);
    }
    void encode_input(Leaf& leaf) {
      const codec::Codec& codec = call->options.codec;
      bytes.resize(codec::encoded_bytes(codec, leaf.dtype, leaf.count));
      codec::encode(codec, leaf.dtype, leaf.in, leaf.count, bytes.data());
      leaf.in = nullptr;
      leaf.encoded = bytes.data();
      leaf.encoded_bytes = bytes.size();
    }
    // Inputs as they lie, one after another.
    std::vector<std::uint8_t*> input() {
      std::vector<std::uint8_t*> places;
      for (const Leaf& leaf : call->leaves) {
        const void* first = leaf.encoded != nullptr ? leaf.encoded : leaf.in;
        auto* bytes = static_cast<std::uint8_t*>(const_cast<void*>(first));
        for (std::uint64_t i = 0; i < input_bytes(leaf); ++i) places.push_back(bytes + i);
      }
      return places;
    }
    void hide_inputs() {
      for (std::uint8_t* place : input()) {
        whole.push_back(*place);
        *place = 0xFF;  // NaN, or what no encoder writes
      }
      call->feed = std::make_shared<TestIncoming>(whole.size());
    }
    void bring(std::size_t part) {
      const std::vector<std::uint8_t*> places = input();
      const std::size_t here = call->feed->here();
      const std::size_t end = std::min(here + part, whole.size());
      for (std::size_t i = here; i < end; ++i) *places[i] = whole[i];
      call->feed->at = end;
      run->fed();
    }
    void enqueue(const wire::Attempt&, base::PeerId to, WorkItem item) override {
      bench->frames_.push_back({index, to - 10, item});
    }
    void drop_copies(const wire::Attempt&, base::PeerId, WorkItem) override { ++dropped; }
    bool checks_frames() const override { return !bench->setting_.sealed; }
    void attempt_done(const wire::Attempt&, const base::Digest& digest) override {
      ++done;
      result = digest;
    }
    void attempt_failed(const wire::Attempt&, Code why, base::PeerId about,
                        std::string words) override {
      failed = why;
      named = about;
      text = std::move(words);
    }
    void violation(const wire::Attempt&, base::PeerId from, wire::ViolationKind kind) override {
      violations.emplace_back(from, kind);
    }
    Bench* bench;
    std::size_t index;
    std::vector<float> in, out;
    base::Bytes bytes, whole;  // encoded; what a feed brings
    std::shared_ptr<TestCall> call;
    std::unique_ptr<Attempt> run;
    int done = 0;
    int dropped = 0;
    base::Digest result;
    Code failed = Code::kOk;
    base::PeerId named = 0;
    std::string text;
    std::vector<std::pair<base::PeerId, wire::ViolationKind>> violations;
  };

  struct Frame {
    std::size_t from = 0, to = 0;
    WorkItem item;
  };

  void begin() {
    for (auto& peer : peers_) ASSERT_TRUE(peer->run->prepare().ok());
    for (auto& peer : peers_) peer->run->begin();
  }

  std::optional<OutFrame> made(const Frame& f) { return peers_[f.from]->run->produce(f.item); }
  Placement place(const Frame& f, const OutFrame& frame) {
    return peers_[f.to]->run->place(id(f.from), header(frame));
  }
  base::Status arrived(const Frame& f, const OutFrame& frame, const Placement& at) {
    return peers_[f.to]->run->arrived(id(f.from), header(frame), at.token);
  }
  void lost(const Frame& f, const Placement& at) { peers_[f.to]->run->lost(at.token); }
  // Copies up to `bytes_max` of the payload to where it was placed.
  static void fill(const Placement& at, const OutFrame& frame, std::size_t bytes_max,
                   bool damage = false) {
    base::Bytes all;
    for (const auto& view : frame.payload) all.insert(all.end(), view.begin(), view.end());
    if (damage && !all.empty()) all[all.size() / 2] ^= 0x10;
    std::size_t from = 0;
    for (const auto& span : at.spans) {
      const std::size_t n = std::min({span.size(), all.size() - from, bytes_max - from});
      std::memcpy(span.data(), all.data() + from, n);
      from += n;
    }
  }
  void deliver(const Frame& f) {
    const auto frame = made(f);
    if (!frame) return;
    const Placement at = place(f, *frame);
    if (at.kind == Placement::Kind::kDrain) return;
    ASSERT_EQ(at.kind, Placement::Kind::kInto);
    fill(at, *frame, SIZE_MAX);
    ASSERT_TRUE(arrived(f, *frame, at).ok());
  }
  Frame take_any() {
    const std::size_t i = rng_.below(frames_.size());
    const Frame f = frames_[i];
    frames_.erase(frames_.begin() + static_cast<std::ptrdiff_t>(i));
    return f;
  }
  void deliver_all() {
    while (!frames_.empty()) deliver(take_any());
  }
  // Inputs come in parts of any size, between the frames; until `steps` of either are done.
  void deliver_and_feed(std::size_t steps = SIZE_MAX) {
    for (; steps > 0; --steps) {
      std::vector<Peer*> hungry;
      for (auto& peer : peers_) {
        const auto& feed = peer->call->feed;
        if (feed && !feed->whole()) hungry.push_back(peer.get());
      }
      if (frames_.empty() && hungry.empty()) return;
      if (!hungry.empty() && (frames_.empty() || rng_.below(4) == 0)) {
        hungry[rng_.below(hungry.size())]->bring(1 + rng_.below(20000));
      } else {
        deliver(take_any());
      }
    }
  }
  // The attempt is over, and the next one begins.
  void retry() {
    frames_.clear();
    ++start_.attempt.counter;
    for (auto& peer : peers_) {
      peer->done = 0;
      peer->start();
    }
    begin();
  }
  void expect_committed() {
    const float sum = static_cast<float>((1 << setting_.peers) - 1);
    for (auto& peer : peers_) {
      ASSERT_EQ(peer->done, 1) << "peer " << peer->index << ": " << peer->text;
      EXPECT_EQ(peer->result, peers_[0]->result);
      if (!setting_.out_private) {
        EXPECT_EQ(peer->out, std::vector<float>(setting_.count, -1.0F)) << "before the commit";
      }
      peer->run->commit();
      EXPECT_EQ(peer->out, std::vector<float>(setting_.count, sum));
      EXPECT_EQ(peer->in[0], static_cast<float>(1 << peer->index));
    }
  }

  double weight(std::size_t p) const {
    return setting_.weights.empty() || setting_.kind == PlanKind::kGather ? 1 : setting_.weights[p];
  }
  static base::PeerId id(std::size_t p) { return static_cast<base::PeerId>(10 + p); }
  static wire::FrameHeader header(const OutFrame& frame) {
    return wire::decode_frame_header(frame.header).value();
  }

  Setting setting_;
  wire::Start start_;
  base::Rng rng_;
  TestMemory memory_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::deque<Frame> frames_;
};

}  // namespace jccl::exchange
