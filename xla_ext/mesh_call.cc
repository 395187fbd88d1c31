#include "mesh_call.h"

#include <algorithm>

#include "base/text.h"

namespace jccl::xla_ext {

namespace ffi = xla::ffi;
using base::Code;
using base::Status;

namespace {
constexpr std::size_t kAlign = 64;
}

std::optional<MeshCall> MeshCall::read(Payload data, const ffi::Dictionary& attributes,
                                       std::uint32_t device) {
  const auto parts = static_cast<std::uint32_t>(attribute<std::int32_t>(attributes, "parts", 1));
  auto geometry = Geometry::read(words_attribute(attributes, "geometry"), parts);
  if (!geometry || geometry->operands() != data.in.size()) return std::nullopt;
  MeshCall call(std::move(*geometry));
  call.data_ = std::move(data);
  call.slots_ =
      static_cast<std::size_t>(std::max(attribute<std::int32_t>(attributes, "slots", 1), 1));
  call.device_ = device;
  call.tag_ = text_attribute(attributes, "tag");
  call.paths_ = text_attribute(attributes, "paths");
  call.local_devices_ =
      static_cast<std::uint32_t>(attribute<std::int32_t>(attributes, "local_devices", 1));
  call.rendezvous_max_ = std::min(
      attribute<std::int32_t>(attributes, "join_ms", 15000) * base::kMillisecond, kRendezvousMax);
  if (!call.find_dtypes() || device >= call.geometry_.devices()) return std::nullopt;
  const auto held = words_attribute(attributes, "held");  // (communicator, part), …
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
    if (data_.out[i].count != data_.in[i].count * slots_) return false;
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

Status MeshCall::gather(DeviceRendezvous& met) const {
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
      std::memcpy(met.in() + part->offsets[run.leaf] + run.part_at * size,
                  from + run.operand_at * size, run.count * size);
    });
  }
  return fine;
}

void MeshCall::hand_out(const std::vector<View>& to, const std::uint8_t* from) const {
  for (std::size_t i = 0; i < geometry_.operands(); ++i) {
    const std::size_t size = codec::size_of(to[i].dtype), own = data_.in[i].count;
    const std::size_t slots = own == 0 ? 0 : to[i].count / own;
    for (std::size_t slot = 0; slot < slots; ++slot) {
      auto* out = static_cast<std::uint8_t*>(to[i].data) + slot * own * size;
      std::uint64_t at = 0;  // everything before is written
      geometry_.each_run(i, device_, Geometry::Span::kAll, [&](const Run& run) {
        const Part* part = holder(run.part);
        if (part == nullptr) return;
        const std::size_t leaf = part->offsets[run.leaf] * slots +
                                 slot * geometry_.part_count(run.leaf, run.part) * size;
        // What nobody holds pads the last device's range, at the end of the buffer or of a leaf.
        std::memset(out + at * size, 0, (run.operand_at - at) * size);
        std::memcpy(out + run.operand_at * size, from + leaf + run.part_at * size,
                    run.count * size);
        at = run.operand_at + run.count;
      });
      std::memset(out + at * size, 0, (own - at) * size);
    }
  }
}

std::vector<peer::Leaf> MeshCall::leaves(const Part& part, const DeviceRendezvous& met) const {
  std::vector<peer::Leaf> all;
  std::size_t at = 0;
  for (std::size_t i = 0; i < geometry_.leaves(); ++i) {
    const std::size_t end = std::min(paths_.find('\n', at), paths_.size());
    peer::Leaf leaf;
    leaf.dtype = dtypes_[i];
    leaf.shape = geometry_.part_shape(i, part.number);
    leaf.count = geometry_.part_count(i, part.number);
    leaf.in = met.in() + part.offsets[i];
    leaf.out = met.out() + part.offsets[i] * slots_;
    leaf.path = paths_.substr(at, end - at);
    all.push_back(std::move(leaf));
    at = std::min(end + 1, paths_.size());
  }
  return all;
}

