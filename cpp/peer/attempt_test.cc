#include "peer/attempt.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <deque>
#include <thread>

#include "base/rng.h"
#include "collective/plan.h"

namespace jccl::peer {
namespace {

using base::Code;
using collective::PlanKind;
using wire::FrameKind;

constexpr wire::Attempt kAttempt{3, 1};

// All peers of one attempt, and between them a network that delivers in any order, twice, damaged,
// or only in part.
class Bench {
 public:
  struct Setting {
    PlanKind kind = PlanKind::kDirect;
    std::size_t peers = 3;
    std::size_t receivers = 0;
    std::size_t count = 5000;
    bool out_private = false;
    codec::CodecId codec = codec::CodecId::kNone;
    std::uint64_t seed = 1;
    bool feeds = false;    // inputs come in parts
    bool encoded = false;  // as the bytes of the codec
  };

  explicit Bench(Setting setting) : setting_(setting), rng_(setting.seed) {
    collective::Plan plan;
    plan.kind = setting.kind;
    wire::Start start;
    start.attempt = kAttempt;
    start.round = {"x", 1};
    const std::size_t all = setting.peers + setting.receivers;
    for (std::size_t p = 0; p < all; ++p) {
      const auto id = static_cast<base::PeerId>(10 + p);
      if (p < setting.peers) {
        start.contributors.push_back({id, 1.0});
        plan.order.push_back(id);
      } else {
        start.receivers.push_back(id);
      }
    }
    start.plan = collective::encode(plan);
    start_ = start;
    make_peers();
  }
  void make_peers() {
    peers_.clear();
    for (std::size_t p = 0; p < setting_.peers + setting_.receivers; ++p) {
      peers_.push_back(std::make_unique<Peer>(this, p, start_));
    }
  }

  struct Peer : AttemptHost {
    Peer(Bench* bench, std::size_t p, const wire::Start& start) : bench(bench), index(p) {
      in.assign(bench->setting_.count, static_cast<float>(1 << p));
      out.assign(bench->setting_.count, -1.0F);
      call = std::make_shared<CallRecord>();
      call->leaves.push_back(
          {codec::Dtype::kF32, in.size(), in.data(), out.data(), "params/w", {}});
      call->specs.push_back({codec::Dtype::kF32, in.size()});
      call->options.op = collective::Op::kSum;
      call->options.codec = bench->setting_.codec;
      call->options.out_private = bench->setting_.out_private;
      if (bench->setting_.encoded) encode_input();
      if (bench->setting_.feeds) hide_input();
      run = std::make_unique<AttemptRun>(start, static_cast<base::PeerId>(10 + p), call,
                                         &bench->pool_, 4096, this);
    }
    void encode_input() {
      const codec::Codec& codec = call->options.codec;
      bytes.resize(codec::encoded_bytes(codec, codec::Dtype::kF32, in.size()));
      codec::encode(codec, codec::Dtype::kF32, in.data(), in.size(), bytes.data());
      call->leaves[0].in = nullptr;
      call->leaves[0].encoded = bytes.data();
      call->leaves[0].encoded_bytes = bytes.size();
    }
    std::span<std::uint8_t> input() {
      if (!bytes.empty()) return bytes;
      return {reinterpret_cast<std::uint8_t*>(in.data()), in.size() * sizeof(float)};
    }
    void hide_input() {
      whole.assign(input().begin(), input().end());
      std::fill(input().begin(), input().end(), std::uint8_t{0xFF});  // NaN, or no encoder's bytes
      call->options.feed = std::make_shared<Feed>(whole.size());
      call->options.feed->listen([this] { ++told; });
    }
    void bring(std::size_t part) {
      const std::size_t here = call->options.feed->here();
      part = std::min(part, whole.size() - here);
      std::memcpy(input().data() + here, whole.data() + here, part);
      call->options.feed->advance(here + part);
      if (told > 0) run->fed();
      told = 0;
    }
    void enqueue(const wire::Attempt&, base::PeerId to, WorkItem item) override {
      bench->frames_.push_back({index, to - 10, item});
    }
    void drop_copies(const wire::Attempt&, base::PeerId, WorkItem) override { ++dropped; }
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
    Bench* bench;
    std::size_t index;
    std::vector<float> in, out;
    base::Bytes bytes, whole;  // encoded; what a feed brings
    int told = 0;
    CallRef call;
    std::unique_ptr<AttemptRun> run;
    int done = 0;
    int dropped = 0;
    base::Digest result;
    Code failed = Code::kOk;
    base::PeerId named = 0;
    std::string text;
  };

  struct Frame {
    std::size_t from = 0, to = 0;
    WorkItem item;
  };

  void begin() {
    for (auto& peer : peers_) ASSERT_TRUE(peer->run->prepare().ok());
    for (auto& peer : peers_) peer->run->begin();
  }

