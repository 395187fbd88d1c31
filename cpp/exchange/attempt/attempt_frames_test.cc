// Which frames an attempt takes, which it drops, and of which it says that no peer sends them which
// follows the plan.
#include "exchange/attempt/attempt_bench.h"
#include "snapshot/digest.h"

namespace jccl::exchange {
namespace {

using wire::FrameKind;
using wire::ViolationKind;
using Seen = std::vector<std::pair<base::PeerId, ViolationKind>>;

class AttemptFramesTest : public ::testing::Test {
 protected:
  // Peers 10, 11, 12, of which 12 is hostile; each owns some chunks. Nothing has been delivered.
  static Bench::Setting setting(PlanKind kind) {
    Bench::Setting setting;
    setting.kind = kind;
    return setting;
  }
  void begin(Bench::Setting setting) {
    bench_ = std::make_unique<Bench>(setting);
    bench_->begin();
    plan_ = collective::decode(bench_->start_.plan).value();
    layout_ = collective::make_layout(plan_, bench_->peers_[0]->call->specs, {}, 4096, 1);
  }
  const collective::Chunk& chunk_of(std::size_t owner) const {
    for (const collective::Chunk& chunk : layout_) {
      if (chunk.owner == owner) return chunk;
    }
    ADD_FAILURE() << "it owns none";
    return layout_.front();
  }
  // The first peer is handed what `from` gives it last; of that chunk.
  const collective::Chunk& comes_from(std::size_t from) {
    Bench::Frame last;
    for (const Bench::Frame& frame : bench_->frames_) {
      if (frame.from == from && frame.to == 0) last = frame;
    }
    bench_->deliver(last);
    return layout_[last.item.chunk];
  }
  // What the first peer does with a frame of `from` for that chunk.
  Placement::Kind place(std::size_t from, FrameKind kind, const collective::Chunk& chunk,
                        std::uint32_t more_bytes = 0, std::uint32_t later_chunk = 0) {
    const std::size_t bytes =
        kind == FrameKind::kPartial ? chunk.accumulator_bytes : chunk.encoded_bytes;
    const wire::FrameHeader header{kind, kAttempt, chunk.index + later_chunk,
                                   static_cast<std::uint32_t>(bytes) + more_bytes, 0};
    return bench_->peers_[0]->run->place(Bench::id(from), header).kind;
  }
  const Seen& seen() const { return bench_->peers_[0]->violations; }

