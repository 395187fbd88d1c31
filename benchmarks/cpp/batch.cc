#include "batch.h"

#include <algorithm>
#include <cstring>

#include "base/text.h"
#include "pattern.h"

namespace jccl::bench {

using base::cat;
using base::Code;
using base::Status;
using peer::RoundResult;

Bench::Bench(peer::Communicator& comm, std::uint32_t peers)
    : comm_(comm), peers_(peers), resident_first_(resident_bytes()) {}

Status Bench::meet() {
  peer::RoundOptions options;
  options.tag = "bench-barrier";
  options.collective = peer::Collective::kBarrier;
  return comm_.run({}, options).status;
}

void Bench::prepare(const Batch& b) {
  const std::string shape = cat(b.bytes, " ", b.concurrent, " ", b.leaves, " ", b.in_place);
  const std::size_t count = b.bytes / sizeof(float);
  if (shape != shape_) {
    calls_.clear();  // before the new ones: never both in memory
    calls_.resize(b.concurrent);
    for (Call& call : calls_) {
      call.in = Buffer(b.bytes);
      if (!b.in_place) call.out = Buffer(b.bytes);
      fill_contribution(comm_.attributes().id, call.in.floats(), count);
      // Equal leaves of whole cache lines; the last takes what is left.
      const std::size_t each =
          count / b.leaves >= 16 ? count / b.leaves / 16 * 16 : count / b.leaves;
      for (std::uint32_t i = 0; i < b.leaves; ++i) {
        const std::size_t first = i * each;
        peer::Leaf leaf;
        leaf.count = i + 1 == b.leaves ? count - first : each;
        leaf.in = call.in.floats() + first;
        leaf.out = (b.in_place ? call.in : call.out).floats() + first;
        leaf.path = cat("leaf", i);
        call.leaves.push_back(std::move(leaf));
      }
    }
    shape_ = shape;
  }
  for (std::size_t i = 0; i < calls_.size(); ++i) {
    peer::RoundOptions& o = calls_[i].options;
    o.tag = cat("bench", i);
    o.op = b.op;
    o.codec = b.codec;
    o.plan = b.plan;
    o.out_private = b.out_private && !b.in_place;
  }
}

// Arrays in place are given their input again; a result left by an earlier iteration must not pass
// for that of the last one.
void Bench::refill(const Batch& b, bool last) {
  for (Call& call : calls_) {
    if (b.in_place) {
      fill_contribution(comm_.attributes().id, call.in.floats(), b.bytes / sizeof(float));
    } else if (last) {
      std::memset(call.out.data(), 0xFF, call.out.size());  // NaN
    }
  }
}

Status Bench::once(const Batch& b, Measured* out) {
  if (b.barrier_only) {
    out->attempts = 1;
    return meet();
  }
  std::vector<peer::Handle> handles;
  Status first;
  for (Call& call : calls_) {
    auto handle = comm_.start(call.leaves, call.options);
    if (!handle.ok()) {
      first = handle.status();
      break;
    }
    handles.push_back(handle.value());
  }
  out->sent_bytes = out->received_bytes = 0;
  for (const peer::Handle handle : handles) {
    const RoundResult r = comm_.wait(handle);
    if (!r.status.ok() && first.ok()) first = r.status;
    out->attempts = std::max(out->attempts, r.attempts);
    out->world = r.world;
    out->sent_bytes += r.sent_bytes;
    out->received_bytes += r.received_bytes;
    contributors_ = r.contributors;
  }
  return first;
}

std::uint64_t Bench::wrong_of(const Batch& b) {
  const auto bound = bound_of(std::string(name_of(b.codec)));
  std::uint64_t wrong = 0;
  for (const Call& call : calls_) {
    const Buffer& out = b.in_place ? call.in : call.out;
    const std::size_t count = b.bytes / sizeof(float);
    // A codec without a known bound can't be checked, which counts as wrong.
    wrong += !bound ? count
                    : count_wrong(out.floats(), count, contributors_, b.op == collective::Op::kMean,
                                  *bound);
  }
  return wrong;
}

Measured Bench::run(const Batch& b) {
  Measured m;
  m.status = meet();  // a fresh peer learns its number at its first round
  if (!m.status.ok()) return m;
  m.peer = comm_.attributes().id;
  if (!b.barrier_only) prepare(b);
  reset_resident_peak();
  std::int64_t begun = 0;
  CpuTime before;
  for (std::uint32_t i = 0; i < b.warmup + b.iterations; ++i) {
    if (!b.barrier_only) refill(b, i + 1 == b.warmup + b.iterations);
    m.status = meet();
    if (!m.status.ok()) return m;
    before = cpu_now();
    begun = clock_ns();
    m.status = once(b, &m);
    const std::int64_t ended = clock_ns();
    const CpuTime after = cpu_now();
    if (!m.status.ok()) return m;
    if (i < b.warmup) continue;
    m.begin_ns.push_back(begun);
    m.times_ns.push_back(ended - begun);
    m.user_ns.push_back(after.user_ns - before.user_ns);
    m.system_ns.push_back(after.system_ns - before.system_ns);
  }
  m.peak_bytes = resident_peak_bytes();
  m.extra_bytes = m.peak_bytes - resident_first_;
  for (const Call& call : calls_) {
    m.extra_bytes -= static_cast<std::int64_t>(call.in.size() + call.out.size());
  }
  if (!b.barrier_only) {
    m.wrong = wrong_of(b);
    if (contributors_.size() != peers_) {
      m.status = {Code::kTooFew, cat("round ", m.world, " of ", peers_, " peers")};
    }
  }
  return m;
}

namespace {

std::string list_of(const std::vector<std::int64_t>& values) {
  std::string text;
  for (const std::int64_t v : values) text += cat(text.empty() ? "" : ",", v);
  return "[" + text + "]";
}

double mean_seconds(const std::vector<std::int64_t>& values) {
  double sum = 0;
  for (const std::int64_t v : values) sum += static_cast<double>(v);
  return values.empty() ? 0 : sum / static_cast<double>(values.size()) * 1e-9;
}

}  // namespace

std::string to_json(const Batch& b, const Measured& m) {
  return cat("{\"size\":", b.bytes, ",\"codec\":\"", name_of(b.codec), "\",\"op\":\"",
             name_of(b.op), "\",\"leaves\":", b.leaves, ",\"concurrent\":", b.concurrent,
             ",\"plan\":\"", b.plan.empty() ? "auto" : b.plan,
             "\",\"in_place\":", b.in_place ? "true" : "false", ",\"peer\":", m.peer,
             ",\"peers\":", m.world, ",\"times_ns\":", list_of(m.times_ns),
             ",\"begin_ns\":", list_of(m.begin_ns), ",\"user_ns\":", list_of(m.user_ns),
             ",\"system_ns\":", list_of(m.system_ns), ",\"cpu_user_s\":", mean_seconds(m.user_ns),
             ",\"cpu_system_s\":", mean_seconds(m.system_ns), ",\"rss_peak\":", m.peak_bytes,
             ",\"rss_extra\":", m.extra_bytes, ",\"wrong\":", m.wrong,
             ",\"sent_bytes\":", m.sent_bytes, ",\"received_bytes\":", m.received_bytes,
             ",\"attempts\":", m.attempts, ",\"load\":", load_average(), "}");
}

}  // namespace jccl::bench
