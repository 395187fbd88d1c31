// The flight recorder by itself. That every event of every scenario replays to the same effects and
// states is looked at where the scenarios are (scenario_test.cc, random_test.cc).
#include "protocol/recorder/recorder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "protocol/recorder/replay.h"

namespace jccl::protocol {
namespace {

using base::Code;

constexpr base::Time kBegin = base::kSecond;
const wire::LinkSecret kLinks{
    7, {'l', 'i', 'n', 'k', ' ', 's', 'e', 'c', 'r', 'e', 't', ' ', 'X', 'Y', 'Z', '!'}};

wire::RunId recorded_run() {
  wire::RunId run{};
  run[0] = 1;
  return run;
}

base::Result<base::Bytes> echo(const PlanRequest& request) { return request.hint; }

struct RecordedRun {  // a master and its recorder
  explicit RecordedRun(std::size_t bytes = kRecorderBytes, Planner planner = echo)
      : recorder(bytes) {
    MasterOptions options;
    options.run = recorded_run();
    machine.emplace(options, recorder.heard({std::move(planner), {}}).planner,
                    std::vector<wire::Record>{}, kBegin);
    recorder.start(*machine, kBegin);
  }
  MasterEffects on(const MasterEvent& event) {
    now += 10 * base::kMillisecond;
    return recorder.on(*machine, event, now);
  }
  MasterEffects says(wire::Message message, ConnId conn = 1) {
    return on(ConnMessage{conn, std::move(message), {{9}, "site-token"}});
  }
  void joins(ConnId conn = 1) {
    wire::Hello hello;
    hello.run = recorded_run(), hello.incarnation = 100 + conn,
    hello.site = base::cat("site", conn);
    hello.start_peers = 1;
    says(hello, conn), says(wire::Resume{}, conn);
  }
  MasterEffects calls(std::uint64_t n, ConnId conn = 1) {
    wire::Ready ready;
    ready.round = {"grads", n}, ready.call = n, ready.deadline = 60 * base::kSecond;
    ready.hint = {1, 2, 3};
    return says(ready, conn);
  }
  // A round of one, so that it commits.
  void round(std::uint64_t n) {
    for (const MasterSend& sent : calls(n).send) {
      const auto* start = std::get_if<wire::Start>(&sent.message);
      if (start != nullptr) says(wire::Done{start->attempt, {n, n}, {}});
    }
  }