  std::unique_ptr<Bench> bench_;
  collective::Plan plan_;
  std::vector<collective::Chunk> layout_;
};

TEST_F(AttemptFramesTest, a_chunk_that_the_plan_has_not_is_refused_and_told) {
  begin(setting(PlanKind::kDirect));
  EXPECT_EQ(place(2, FrameKind::kContribution, chunk_of(0), 0, 1000), Placement::Kind::kRefuse);
  EXPECT_EQ(seen(), (Seen{{12, ViolationKind::kChunk}}));
}

TEST_F(AttemptFramesTest, another_length_is_refused_and_told) {
  begin(setting(PlanKind::kDirect));
  EXPECT_EQ(place(2, FrameKind::kContribution, chunk_of(0), 4), Placement::Kind::kRefuse);
  EXPECT_EQ(seen(), (Seen{{12, ViolationKind::kLength}}));
}

TEST_F(AttemptFramesTest, what_is_not_the_senders_to_send_is_dropped_and_told) {
  for (const auto& [kind, owner] : {std::pair(FrameKind::kContribution, std::size_t{1}),
                                    std::pair(FrameKind::kResult, std::size_t{1}),
                                    std::pair(FrameKind::kResult, std::size_t{0}),
                                    std::pair(FrameKind::kPartial, std::size_t{0})}) {
    begin(setting(PlanKind::kDirect));
    EXPECT_EQ(place(2, kind, chunk_of(owner)), Placement::Kind::kDrain) << owner;
    EXPECT_EQ(seen(), (Seen{{12, ViolationKind::kSender}})) << owner;
  }
}

TEST_F(AttemptFramesTest, in_a_ring_only_the_one_before_sends_anything) {
  begin(setting(PlanKind::kRing));
  for (const std::size_t owner : {0, 1, 2}) {
    for (const FrameKind kind : {FrameKind::kPartial, FrameKind::kResult}) {
      (void)place(1, kind, chunk_of(owner));
    }
  }
  EXPECT_EQ(seen(), (Seen{{11, ViolationKind::kSender}})) << "told once";
}

// Nobody can have added up what this peer has not handed on.
TEST_F(AttemptFramesTest, a_result_before_its_parts_is_dropped_and_told) {
  for (const PlanKind kind : {PlanKind::kDirect, PlanKind::kRing}) {
    Bench::Setting with = setting(kind);
    if (kind == PlanKind::kRing) with.peers = 2;
    begin(with);
    const std::size_t last = with.peers - 1U;
    EXPECT_EQ(place(last, FrameKind::kResult, chunk_of(last)), Placement::Kind::kDrain);
    EXPECT_EQ(seen(), (Seen{{Bench::id(last), ViolationKind::kPhase}}));
  }
}

// Peer 1 may have handed on a sum without the part of the first: peer 2 is honest (hostile seed
// 4313 of one build).
TEST_F(AttemptFramesTest, who_passes_a_result_on_in_a_ring_is_not_held_to_its_parts) {
  begin(setting(PlanKind::kRing));
  EXPECT_EQ(place(2, FrameKind::kResult, chunk_of(2)), Placement::Kind::kInto);
  EXPECT_TRUE(seen().empty());
}

// Peer 2 hands the first one made-up results of all that it passes on, and goes on as it should.
TEST_F(AttemptFramesTest, a_result_ahead_of_its_parts_ends_no_part_in_a_ring) {
  begin(setting(PlanKind::kRing));
  Bench::Peer& first = *bench_->peers_[0];
  for (const collective::Chunk& chunk : layout_) {
    if (chunk.owner == 0) continue;
    const base::Bytes bytes(chunk.encoded_bytes, 0);
    const wire::FrameHeader header{FrameKind::kResult, kAttempt, chunk.index,
                                   static_cast<std::uint32_t>(bytes.size()),
                                   snapshot::check_of(bytes)};
    const Placement at = first.run->place(12, header);
    ASSERT_EQ(at.kind, Placement::Kind::kInto);
    std::memset(at.spans[0].data(), 0, bytes.size());
    ASSERT_TRUE(first.run->arrived(12, header, at.token).ok());
    EXPECT_EQ(first.run->place(12, header).kind, Placement::Kind::kDrain) << "a copy";
  }
  EXPECT_EQ(first.done, 0) << "its own parts have not left";
  bench_->deliver_all();
  for (const auto& peer : bench_->peers_) EXPECT_EQ(peer->done, 1);
  EXPECT_NE(first.result, bench_->peers_[2]->result);
  EXPECT_TRUE(seen().empty());
}

TEST_F(AttemptFramesTest, a_receiver_has_no_part_that_a_result_could_come_before) {
  Bench::Setting with = setting(PlanKind::kDirect);
  with.peers = 2, with.receivers = 1;
  begin(with);
  const collective::Chunk& chunk = chunk_of(1);
  const wire::FrameHeader header{FrameKind::kResult, kAttempt, chunk.index,
                                 static_cast<std::uint32_t>(chunk.encoded_bytes), 0};
  EXPECT_EQ(bench_->peers_[2]->run->place(11, header).kind, Placement::Kind::kInto);
  EXPECT_TRUE(bench_->peers_[2]->violations.empty());
}

TEST_F(AttemptFramesTest, copies_are_dropped_and_told_only_when_no_network_makes_so_many) {
  begin(setting(PlanKind::kDirect));
  const collective::Chunk& chunk = comes_from(2);
  for (std::size_t i = 1; i < 16 * (1 + layout_.size()); ++i) {
    ASSERT_EQ(place(2, FrameKind::kContribution, chunk), Placement::Kind::kDrain);
  }
  EXPECT_TRUE(seen().empty());
  EXPECT_EQ(place(2, FrameKind::kContribution, chunk), Placement::Kind::kDrain);
  EXPECT_EQ(seen(), (Seen{{12, ViolationKind::kRepeats}}));
}

// A line that damages every frame made honest members send so many (seed 7000070766).
TEST_F(AttemptFramesTest, copies_count_anew_when_a_stripe_is_lost) {
  begin(setting(PlanKind::kDirect));
  const collective::Chunk& chunk = comes_from(2);
  const std::size_t most = 16 * (1 + layout_.size());
  for (std::size_t i = 1; i < 2 * most - 1; ++i) {
    if (i == most) bench_->peers_[0]->run->stripe_lost(12);
    ASSERT_EQ(place(2, FrameKind::kContribution, chunk), Placement::Kind::kDrain);
  }
  EXPECT_TRUE(seen().empty());
}

TEST_F(AttemptFramesTest, NaN_of_a_peer_with_a_guard_is_told) {
  begin(setting(PlanKind::kDirect));
  const collective::Chunk& chunk = chunk_of(0);
  const base::Bytes bytes(chunk.encoded_bytes, 0xFF);
  const wire::FrameHeader header{FrameKind::kContribution, kAttempt, chunk.index,
                                 static_cast<std::uint32_t>(bytes.size()),
                                 snapshot::check_of(bytes)};
  Attempt& run = *bench_->peers_[0]->run;
  const Placement at = run.place(12, header);
  ASSERT_EQ(at.kind, Placement::Kind::kInto);
  std::memcpy(at.spans[0].data(), bytes.data(), bytes.size());
  ASSERT_TRUE(run.arrived(12, header, at.token).ok());
  EXPECT_EQ(seen(), (Seen{{12, ViolationKind::kValues}}));
  EXPECT_EQ(bench_->peers_[0]->failed, Code::kCorrupt);
  EXPECT_EQ(bench_->peers_[0]->named, 12U);
}

TEST_F(AttemptFramesTest, honest_peers_tell_of_nobody_in_any_plan) {
  for (const PlanKind kind : {PlanKind::kDirect, PlanKind::kRing, PlanKind::kScatter,
                              PlanKind::kGather, PlanKind::kExchange, PlanKind::kAllToAll}) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      Bench::Setting some = setting(kind);
      some.seed = seed;
      begin(some);
      const std::deque<Bench::Frame> again = bench_->frames_;
      bench_->deliver_all();
      for (const Bench::Frame& frame : again) bench_->deliver(frame);  // a stripe was lost
      for (const auto& peer : bench_->peers_) {
        EXPECT_EQ(peer->done, 1);
        EXPECT_TRUE(peer->violations.empty()) << static_cast<int>(kind);
      }
    }
  }
}

