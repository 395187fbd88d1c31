#include "cuda/cuda_call.h"

#include <algorithm>
#include <cstring>

#include "base/text.h"
#include "calls.h"

namespace jccl::xla_ext::cuda {

using base::Code;
using base::Status;

namespace {

// Beyond a call's own deadline: joining the local devices, and what the communicator allows itself.
constexpr base::Duration kPatienceSlack = 30 * base::kSecond;
// Once the first byte of the leaves may be copied, all have to come within this and what a slow
// bus needs: else the round goes on without them.
constexpr base::Duration kCopiesMax = 10 * base::kSecond;
constexpr std::uint64_t kBusBytesPerSecond = 100'000'000;
// A part of the leaves that is told of on its own: what the bus carries in the time that a host
// function takes is small beside it. With fewer than two there is nothing to gain.
constexpr std::uint64_t kPartBytes = std::uint64_t{4} << 20;
constexpr std::uint64_t kPartsMax = 64;  // each takes places in the stream's queue
constexpr base::Duration kComputeMax = 300 * base::kSecond;  // of calls that wait for nobody

}  // namespace

void Parts::carry_out() const {
  const std::shared_ptr<peer::StreamedInput>& feed = frame->host.feed;
  Deadlines::Id stalled = 0;
  if (feed) {
    const auto seconds = static_cast<base::Duration>(feed->bytes() / kBusBytesPerSecond);
    stalled = Deadlines::get().add(kCopiesMax + seconds * base::kSecond, [feed] {
      feed->fail("the device stopped in the midst of copying the operands");
    });
  }
  const Status called = call_handler(target, frame->host);
  if (!called.ok()) {
    if (feed) (void)feed->wait(kFeedMax);
    give_up(called);
  }
  if (stalled != 0) Deadlines::get().remove(stalled);
}

void Parts::give_up(const Status& why) const {
  const HostCall& call = frame->host;
  for (std::size_t i = 0; i < call.results.size(); ++i) {
    const View& out = call.results[i];
    if (out.bytes() == 0) continue;
    auto operand = form.operand_of(i);
    if (call.feed && !call.feed->whole()) operand.reset();  // it isn't here
    if (operand && encoded.find(*operand) != nullptr) {
      encoded.decode(call.operands[*operand], out);
    } else if (operand && call.operands[*operand].bytes() == out.bytes()) {
      std::memcpy(out.data, call.operands[*operand].data, out.bytes());
    } else {
      std::memset(out.data, 0, out.bytes());
    }
  }
  const std::uint64_t handle = failed_start_of(why.code);
  if (form.starts) std::memcpy(call.results[0].data, &handle, sizeof(handle));
  if (form.status) put_status(call.results[*form.status], why.code);
  if (entry) entry->note(tag(), why);
}

base::Duration Parts::patience() const {
  if (form.ends) {
    std::uint64_t handle = 0;
    std::memcpy(&handle, frame->host.operands[*form.ends].data, sizeof(handle));
    const base::Duration left = entry ? entry->rendezvous().deadline_of(handle) : 0;
    return kPatienceSlack + (left > 0 || !entry ? left : entry->comm().deadline());
  }
  if (!form.deadline) return kComputeMax;
  std::int32_t ms = 0;
  std::memcpy(&ms, frame->host.operands[*form.deadline].data, sizeof(ms));
  const base::Duration wished = deadline_of(ms);
  return kPatienceSlack + (wished > 0 || !entry ? wished : entry->comm().deadline());
}

DeviceCall::DeviceCall(const StreamScope& scope, Parts parts)
    : scope_(scope), parts_(std::move(parts)), state_(State::of(scope.driver(), parts_.entry)) {}

Status DeviceCall::refused(const char* function, Result error) const {
  return {Code::kInternal, scope_.driver().text(function, error)};
}

Status DeviceCall::stage() {
  std::vector<std::size_t> sizes;
  for (const View& operand : host().operands) sizes.push_back(operand.bytes());
  for (const View& result : host().results) sizes.push_back(result.bytes());
  auto made = StagedCall::make(scope_, state_->pool, sizes);
  if (!made.ok()) return made.status();
  staged_ = std::move(made.value());
  std::size_t at = 0;
  for (View& operand : host().operands) operand.data = staged_->region(at++);
  for (View& result : host().results) result.data = staged_->region(at++);
  return {};
}

Status DeviceCall::fetch(std::size_t operand) {
  return staged_->fetch(scope_, operand, parts_.frame->operands_at[operand],
                        host().operands[operand].bytes());
}

Status DeviceCall::fetch() {
  Steps steps;
  for (std::size_t i = 0; i < host().operands.size(); ++i) {
    steps.then([&] { return fetch(i); });
  }
  return steps.status;
}

// Bytes of leaves that the host's part can begin without; 0: it needs all operands first.
std::uint64_t DeviceCall::feeds() const {
  if (parts_.target != "jccl_round") return 0;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < parts_.form.leaves; ++i) bytes += host().operands[i].bytes();
  return bytes < 2 * kPartBytes ? 0 : bytes;
}

// The leaves in parts, after the host's part was posted.
Status DeviceCall::feed() {
  const std::shared_ptr<peer::StreamedInput>& feed = host().feed;
  const std::uint64_t part_bytes = std::max(kPartBytes, feed->bytes() / kPartsMax);
  std::uint64_t here = 0, told = 0;
  Steps steps;
  for (std::size_t i = 0; i < parts_.form.leaves; ++i) {
    const std::size_t bytes = host().operands[i].bytes();
    for (std::size_t at = 0; at < bytes;) {
      const std::size_t part = std::min<std::size_t>(bytes - at, told + part_bytes - here);
      steps.then([&] { return staged_->fetch(scope_, i, parts_.frame->operands_at[i], part, at); });
      at += part;
      here += part;
      if (here < told + part_bytes) continue;
      steps.then([&] { return staged_->tell(scope_, feed, here); });
      told = here;
    }
  }
  if (here > told) steps.then([&] { return staged_->tell(scope_, feed, here); });
  if (!steps.status.ok()) feed->fail(steps.status.text);
  return steps.status;
}

