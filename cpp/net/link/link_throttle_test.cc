// Links that share a throttle.
#include "net/link/link_support.h"

namespace jccl::net::test {
namespace {

constexpr double kRate = 8e6;

class LinkThrottleTest : public LinkTest {
 protected:
  LinkThrottleTest() { options_.throttle = &throttle_; }
  ~LinkThrottleTest() override { drop(); }
  double seconds() const { return static_cast<double>(loop.now() - begun_) / base::kSecond; }

  Throttle throttle_{kRate};
  LinkOptions options_;
  Time begun_ = loop.now();
};

TEST_F(LinkThrottleTest, they_send_so_much_together_and_in_turns) {
  for (const Credentials& credentials : {plain(), tls()}) {
    open(2 << 20, 64 << 10, 2, credentials, options_);
    std::size_t other = 0;
    begun_ = loop.now();
    on([&] { a->send_all(), b->send_all(); });
    EXPECT_TRUE(eventually([&] {
      const std::size_t one = a->got.size(), two = b->got.size();
      if (other == 0 && std::max(one, two) == a->chunks()) other = std::min(one, two);
      return all_arrived();
    }));
    EXPECT_GE(seconds(), 0.9 * (4 << 20) / kRate);
    EXPECT_GE(other, a->chunks() * 3 / 4);
    EXPECT_EQ(a->in, b->out);
    EXPECT_EQ(b->in, a->out);
  }
}

// As when a master that starts anew has another bound for its run.
TEST_F(LinkThrottleTest, a_bound_may_come_and_go_under_a_link) {
  for (const bool comes : {true, false}) {
    throttle_.set(comes ? 0 : kRate);
    open(2 << 20, 64 << 10, 2, plain(), options_);
    begun_ = loop.now();
    on([&] {
      throttle_.set(comes ? kRate : 0);
      a->send_all(), b->send_all();
    });
    EXPECT_TRUE(eventually([&] { return all_arrived(); }));
    if (comes) {
      EXPECT_GE(seconds(), 0.9 * (4 << 20) / kRate);
    }
  }
}

TEST_F(LinkThrottleTest, a_link_that_waits_for_its_turn_goes_on_without_the_bound) {
  throttle_.set(base::kRateMin);  // minutes
  open(2 << 20, 64 << 10, 1, plain(), options_);
  on([&] { a->send_all(), b->send_all(); });
  EXPECT_TRUE(eventually([&] { return !a->got.empty() || !b->got.empty(); }));
  on([&] { throttle_.set(0); });
  EXPECT_TRUE(eventually([&] { return all_arrived(); }));
}

TEST_F(LinkThrottleTest, one_that_cannot_send_holds_no_other) {
  Throttle faster(5 * kRate);
  options_.throttle = &faster;
  open(24 << 20, 64 << 10, 1, plain(), options_);
  b->hold = true;  // a's connection is full before long
  on([&] { a->send_all(), b->send_all(); });
  EXPECT_TRUE(eventually([&] { return a->got.size() == b->chunks(); }));
  drop();
}

TEST_F(LinkThrottleTest, one_that_closes_in_its_turn_holds_no_other) {
  open(1 << 20, 64 << 10, 1, plain(), options_);
  Side third(1 << 20, 64 << 10, 3), fourth(1 << 20, 64 << 10, 4);
  auto pairs = connect_link(plain());
  ASSERT_EQ(pairs.size(), 1U);
  on([&] {
    options_.header_bytes = kHeader;
    for (Side* side : {&third, &fourth}) {
      side->link = std::make_unique<Link>(loop, options_, side, side->events());
    }
    third.link->add_stripe(std::move(pairs[0].first));
    fourth.link->add_stripe(std::move(pairs[0].second));
    a->send_all(), third.send_all();
  });
  EXPECT_TRUE(eventually([&] { return b->got.size() >= 2 && fourth.got.size() >= 2; }));
  on([&] { a->link->close(); });
  EXPECT_TRUE(eventually([&] { return fourth.got.size() == third.chunks(); }));
  on([&] { third.link.reset(), fourth.link.reset(); });
}

}  // namespace
}  // namespace jccl::net::test
