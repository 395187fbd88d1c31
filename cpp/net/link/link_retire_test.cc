// Stripes that stand by, and stripes that retire: what they had arrives, and nothing twice.
#include <gtest/gtest.h>

#include "net/link/link_support.h"

namespace jccl::net::test {
namespace {

class RetiringStripeTest : public LinkTest {
 protected:
  void open_noting(std::size_t stripes, const Credentials& credentials = plain(),
                   Duration retire_max = 20 * base::kSecond) {
    LinkOptions options;
    options.acks = acks();
    options.retire_max = retire_max;
    open(8 << 20, 16 << 10, stripes, credentials, options);
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
  bool both_have(std::size_t connections) const {
    return a->link->connections() == connections && b->link->connections() == connections;
  }
  void expect_nothing_lost_or_doubled() {
    for (const Side* side : {a.get(), b.get()}) {
      EXPECT_TRUE(side->lost_stripes.empty());
      EXPECT_EQ(side->late, 0u);
      EXPECT_EQ(side->losses, 0);
      EXPECT_EQ(side->dead, 0);
      EXPECT_EQ(side->order.size(), side->got.size()) << "nothing came twice";
    }
    EXPECT_TRUE(b->in == a->out);
    EXPECT_TRUE(a->in == b->out);
  }
  void retire_in_mid_transfer(const Credentials& credentials, bool both) {
    open_noting(4, credentials);
    on([&] {
      a->resend = b->resend = both;
      a->send_all(), b->send_all();
    });
    ASSERT_TRUE(eventually([&] { return b->got.size() > 40 && a->got.size() > 40; }));
    on([&] {
      a->link->retire(2);
      if (both) b->link->retire(2);
      EXPECT_EQ(a->link->stripe_count(), 2u);
      EXPECT_EQ(a->link->connections(), 4u);
    });
    ASSERT_TRUE(ticking([&] { return all_arrived() && both_have(2); }));
    on([&] {
      if (!both) return expect_nothing_lost_or_doubled();
      EXPECT_EQ(a->dead + b->dead, 0);
      EXPECT_TRUE(b->in == a->out && a->in == b->out);
    });
  }
  Time ticked = 0;
};

TEST_F(RetiringStripeTest, in_mid_transfer_nothing_is_lost_or_sent_again) {
  retire_in_mid_transfer(plain(), false);
}

TEST_F(RetiringStripeTest, nor_under_tls) { retire_in_mid_transfer(tls(), false); }

// Of one stripe at the same moment, as members do not: the last note may cross an end, and what it
// would have told of is sent again.
TEST_F(RetiringStripeTest, both_ends_may_begin) { retire_in_mid_transfer(plain(), true); }

TEST_F(RetiringStripeTest, an_idle_link_retires_at_once) {
  open_noting(3);
  on([&] { b->link->retire(2); });
  EXPECT_TRUE(ticking([&] { return both_have(1); }));
  on([&] { a->send_all(), b->send_all(); });
  EXPECT_TRUE(ticking([&] { return all_arrived(); }));
  on([&] { expect_nothing_lost_or_doubled(); });
}

TEST_F(RetiringStripeTest, the_other_side_finishes_what_it_holds_although_its_reader_is_paused) {
  open_noting(2);
  on([&] {
    a->hold = true;
    b->send_all();
  });
  ASSERT_TRUE(eventually([&] { return b->link->stats().stripes[1].frames_sent > 3; }));
  on([&] { a->link->retire(1); });
  ASSERT_TRUE(ticking([&] { return b->link->stripe_count() == 1; }));
  on([&] {
    EXPECT_EQ(b->link->connections(), 2u) << "it waits for the reader";
    a->hold = false;
    a->link->resume();
  });
  ASSERT_TRUE(ticking([&] { return a->got.size() == b->chunks() && both_have(1); }));
  on([&] { EXPECT_TRUE(b->lost_stripes.empty()); });
}

TEST_F(RetiringStripeTest, stripes_that_stand_by_are_given_nothing_until_they_are_used_again) {
  open_noting(4);
  on([&] {
    a->link->use(2);
    a->send_all();
  });
  ASSERT_TRUE(ticking([&] { return b->got.size() == a->chunks(); }));
  on([&] {
    const LinkStats stats = a->link->stats();
    ASSERT_EQ(stats.stripes.size(), 4u);
    EXPECT_GT(stats.stripes[0].frames_sent, 0u);
    EXPECT_EQ(stats.stripes[2].frames_sent + stats.stripes[3].frames_sent, 0u);
    a->link->use(4);
    b->got.clear();
    a->send_all();
  });
  ASSERT_TRUE(ticking([&] { return b->got.size() == a->chunks(); }));
  on([&] { EXPECT_GT(a->link->stats().stripes[3].frames_sent, 0u); });
}

TEST_F(RetiringStripeTest, when_a_used_one_breaks_one_that_stood_by_takes_its_place) {
  open_noting(2);
  on([&] {
    a->link->use(1);
    a->resend = true;
    a->send_all();
  });
  ASSERT_TRUE(eventually([&] { return b->got.size() > 10; }));
  on([&] { a->link->drop_stripe(1, {Code::kLinkLost, "by the test"}); });
  ASSERT_TRUE(ticking([&] { return b->got.size() == a->chunks(); }));
}

// The other end is this test: what comes after the last word, or instead of an answer.
class RetiringStrangerTest : public RetiringStripeTest {
 protected:
  void open_one(Duration retire_max = 20 * base::kSecond) {
    LinkOptions options;
    options.header_bytes = kHeader;
    options.acks = acks();
    options.retire_max = retire_max;
    a = std::make_unique<Side>(4 << 20, 16 << 10, 1);
    auto pairs = connect(plain());
    ASSERT_EQ(pairs.size(), 1u);
    on([&] {
      a->link = std::make_unique<Link>(loop, options, a.get(), a->events());
      a->link->add_stripe(std::move(pairs[0].first));
      other = std::move(pairs[0].second);
    });
  }
  ~RetiringStrangerTest() override {
    on([&] { other.reset(); });
  }
  void write(ByteView bytes) {
    EXPECT_EQ(other->write_now(std::span<const ByteView>(&bytes, 1)), bytes.size());
  }
  bool loses() {
    return eventually([&] {
      a->link->tick();
      return a->lost_stripes.size() == 1;
    });
  }
  std::unique_ptr<ByteStream> other;
};

TEST_F(RetiringStrangerTest, a_frame_after_the_last_word_ends_the_stripe) {
  open_one();
  on([&] {
    write(acks().make({0, true}));
    write(a->frame_of(0).header);
  });
  ASSERT_TRUE(loses());
  EXPECT_EQ(a->lost_stripes[0].status.code, Code::kCorrupt);
}

TEST_F(RetiringStrangerTest, an_end_before_all_is_known_to_be_there_is_a_loss) {
  open_one();
  on([&] {
    for (std::uint64_t key = 0; key < 3; ++key) a->link->send(a->frame_of(key));
  });
  ASSERT_TRUE(eventually([&] { return a->sent.size() == 3; }));
  on([&] { write(acks().make({2, true})); });
  ASSERT_TRUE(eventually([&] { return a->link->stripe_count() == 0; }));
  on([&] { other->shut_write(); });
  ASSERT_TRUE(loses());
  EXPECT_EQ(a->lost_stripes[0].keys, std::vector<std::uint64_t>{2});
}

TEST_F(RetiringStrangerTest, who_does_not_answer_is_lost_in_the_end) {
  open_one(50 * base::kMillisecond);
  on([&] { a->link->retire(1); });
  EXPECT_TRUE(loses());
}

}  // namespace
}  // namespace jccl::net::test
