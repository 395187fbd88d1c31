// One device's call of an op that all local devices make together: its operands, their places in
// the leaves of the peer, and the copies between both. A process may hold several parts of its
// site's leaves, each with a communicator of its own. Runs on XLA's threads, one per device.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "calls.h"
#include "geometry.h"

namespace jccl::xla_ext {

class MeshCall {
 public:
  // Of the first `data.in.size()` operands; nullopt if they are not what `geometry` says.
  static std::optional<MeshCall> read(Payload data, const xla::ffi::Dictionary& attributes,
                                      std::uint32_t device);

  struct Place {
    std::int64_t execution = 0;
    std::int32_t ordinal = 0;
  };
  using Work = std::function<RendezvousOutcome(MeshCall&, DeviceRendezvous&)>;
  // Puts this device's values in place, waits for the other devices, and hands out the results, or
  // the operands if there are none.
  RendezvousOutcome join(const Place& place, const std::vector<double>& scalars, const Work& work);
  // As `join`, in two: `work` of the first keeps the round, that of the second finds it and says in
  // DeviceRendezvous::begun where the memory is. The first hands nothing out. The second gives what
  // went into the round where it has no result, and into `inputs` in any case.
  RendezvousOutcome begin(const Place& place, const std::vector<double>& scalars, const Work& work);
  RendezvousOutcome end(const Place& place, const std::vector<double>& scalars,
                        const std::vector<View>& inputs, const Work& work);

  struct Part {
    std::shared_ptr<Entry> entry;  // null: closed
    std::uint32_t number = 0;
    std::vector<std::size_t> offsets;  // of the leaves, in the memory of the rendezvous
  };
  const std::vector<Part>& parts() const { return parts_; }
  std::vector<peer::Leaf> leaves(const Part& part, const DeviceRendezvous& met) const;
  void hand_in(std::vector<peer::StateMarks> state) { state_ = std::move(state); }
  const base::Tag& tag() const { return tag_; }
  std::vector<std::uint64_t> layout() const;  // dtype and elements of all leaves
  void note(const Place& place, const base::Status& status) const;
  void publishes() { ends_round_ = false; }  // it shares a state instead

 private:
  explicit MeshCall(Geometry geometry) : geometry_(std::move(geometry)) {}
  bool find_dtypes();
  void lay_out();
  base::Status closed() const;
  base::Status gather(DeviceRendezvous& met) const;
  void hand_out(const std::vector<View>& to, const std::uint8_t* from) const;
  const Part* holder(std::uint32_t number) const;

  Geometry geometry_;
  base::Tag tag_;
  std::string paths_;
  std::uint32_t device_ = 0, local_devices_ = 1;
  std::size_t slots_ = 1;  // of each leaf in the results
  base::Duration rendezvous_max_ = kRendezvousMax;
  Payload data_;
  std::vector<codec::Dtype> dtypes_;  // by leaf
  std::vector<Part> parts_;
  std::vector<peer::StateMarks> state_;  // by part; empty: none is handed in
  std::size_t bytes_ = 0;
  bool ends_round_ = true;
};

}  // namespace jccl::xla_ext