// ---- what the result is made of -----------------------------------------------------------------

TEST_F(AttemptFramesTest, honest_peers_have_the_same_shares_and_say_whence) {
  for (const PlanKind kind :
       {PlanKind::kDirect, PlanKind::kRing, PlanKind::kGather, PlanKind::kExchange}) {
    begin(setting(kind));
    bench_->deliver_all();
    const auto first = bench_->peers_[0]->run->shares();
    ASSERT_EQ(first.size(), 3U) << static_cast<int>(kind);
    for (std::size_t p = 0; p < 3; ++p) {
      const auto shares = bench_->peers_[p]->run->shares();
      ASSERT_EQ(shares.size(), 3U);
      for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(shares[i].owner, Bench::id(i));
        EXPECT_EQ(shares[i].digest, first[i].digest);
        const std::size_t before = kind == PlanKind::kRing ? (p + 2) % 3 : i;
        EXPECT_EQ(shares[i].from, Bench::id(i == p ? p : before));
      }
    }
  }
}

// The hostile one sends the first peer other values than the rest.
TEST_F(AttemptFramesTest, a_share_differs_where_one_was_sent_something_else) {
  for (const PlanKind kind : {PlanKind::kDirect, PlanKind::kExchange}) {
    begin(setting(kind));
    while (!bench_->frames_.empty()) {
      const Bench::Frame f = bench_->take_any();
      auto frame = bench_->made(f);
      if (!frame) continue;
      const FrameKind lies =
          kind == PlanKind::kDirect ? FrameKind::kResult : FrameKind::kContribution;
      if (f.from == 2 && f.to == 0 && f.item.kind == lies) {
        own_payload(&*frame);
        base::Bytes bytes(frame->payload[0].begin(), frame->payload[0].end());
        bytes[1] ^= 1;
        wire::FrameHeader header = Bench::header(*frame);
        header.payload_check = snapshot::check_of(bytes);
        wire::encode(header, frame->header.data());
        const auto owned = std::make_shared<base::Bytes>(bytes);
        frame->payload = {base::ByteView(*owned)}, frame->keep_alive = owned;
      }
      const Placement at = bench_->place(f, *frame);
      ASSERT_EQ(at.kind, Placement::Kind::kInto);
      Bench::fill(at, *frame, SIZE_MAX);
      ASSERT_TRUE(bench_->arrived(f, *frame, at).ok());
    }
    const auto misled = bench_->peers_[0]->run->shares(), right = bench_->peers_[1]->run->shares();
    EXPECT_NE(bench_->peers_[0]->result, bench_->peers_[1]->result);
    EXPECT_EQ(bench_->peers_[1]->result, bench_->peers_[2]->result);
    ASSERT_EQ(misled.size(), 3U);
    EXPECT_EQ(misled[0].digest, right[0].digest);
    EXPECT_EQ(misled[1].digest, right[1].digest);
    EXPECT_NE(misled[2].digest, right[2].digest);
    EXPECT_EQ(misled[2].from, 12U);
  }
}

}  // namespace
}  // namespace jccl::exchange
