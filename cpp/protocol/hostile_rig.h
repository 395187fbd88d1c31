// A master machine, members on numbered connections, and what one of them says. All of it is
// recorded, and has to replay to the same; but for the tests of hours, which take half as long so.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "protocol/master/master_machine.h"
#include "protocol/recorder/recorder.h"
#include "protocol/recorder/replay.h"
#include "protocol/test_effects.h"
#include "wire/serialize.h"

namespace jccl::protocol {

class HostileMember : public ::testing::Test {
 protected:
  static MasterOptions options() {
    MasterOptions options;
    options.run.fill(9);
    return options;
  }
  static base::Result<base::Bytes> plan(const PlanRequest&) { return base::Bytes{}; }
  void begin(MasterOptions options, Planner planner = plan,
             const std::vector<wire::Record>& journal = {}) {
    replay_it();
    recorder_.reset();
    Advisors advisors{std::move(planner), std::move(options.auditor)};
    if (recorded_) {
      recorder_ = std::make_unique<Recorder<MasterSide>>();
      advisors = recorder_->heard(std::move(advisors));
    }
    options.auditor = std::move(advisors.auditor);
    master_ = std::make_unique<MasterMachine>(std::move(options), std::move(advisors.planner),
                                              journal, now_);
    if (recorder_ != nullptr) (void)recorder_->start(*master_, now_);
  }
  void SetUp() override { begin(options()); }
  void TearDown() override { replay_it(); }
  void replay_it() {
    if (recorder_ == nullptr) return;
    const base::Bytes file = recorder_->file({});
    const auto read = read_recording(file);
    ASSERT_TRUE(read.ok()) << read.status().text;
    const auto played = replay(read.value(), [](const Replayed& one) {
      for (const std::string& what : one.differences) ADD_FAILURE() << one.event << ": " << what;
    });
    EXPECT_TRUE(played.ok()) << played.status().text;
  }

  bool is_member(const std::string& site) const {
    const std::vector<PeerView> peers = master_->view(now_).peers;
    return std::any_of(peers.begin(), peers.end(), [&](const PeerView& peer) {
      return peer.member.site == site && peer.admitted;
    });
  }

  MasterEffects on(MasterEvent event) {
    MasterEffects effects =
        recorder_ != nullptr ? recorder_->on(*master_, event, now_) : master_->on(event, now_);
    for (const wire::Record& record : effects.journal) {
      const auto again = wire::decode_record(wire::encode_record(record));
      EXPECT_TRUE(again.ok() && again.value() == record);
    }
    wake_ = effects.wake;
    rows_ += effects.journal.size();
    return effects;
  }
  // Each incarnation is a process with a key of its own, unless it is said otherwise.
  static wire::PublicKey key_of(const wire::Message& message) {
    const auto* hello = std::get_if<wire::Hello>(&message);
    const std::uint64_t process = hello == nullptr ? 0 : hello->incarnation;
    return {static_cast<std::uint8_t>(process), static_cast<std::uint8_t>(process >> 8)};
  }
  MasterEffects say(ConnId conn, wire::Message message) {
    const wire::PublicKey key = key_of(message);
    return say(conn, std::move(message), key);
  }
  MasterEffects say(ConnId conn, wire::Message message, const wire::PublicKey& key) {
    return on(ConnMessage{conn, std::move(message), {key}});
  }
  static wire::Hello hello(wire::Incarnation incarnation, const std::string& site) {
    wire::Hello hello;
    hello.incarnation = incarnation;
    hello.site = site;
    return hello;
  }
  MasterEffects join(ConnId conn, const wire::Hello& hello) {
    (void)say(conn, hello);
    return say(conn, wire::Resume{});
  }
  void join(std::initializer_list<const char*> sites) {
    for (const char* site : sites) {
      ++last_;
      (void)join(last_, hello(100 * last_, site));
    }
  }
  static wire::Ready ready(const wire::Tag& tag, std::uint64_t n = 1) {
    wire::Ready ready;
    ready.round = {tag, n};
    ready.deadline = 1000 * base::kSecond;
    return ready;
  }
  // Three members that have committed one round.
  void run_of_three() {
    MasterOptions three = options();
    three.start_peers = 3;
    begin(three);
    join({"a", "b", "c"});
    commit("grads", 1);
  }
  void commit(const wire::Tag& tag, std::uint64_t n) {
    for (ConnId conn = 1; conn <= 2; ++conn) (void)say(conn, ready(tag, n));
    const auto starts = sent<wire::Start>(say(3, ready(tag, n)));
    ASSERT_EQ(starts.size(), 3U);
    for (ConnId conn = 1; conn <= 3; ++conn) (void)say(conn, wire::Done{starts[0].attempt, {7, 7}});
    ASSERT_EQ(committed(tag), n);
  }
  std::uint64_t committed(const wire::Tag& tag) {
    for (const TagView& one : master_->view(now_).tags) {
      if (one.info.tag == tag) return one.info.committed;
    }
    return 0;
  }
  // What was noted meanwhile.
  std::vector<HistoryLine> wait(base::Duration duration) {
    std::vector<HistoryLine> noted;
    const base::Time end = now_ + duration;
    while (wake_ <= end) {
      now_ = std::max(now_, wake_);
      const auto note = [&noted](const MasterEffects& effects) {
        noted.insert(noted.end(), effects.history.begin(), effects.history.end());
      };
      for (const ConnId conn : alive_) note(say(conn, wire::Heartbeat{}));
      note(on(Tick{}));
    }
    now_ = end;
    return noted;
  }

  bool recorded_ = true;  // from the next begin() on
  std::unique_ptr<Recorder<MasterSide>> recorder_;
  std::unique_ptr<MasterMachine> master_;
  base::Time now_ = kNow, wake_ = base::kNever;
  ConnId last_ = 0;
  std::vector<ConnId> alive_;
  std::size_t rows_ = 0;  // of the journal
};

}  // namespace jccl::protocol
