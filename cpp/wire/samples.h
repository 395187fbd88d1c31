// Test values: one of every message, record, header and ask, every field away from its default.
// Only tests include this; the golden bytes are made of them.
#pragma once

#include <string>
#include <vector>

#include "wire/chain.h"
#include "wire/serialize.h"

namespace jccl::wire {

inline RunId sample_run() {
  RunId run{};
  for (std::size_t i = 0; i < run.size(); ++i) run[i] = static_cast<std::uint8_t>(0xA0 + i);
  return run;
}

inline Member sample_member(PeerId id) {
  return {id, 0x1111 * std::uint64_t{id},      "eu-west", 1,
          2,  {"10.0.0.1:4001", "[::1]:4001"}, {9, 8, 7}};
}

inline std::vector<Message> sample_messages() {
  const Attempt attempt{3, 7};
  const RoundName round{"grads", 12};
  const Digest digest{0x0102030405060708, 0x1112131415161718};
  const Held held{"model", 11, {5, 6}};
  const std::vector<Contributor> contributors{{1, 1.0}, {4, 0.25}};
  return {
      Hello{kVersion,
            kVersionOldest,
            sample_run(),
            0xBEEF,
            "eu-west",
            1,
            2,
            {"host.example:4001"},
            3,
            1'250'000,
            20'000'000'000},
      Resume{{{attempt, round}}, {held}},
      Ready{round,
            digest,
            "f32[10]",
            {1, 2, 3},
            5,
            true,
            0.5,
            true,
            11,
            {5, 6},
            {7, 8},
            9'000'000'000,
            77,
            "m",
            {900, 2'000'000'000}},
      Done{attempt,
           digest,
           {{1, 2, digest}, {2, 2, {1, 2}}},
           {3, {4, 5}, {{6, {7}}, {8, {9}}}, {{10}, {11}}}},
      Fail{attempt, Code::kGuard, 4, "leaf 'w' holds NaN"},
      Withdraw{round},
      Query{{attempt, round}},
      Heartbeat{17, 1 << 20, {{attempt, 1 << 18, 1 << 21, 4}}},
      Leave{},
      Sync{"model", true, false, true, Wish::kAny, 11, digest, {9, 10}, "f32[10]", 5'000'000'000},
      Published{held},
      Welcome{sample_run(), 3, 500'000'000, 3'000'000'000, 2'500'000},
      Refuse{Code::kVersion, "speak version 1"},
      Roster{3,
             2,
             {sample_member(1), sample_member(4)},
             {2, 3},
             {{"grads", 11, false}, {"model", 2, true}},
             {3, {1, 2, 3}},
             "eu-west left"},
      Start{attempt, round, contributors, {5, 6}, {0xFF, 0x00, 0x7F}, 78, true, 11, {5, 6}, {7}},
      Outcome{attempt, round, Verdict::kCommitted, contributors, 2, digest, true, Code::kLinkLost,
              "link 1-4 broke"},
      Reject{round, Code::kMismatch, "peer 1 sent f32[10], peer 4 f32[11]", 79},
      Moved{round, 12},
      Waiting{round, "waits for peer 4"},
      Evicted{"silent for 3 s"},
      HeartbeatAck{17},
      SyncReply{"model",
                SyncVerdict::kFetch,
                11,
                7,
                digest,
                {sample_member(4)},
                Code::kResync,
                "get",
                {4, {5, 6}}},
      StatusAsk{},
      StatusReply{{'{', '}'}},
      Measured{125'000'000, {{1, 80'000, 12'000'000}, {4, 350, 1'000'000'000}}, 500},
      Order{OrderVerb::kBan, "eu-west", 3'600'000'000'000, "lies"},
      OrderReply{Code::kUnknownTag, "no such site"},
      Drain{"drained by an operator: spot price"},
      Outvoted{held, 0xBEEF, 7},
      Notice{"the run went back to revision 7 of model"},
      Violation{attempt, 2, ViolationKind::kPhase},
      AuditPart{attempt, 70'000, true, {1, 2}, {{3}, {4}}, {5, 6, 7}},
      AuditAsk{attempt, {1, 70'000}},
      Finding{"model", 51, 2, true, 3'500, FindingPolicy::kBan},
  };
}

inline std::vector<Record> sample_records() {
  std::vector<Record> records;
  records.emplace_back(RunRecord{sample_run(), kVersion});
  records.emplace_back(EpochRecord{3, 5, {sample_member(1)}, "peer 1 joined"});
  records.emplace_back(BirthRecord{
      "model", "eu", {0xBEEF, 0xCAFE}, {{5, 6}, {7, 8}}, {{9, 10}, {9, 10}}, "f32[10]"});
  CommitRecord& commit = std::get<CommitRecord>(records.emplace_back(CommitRecord{}));
  commit.attempt = {3, 7};
  commit.round = {"grads", 12};
  commit.contributors = {{1, 1.0}, {4, 0.25}};
  commit.world = 2;
  commit.result = {1, 2};
  commit.is_state = true;
  commit.state = {5, 6};
  commit.plan = {0xFF, 0x00};
  commit.shard_results = {{9, 10}};
  commit.receivers = {2, 6};
  records.emplace_back(StateRecord{"model", 12, true, {{7, 8}, {9, 10}}});
  records.emplace_back(RestoreRecord{"model", 13, 7, true, "eu-west", {{7, 8}, {9, 10}}});
  records.emplace_back(BanRecord{{9, 8, 7}, 1'700'000'000'000, "eu-west", "three lies"});
  records.emplace_back(AdmitRecord{{9, 8, 7}});
  records.emplace_back(TokenRecord{"p-1-0-0-01020304", true, {9, 8, 7}, 1});
  return records;
}

// The journal of a small run: each kind of record in turn.
inline std::vector<Row> sample_rows(std::size_t size) {
  std::vector<Row> rows;
  ChainWriter writer;
  const std::vector<Record> samples = sample_records();
  for (std::size_t i = 0; i < size; ++i) {
    rows.push_back(writer.append(i == 0 ? samples[0] : samples[1 + i % (samples.size() - 1)]));
  }
  return rows;
}

inline LinkHello sample_link_hello() { return {kVersion, sample_run(), 1, 2, 4, 5}; }
inline FrameHeader sample_frame_header() {
  return {FrameKind::kResult, {3, 7}, 9, 4096, 0xDEADBEEF};
}
inline SnapshotAsk sample_ask() { return {"model", 11, 2, 3, 5}; }
inline ProofAsk sample_proof_ask() { return {"model", 11, 2, 3, {5, 6, 7}}; }

}  // namespace jccl::wire
