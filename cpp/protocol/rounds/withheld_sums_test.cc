// Sums that do not come, though who owes them is done; and those that say whom they wait for as it
// suits them.
#include "protocol/rounds/withheld_rig.h"

namespace jccl::protocol {
namespace {

using base::kSecond;

using WithheldSums = WithheldTest;

// It says DONE at once, and sends no sum that the others need: each of them waits for the one
// before it in a ring, and the next one has most left (hostile seed 7577894).
TEST_F(WithheldSums, who_lacks_a_sum_of_one_that_is_done_is_cut_off_from_it_and_not_slow) {
  for (const Straggler straggler : {Straggler::kWait, Straggler::kSkip, Straggler::kEvict}) {
    for (const std::uint64_t left : {300, 140, 70}) {  // of the one behind
      run_of(4, straggler);
      call();
      (void)say(4, wire::Done{attempt_, {7, 7}});
      lacks_ = {{1, {4, 0, 300}}, {2, {1, 0, left}}, {3, {2, 0, 70}}};
      const auto lines = pass(6 * kSecond);
      EXPECT_EQ(first(lines, "cut", "link"), "a d");
      EXPECT_EQ(first(lines, "held"), "");
      EXPECT_EQ(first(lines, "evict") + first(lines, "skip"), "");
    }
  }
}

// Nor does it hold the others to their deadlines, whatever it says that it has to send.
TEST_F(WithheldSums, of_whom_most_others_lack_a_sum_is_slow_if_it_is_done) {
  for (const std::uint64_t says : {0, 500}) {
    run_of(4);
    call();
    (void)say(4, wire::Done{attempt_, {7, 7}});
    lacks_ = {{1, {4, 0, 250}}, {2, {4, 0, 250}}, {3, {4, 0, 250}}, {4, {0, 0, says}}};
    EXPECT_EQ(first(pass(6 * kSecond), "evict"), "d") << says;
  }
}

TEST_F(WithheldSums, where_slow_ones_are_waited_for_it_pays_at_the_second_deadline) {
  run_of(4, Straggler::kWait);
  std::string out;
  for (int k = 0; k < 2; ++k) {
    EXPECT_EQ(out, "");
    call();
    (void)say(4, wire::Done{attempt_, {7, 7}});
    lacks_ = {{1, {4, 0, 250}}, {2, {4, 0, 250}}, {3, {4, 0, 250}}};
    out = first(pass(61 * kSecond), "evict");
  }
  EXPECT_EQ(out, "d");
}

// Whoever names nobody, itself, or another one each time, is slow as it was before.
TEST_F(WithheldSums, who_has_most_left_is_slow_whomever_it_names) {
  for (const wire::PeerId names : {0U, 1U, 77U, 5U}) {  // 5: by turns
    run_of(4);
    call();
    for (ConnId conn = 3; conn <= 4; ++conn) (void)say(conn, wire::Done{attempt_, {7, 7}});
    std::string out;
    for (std::uint32_t k = 0; k < (names == 5 ? 12 : 6) && out.empty(); ++k) {
      lacks_ = {{1, {names == 5 ? 3 + k % 2 : names, names == 5 ? k % 2 : 1, 900}},
                {2, {1, 0, 100}}};
      out = first(pass(kSecond), "evict");
    }
    EXPECT_EQ(out, "a") << names;
  }
}

// It reads slowly what one sends it, and says that it waits for nobody, or another one.
TEST_F(WithheldSums, of_the_last_one_and_the_only_other_that_has_something_left_the_link_is_cut) {
  for (const wire::PeerId names : {0U, 1U, 3U, 77U}) {
    for (const Straggler straggler : {Straggler::kEvict, Straggler::kWait}) {
      run_of(4, straggler);
      call();
      for (ConnId conn = 2; conn <= 4; ++conn) (void)say(conn, wire::Done{attempt_, {7, 7}});
      lacks_ = {{1, {names, names == 3 ? 0U : 1U, 500}}, {4, {0, 0, 450}}};
      const auto lines = pass(6 * kSecond);
      EXPECT_EQ(first(lines, "cut", "link"), "a d") << names;
      EXPECT_EQ(first(lines, "evict"), "");
    }
  }
}

// An owner waits for the contribution of one that waits for its sum: so it is in each round.
TEST_F(WithheldSums, who_waits_for_an_owner_that_is_not_done_holds_nothing_against_it) {
  for (const Straggler straggler : {Straggler::kEvict, Straggler::kWait}) {
    run_of(4, straggler);
    call();
    for (std::uint64_t left = 800; left > 0; left -= 20) {  // two hubs, and two that own nothing
      lacks_ = {{1, {3, 0, left}}, {2, {3, 0, left}}, {3, {1, 3, left}}, {4, {1, 3, left}}};
      const auto lines = pass(kSecond);
      EXPECT_EQ(first(lines, "cut", "link") + first(lines, "evict"), "") << left;
    }
  }
}

// Its contribution comes slowly, and then its sum does.
TEST_F(WithheldSums, what_one_that_is_done_owes_next_it_owes_since_then) {
  run_of(4, Straggler::kWait);
  std::string out;
  for (int k = 0; k < 2; ++k) {
    EXPECT_EQ(out, "");
    call();
    (void)say(4, wire::Done{attempt_, {7, 7}});
    for (std::uint32_t second = 0; second <= 60; ++second) {
      const Said said{4, second < 50 ? 1U : 0U, 600 - 5 * second};
      lacks_ = {{1, said}, {2, said}, {3, said}};
      const std::string gone = first(pass(kSecond), "evict");
      out = gone.empty() ? out : gone;
    }
  }
  EXPECT_EQ(out, "d");
}

// One that is not done may be starved itself; and sums that come take their time.
TEST_F(WithheldSums, nobody_pays_for_sums_that_wait_for_others_or_come) {
  for (const bool done : {false, true}) {
    run_of(4);
    call();
    if (done) (void)say(4, wire::Done{attempt_, {7, 7}});
    for (std::uint64_t left = 500; left > 0; left -= 100) {
      const Said said{4, 0, done ? left : 500};
      lacks_ = {{1, said}, {2, said}, {3, said}, {4, {0, 3, 500}}};
      if (!done) lacks_ = {{1, said}, {2, said}, {4, {3, 1, 400}}};
      const auto lines = pass(2 * kSecond);
      EXPECT_EQ(first(lines, "evict"), "") << done << left;
      const std::string cut = first(lines, "cut", "link");
      EXPECT_TRUE(cut.empty() || (!done && cut == "c d")) << cut;
      if (!cut.empty()) break;
    }
  }
}

// Its calls have a tenth of the time that the others' have, and each time it says that it waits for
// another: once in a while that is free.
TEST_F(WithheldSums, who_ends_attempts_by_short_calls_in_which_it_waits_pays_in_the_end) {
  run_of(4);
  std::string out;
  std::uint64_t rounds = 0;
  for (int k = 0; k < 40 && out.empty(); ++k) {
    for (ConnId conn = 1; conn <= 4; ++conn) {
      wire::Ready one = ready("grads", committed("grads") + 1);
      one.deadline = conn == 4 ? 3 * kSecond : 30 * kSecond;
      const auto starts = sent<wire::Start>(say(conn, one));
      if (!starts.empty()) attempt_ = starts[0].attempt;
    }
    lacks_ = {{4, {1, 0, 500}}};
    out = first(pass(4 * kSecond), "evict");
    for (ConnId conn = 1; conn <= 3; ++conn) (void)say(conn, wire::Done{attempt_, {7, 7}});
    rounds = committed("grads");
  }
  EXPECT_EQ(out, "d");
  EXPECT_GE(rounds, 1U) << "the next attempt is without it";
}

}  // namespace
}  // namespace jccl::protocol