// All devices hear one outcome, and it is noted once.
void MeshCall::note(const Place& place, const Status& status) const {
  if (status.ok() ? !ends_round_ : status.text.empty()) return;  // a code that is handed on
  const auto& first = parts_.front().entry;
  if (first && !first->speaks(tag_, place.execution, place.ordinal)) return;
  for (const Part& part : parts_) {
    if (part.entry) part.entry->note(tag_, status);
  }
}

std::vector<std::uint64_t> MeshCall::layout() const {
  std::vector<std::uint64_t> all;
  for (std::size_t leaf = 0; leaf < geometry_.leaves(); ++leaf) {
    all.push_back(static_cast<std::uint64_t>(dtypes_[leaf]));
    for (const Part& part : parts_) all.push_back(geometry_.part_count(leaf, part.number));
  }
  return all;
}

Status MeshCall::closed() const {
  for (const Part& part : parts_) {
    if (!part.entry) return {Code::kClosed, "the communicator is closed"};
  }
  return {};
}

RendezvousOutcome MeshCall::join(const Place& place, const std::vector<double>& scalars,
                                 const Work& work) {
  RendezvousOutcome outcome{closed(), {0, 0, 0}, false};
  if (outcome.status.ok()) {
    parts_.front().entry->arrives(tag_, place.execution, place.ordinal);
    const auto met = parts_.front().entry->rendezvous().enter(
        tag_, {place.execution, place.ordinal, local_devices_}, bytes_, bytes_ * slots_);
    data_.expect_writes();
    const Status fine = gather(*met);
    if (!state_.empty()) met->add_state(state_);
    outcome = met->arrive(fine, scalars, rendezvous_max_,
                          [&](DeviceRendezvous& all) { return work(*this, all); });
    if (outcome.has_result) hand_out(data_.out, met->out());
  }
  if (!outcome.has_result) data_.keep_input();
  note(place, outcome.status);
  return outcome;
}

RendezvousOutcome MeshCall::begin(const Place& place, const std::vector<double>& scalars,
                                  const Work& work) {
  RendezvousOutcome outcome{closed(), {0, 0, 0}, false};
  if (outcome.status.ok()) {
    parts_.front().entry->arrives(tag_, place.execution, place.ordinal);
    const auto met = parts_.front().entry->rendezvous().enter(
        tag_, {place.execution, place.ordinal, local_devices_}, bytes_, bytes_);
    const Status fine = gather(*met);
    if (!state_.empty()) met->add_state(state_);
    outcome = met->arrive(fine, scalars, rendezvous_max_,
                          [&](DeviceRendezvous& all) { return work(*this, all); });
  }
  if (!outcome.status.ok()) note(place, outcome.status);
  return outcome;
}

RendezvousOutcome MeshCall::end(const Place& place, const std::vector<double>& scalars,
                                const std::vector<View>& inputs, const Work& work) {
  RendezvousOutcome outcome{closed(), {0, 0, 0}, false};
  std::shared_ptr<const DeviceRendezvous> memory;
  if (outcome.status.ok()) {
    parts_.front().entry->arrives(tag_, place.execution, place.ordinal);
    const auto met = parts_.front().entry->rendezvous().enter(
        tag_ + " done", {place.execution, place.ordinal, local_devices_}, 0, 0);
    data_.expect_writes();
    outcome = met->arrive({}, scalars, rendezvous_max_,
                          [&](DeviceRendezvous& all) { return work(*this, all); });
    memory = met->begun;
  }
  if (memory == nullptr) {
    data_.keep_input();
    if (!inputs.empty()) Payload{data_.in, inputs}.keep_input();
  } else {
    hand_out(data_.out, outcome.has_result ? memory->out() : memory->in());
    if (!inputs.empty()) hand_out(inputs, memory->in());
  }
  note(place, outcome.status);
  return outcome;
}

}  // namespace jccl::xla_ext
