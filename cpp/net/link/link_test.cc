#include "net/link/link.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "net/link/link_support.h"

namespace jccl::net::test {
namespace {

TEST_F(LinkTest, four_stripes_move_64_mib_both_ways) {
  open(64 << 20, 256 << 10, 4);
  on([&] { a->send_all(), b->send_all(); });
  ASSERT_TRUE(eventually([&] { return all_arrived(); }));
  on([&] {
    EXPECT_TRUE(a->in == b->out);
    EXPECT_TRUE(b->in == a->out);
    EXPECT_EQ(a->sent.size(), a->chunks());
    const LinkStats stats = a->link->stats();
    EXPECT_EQ(stats.frames_queued, 0u);
    EXPECT_EQ(stats.bytes_queued, 0u);
    ASSERT_EQ(stats.stripes.size(), 4u);
    std::uint64_t bytes = 0;
    for (const StripeStats& stripe : stats.stripes) {
      bytes += stripe.stream.bytes_sent;
      EXPECT_GT(stripe.frames_sent, 0u);  // a burst spreads over all stripes
    }
    // Before it was a stripe each had an introduction of 82 + 80 bytes, and one by connect().
    EXPECT_EQ(bytes, a->out.size() + a->chunks() * kHeader + 4 * (82 + 80 + 1));
  });
}

TEST_F(LinkTest, encrypted_stripes_move_8_mib_both_ways) {
  open(8 << 20, 100'000, 3, tls());
  on([&] { a->send_all(), b->send_all(); });
  ASSERT_TRUE(eventually([&] { return all_arrived(); }));
  EXPECT_TRUE(a->in == b->out);
  EXPECT_TRUE(b->in == a->out);
}

TEST_F(LinkTest, many_small_frames_arrive) {
  open(20'000 * 24, 24, 2);
  on([&] { a->send_all(), b->send_all(); });
  ASSERT_TRUE(eventually([&] { return all_arrived(); }));
  EXPECT_TRUE(b->in == a->out);
}

TEST_F(LinkTest, stripes_lost_in_mid_transfer_are_reported_and_a_resend_completes) {
  for (const Credentials& credentials : {plain(), tls()}) {
    open(32 << 20, 128 << 10, 4, credentials);
    on([&] {
      a->resend = b->resend = true;
      a->send_all(), b->send_all();
    });
    ASSERT_TRUE(eventually([&] { return b->got.size() > 20; }));
    on([&] { a->link->drop_stripe(2, Status{Code::kLinkLost, "cut by the test"}); });
    ASSERT_TRUE(eventually([&] { return b->got.size() > 60 || all_arrived(); }));
    on([&] { b->link->drop_stripe(4, Status{Code::kLinkLost, "cut by the test"}); });
    ASSERT_TRUE(eventually([&] { return all_arrived(); }));
    EXPECT_TRUE(
        eventually([&] { return a->lost_stripes.size() == 2 && b->lost_stripes.size() == 2; }));
    on([&] {
      EXPECT_TRUE(a->in == b->out);
      EXPECT_TRUE(b->in == a->out);
      EXPECT_EQ(a->lost_stripes[0].stripe, 2u);
      EXPECT_EQ(a->lost_stripes[0].status.text, "cut by the test");
      EXPECT_TRUE(a->lost_stripes[0].complete);
      EXPECT_FALSE(a->lost_stripes[0].keys.empty());
      EXPECT_EQ(a->link->stripe_count(), 2u);
      EXPECT_EQ(a->dead, 0);
      a->link.reset(), b->link.reset();
    });
  }
}

TEST_F(LinkTest, a_link_whose_last_stripe_went_is_dead_and_a_new_stripe_revives_it) {
  open(1 << 20, 64 << 10, 1);
  on([&] { b->link->drop_stripe(1, Status{Code::kLinkLost, "cut"}); });
  ASSERT_TRUE(eventually([&] { return a->dead == 1 && b->dead == 1; }));
  EXPECT_EQ(a->dead_status.code, Code::kLinkLost);
  on([&] { a->send_all(); });  // waits for a stripe
  add_stripe();
  ASSERT_TRUE(eventually([&] { return b->got.size() == a->chunks(); }));
  EXPECT_TRUE(b->in == a->out);
}

TEST_F(LinkTest, a_stripe_whose_reader_pauses_does_not_hold_the_others) {
  open(4 << 20, 64 << 10, 2);
  on([&] {
    b->hold = true;
    a->link->send(a->frame_of(0));
  });
  const auto paused = [&] {
    const auto stripes = b->link->stats().stripes;
    return std::count_if(stripes.begin(), stripes.end(),
                         [](const StripeStats& stripe) { return stripe.paused; });
  };
  ASSERT_TRUE(eventually([&] { return paused() == 1; }));
  on([&] {
    b->hold = false;
    for (std::uint64_t key = 1; key < a->chunks(); ++key) a->link->send(a->frame_of(key));
  });
  // The paused stripe takes what its buffers hold; all others must come by the free one.
  ASSERT_TRUE(eventually([&] { return b->got.size() >= a->chunks() / 4; }));
  on([&] {
    EXPECT_EQ(paused(), 1);
    EXPECT_FALSE(b->got.contains(0));
    b->link->resume();
  });
  ASSERT_TRUE(eventually([&] { return b->got.size() == a->chunks(); }));
  EXPECT_TRUE(b->in == a->out);
}

TEST_F(LinkTest, urgent_frames_overtake_the_queue) {
  open(1 << 20, 16 << 10, 1);
  on([&] {
    for (std::uint64_t key = 0; key < 32; ++key) a->link->send(a->frame_of(key));
    a->link->send(a->frame_of(40, true));
  });
  ASSERT_TRUE(eventually([&] { return b->got.size() == 33; }));
  EXPECT_EQ(b->order.front(), 40u);
  EXPECT_TRUE(std::is_sorted(b->order.begin() + 1, b->order.end()));
}

TEST_F(LinkTest, dropped_frames_are_not_sent_and_free_what_they_held) {
  open(1 << 20, 16 << 10, 1);
  const auto held = std::make_shared<int>(0);
  on([&] {
    for (std::uint64_t key = 0; key < 10; ++key) {
      OutFrame frame = a->frame_of(key);
      frame.keep_alive = held;
      a->link->send(std::move(frame));
    }
    EXPECT_EQ(a->link->drop_queued([](std::uint64_t key) { return key % 2 == 1; }), 5u);
    EXPECT_EQ(held.use_count(), 6);
    EXPECT_EQ(a->link->stats().frames_queued, 5u);
  });
  ASSERT_TRUE(eventually([&] { return a->sent.size() == 5 && b->got.size() == 5; }));
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_EQ(b->got, (std::set<std::uint64_t>{0, 2, 4, 6, 8}));
}

TEST_F(LinkTest, abandoned_frames_leave_the_owner_s_memory_at_once_and_the_stripe_in_order) {
  open(32 << 20, 8 << 20, 1);
  on([&] {
    b->hold = true;  // so that the frame cannot leave wholly
    a->send_all();
  });
  ASSERT_TRUE(eventually([&] { return a->link->stats().stripes[0].sending; }));
  const Bytes original = a->out;
  on([&] {
    a->link->abandon_sending([](std::uint64_t key) { return key != 3; });
    std::fill(a->out.begin(), a->out.begin() + (24 << 20), 0);  // the memory is the owner's again
    a->link->send(a->frame_of(3));
    b->hold = false;
    b->link->resume();
  });
  ASSERT_TRUE(eventually([&] { return b->got.contains(3); }));
  on([&] {
    EXPECT_TRUE(b->got.contains(0));  // its rest was sent from a copy: the checksum held
    EXPECT_TRUE(std::equal(original.begin(), original.begin() + (8 << 20), b->in.begin()));
    EXPECT_EQ(std::count(a->sent.begin(), a->sent.end(), 0u), 0);
    EXPECT_FALSE(b->got.contains(1));
  });
}

TEST_F(LinkTest, abandoned_receptions_leave_their_place_alone) {
  open(32 << 20, 16 << 20, 1);
  std::size_t filled = 0;
  on([&] { a->link->send(a->frame_of(0)); });
  ASSERT_TRUE(eventually([&] {
    if (b->link->stats().stripes[0].stream.bytes_received < 1 << 20) return false;
    b->link->abandon_receiving([](ByteView) { return true; });
    b->drain = true;
    return true;
  }));
  if (!b->got.contains(0)) {  // it was under way: from here on its place stays as it is
    Bytes before;
    on([&] {
      before = b->in;
      a->link->send(a->frame_of(1));
    });
    ASSERT_TRUE(eventually([&] { return a->sent.size() == 2; }));
    const auto received = [&] { return b->link->stats().stripes[0].stream.bytes_received; };
    ASSERT_TRUE(eventually([&] { return received() >= a->out.size(); }));
    EXPECT_TRUE(before == b->in);
    filled = static_cast<std::size_t>(std::count(b->in.begin(), b->in.end(), 0));
    EXPECT_GT(filled, 0u);
  }
  EXPECT_EQ(b->losses, 0);
}

TEST_F(LinkTest, forgotten_keys_are_not_named_by_a_loss_and_memory_for_keys_is_bounded) {
  open(100 * 16, 16, 1, plain(), {.sent_keys_max = 50});
  on([&] { a->send_all(); });
  ASSERT_TRUE(eventually([&] { return b->got.size() == 100; }));
  on([&] {
    a->link->forget([](std::uint64_t key) { return key < 90; });
    a->link->drop_stripe(1, Status{Code::kLinkLost, "cut"});
  });
  ASSERT_TRUE(eventually([&] { return a->lost_stripes.size() == 1; }));
  EXPECT_FALSE(a->lost_stripes[0].complete);  // the oldest 50 went unnamed
  EXPECT_EQ(a->lost_stripes[0].keys,
            (std::vector<std::uint64_t>{90, 91, 92, 93, 94, 95, 96, 97, 98, 99}));
}

TEST_F(LinkTest, what_was_sent_before_a_clean_end_arrives_although_answers_fail) {
  open(1 << 20, 32 << 10, 1);  // what the first window has room for
  on([&] {
    b->hold = true;
    a->link->send(a->frame_of(0));
  });
  ASSERT_TRUE(eventually([&] { return a->sent.size() == 1; }));
  on([&] { a->link.reset(); });
  on([&] { b->send_all(); });  // meets a closed connection
  on([&] {
    b->hold = false;
    b->link->resume();
  });
  ASSERT_TRUE(eventually([&] { return b->dead == 1; }));
  EXPECT_TRUE(b->got.contains(0));
  EXPECT_FALSE(b->lost_stripes[0].keys.empty());
}

TEST_F(LinkTest, a_link_may_be_freed_in_each_of_its_callbacks) {
  for (const int where : {0, 1, 2}) {
    open(1 << 20, 16 << 10, 2);
    bool freed = false;
    on([&] {
      const auto free = [&] {
        a->link.reset();
        freed = true;
      };
      LinkEvents events;
      if (where == 0) events.on_sent = [=](std::uint64_t) { free(); };
      if (where == 1) events.on_stripe_lost = [=](const StripeLoss&) { free(); };
      if (where == 2) events.on_dead = [=](Status) { free(); };
      LinkOptions options;
      options.header_bytes = kHeader;
      a->link = std::make_unique<Link>(loop, options, a.get(), events);
    });
    add_stripe();
    on([&] {
      if (where == 0) a->send_all();
      if (where != 0) a->link->drop_stripe(1, Status{Code::kLinkLost, "cut"});
    });
    EXPECT_TRUE(eventually([&] { return freed; }));
  }
}

TEST_F(LinkTest, links_close_with_traffic_in_flight) {
  for (int i = 0; i < 20; ++i) {
    open(8 << 20, 64 << 10, 3, i % 2 == 0 ? plain() : tls());
    on([&] { a->send_all(), b->send_all(); });
    ASSERT_TRUE(eventually([&] { return b->got.size() >= static_cast<std::size_t>(i); }));
    on([&] {
      const std::size_t sent = a->sent.size();
      a->link->close();
      EXPECT_EQ(a->link->stripe_count(), 0u);
      EXPECT_EQ(a->sent.size(), sent);
    });
    const std::size_t after = a->sent.size();
    EXPECT_TRUE(eventually([&] { return b->dead == 1; }));
    EXPECT_EQ(a->sent.size(), after);  // nothing after close()
    EXPECT_TRUE(a->lost_stripes.empty());
    on([&] { a->link.reset(), b->link.reset(); });
  }
}

TEST_F(LinkTest, a_loop_stops_with_traffic_in_flight) {
  open(32 << 20, 64 << 10, 3);
  on([&] { a->send_all(), b->send_all(); });
  ASSERT_TRUE(eventually([&] { return b->got.size() >= 3; }));
  loop.stop();
  a->link.reset();  // allowed here: the loop does not run
  b->link.reset();
}

}  // namespace
}  // namespace jccl::net::test
