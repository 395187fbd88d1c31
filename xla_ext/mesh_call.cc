#include "mesh_call.h"

#include <algorithm>

#include "base/text.h"

namespace jccl::xla_ext {

namespace ffi = xla::ffi;
using base::Code;
using base::Status;

namespace {

constexpr std::size_t kAlign = 64;

std::span<const std::int64_t> words(const ffi::Dictionary& attributes, const char* name) {
  const auto held = attributes.get<ffi::Span<const std::int64_t>>(name);
  if (!held.has_value()) return {};
  return {held->begin(), held->size()};
}

}  // namespace

std::optional<MeshCall> MeshCall::read(const ffi::RemainingArgs& args,
                                       const ffi::RemainingRets& rets,
                                       const ffi::Dictionary& attributes, std::size_t count,
                                       std::uint32_t device) {
  const auto parts = static_cast<std::uint32_t>(attribute<std::int32_t>(attributes, "parts", 1));
  auto geometry = Geometry::read(words(attributes, "geometry"), parts);
  auto data = payload(args, 0, rets, 0, count);
  if (!geometry || !data || geometry->operands() != count) return std::nullopt;
  MeshCall call(std::move(*geometry));
  call.data_ = std::move(*data);
  call.device_ = device;
  call.tag_ = text_attribute(attributes, "tag");
  call.paths_ = text_attribute(attributes, "paths");
  call.local_devices_ =
      static_cast<std::uint32_t>(attribute<std::int32_t>(attributes, "local_devices", 1));
  call.join_max_ = std::min(
      attribute<std::int32_t>(attributes, "join_ms", 15000) * base::kMillisecond, kJoinMax);
  if (!call.find_dtypes() || device >= call.geometry_.devices()) return std::nullopt;
  const auto held = words(attributes, "held");  // (communicator, part), …
  if (held.empty() || held.size() % 2 != 0 || call.local_devices_ == 0) return std::nullopt;
  for (std::size_t i = 0; i < held.size(); i += 2) {
    const auto number = static_cast<std::uint32_t>(held[i + 1]);
    if (number >= parts) return std::nullopt;
    call.parts_.push_back({Registry::get().find(held[i]), number, {}});
  }
  call.lay_out();
  return call;
}

bool MeshCall::find_dtypes() {
  std::vector<std::optional<codec::Dtype>> found(geometry_.leaves());
  for (std::size_t i = 0; i < geometry_.operands(); ++i) {
    if (data_.in[i].count != geometry_.elements(i)) return false;
    if (data_.out[i].count != data_.in[i].count) return false;
    for (const std::size_t leaf : geometry_.leaves_of(i)) {
      if (found[leaf]) return false;
      found[leaf] = data_.in[i].dtype;
    }
  }
  for (const auto& dtype : found) {
    if (!dtype) return false;
    dtypes_.push_back(*dtype);
  }
  return true;
}

void MeshCall::lay_out() {
  for (Part& part : parts_) {
    for (std::size_t leaf = 0; leaf < geometry_.leaves(); ++leaf) {
      part.offsets.push_back(bytes_);
      const std::size_t bytes =
          geometry_.part_count(leaf, part.number) * codec::size_of(dtypes_[leaf]);
      bytes_ += (bytes + kAlign - 1) / kAlign * kAlign;
    }
  }
}

const MeshCall::Part* MeshCall::holder(std::uint32_t number) const {
  for (const Part& part : parts_) {
    if (part.number == number) return &part;
  }
  return nullptr;
}

Status MeshCall::gather(Join& join) const {
  Status fine;
  for (std::size_t i = 0; i < geometry_.operands(); ++i) {
    const std::size_t size = codec::size_of(data_.in[i].dtype);
    const auto* from = static_cast<const std::uint8_t*>(data_.in[i].data);
    geometry_.each_run(i, device_, Geometry::Span::kShare, [&](const Run& run) {
      const Part* part = holder(run.part);
      if (part == nullptr) {
        fine = {
            Code::kInvalid,
            base::cat("device ", device_, " holds a piece of part ", run.part,
                      " of the leaves, which is not of this process: the mesh must count its "
                      "devices in the order of the processes, and these in that of the shards")};
        return;
      }
      std::memcpy(join.in() + part->offsets[run.leaf] + run.part_at * size,
                  from + run.operand_at * size, run.count * size);
    });
  }
  return fine;
}

void MeshCall::hand_out(const Join& join) const {
  for (std::size_t i = 0; i < geometry_.operands(); ++i) {
    const std::size_t size = codec::size_of(data_.out[i].dtype);
    auto* to = static_cast<std::uint8_t*>(data_.out[i].data);
    std::uint64_t covered = 0;
    geometry_.each_run(i, device_, Geometry::Span::kAll, [&](const Run& run) {
      const Part* part = holder(run.part);
      if (part == nullptr) return;
      std::memcpy(to + run.operand_at * size,
                  join.out() + part->offsets[run.leaf] + run.part_at * size, run.count * size);
      covered += run.count;
    });
    if (covered == data_.out[i].count) continue;
    // The rest pads the last device's range; it lies at the end of the buffer, or of each leaf.
    std::uint64_t at = 0;
    geometry_.each_run(i, device_, Geometry::Span::kAll, [&](const Run& run) {
      std::memset(to + at * size, 0, (run.operand_at - at) * size);
      at = run.operand_at + run.count;
    });
    std::memset(to + at * size, 0, (data_.out[i].count - at) * size);
  }
}

std::vector<peer::Leaf> MeshCall::leaves(const Part& part, const Join& join) const {
  std::vector<peer::Leaf> all;
  std::size_t at = 0;
  for (std::size_t i = 0; i < geometry_.leaves(); ++i) {
    const std::size_t end = std::min(paths_.find('\n', at), paths_.size());
    peer::Leaf leaf;
    leaf.dtype = dtypes_[i];
    leaf.shape = geometry_.part_shape(i, part.number);
    leaf.count = geometry_.part_count(i, part.number);
    leaf.in = join.in() + part.offsets[i];
    leaf.out = join.out() + part.offsets[i];
    leaf.path = paths_.substr(at, end - at);
    all.push_back(std::move(leaf));
    at = std::min(end + 1, paths_.size());
  }
  return all;
}

void MeshCall::note(const Status& status) const {
  if (status.text.empty()) return;  // a code handed on, whose words were noted before
  for (const Part& part : parts_) {
    if (part.entry) part.entry->note(tag_, status);
  }
}

JoinOutcome MeshCall::join(std::int64_t execution, std::int32_t ordinal,
                           const std::vector<double>& scalars,
                           const std::function<JoinOutcome(MeshCall&, Join&)>& work) {
  JoinOutcome outcome;
  for (const Part& part : parts_) {
    if (!part.entry) outcome.status = {Code::kClosed, "the communicator is closed"};
  }
  if (outcome.status.ok()) {
    JoinTable& joins = parts_.front().entry->joins();
    const auto join = joins.enter(tag_, execution, ordinal, local_devices_, bytes_);
    data_.expect_writes();
    const Status fine = gather(*join);
    outcome = join->arrive(fine, scalars, join_max_, [&](Join& all) { return work(*this, all); });
    if (outcome.has_result) hand_out(*join);
  }
  if (!outcome.has_result) data_.keep_input();
  note(outcome.status);
  return outcome;
}

}  // namespace jccl::xla_ext