  std::optional<net::OutFrame> made(const Frame& f) { return peers_[f.from]->run->produce(f.item); }
  net::Placement place(const Frame& f, const net::OutFrame& frame) {
    return peers_[f.to]->run->place(id(f.from), header(frame));
  }
  base::Status arrived(const Frame& f, const net::OutFrame& frame, const net::Placement& at) {
    return peers_[f.to]->run->arrived(id(f.from), header(frame), at.token);
  }
  void lost(const Frame& f, const net::Placement& at) { peers_[f.to]->run->lost(at.token); }
  // Copies up to `bytes_max` of the payload to where it was placed.
  static void fill(const net::Placement& at, const net::OutFrame& frame, std::size_t bytes_max,
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
    const net::Placement at = place(f, *frame);
    if (at.kind == net::Placement::Kind::kDrain) return;
    ASSERT_EQ(at.kind, net::Placement::Kind::kInto);
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
  // Inputs come in parts of any size, between the frames.
  void deliver_all_and_feed() {
    for (;;) {
      std::vector<Peer*> hungry;
      for (auto& peer : peers_) {
        const auto& feed = peer->call->options.feed;
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

  static base::PeerId id(std::size_t p) { return static_cast<base::PeerId>(10 + p); }
  static wire::FrameHeader header(const net::OutFrame& frame) {
    return wire::decode_frame_header(frame.header).value();
  }

  Setting setting_;
  wire::Start start_;
  base::Rng rng_;
  BufferPool pool_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::deque<Frame> frames_;
};

TEST(AttemptTest, the_order_of_arrival_does_not_matter) {
  for (PlanKind kind : {PlanKind::kDirect, PlanKind::kExchange, PlanKind::kRing}) {
    for (std::size_t receivers : {0U, 2U}) {
      for (bool out_private : {false, true}) {
        base::Digest first;
        for (std::uint64_t seed = 1; seed <= 20; ++seed) {
          Bench bench({kind, 4, receivers, 5000, out_private, codec::CodecId::kNone, seed});
          bench.begin();
          bench.deliver_all();
          bench.expect_committed();
          if (seed == 1) first = bench.peers_[0]->result;
          EXPECT_EQ(bench.peers_[0]->result, first);
        }
      }
    }
  }
}

// Nothing is read before it is here (it is NaN until then), in whatever order inputs and frames
// come.
TEST(AttemptTest, inputs_may_come_while_the_attempt_runs) {
  for (PlanKind kind : {PlanKind::kDirect, PlanKind::kExchange, PlanKind::kRing}) {
    for (const auto codec : {codec::CodecId::kNone, codec::CodecId::kInt8}) {
      for (const bool encoded : {false, true}) {
        if (encoded && codec == codec::CodecId::kNone) continue;
        if (kind == PlanKind::kRing && codec != codec::CodecId::kNone && !encoded) continue;
        base::Digest first;
        for (std::uint64_t seed = 1; seed <= 20; ++seed) {
          Bench bench({kind, 4, seed % 3, 20000, seed % 2 == 0, codec, seed});
          bench.setting_.feeds = seed > 1;
          bench.setting_.encoded = encoded;
          bench.make_peers();
          bench.begin();
          bench.deliver_all_and_feed();
          if (codec == codec::CodecId::kNone) bench.expect_committed();
          if (seed == 1) first = bench.peers_[0]->result;
          for (auto& peer : bench.peers_) {
            EXPECT_EQ(peer->done, 1) << peer->text;
            EXPECT_EQ(peer->result, first);
          }
        }
      }
    }
  }
}

TEST(AttemptTest, a_feed_that_fails_leaves_this_contribution_out) {
  Bench bench({});
  bench.setting_.feeds = true;
  bench.make_peers();
  bench.begin();
  bench.peers_[1]->bring(5000);
  EXPECT_EQ(bench.peers_[1]->failed, Code::kOk);
  bench.peers_[1]->call->options.feed->fail("the device is gone");
  bench.peers_[1]->run->fed();
  EXPECT_EQ(bench.peers_[1]->failed, Code::kGuard);
  EXPECT_EQ(bench.peers_[1]->named, Bench::id(1));
  EXPECT_EQ(bench.peers_[1]->text, "the device is gone");
  bench.peers_[1]->call->options.feed->fail("again");
  EXPECT_EQ(bench.peers_[1]->call->options.feed->fault(), "the device is gone");
}

// What the start of a call can't look at is looked at when it is here.
TEST(AttemptTest, bytes_of_a_feed_that_no_encoder_writes_are_left_out) {
  Bench bench({PlanKind::kDirect, 3, 0, 20000, false, codec::CodecId::kInt8, 1});
  bench.setting_.feeds = bench.setting_.encoded = true;
  bench.make_peers();
  bench.peers_[1]->whole[10] = 0x80;
  bench.begin();
  bench.deliver_all_and_feed();
  EXPECT_EQ(bench.peers_[1]->failed, Code::kGuard);
  EXPECT_NE(bench.peers_[1]->text.find("params/w"), std::string::npos) << bench.peers_[1]->text;
  EXPECT_NE(bench.peers_[1]->text.find("block 0 has a code"), std::string::npos)
      << bench.peers_[1]->text;
}

TEST(FeedTest, it_waits_for_all_of_it_or_a_fault_and_never_goes_back) {
  Feed feed(10);
  EXPECT_FALSE(feed.wait(0));
  feed.advance(7);
  feed.advance(3);
  EXPECT_EQ(feed.here(), 7u);
  std::thread rest([&] { feed.advance(10); });
  EXPECT_TRUE(feed.wait(60 * base::kSecond));
  rest.join();
  feed.fail("late");
  EXPECT_FALSE(feed.fault()) << "everything is here";
  Feed broken(10);
  broken.fail("gone");
  EXPECT_FALSE(broken.wait(60 * base::kSecond));
}

TEST(AttemptTest, duplicates_damage_and_losses_are_survived_by_sending_again) {
  for (PlanKind kind : {PlanKind::kDirect, PlanKind::kExchange, PlanKind::kRing}) {
    for (std::uint64_t seed = 1; seed <= 30; ++seed) {
      Bench bench({kind, 3, 1, 4000, seed % 2 == 0, codec::CodecId::kNone, seed});
      bench.begin();
      while (!bench.frames_.empty()) {
        const Bench::Frame f = bench.take_any();
        const auto frame = bench.made(f);
        if (!frame) continue;
        const net::Placement at = bench.place(f, *frame);
        if (at.kind == net::Placement::Kind::kDrain) continue;
        ASSERT_EQ(at.kind, net::Placement::Kind::kInto);
        switch (bench.rng_.below(4)) {
          case 0:  // arrives, and comes once more
            Bench::fill(at, *frame, SIZE_MAX);
            ASSERT_TRUE(bench.arrived(f, *frame, at).ok());
            bench.frames_.push_back(f);
            break;
          case 1: {  // damaged on its way: the stripe closes, the frame is sent again
            Bench::fill(at, *frame, SIZE_MAX, true);
            EXPECT_EQ(bench.arrived(f, *frame, at).code, Code::kCorrupt);
            bench.frames_.push_back(f);
            break;
          }
          case 2:  // its stripe breaks in the middle
            Bench::fill(at, *frame, 100);
            bench.lost(f, at);
            bench.frames_.push_back(f);
            break;
          default:
            Bench::fill(at, *frame, SIZE_MAX);
            ASSERT_TRUE(bench.arrived(f, *frame, at).ok());
        }
      }
      bench.expect_committed();
    }
  }
}

// The first copy sits on a stripe that stalled. Whichever is whole first counts; the other one
// can't touch the result any more.
TEST(AttemptTest, of_two_copies_of_a_frame_the_first_whole_one_counts) {
  for (const bool out_private : {false, true}) {
    for (const bool second_wins : {true, false}) {
      for (std::uint64_t seed = 1; seed <= 10; ++seed) {
        Bench bench({PlanKind::kDirect, 3, 0, 5000, out_private, codec::CodecId::kNone, seed});
        bench.begin();
        while (!bench.frames_.empty()) {
          const Bench::Frame f = bench.take_any();
          const auto frame = bench.made(f);
          ASSERT_TRUE(frame);
          const net::Placement first = bench.place(f, *frame);
          ASSERT_EQ(first.kind, net::Placement::Kind::kInto);
          Bench::fill(first, *frame, 64);
          const net::Placement second = bench.place(f, *frame);
          ASSERT_EQ(second.kind, net::Placement::Kind::kInto);
          EXPECT_NE(first.token, second.token);
          EXPECT_NE(first.spans[0].data(), second.spans[0].data());
          const net::Placement& winner = second_wins ? second : first;
          const net::Placement& loser = second_wins ? first : second;
          Bench::fill(winner, *frame, SIZE_MAX);
          const int before = bench.peers_[f.to]->dropped;
          EXPECT_TRUE(bench.arrived(f, *frame, winner).ok());
          EXPECT_EQ(bench.peers_[f.to]->dropped, before + 1) << "the other is drained";
          EXPECT_TRUE(bench.arrived(f, *frame, loser).ok()) << "had it been whole already";
        }
        bench.expect_committed();
      }
    }
  }
}

TEST(AttemptTest, frames_that_make_no_sense_are_refused) {
  Bench bench({});
  bench.begin();
  const Bench::Frame f = bench.take_any();
  const auto frame = bench.made(f);
  ASSERT_TRUE(frame);
  AttemptRun& run = *bench.peers_[f.to]->run;
  wire::FrameHeader h = Bench::header(*frame);
  h.payload_bytes += 4;
  EXPECT_EQ(run.place(Bench::id(f.from), h).kind, net::Placement::Kind::kRefuse);
  h = Bench::header(*frame);
  h.chunk = 100000;
  EXPECT_EQ(run.place(Bench::id(f.from), h).kind, net::Placement::Kind::kRefuse);
  h = Bench::header(*frame);
  EXPECT_EQ(run.place(99, h).kind, net::Placement::Kind::kDrain) << "not in the plan";
}

TEST(AttemptTest, nan_fails_the_attempt_with_the_leaf_and_nothing_of_it_leaves) {
  for (PlanKind kind : {PlanKind::kDirect, PlanKind::kExchange, PlanKind::kRing}) {
    Bench bench({kind, 3, 0, 5000, false, codec::CodecId::kNone, 1});
    for (float& v : bench.peers_[1]->in) v = std::nanf("");
    bench.begin();
    while (!bench.frames_.empty()) {
      const Bench::Frame f = bench.take_any();
      const auto frame = bench.made(f);
      EXPECT_TRUE(f.from != 1 || !frame || f.item.kind == FrameKind::kResult);
      if (frame) bench.deliver(f);
    }
    EXPECT_EQ(bench.peers_[1]->failed, Code::kGuard);
    EXPECT_EQ(bench.peers_[1]->named, Bench::id(1));
    EXPECT_NE(bench.peers_[1]->text.find("params/w"), std::string::npos);
    for (auto& peer : bench.peers_) EXPECT_EQ(peer->done, 0);
  }
}

TEST(AttemptTest, it_says_for_whom_it_waits) {
  Bench bench({});
  bench.begin();
  std::deque<Bench::Frame> held;
  while (!bench.frames_.empty()) {  // nothing from peer 2 arrives
    const Bench::Frame f = bench.take_any();
    if (f.from == 2)
      held.push_back(f);
    else
      bench.deliver(f);
  }
  const auto awaited = bench.peers_[0]->run->awaited();
  EXPECT_TRUE(std::any_of(awaited.begin(), awaited.end(),
                          [](const auto& a) { return a.peer == Bench::id(2) && a.bytes > 0; }));
  const wire::Moving moving = bench.peers_[0]->run->moving();
  EXPECT_EQ(moving.waits_on, Bench::id(2));
  EXPECT_GT(moving.left, 0u);
  EXPECT_LT(moving.left, moving.all) << "the others' data has come";
  bench.frames_ = held;
  bench.deliver_all();
  bench.expect_committed();
  EXPECT_TRUE(bench.peers_[0]->run->awaited().empty());
  EXPECT_EQ(bench.peers_[0]->run->moving().left, 0u);
  EXPECT_EQ(bench.peers_[0]->run->moving().waits_on, 0u);
}

// Else who waits for them would be taken for the slow one.
TEST(AttemptTest, who_is_done_still_counts_the_results_it_has_to_send) {
  Bench bench({});
  bench.begin();
  std::deque<Bench::Frame> held;
  while (!bench.frames_.empty()) {  // no result of peer 0 leaves
    const Bench::Frame f = bench.take_any();
    if (f.from == 0 && f.item.kind == wire::FrameKind::kResult)
      held.push_back(f);
    else
      bench.deliver(f);
  }
  ASSERT_EQ(bench.peers_[0]->done, 1);
  ASSERT_FALSE(held.empty());
  const wire::Moving moving = bench.peers_[0]->run->moving();
  EXPECT_GT(moving.left, 0u);
  EXPECT_LT(moving.left, moving.all);
  EXPECT_EQ(moving.waits_on, 0u);
  bench.frames_ = held;
  bench.deliver_all();
  EXPECT_EQ(bench.peers_[0]->run->moving().left, 0u);
  bench.expect_committed();
}

TEST(AttemptTest, a_plan_that_start_does_not_cover_is_refused) {
  Bench bench({});
  wire::Start start = bench.peers_[0]->run->start();
  start.contributors.pop_back();
  AttemptRun missing(start, 10, bench.peers_[0]->call, &bench.pool_, 4096, bench.peers_[0].get());
  EXPECT_EQ(missing.prepare().code, Code::kInternal);
  start.plan = {1, 2, 3};
  AttemptRun nonsense(start, 10, bench.peers_[0]->call, &bench.pool_, 4096, bench.peers_[0].get());
  EXPECT_FALSE(nonsense.prepare().ok());
}

}  // namespace
}  // namespace jccl::peer