  base::Time now = kBegin;
  Recorder<MasterSide> recorder;
  std::optional<MasterMachine> machine;
};

struct Differences {
  ReplayCounts counts;
  std::vector<std::string> all;
};

Differences differences(base::ByteView file) {
  const auto recording = read_recording(file);
  EXPECT_TRUE(recording.ok()) << recording.status().text;
  Differences found;
  if (!recording.ok()) return found;
  const auto counts = replay(recording.value(), [&](const Replayed& one) {
    for (const std::string& what : one.differences) found.all.push_back(one.event + ": " + what);
  });
  EXPECT_TRUE(counts.ok()) << counts.status().text;
  if (counts.ok()) found.counts = counts.value();
  return found;
}

TEST(Recorder, a_recording_replays_from_its_first_event) {
  RecordedRun run;
  run.joins();
  for (std::uint64_t n = 1; n <= 20; ++n) run.round(n);
  const Differences found = differences(run.recorder.file({}));
  EXPECT_EQ(found.all, std::vector<std::string>{});
  EXPECT_EQ(found.counts.events, 1 + 2 + 40U);
  EXPECT_EQ(found.counts.states, 1U);
  EXPECT_GT(found.counts.effects, 100U);
}

TEST(Recorder, the_ring_keeps_to_its_bytes_and_still_replays) {
  constexpr std::size_t kBytes = 64 << 10;
  RecordedRun run(kBytes);
  run.joins();
  for (std::uint64_t n = 1; n <= 1000; ++n) {
    run.round(n);
    const std::size_t state = MasterSide::state_of(*run.machine).size();
    ASSERT_LE(run.recorder.bytes(), std::max(kBytes, 4 * state) + 4096) << n;
  }
  const Differences found = differences(run.recorder.file({}));
  EXPECT_EQ(found.all, std::vector<std::string>{});
  EXPECT_EQ(found.counts.states, 2U);
  EXPECT_GT(found.counts.events, 20U);
  EXPECT_LT(found.counts.events, 2000U);
}

TEST(Recorder, one_that_is_off_keeps_nothing_and_changes_nothing) {
  RecordedRun on, off(0);
  on.joins(), off.joins();
  Saver scratch;
  const auto a = MasterSide::notes_of(on.calls(1), scratch);
  EXPECT_EQ(a, MasterSide::notes_of(off.calls(1), scratch));
  EXPECT_FALSE(off.recorder.any());
  EXPECT_EQ(off.recorder.bytes(), 0U);
}

TEST(Recorder, what_the_planner_answered_is_part_of_the_recording) {
  int asked = 0;
  RecordedRun run(kRecorderBytes, [&](const PlanRequest& request) -> base::Result<base::Bytes> {
    if (++asked == 1) return base::Status(Code::kInvalid, "a hint of no release");
    base::Bytes plan = request.hint;
    plan.push_back(static_cast<std::uint8_t>(asked));  // differs each time, as measurements do
    return plan;
  });
  run.joins();
  for (std::uint64_t n = 1; n <= 3; ++n) run.calls(1), run.round(n);
  EXPECT_GE(asked, 3);
  EXPECT_EQ(differences(run.recorder.file({})).all, std::vector<std::string>{});
}

TEST(Recorder, a_machine_that_does_something_else_is_told_by_event_and_effect) {
  RecordedRun run;
  run.joins();
  run.round(1);
  const base::Bytes file = run.recorder.file({});
  auto recording = read_recording(file);
  ASSERT_TRUE(recording.ok());
  Entry& last = recording.value().entries.back();  // the DONE
  ASSERT_GE(last.effects.size(), 3U);
  last.effects[1].digest ^= 1;
  last.effects.pop_back();
  std::vector<std::string> all;
  const auto counts = replay(recording.value(), [&](const Replayed& one) {
    for (const std::string& what : one.differences) all.push_back(one.event + ": " + what);
  });
  ASSERT_TRUE(counts.ok());
  EXPECT_EQ(counts.value().differing, 1U);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_NE(all[0].find("conn 1: Done"), std::string::npos) << all[0];
  EXPECT_NE(all[0].find("effect 2 was another send: now to conn 1: Outcome grads 1"),
            std::string::npos)
      << all[0];
  EXPECT_NE(all[1].find("effects came then"), std::string::npos) << all[1];
}

// A half that is not what the one before it leads to: the file says so, and goes on from there.
TEST(Recorder, a_state_that_the_events_do_not_lead_to_is_told) {
  RecordedRun one, other;
  one.joins();
  other.joins(), other.joins(2);
  const base::Bytes first = one.recorder.file({}), second = other.recorder.file({});
  auto recording = read_recording(first);
  auto more = read_recording(second);
  ASSERT_TRUE(recording.ok() && more.ok());
  const base::Bytes state = MasterSide::state_of(*other.machine);
  recording.value().entries.push_back({EntryKind::kState, one.now, {}, {}, state});
  std::vector<std::string> all;
  const auto counts = replay(recording.value(), [&](const Replayed& at) {
    all.insert(all.end(), at.differences.begin(), at.differences.end());
  });
  ASSERT_TRUE(counts.ok());
  EXPECT_EQ(counts.value().states, 2U);
  EXPECT_EQ(all,
            std::vector<std::string>{"the machine has come to another state than it had then"});
}

TEST(Recorder, of_a_peer_no_file_holds_a_link_secret_and_it_replays_without) {
  Recorder<PeerSide> recorder;
  PeerOptions options;
  options.run = recorded_run(), options.site = "a";
  PeerMachine machine(options, 5, kBegin);
  recorder.start(machine, kBegin);
  const auto hear = [&](wire::Message message) {
    recorder.on(machine, FromMaster{std::move(message)}, kBegin + base::kMillisecond);
  };
  recorder.on(machine, Connected{}, kBegin);
  hear(wire::Welcome{recorded_run(), 1, 500 * base::kMillisecond, 3 * base::kSecond});
  wire::Member self;
  self.id = 1, self.incarnation = 5, self.site = "a";
  hear(wire::Roster{1, 0, {self}, {}, {}, kLinks, ""});
  recorder.on(machine, SyncCall{"model", true, {}, 0, 0, {1, 1}, {2, 2}, "f32[4]", kBegin * 60},
              kBegin + base::kMillisecond);
  hear(wire::SyncReply{"model", wire::SyncVerdict::kFetch, 3, 0, {4, 4}, {self}, {}, "", kLinks});
  const base::Bytes file = recorder.file({});
  const std::string text(file.begin(), file.end());
  EXPECT_EQ(text.find("link secret"), std::string::npos);
  EXPECT_NE(text.find("f32[4]"), std::string::npos);  // one would find it
  const Differences found = differences(file);
  EXPECT_EQ(found.all, std::vector<std::string>{});
  EXPECT_EQ(found.counts.events, 6U);
}

TEST(Recorder, no_file_holds_values_of_audited_cells) {
  const std::string values = "values of a tensor of mine";
  wire::AuditPart part;
  part.bytes.assign(values.begin(), values.end());
  part.terms = {'t', 'e', 'r', 'm', 's', '!'};
  RecordedRun run;
  run.joins();
  run.says(part);
  Recorder<PeerSide> recorder;
  PeerOptions options;
  options.run = recorded_run(), options.site = "a";
  PeerMachine machine(options, 5, kBegin);
  recorder.start(machine, kBegin);
  recorder.on(machine, AuditAnswer{{}, {part}}, kBegin);
  for (const base::Bytes& file : {run.recorder.file({}), recorder.file({})}) {
    const std::string text(file.begin(), file.end());
    EXPECT_EQ(text.find(values), std::string::npos);
    EXPECT_NE(text.find("terms!"), std::string::npos);  // one would find them
    EXPECT_EQ(differences(file).all, std::vector<std::string>{});
  }
}

// ---- files that are none -----------------------------------------------------------------------

base::Bytes small_file() {
  RecordedRun run;
  run.joins();
  return run.recorder.file({});
}

Code code_of(base::ByteView file) { return read_recording(file).status().code; }

TEST(Recording, a_cut_or_changed_file_is_refused) {
  const base::Bytes file = small_file();
  ASSERT_EQ(code_of(file), Code::kOk);
  for (std::size_t size = 0; size < file.size(); size += 7) {
    EXPECT_NE(code_of(base::ByteView(file).first(size)), Code::kOk) << size;
  }
  for (std::size_t at = 12; at < file.size(); at += 11) {
    base::Bytes bent = file;
    bent[at] ^= 0x20;
    EXPECT_EQ(code_of(bent), Code::kDamaged) << at;
  }
  EXPECT_EQ(code_of(base::Bytes{'n', 'o'}), Code::kInvalid);
  base::Bytes later = file;
  ++later[8];
  EXPECT_EQ(code_of(later), Code::kVersion);
}

TEST(Recording, one_of_a_build_with_other_fields_is_refused_by_name) {
  const base::Bytes file = small_file();
  auto recording = read_recording(file);
  ASSERT_TRUE(recording.ok());
  recording.value().about.layout ^= 1;
  recording.value().about.build = "jccl 0.0.1 (abc)";
  const auto counts = replay(recording.value(), [](const Replayed&) { FAIL(); });
  EXPECT_EQ(counts.status().code, Code::kVersion);
  EXPECT_NE(counts.status().text.find("jccl 0.0.1 (abc)"), std::string::npos);
}

// Format 1, for good: the head and entries of a file, whatever machines its build has.
TEST(Recording, the_golden_file_reads_as_it_was_written) {
  About about{Role::kPeer,           13,          0x1122334455667788, recorded_run(), 42, "site-a",
              "jccl 0.1.0 (abcdef)", "by a test", 1234567890,         1764230400000};
  const base::Bytes state{1, 2, 3}, event{4, 5};
  Saver entries;
  put_entry({EntryKind::kState, 10, {}, {}, state}, entries);
  put_entry({EntryKind::kStart, 11, {}, {{14, 0xAABBCCDD}}, {}}, entries);
  put_entry({EntryKind::kEvent,
             12,
             {base::Bytes{7, 8}, base::Status(Code::kLinkLost, "no plan")},
             {{1, 1}, {2, 2}},
             event},
            entries);
  const base::Bytes file = recording_of(about, {entries.made()});
  const std::string path = std::string(JCCL_TEST_DATA) + "/recording_v1.hex";
  if (std::getenv("JCCL_REWRITE") != nullptr && !std::ifstream(path)) {
    std::ofstream(path) << base::to_hex(file) << "\n";
  }
  std::ifstream golden(path);
  std::string hex;
  golden >> hex;
  EXPECT_EQ(hex, base::to_hex(file));
  base::Bytes bytes(hex.size() / 2);
  ASSERT_TRUE(base::from_hex(hex, bytes));
  const auto read = read_recording(bytes);
  ASSERT_TRUE(read.ok()) << read.status().text;
  EXPECT_EQ(read.value().about, about);
  ASSERT_EQ(read.value().entries.size(), 3U);
  const Entry& last = read.value().entries[2];
  EXPECT_EQ(last.at, 12);
  ASSERT_EQ(last.answers.size(), 2U);
  EXPECT_EQ(last.answers[0].value(), (base::Bytes{7, 8}));
  EXPECT_EQ(last.answers[1].status().text, "no plan");
  EXPECT_EQ(last.effects, (std::vector<EffectNote>{{1, 1}, {2, 2}}));
  EXPECT_TRUE(std::equal(event.begin(), event.end(), last.body.begin(), last.body.end()));
}

}  // namespace
}  // namespace jccl::protocol
