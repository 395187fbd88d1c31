#include "attack/crowd.h"

#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "attack/member.h"
#include "codec/dtype.h"
#include "collective/op.h"
#include "exchange/stress_oracle.h"
#include "master/ask.h"
#include "peer/streamed_input.h"

namespace jccl::attack {

using base::kMillisecond;
using base::kSecond;

namespace {

constexpr auto kBreath = std::chrono::milliseconds(2);
constexpr std::uint64_t kStays = 8;  // of so many that come, one sees its round to the end

base::Result<std::shared_ptr<peer::Communicator>> join(const CrowdOptions& options,
                                                       const std::string& token,
                                                       const std::string& site,
                                                       std::uint32_t shards = 1,
                                                       const std::string& key_file = {}) {
  peer::ConnectOptions o;
  o.master = options.master;
  o.token = token;
  o.site = site;
  o.shards = shards;
  o.key_file = key_file;
  o.connect_timeout = kSecond;
  return peer::Communicator::connect(o);
}

peer::RoundOptions call(base::Duration deadline) {
  peer::RoundOptions o;
  o.tag = "grads";
  o.op = collective::Op::kSum;
  o.fingerprint = {7, 7};
  o.deadline = deadline;
  return o;
}

// What the weight of call() says: a round that commits with it is judged like any other.
std::vector<float> contribution(const CrowdOptions& options) {
  return exchange::stress::input_of<float>(peer::RoundOptions{}.weight, options.elements);
}

void wait_for(const std::function<bool()>& holds, base::Duration limit,
              const std::atomic<bool>& stop) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(limit);
  while (!stop && !holds() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(kBreath);
  }
}

std::string token_for(const std::string& secret, std::uint32_t uses) {
  if (secret.empty()) return {};
  master::TokenOptions options;
  options.run_secret = secret;
  options.uses = uses;
  return master::make_token_text(options).value();
}

// A member whose contribution never comes.
void hold(const CrowdOptions& options, base::Duration stays, const std::atomic<bool>& stop,
          std::atomic<std::uint64_t>& count) {
  const bool fresh = options.key_file.empty();
  const std::string token = fresh ? token_for_all(options.secret) : token_for_one(options.secret);
  while (!stop) {
    const auto comm =
        join(options, token, fresh ? "hostile-fresh" : "hostile-holder", 1, options.key_file);
    if (!comm.ok()) {
      std::this_thread::sleep_for(kBreath);
      continue;
    }
    std::vector<float> x = contribution(options), out(x.size());
    const peer::Leaf leaf{codec::Dtype::kF32, x.size(), x.data(), out.data(), "x", {}};
    peer::RoundOptions o = call(60 * kSecond);
    o.feed = std::make_shared<peer::StreamedInput>(x.size() * sizeof(float));
    const auto handle = comm.value()->start({leaf}, o);
    wait_for([&] { return comm.value()->attributes().id != 0; }, 60 * kSecond, stop);
    const bool in = comm.value()->attributes().id != 0;
    wait_for([&] { return !handle.ok() || comm.value()->finished(handle.value()); }, stays, stop);
    comm.value()->close();
    count += in;
  }
}

}  // namespace

std::string token_for_one(const std::string& secret) { return token_for(secret, 1); }
std::string token_for_all(const std::string& secret) { return token_for(secret, 0); }

void come_and_go(const CrowdOptions& options, const std::atomic<bool>& stop,
                 std::atomic<std::uint64_t>& count) {
  const std::string token = token_for_all(options.secret);
  for (std::uint64_t life = 0; !stop; ++life) {
    const auto comm = join(options, token, "");
    if (comm.ok()) {
      std::vector<float> x = contribution(options);
      const peer::Leaf leaf{codec::Dtype::kF32, x.size(), x.data(), x.data(), "x", {}};
      const auto handle = comm.value()->start({leaf}, call(200 * kMillisecond));
      if (life % kStays == 0 && handle.ok()) (void)comm.value()->wait(handle.value());
      for (int i = 0; i < 50 && comm.value()->attributes().id == 0 && !stop; ++i) {
        std::this_thread::sleep_for(kBreath);  // looks whether it is in, and leaves
      }
      comm.value()->close();
      ++count;
    }
    std::this_thread::sleep_for(kBreath);
  }
}

void ask_for_status(const CrowdOptions& options, const std::atomic<bool>& stop,
                    std::atomic<std::uint64_t>& count) {
  master::AskOptions question;
  question.master = options.master;
  question.token = options.secret;
  question.time_max = 50 * kMillisecond;  // more questions than answers are waited for
  while (!stop) {
    (void)master::ask_status(question);
    ++count;
  }
}

void hold_and_leave(const CrowdOptions& options, const std::atomic<bool>& stop,
                    std::atomic<std::uint64_t>& count) {
  hold(options, 2200 * kMillisecond, stop, count);
}

void hold_until_evicted(const CrowdOptions& options, const std::atomic<bool>& stop,
                        std::atomic<std::uint64_t>& count) {
  CrowdOptions fresh = options;
  fresh.key_file.clear();
  hold(fresh, 3 * kSecond, stop, count);
}

void half_a_site(const CrowdOptions& options, const std::atomic<bool>& stop,
                 std::atomic<std::uint64_t>& count) {
  const std::string token = token_for_one(options.secret);
  while (!stop) {
    const auto comm = join(options, token, "hostile-half", 2);
    if (!comm.ok()) {
      std::this_thread::sleep_for(kBreath);
      continue;
    }
    std::vector<std::int32_t> state(options.elements);
    while (!stop) {
      std::vector<float> x = contribution(options);
      peer::SyncOptions sync;
      sync.tag = "model";
      sync.deadline = kSecond;
      const auto synced = comm.value()->sync_state(
          {{codec::Dtype::kI32, state.size(), state.data(), state.data(), "state", {}}}, sync);
      const auto result = comm.value()->run(
          {{codec::Dtype::kF32, x.size(), x.data(), x.data(), "x", {}}}, call(kSecond / 2));
      ++count;
      if (result.status.code == base::Code::kBanned || result.status.code == base::Code::kClosed) {
        break;
      }
      std::this_thread::sleep_for(kBreath);
    }
  }
}

}  // namespace jccl::attack