Status DeviceCall::begin() {
  const std::uint64_t bytes = feeds();
  if (bytes == 0) return Steps{}.then([&] { return fetch(); }).then([&] { return post(); }).status;
  host().feed = std::make_shared<peer::StreamedInput>(bytes);
  Steps steps;
  for (std::size_t i = parts_.form.leaves; i < host().operands.size(); ++i) {
    steps.then([&] { return fetch(i); });
  }
  return steps.then([&] { return post(); }).then([&] { return feed(); }).status;
}

Status DeviceCall::post() {
  StagedCall::Host host;
  host.work = [parts = parts_] { parts.carry_out(); };
  host.give_up = [parts = parts_](const Status& why) { parts.give_up(why); };
  host.patience = [parts = parts_] { return parts.patience(); };
  return staged_->post(scope_, std::move(host));
}

Status DeviceCall::carry_out() {
  if (scope_.can_wait()) {
    return Steps{}.then([&] { return begin(); }).then([&] { return staged_->wait(scope_); }).status;
  }
  return Steps{}
      .then([&] { return fetch(); })
      .then([&] { return synchronize(scope_); })
      .then([&] {
        parts_.carry_out();
        return Status{};
      })
      .status;
}

Status DeviceCall::store(std::size_t first) {
  Steps steps;
  for (std::size_t i = first; i < host().results.size(); ++i) {
    steps.then([&] {
      return staged_->store(scope_, region_of_result(i), parts_.frame->results_at[i],
                            host().results[i].bytes());
    });
  }
  return steps.status;
}

Status DeviceCall::keep(std::size_t first_operand, std::size_t first_result,
                        std::size_t count) const {
  const Driver& driver = scope_.driver();
  for (std::size_t i = 0; i < count; ++i) {
    if (parts_.encoded.find(first_operand + i) != nullptr) {
      if (const Status put = decode(first_operand + i); !put.ok()) return put;
      continue;
    }
    const DevicePointer from = parts_.frame->operands_at[first_operand + i];
    const DevicePointer to = parts_.frame->results_at[first_result + i];
    const std::size_t bytes = host().results[first_result + i].bytes();
    if (from == to || bytes == 0) continue;
    const bool alike = host().operands[first_operand + i].bytes() == bytes;
    const Result error = alike ? driver.copy_on_device(to, from, bytes, scope_.stream())
                               : driver.fill_bytes(to, 0, bytes, scope_.stream());  // empty slots
    if (error != kSuccess) return refused("cuMemcpyDtoDAsync", error);
  }
  return {};
}

// Where there is no pinned memory: by way of memory that is not, for which the stream is waited
// for.
Status DeviceCall::decode(std::size_t leaf) const {
  View bytes = host().operands[leaf], values = host().results[leaf];
  std::vector<std::uint8_t> from(bytes.bytes()), to(values.bytes());
  bytes.data = from.data();
  values.data = to.data();
  if (to.empty()) return {};
  const Driver& driver = scope_.driver();
  const Result down = driver.copy_to_host(from.data(), parts_.frame->operands_at[leaf], from.size(),
                                          scope_.stream());
  if (down != kSuccess) return refused("cuMemcpyDtoHAsync", down);
  if (const Status here = synchronize(scope_); !here.ok()) return here;
  parts_.encoded.decode(bytes, values);
  const Result up =
      driver.copy_to_device(parts_.frame->results_at[leaf], to.data(), to.size(), scope_.stream());
  if (up != kSuccess) return refused("cuMemcpyHtoDAsync", up);
  return synchronize(scope_);
}

Status DeviceCall::fill(std::size_t result, std::uint32_t first, std::uint32_t last) const {
  const DevicePointer at = parts_.frame->results_at[result];
  const std::size_t words = host().results[result].bytes() / 4;
  const auto put = [&](std::size_t from, std::uint32_t value, std::size_t count) {
    if (count == 0) return Status{};
    const Result error = scope_.driver().fill_words(at + from * 4, value, count, scope_.stream());
    return error == kSuccess ? Status{} : refused("cuMemsetD32Async", error);
  };
  return Steps{}
      .then([&] { return put(0, first, words > 0 ? 1 : 0); })
      .then([&] { return put(1, 0, words > 2 ? words - 2 : 0); })
      .then([&] { return put(words - 1, last, words > 1 ? 1 : 0); })
      .status;
}

Status DeviceCall::answer(const Status& fault) const {
  Steps steps;
  const Form& form = parts_.form;
  for (std::size_t i = 0; i < host().results.size(); ++i) {
    const auto word = form.status == i ? static_cast<std::uint32_t>(fault.code) : 0U;
    const std::uint64_t handle = form.starts && i == 0 ? failed_start_of(fault.code) : word;
    steps.then([&] {
      const auto operand = form.operand_of(i);
      if (operand) return keep(*operand, i, 1);
      return fill(i, static_cast<std::uint32_t>(handle), static_cast<std::uint32_t>(handle >> 32));
    });
  }
  if (parts_.entry) parts_.entry->note(parts_.tag(), fault);
  return steps.status;
}

}  // namespace jccl::xla_ext::cuda
