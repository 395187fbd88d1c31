#include "fuzz/target.h"

namespace jccl::fuzz {
namespace {

std::vector<Bytes> no_seeds() { return {}; }

}  // namespace

const std::vector<Target>& targets() {
  static const std::vector<Target> all = {
      {"message", run_message, message_seeds},
      {"record", run_record, record_seeds},
      {"header", run_header, header_seeds},
      {"journal", run_journal, no_seeds},
      {"codec", run_codec, no_seeds},
      {"text", run_text, text_seeds},
      {"plan", run_plan, plan_seeds},
      {"manifest", run_manifest, no_seeds},
      {"fetch", run_fetch, no_seeds},
      {"proof", run_proof, proof_seeds},
      {"frames", run_frames, no_seeds},
      {"data", run_data, no_seeds},
      {"introduction", run_introduction, no_seeds},
      {"sealed", run_sealed, no_seeds},
      {"status", run_status, no_seeds},
      {"etcd", run_etcd, etcd_seeds},
      {"master", run_master, no_seeds},
      {"peer", run_peer, no_seeds},
      {"recording", run_recording, recording_seeds},
      {"hostile", run_hostile, no_seeds},
  };
  return all;
}

const Target* find_target(std::string_view name) {
  for (const Target& target : targets()) {
    if (target.name == name) return &target;
  }
  return nullptr;
}

}  // namespace jccl::fuzz
