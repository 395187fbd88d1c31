#include "peer/snapshots/snapshots.h"

#include "peer/snapshots/snapshot_harness.h"

namespace jccl::peer {
namespace {

TEST_F(SnapshotTrafficTest, who_asks_again_and_again_and_takes_nothing_costs_a_bounded_amount) {
  SnapshotTraffic traffic(&store_, &pool_, this);
  publish(1);
  for (std::uint64_t number = 0; number < 10'000; ++number) {
    ask(traffic, 1, number, 0, 5);
    ask(traffic, 99, number, 0, 5);  // "gone" is an answer, too
  }
  EXPECT_LE(traffic.open_items(), 608u);
  EXPECT_EQ(queued_[kAsker].size(), traffic.open_items());
  EXPECT_EQ(traffic.ignored() + traffic.open_items(), 20'000u);
  while (make(traffic, kAsker)) frames_.clear();
  EXPECT_EQ(traffic.open_items(), 0u);
  ask(traffic, 1, 5, 0, 5);
  EXPECT_EQ(traffic.open_items(), 1u) << "who reads is served on";
  traffic.forget(kAsker);
  EXPECT_EQ(traffic.open_items(), 0u);
  EXPECT_FALSE(make(traffic, kAsker));
}

TEST_F(SnapshotTrafficTest, parts_are_made_one_at_a_time_and_in_turn) {
  SnapshotTraffic traffic(&store_, &pool_, this);
  publish(1);
  ask(traffic, 1, 1, 0, 3);
  ask(traffic, 1, 2, 3, 5);
  EXPECT_EQ(traffic.open_items(), 2u);
  std::vector<std::uint32_t> parts;
  while (const auto header = make(traffic, kAsker)) {
    EXPECT_EQ(header->kind, FrameKind::kSnapshotPart);
    parts.push_back(header->chunk);
    EXPECT_LE(traffic.open_items(), 2u);
  }
  EXPECT_EQ(parts, (std::vector<std::uint32_t>{0, 3, 1, 4, 2}));
}

// One part under way kept the whole state of an old revision alive: so many connections, so many
// states.
TEST_F(SnapshotTrafficTest, a_revision_is_let_go_though_frames_of_it_are_not_read) {
  SnapshotTraffic traffic(&store_, &pool_, this);
  std::weak_ptr<const StoredSnapshot> old = publish(1);
  ask(traffic, 1, 1, 0, 5);
  ask(traffic, 1, 2, 0, 5);
  ASSERT_TRUE(make(traffic, kAsker));
  publish(2);
  traffic.tick(1);
  EXPECT_FALSE(frames_.empty()) << "still served";
  publish(3);
  EXPECT_EQ(traffic.retired(), 1u);
  traffic.tick(2);
  EXPECT_EQ(traffic.retired(), 0u);
  EXPECT_TRUE(old.expired());
  const auto header = make(traffic, kAsker);
  ASSERT_TRUE(header);
  EXPECT_EQ(header->kind, FrameKind::kSnapshotGone) << "what waits holds nothing";
}

TEST_F(FetchingTest, a_holder_with_another_manifest_is_asked_no_more_and_the_rest_serves) {
  fetch({31, 32});
  EXPECT_TRUE(answer(31, true));
  EXPECT_TRUE(ended_.empty()) << ended_[0].text;
  while (answer(32, false)) EXPECT_FALSE(answer(31, true)) << "it has lied";
  ASSERT_EQ(ended_.size(), 1u);
  EXPECT_TRUE(ended_[0].ok()) << ended_[0].text;
  EXPECT_EQ(fetchers_.newest("s")->held, want_);
}

TEST_F(FetchingTest, where_every_holder_has_another_manifest_the_fetch_ends) {
  fetch({31, 32});
  EXPECT_TRUE(answer(31, true));
  EXPECT_TRUE(answer(32, true));
  ASSERT_EQ(ended_.size(), 1u);
  EXPECT_EQ(ended_[0].code, Code::kCorrupt);
}

// Ids of asks can be guessed.
TEST_F(FetchingTest, what_nobody_asked_a_stranger_for_changes_nothing) {
  fetch({31});
  wire::FrameHeader header;
  header.attempt = {4, (std::uint64_t{1} << 32) | 1};
  header.kind = FrameKind::kSnapshotGone;
  EXPECT_TRUE(hand_in(fetcher_, 77, header, {}).ok());
  header.kind = FrameKind::kSnapshotPart;
  const base::Bytes bytes(store_.newest("s")->layout.part_size(0));
  EXPECT_EQ(hand_in(fetcher_, 77, header, bytes).text, "not wanted");
  fetcher_.tick(3600 * base::kSecond);  // the holder is slow, no more than that
  EXPECT_TRUE(ended_.empty()) << ended_[0].text;
  while (answer(31, false)) continue;
  ASSERT_EQ(ended_.size(), 1u);
  EXPECT_TRUE(ended_[0].ok()) << ended_[0].text;
}

TEST_F(FetchingTest, parts_of_other_sizes_and_beyond_the_layout_are_refused_or_passed_over) {
  fetch({31});
  wire::FrameHeader header;
  header.kind = FrameKind::kSnapshotPart;
  header.attempt = {4, (std::uint64_t{1} << 32) | 1};
  EXPECT_EQ(hand_in(fetcher_, 31, header, base::Bytes(7)).code, Code::kCorrupt);
  header.chunk = UINT32_MAX;
  EXPECT_EQ(hand_in(fetcher_, 31, header, base::Bytes(7)).text, "not wanted");
  EXPECT_EQ(hand_in(fetcher_, 31, header, base::Bytes(snapshot::kPartBytes + 1)).code,
            Code::kCorrupt);
  header.kind = FrameKind::kSnapshotAsk;
  EXPECT_EQ(hand_in(fetcher_, 31, header, base::Bytes(4096)).code, Code::kCorrupt);
  EXPECT_FALSE(hand_in(fetcher_, 31, header, base::Bytes(9)).ok());
  EXPECT_TRUE(ended_.empty());
}

TEST_F(FetchingTest, each_part_is_verified_and_who_sent_a_wrong_one_is_asked_no_more) {
  const snapshot::Layout layout = publish(4)->layout;
  for (std::uint32_t part = layout.manifest_parts(); part < layout.all_parts(); ++part) {
    values_[1] = -static_cast<float>(part);
    ended_.clear(), queued_.clear();
    fetch({31, 32});
    while (ended_.empty() && (answer(31, true, part) || answer(32, false))) continue;
    ASSERT_EQ(ended_.size(), 1u) << part;
    EXPECT_TRUE(ended_[0].ok()) << ended_[0].text;
    const SnapshotRef got = fetchers_.newest("s");
    ASSERT_EQ(got->held, want_);
    ASSERT_EQ(got->data->size(), values_.size() * sizeof(float));
    EXPECT_EQ(std::memcmp(got->data->data(), values_.data(), got->data->size()), 0) << part;
  }
}

// The proofs of others see it as well, and here there are none.
TEST_F(FetchingTest, of_one_that_alone_has_the_state_no_wrong_part_is_taken) {
  const snapshot::Layout layout = publish(4)->layout;
  for (std::uint32_t part = layout.manifest_parts(); part < layout.all_parts(); ++part) {
    ended_.clear(), queued_.clear();
    fetch({31});
    while (ended_.empty() && answer(31, true, part)) continue;
    ASSERT_EQ(ended_.size(), 1u) << part;
    EXPECT_EQ(ended_[0].code, Code::kPeerLost) << part << ": " << ended_[0].text;
    EXPECT_EQ(fetchers_.newest("s"), nullptr) << part;
  }
}

TEST_F(FetchingTest, a_frame_that_arrived_damaged_is_told_and_not_kept) {
  fetch({31});
  ASSERT_TRUE(make(fetcher_, 31));
  wire::FrameHeader header;
  header.kind = FrameKind::kSnapshotPart;
  header.attempt = {4, wire::decode_snapshot_ask(payload()).value().ask};
  const base::Bytes& manifest = store_.newest("s")->manifest;
  header.payload_bytes = static_cast<std::uint32_t>(manifest.size());
  header.payload_check = snapshot::check_of(manifest) + 1;
  const net::Placement at = fetcher_.place(31, header);
  ASSERT_EQ(at.kind, net::Placement::Kind::kInto);
  std::memcpy(at.spans[0].data(), manifest.data(), manifest.size());
  EXPECT_EQ(fetcher_.arrived(31, header, at.token).code, Code::kCorrupt);
  EXPECT_FALSE(make(fetcher_, 31)) << "no part of it is here";
}

TEST_F(FetchingTest, frames_of_sealed_links_have_no_check) {
  sealed_ = true;
  fetch({31});
  const auto asked = make(fetcher_, 31);
  ASSERT_TRUE(asked.has_value());
  EXPECT_EQ(asked->payload_check, 0u);
  wire::FrameHeader header;
  header.kind = FrameKind::kSnapshotPart;
  header.attempt = {4, wire::decode_snapshot_ask(payload()).value().ask};
  const base::Bytes& manifest = store_.newest("s")->manifest;
  EXPECT_EQ(hand_in(fetcher_, 31, header, manifest).code, Code::kCorrupt) << "with one";
  header.payload_bytes = static_cast<std::uint32_t>(manifest.size());
  const net::Placement at = fetcher_.place(31, header);
  ASSERT_EQ(at.kind, net::Placement::Kind::kInto);
  std::memcpy(at.spans[0].data(), manifest.data(), manifest.size());
  EXPECT_TRUE(fetcher_.arrived(31, header, at.token).ok());
}

TEST_F(FetchingTest, who_is_no_member_any_more_is_not_fetched_from) {
  fetch({31, 32});
  fetcher_.set_members({member(32)});
  EXPECT_FALSE(fetcher_.uses(31));
  EXPECT_TRUE(fetcher_.uses(32));
  while (answer(32, false)) continue;
  ASSERT_EQ(ended_.size(), 1u);
  EXPECT_TRUE(ended_[0].ok()) << ended_[0].text;
}

// A state that moves on faster than it comes over the line was fetched from its beginning each
// time.
TEST_F(FetchingTest, of_a_newer_revision_only_what_differs_is_fetched) {
  using Parts = std::multiset<std::uint32_t>;
  answered_most_ = 3;
  fetch({31});
  run({31});
  EXPECT_EQ(ended_.at(0).code, Code::kPeerLost);
  EXPECT_EQ(asked_, (Parts{0, 1, 2, 3}));
  for (const std::size_t more : {0, 99}) {  // the manifest alone, for the first one of them
    ended_.clear(), asked_.clear(), answered_most_ = more;
    want_ = publish(5 + more)->held;  // another first part
    order({31});
    run({31});
  }
  expect_right();
  EXPECT_EQ(asked_, (Parts{0, 1, 3, 4}));
}

// The links ask who is fetched from, while one of a newer revision takes its place.
TEST_F(FetchingTest, a_newer_order_takes_the_place_of_the_one_under_way) {
  asks_back_ = &fetcher_;
  fetch({31});
  EXPECT_TRUE(answer(31, false));  // the manifest
  want_ = publish(5)->held;
  order({31});
  EXPECT_TRUE(fetcher_.uses(31));
  run({31});
  expect_right();
}

// From a checkpoint near it, say.
TEST_F(FetchingTest, of_what_the_fetcher_has_only_what_differs_is_fetched) {
  fetchers_.add("s", 3, {leaf()});
  fetch({31, 32, 33});
  run({31, 32, 33});
  expect_right();
  EXPECT_EQ(asked_, (std::multiset<std::uint32_t>{0, 1}));
}

// Whoever gave it that checkpoint may have made parts that only look as if they were the run's.
TEST_F(FetchingTest, a_part_that_the_fetcher_has_is_proved_like_others) {
  const std::vector<float> right = values_;
  const std::uint32_t part_bytes = publish(4)->layout.part_bytes();
  snapshot::forge_in_place(
      {reinterpret_cast<std::uint8_t*>(values_.data()) + part_bytes, part_bytes});
  fetchers_.add("s", 3, {leaf()});
  values_ = right;
  fetch({31, 32, 33});
  run({31, 32, 33});
  expect_right();
  EXPECT_EQ(asked_, (std::multiset<std::uint32_t>{0, 2}));
  EXPECT_TRUE(outvoted_.empty()) << "no holder is to blame";
}

TEST_F(FetchingTest, a_fetch_that_was_given_up_is_over) {
  fetch({31});
  fetcher_.stop("s");
  EXPECT_FALSE(fetcher_.uses(31));
  fetcher_.tick(3600 * base::kSecond);
  EXPECT_TRUE(ended_.empty());
}

TEST_F(SnapshotTrafficTest, marks_made_beside_the_copy_are_those_of_the_leaves) {
  const SnapshotRef made = publish(1);
  EXPECT_EQ(made->marks, marks_of({leaf()}));
}

TEST_F(SnapshotTrafficTest, a_state_has_never_three_copies) {
  const std::uint8_t* oldest = publish(1)->data->data();
  publish(2);
  EXPECT_EQ(publish(3)->data->data(), oldest);
  EXPECT_NE(store_.find("s", 2), nullptr);
}

// As who comes to each revision by a fetch.
TEST_F(SnapshotTrafficTest, of_revisions_that_were_not_made_here_the_two_newest_are_kept) {
  const SnapshotRef made = publish(1);
  for (std::uint64_t revision = 2; revision <= 4; ++revision) store_.renumber(made, revision);
  EXPECT_EQ(store_.find("s", 1), nullptr);
  EXPECT_EQ(store_.find("s", 2), nullptr);
  EXPECT_NE(store_.find("s", 3), nullptr);
  EXPECT_EQ(store_.newest("s")->held.revision, 4u);
}

// A resync takes revisions back: who has them no more must not serve them.
TEST_F(SnapshotTrafficTest, a_revision_takes_the_place_of_later_ones) {
  for (const std::uint64_t revision : {5, 6, 4}) publish(revision);
  EXPECT_EQ(store_.newest("s")->held.revision, 4u);
  EXPECT_EQ(store_.find("s", 5), nullptr);
  EXPECT_EQ(store_.find("s", 6), nullptr);
}

TEST_F(SnapshotTrafficTest, a_state_is_copied_into_leaves_of_its_form_alone) {
  const SnapshotRef made = publish(1);
  std::vector<float> out(values_.size());
  Leaf other = leaf();
  other.out = out.data();
  EXPECT_TRUE(copy_out(*made, {other}));
  EXPECT_EQ(out, values_);
  std::fill(out.begin(), out.end(), 0.0F);
  other.dtype = codec::Dtype::kI32;  // as many bytes
  EXPECT_FALSE(copy_out(*made, {other}));
  EXPECT_EQ(out, std::vector<float>(values_.size()));
}

// It hears of no roster, and a link that is silent may come back.
TEST_F(FetchingTest, who_has_left_by_the_masters_word_is_waited_for_no_more) {
  fetch({31, 32});
  order({31});
  run({31});
  expect_right();
}

// Its going proves the manifest, as the other one, which sent it, is a majority then. What begins
// by that, the fetch of the data, is to wait for the one that is gone no more.
TEST_F(FetchingTest, who_has_left_has_no_part_in_what_begins_by_that) {
  fetch({31, 32});
  ASSERT_TRUE(answer(31, false));  // the manifest
  order({31});
  run({31});
  expect_right();
}

TEST_F(FetchingTest, when_all_have_left_the_fetch_ends) {
  fetch({31, 32});
  order({});
  ASSERT_EQ(ended_.size(), 1U);
  EXPECT_EQ(ended_[0].code, Code::kPeerLost);
}

// In a new life, say, all links of the one before are closed.
TEST_F(FetchingTest, whose_link_was_closed_here_is_waited_for_no_more) {
  fetch({31, 32});
  fetcher_.forget(31);
  EXPECT_TRUE(ended_.empty());
  fetcher_.forget(32);
  ASSERT_EQ(ended_.size(), 1U);
  EXPECT_EQ(ended_[0].code, Code::kPeerLost);
}

}  // namespace
}  // namespace jccl::peer
