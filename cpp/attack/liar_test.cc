// That each row says something else than an honest member does, and what it promises to say.
#include "attack/liar.h"

#include <gtest/gtest.h>

#include "wire/serialize.h"

namespace jccl::attack {
namespace {

using base::Bytes;
using base::Code;

const wire::Attempt kAttempt{3, 7};

wire::Ready ready() {
  wire::Ready ready;
  ready.round = {"model", 2};
  ready.hint = {1};
  ready.has_state = true;
  ready.revision = 1;
  ready.state = {5, 5};
  ready.deadline = base::kSecond;
  return ready;
}

// All that is said in ten rounds, and when the connection begins anew.
std::vector<Bytes> conversation(Liar& liar) {
  std::vector<Bytes> all;
  const auto add = [&all](const std::vector<Bytes>& words) {
    all.insert(all.end(), words.begin(), words.end());
  };
  for (std::uint64_t counter = 1; counter <= 10; ++counter) {
    wire::Start start;
    start.attempt = {3, counter}, start.round = {"model", 2};
    start.contributors = {{1, 1.0}, {2, 1.0}};
    add(liar.says(ready()));
    add(liar.hears(start));
    wire::Done done{start.attempt, {9, 9}};
    done.audit.parts = {{2, {}}};
    add(liar.says(done));
    add(liar.says(wire::AuditPart{start.attempt, 0, false, {}, {}, {1, 2}}));
    add(liar.says(wire::Published{{"model", 2, {4, 4}}}));
  }
  add(liar.says(wire::Resume{{}, {{"model", 2, {4, 4}}}}));
  return all;
}

wire::Message only(const std::vector<Bytes>& words) {
  EXPECT_EQ(words.size(), 1U);
  return wire::decode(words.at(0)).value();
}

TEST(LiarTest, each_row_that_lies_says_something_else_once_it_is_armed) {
  Liar honest({Row::kNone}, 1);
  honest.arm();
  const auto usual = conversation(honest);
  EXPECT_EQ(honest.told(), 0U);
  for (const RowInfo& row : all_rows()) {
    if (!row.lies) continue;
    Liar liar({row.row}, 1);
    EXPECT_EQ(conversation(liar), usual) << row.name;
    liar.arm();
    EXPECT_NE(conversation(liar), usual) << row.name;
    EXPECT_GT(liar.told(), 0U) << row.name;
  }
}

TEST(LiarTest, of_an_attempt_that_it_failed_nothing_more_is_said) {
  Liar liar({Row::kFailPeer}, 1);
  liar.is("hostile");
  liar.arm();
  wire::Roster roster;
  roster.members = {{2, 1, "hostile", 0, 1, {}, {}}};
  (void)liar.hears(roster);
  (void)liar.says(ready());
  wire::Start start;
  start.attempt = kAttempt, start.round = {"model", 2};
  start.contributors = {{1, 1.0}, {2, 1.0}, {3, 1.0}};
  const auto fail = std::get<wire::Fail>(only(liar.hears(start)));
  EXPECT_EQ(fail.cause, Code::kPeerLost);
  EXPECT_EQ(fail.peer, 1U);
  EXPECT_EQ(std::get<wire::Fail>(only(liar.hears(start))).peer, 3U) << "itself it does not name";
  EXPECT_TRUE(liar.says(wire::Done{kAttempt, {9, 9}}).empty());
  EXPECT_FALSE(liar.says(wire::Done{{3, 8}, {9, 9}}).empty());
}

TEST(LiarTest, without_weight_it_has_the_first_word_about_a_state_that_is_made) {
  Liar liar({Row::kWeightless}, 1);
  liar.arm();
  EXPECT_EQ(std::get<wire::Ready>(only(liar.says(ready()))).weight, 0);
  wire::Start start;
  start.attempt = kAttempt, start.round = {"model", 2}, start.has_state = true;
  EXPECT_TRUE(liar.hears(start).empty());
  wire::Outcome outcome;
  outcome.attempt = kAttempt, outcome.round = start.round, outcome.result = {9, 9};
  EXPECT_TRUE(liar.hears(outcome).empty());
  outcome.verdict = wire::Verdict::kCommitted;
  const auto held = std::get<wire::Published>(only(liar.hears(outcome))).held;
  EXPECT_EQ(held.revision, 2U);
  EXPECT_NE(held.digest, outcome.result);
}

TEST(LiarTest, what_it_knows_follows_the_roster) {
  Liar liar({Row::kNone}, 1);
  wire::Roster roster;
  roster.epoch = 1, roster.links = {1, {7}};
  roster.members = {{1, 1, "honest-1", 0, 1, {}, {}}, {2, 2, "hostile", 0, 1, {}, {}}};
  (void)liar.hears(roster);
  wire::Roster change;
  change.epoch = 2, change.base = 1, change.left = {1}, change.links = {2, {8}};
  change.members = {{3, 3, "honest-2", 0, 1, {}, {}}};
  (void)liar.hears(change);
  (void)liar.hears(wire::Roster{});  // of one that is no member
  ASSERT_EQ(liar.known().honest().size(), 1U);
  EXPECT_EQ(liar.known().honest()[0].id, 3U);
  EXPECT_EQ(liar.known().links.generation, 2U);
}

TEST(LiarTest, weights_lie_where_the_decoder_looks) {
  for (const Row row : {Row::kWeightHuge, Row::kWeightNegative, Row::kWeightNan}) {
    Liar liar({row}, 1);
    liar.arm();
    const auto said = wire::decode(liar.says(ready()).at(0));
    EXPECT_EQ(said.ok(), row == Row::kWeightHuge);
    if (said.ok()) {
      EXPECT_EQ(std::get<wire::Ready>(said.value()).weight, 1e300);
    }
  }
}

TEST(LiarTest, rows_have_names_of_their_own) {
  EXPECT_EQ(all_rows().size(), static_cast<std::size_t>(Row::kCount));
  for (const RowInfo& row : all_rows()) EXPECT_EQ(row_named(row.name)->row, row.row);
  EXPECT_FALSE(row_named("nothing-of-the-kind"));
}

}  // namespace
}  // namespace jccl::attack
