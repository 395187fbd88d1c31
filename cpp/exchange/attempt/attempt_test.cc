#include "exchange/attempt/attempt.h"

#include <cmath>

#include "exchange/attempt/attempt_bench.h"
#include "snapshot/digest.h"

namespace jccl::exchange {
namespace {

using wire::FrameKind;

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

TEST(AttemptTest, duplicates_damage_and_losses_are_survived_by_sending_again) {
  for (PlanKind kind : {PlanKind::kDirect, PlanKind::kExchange, PlanKind::kRing}) {
    for (std::uint64_t seed = 1; seed <= 30; ++seed) {
      Bench bench({kind, 3, 1, 4000, seed % 2 == 0, codec::CodecId::kNone, seed});
      bench.begin();
      while (!bench.frames_.empty()) {
        const Bench::Frame f = bench.take_any();
        const auto frame = bench.made(f);
        if (!frame) continue;
        const Placement at = bench.place(f, *frame);
        if (at.kind == Placement::Kind::kDrain) continue;
        ASSERT_EQ(at.kind, Placement::Kind::kInto);
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

TEST(AttemptTest, a_frame_that_never_arrives_takes_memory_for_a_few_copies_and_no_more) {
  Bench bench({PlanKind::kDirect, 3, 1, 4000, true, codec::CodecId::kNone, 1});
  bench.begin();
  const Bench::Frame f = bench.take_any();
  const auto frame = bench.made(f);
  ASSERT_TRUE(frame.has_value());
  std::vector<Placement> places;
  for (int i = 0; i < 8; ++i) {
    places.push_back(bench.place(f, *frame));
    ASSERT_EQ(places.back().kind, Placement::Kind::kInto) << i;
  }
  EXPECT_EQ(bench.place(f, *frame).kind, Placement::Kind::kRefuse);
  bench.lost(f, places.back());
  EXPECT_EQ(bench.place(f, *frame).kind, Placement::Kind::kInto);
}

// What arrives there is what was sent: nothing is hashed to find that out once more.
TEST(AttemptTest, frames_of_sealed_links_have_no_check_and_others_have_to_have_theirs) {
  for (const PlanKind kind : {PlanKind::kDirect, PlanKind::kRing}) {
    for (const bool sealed : {true, false}) {
      Bench bench({.kind = kind, .sealed = sealed});
      bench.begin();
      while (!bench.frames_.empty()) {
        const Bench::Frame f = bench.take_any();
        auto frame = bench.made(f);
        ASSERT_TRUE(frame.has_value());
        const wire::FrameHeader header = Bench::header(*frame);
        EXPECT_EQ(header.payload_check == 0, sealed);
        auto wrong = *frame;
        wire::FrameHeader other = header;
        other.payload_check = sealed ? 1 : 0;
        wire::encode(other, wrong.header.data());
        Placement at = bench.place(f, wrong);
        ASSERT_EQ(at.kind, Placement::Kind::kInto);
        Bench::fill(at, wrong, SIZE_MAX);
        EXPECT_EQ(bench.arrived(f, wrong, at).code, Code::kCorrupt);
        at = bench.place(f, *frame);
        ASSERT_EQ(at.kind, Placement::Kind::kInto);
        Bench::fill(at, *frame, SIZE_MAX);
        EXPECT_TRUE(bench.arrived(f, *frame, at).ok());
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
          const Placement first = bench.place(f, *frame);
          ASSERT_EQ(first.kind, Placement::Kind::kInto);
          Bench::fill(first, *frame, 64);
          const Placement second = bench.place(f, *frame);
          ASSERT_EQ(second.kind, Placement::Kind::kInto);
          EXPECT_NE(first.token, second.token);
          EXPECT_NE(first.spans[0].data(), second.spans[0].data());
          const Placement& winner = second_wins ? second : first;
          const Placement& loser = second_wins ? first : second;
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
  Attempt& run = *bench.peers_[f.to]->run;
  wire::FrameHeader h = Bench::header(*frame);
  h.payload_bytes += 4;
  EXPECT_EQ(run.place(Bench::id(f.from), h).kind, Placement::Kind::kRefuse);
  h = Bench::header(*frame);
  h.chunk = 100000;
  EXPECT_EQ(run.place(Bench::id(f.from), h).kind, Placement::Kind::kRefuse);
  h = Bench::header(*frame);
  EXPECT_EQ(run.place(99, h).kind, Placement::Kind::kDrain) << "not in the plan";
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

// It passes every checksum: the peer that sends it lies, or its memory is bad.
TEST(AttemptTest,
     a_contribution_or_result_that_no_peer_may_send_fails_the_attempt_with_its_sender) {
  using codec::CodecId;
  const struct {
    PlanKind kind;
    CodecId codec;
    FrameKind frame;
    std::size_t at;
    base::Bytes bytes;
    const char* text;
  } cases[] = {
      {PlanKind::kDirect, CodecId::kNone, FrameKind::kContribution, 8, {0, 0, 0xC0, 0x7F}, "NaN"},
      {PlanKind::kExchange, CodecId::kNone, FrameKind::kContribution, 8, {0, 0, 0x80, 0xFF}, "Inf"},
      {PlanKind::kScatter, CodecId::kNone, FrameKind::kContribution, 8, {0, 0, 0x80, 0xFF}, "Inf"},
      {PlanKind::kGather, CodecId::kNone, FrameKind::kResult, 8, {0, 0, 0xC0, 0x7F}, "NaN"},
      {PlanKind::kAllToAll, CodecId::kNone, FrameKind::kContribution, 8, {0, 0, 0xC0, 0x7F}, "NaN"},
      {PlanKind::kAllToAll, CodecId::kInt8, FrameKind::kContribution, 9, {0x80}, "a code"},
      {PlanKind::kDirect, CodecId::kInt8, FrameKind::kContribution, 2, {0x80, 0x7F}, "finite"},
      {PlanKind::kDirect, CodecId::kInt8, FrameKind::kContribution, 9, {0x80}, "a code"},
      {PlanKind::kDirect, CodecId::kInt8, FrameKind::kResult, 9, {0x80}, "a code"},
      {PlanKind::kRing, CodecId::kInt8, FrameKind::kResult, 9, {0x80}, "a code"},
      {PlanKind::kExchange, CodecId::kTopK, FrameKind::kContribution, 0, {0xFF, 0xFF}, "indexes"},
      {PlanKind::kDirect, CodecId::kTopK, FrameKind::kResult, 0, {0xFF, 0xFF}, "indexes"},
      {PlanKind::kDirect, CodecId::kStat2, FrameKind::kContribution, 0, {0x80, 0x7F}, "finite"},
  };
  for (const auto& at : cases) {
    for (const bool guard : {true, false}) {
      Bench bench({at.kind, 3, 0, 20000, false, at.codec, 1});
      for (auto& peer : bench.peers_) peer->call->options.guard = guard;
      bench.begin();
      bool lied = false;
      while (!bench.frames_.empty() && !lied) {
        const Bench::Frame f = bench.take_any();
        if (f.from != 1 || f.item.kind != at.frame) {
          bench.deliver(f);
          continue;
        }
        auto frame = bench.made(f);
        if (!frame) continue;
        base::Bytes all;
        for (const auto& view : frame->payload) all.insert(all.end(), view.begin(), view.end());
        std::copy(at.bytes.begin(), at.bytes.end(), all.begin() + static_cast<long>(at.at));
        frame->payload = {all};
        wire::FrameHeader header = Bench::header(*frame);
        header.payload_check = snapshot::check_of(all);
        wire::encode(header, frame->header.data());
        const Placement place = bench.place(f, *frame);
        if (place.kind != Placement::Kind::kInto) continue;
        Bench::fill(place, *frame, SIZE_MAX);
        EXPECT_TRUE(bench.arrived(f, *frame, place).ok());
        lied = true;
        const Bench::Peer& hit = *bench.peers_[f.to];
        EXPECT_EQ(hit.failed, guard ? Code::kCorrupt : Code::kOk) << hit.text;
        if (!guard) continue;
        EXPECT_EQ(hit.named, Bench::id(1));
        EXPECT_NE(hit.text.find(at.text), std::string::npos) << hit.text;
        EXPECT_EQ(hit.done, 0);
      }
      EXPECT_TRUE(lied);
    }
  }
}

// Who has its own part of a result needs nothing of what it gives to others, and may still find
// that they must not have it.
TEST(AttemptTest, where_results_are_parts_none_is_done_before_all_it_gives_was_looked_at) {
  for (const PlanKind kind : {PlanKind::kScatter, PlanKind::kAllToAll}) {
    Bench bench({kind, 3, 0, 20000});
    bench.peers_[1]->in.front() = std::nanf("");  // of peer 0's share
    bench.begin();
    std::deque<Bench::Frame> held;
    while (!bench.frames_.empty()) {
      const Bench::Frame f = bench.take_any();
      if (f.from == 1 && f.to == 0) {
        held.push_back(f);
      } else {
        bench.deliver(f);
      }
    }
    EXPECT_EQ(bench.peers_[1]->done, 0) << "though it has its share";
    bench.frames_ = held;
    bench.deliver_all();
    EXPECT_EQ(bench.peers_[1]->failed, Code::kGuard);
    EXPECT_EQ(bench.peers_[1]->done, 0);
    Bench good({kind, 3, 0, 20000});
    good.begin();
    good.deliver_all();
    for (auto& peer : good.peers_) EXPECT_EQ(peer->done, 1);
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
  EXPECT_EQ(moving.lacking, 1u);
  // Nor does peer 2 get the results that need its part; it lacks nobody's contribution.
  EXPECT_NE(bench.peers_[2]->run->moving().waits_on, 0u);
  EXPECT_EQ(bench.peers_[2]->run->moving().lacking, 0u);
  EXPECT_GT(moving.left, 0u);
  EXPECT_LT(moving.left, moving.all) << "the others' data has come";
  bench.frames_ = held;
  bench.deliver_all();
  bench.expect_committed();
  EXPECT_TRUE(bench.peers_[0]->run->awaited().empty());
  EXPECT_EQ(bench.peers_[0]->run->moving().left, 0u);
  EXPECT_EQ(bench.peers_[0]->run->moving().waits_on, 0u);
}

TEST(AttemptTest, of_those_that_it_waits_for_it_names_the_one_that_owes_most) {
  Bench bench({PlanKind::kDirect, 3, 0, 600000});
  bench.begin();
  std::deque<Bench::Frame> held;
  bool one_came = false;
  while (!bench.frames_.empty()) {  // nothing from peer 1 arrives at 0, and one frame of peer 2
    const Bench::Frame f = bench.take_any();
    const bool comes = f.to != 0 || (f.from == 2 && !std::exchange(one_came, true));
    if (comes)
      bench.deliver(f);
    else
      held.push_back(f);
  }
  const wire::Moving moving = bench.peers_[0]->run->moving();
  EXPECT_EQ(moving.lacking, 2u);
  EXPECT_EQ(moving.waits_on, Bench::id(1)) << "the other one has sent some of it";
  bench.frames_ = held;
  bench.deliver_all();
  bench.expect_committed();
}

// Else one that keeps a single frame back would look as if the other held everybody for nothing.
TEST(AttemptTest, what_is_still_to_come_is_left_however_often_frames_are_sent_again) {
  Bench bench({});
  bench.begin();
  std::deque<Bench::Frame> held;
  while (!bench.frames_.empty()) {  // nothing from peer 2 arrives, and peer 0 sends all again
    const Bench::Frame f = bench.take_any();
    for (int again = 0; f.from == 0 && again < 4; ++again) (void)bench.made(f);
    if (f.from == 2)
      held.push_back(f);
    else
      bench.deliver(f);
  }
  std::uint64_t missing = 0;
  for (const auto& one : bench.peers_[0]->run->awaited()) missing += one.bytes;
  ASSERT_GT(missing, 0u);
  const wire::Moving moving = bench.peers_[0]->run->moving();
  EXPECT_EQ(moving.waits_on, Bench::id(2));
  EXPECT_GE(moving.left, missing);
  bench.frames_ = held;
  bench.deliver_all();
  EXPECT_EQ(bench.peers_[0]->run->moving().left, 0u);
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
  Attempt missing(start, 10, bench.peers_[0]->call, &bench.memory_, 4096, bench.peers_[0].get());
  EXPECT_EQ(missing.prepare().code, Code::kInternal);
  start.plan = {1, 2, 3};
  Attempt nonsense(start, 10, bench.peers_[0]->call, &bench.memory_, 4096, bench.peers_[0].get());
  EXPECT_FALSE(nonsense.prepare().ok());
}

}  // namespace
}  // namespace jccl::exchange
