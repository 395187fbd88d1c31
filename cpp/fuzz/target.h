// A fuzz target: a function from any bytes at all, which ends the process (JCCL_CHECK, a sanitizer)
// when the code under it breaks a promise. One list of targets, two drivers: replay_main.cc runs
// stored inputs in every build, libfuzzer_main.cc searches for new ones. Test only.
#pragma once

#include <string_view>
#include <vector>

#include "base/bytes.h"

namespace jccl::fuzz {

using base::Bytes;
using base::ByteView;

struct Target {
  std::string_view name;  // of its folder in tests/data/fuzz too
  void (*run)(ByteView bytes);
  std::vector<Bytes> (*seeds)();  // where a search begins when nothing is stored
};

// In the order of the strata they lead into.
const std::vector<Target>& targets();
const Target* find_target(std::string_view name);

// ---- wire_targets.cc
void run_message(ByteView bytes);
void run_record(ByteView bytes);
void run_header(ByteView bytes);
std::vector<Bytes> message_seeds();
std::vector<Bytes> record_seeds();
std::vector<Bytes> header_seeds();
// ---- journal_target.cc
void run_journal(ByteView bytes);
// ---- codec_targets.cc
void run_codec(ByteView bytes);
void run_text(ByteView bytes);
std::vector<Bytes> text_seeds();
// ---- plan_target.cc
void run_plan(ByteView bytes);
std::vector<Bytes> plan_seeds();
// ---- snapshot_targets.cc
void run_manifest(ByteView bytes);
void run_fetch(ByteView bytes);
// ---- proof_target.cc
void run_proof(ByteView bytes);
std::vector<Bytes> proof_seeds();
// ---- stream_targets.cc
void run_frames(ByteView bytes);
void run_data(ByteView bytes);
// ---- introduction_target.cc
void run_introduction(ByteView bytes);
// ---- sealed_target.cc
void run_sealed(ByteView bytes);
// ---- status_target.cc
void run_status(ByteView bytes);
// ---- etcd_target.cc
void run_etcd(ByteView bytes);
std::vector<Bytes> etcd_seeds();
// ---- master_target.cc, peer_target.cc: scripts of events into the machines
void run_master(ByteView bytes);
void run_peer(ByteView bytes);
// ---- recording_target.cc
void run_recording(ByteView bytes);
std::vector<Bytes> recording_seeds();
// ---- hostile_target.cc: a run with a hostile member
void run_hostile(ByteView bytes);
Bytes hostile_input(std::uint64_t number);

}  // namespace jccl::fuzz
