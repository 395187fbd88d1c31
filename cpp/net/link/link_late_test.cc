// Stripes that are much later than their peers, by valves instead of networks.
#include <gtest/gtest.h>

#include <functional>

#include "net/link/link_support.h"

namespace jccl::net::test {
namespace {

// Three stripes; the first, or all, lead through a valve at the receiving end.
class LateStripeTest : public LinkTest {
 protected:
  void open_late(bool all = false) {
    LinkOptions options;
    options.header_bytes = kHeader;
    options.acks = acks();
    a = std::make_unique<Side>(4 << 20, 16 << 10, 1);
    b = std::make_unique<Side>(4 << 20, 16 << 10, 2);
    auto pairs = connect(plain(), 3);
    ASSERT_EQ(pairs.size(), 3u);
    on([&] {
      for (Side* side : {a.get(), b.get()}) {
        side->resend = true;
        side->link = std::make_unique<Link>(loop, options, side, side->events());
      }
      for (Pair& pair : pairs) {
        a->link->add_stripe(std::move(pair.first));
        if (valves.empty() || all) {
          auto valve = std::make_unique<Valve>(std::move(pair.second));
          valves.push_back(valve.get());
          pair.second = std::move(valve);
        }
        b->link->add_stripe(std::move(pair.second));
      }
    });
    // Some frames over every stripe, so that the link knows how long they take.
    on([&] {
      for (std::uint64_t key = 0; key < 64; ++key) a->link->send(a->frame_of(key));
    });
    ASSERT_TRUE(ticking([&] { return b->got.size() == 64; }));
    const Time until = loop.now() + 100 * base::kMillisecond;
    ASSERT_TRUE(ticking([&] { return loop.now() > until; }));  // and that all is known to be there
  }
  bool ticking(const std::function<bool()>& holds) {
    return eventually([&] {
      if (loop.now() - ticked > 20 * base::kMillisecond) {
        ticked = loop.now();
        a->link->tick(), b->link->tick();
      }
      return holds();
    });
  }
  void set(bool open) {
    on([&] {
      for (Valve* valve : valves) valve->set(open);
    });
  }
  void send_rest() {
    on([&] {
      for (std::uint64_t key = 64; key < a->chunks(); ++key) a->link->send(a->frame_of(key));
    });
  }
  std::vector<Valve*> valves;
  Time ticked = 0;
};

TEST_F(LateStripeTest, what_a_stuck_stripe_took_goes_again_over_the_others) {
  open_late();
  set(false);
  send_rest();
  ASSERT_TRUE(ticking([&] { return b->got.size() == a->chunks(); }));
  EXPECT_TRUE(b->in == a->out);
  EXPECT_GT(a->late, 0u);
  EXPECT_EQ(a->dead + b->dead, 0);
  // It works again: it takes part again, and nothing was lost.
  set(true);
  on([&] { EXPECT_EQ(a->link->stripe_count(), 3u); });
  EXPECT_TRUE(ticking([&] { return !a->link->stats().stripes[0].late; }));
  const std::size_t before = a->link->stats().stripes[0].frames_sent;
  EXPECT_TRUE(ticking([&] {
    if (!a->link->sending()) a->link->send(a->frame_of(0));
    return a->link->stats().stripes[0].frames_sent > before;
  }));
}

TEST_F(LateStripeTest, a_stripe_that_stays_stuck_is_given_up) {
  open_late();
  set(false);
  send_rest();
  ASSERT_TRUE(ticking([&] {
    if (!a->link->sending()) a->link->send(a->frame_of(0));  // the others go on
    return a->lost_stripes.size() == 1;
  }));
  EXPECT_NE(a->lost_stripes[0].status.text.find("far behind"), std::string::npos);
  EXPECT_EQ(b->got.size(), a->chunks());
  on([&] { EXPECT_EQ(a->link->stripe_count(), 2u); });
}

TEST_F(LateStripeTest, a_receiver_that_stops_is_not_taken_for_a_stuck_stripe) {
  open_late(true);
  set(false);
  send_rest();
  const Time until = loop.now() + 800 * base::kMillisecond;
  ASSERT_TRUE(ticking([&] { return loop.now() > until; }));
  set(true);
  ASSERT_TRUE(ticking([&] { return b->got.size() == a->chunks(); }));
  EXPECT_EQ(a->late, 0u);
  EXPECT_TRUE(a->lost_stripes.empty());
}

}  // namespace
}  // namespace jccl::net::test
