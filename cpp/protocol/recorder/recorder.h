// A flight recorder beside a machine: every event that the machine gets, and notes of its effects,
// in a ring of bytes. The ring has two halves, and each begins with the machine's state. When one
// is full, it replaces the older one. So a replay can always start at the first entry. Holds as
// many bytes as its owner says, or four times the machine's own state if that is more. Writes
// nothing: its owner decides when its bytes become a file. Pure; on the machine's thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/planted.h"
#include "protocol/recorder/archive.h"
#include "protocol/recorder/recorded_answers.h"
#include "protocol/recorder/recording.h"

namespace jccl::protocol {

inline constexpr std::size_t kRecorderBytes = std::size_t{4} << 20;

template <typename Side>
class Recorder {
 public:
  using Machine = typename Side::Machine;
  using Event = typename Side::Event;
  using Effects = typename Side::Effects;

  explicit Recorder(std::size_t bytes_max = kRecorderBytes) : half_bytes_(bytes_max / 2) {}
  Recorder(const Recorder&) = delete;  // advisors point to it
  Recorder& operator=(const Recorder&) = delete;

  bool off() const { return half_bytes_ == 0; }

  Effects start(Machine& machine, base::Time now) {
    return keep(machine, now, nullptr, [&] { return machine.start(now); });
  }
  Effects on(Machine& machine, const Event& event, base::Time now) {
    return keep(machine, now, &event, [&] { return machine.on(event, now); });
  }

  // The advisors, whose answers are kept: what a machine does depends on them.
  Advisors heard(Advisors inner) {
    if (off()) return inner;
    return heard_by([this](Answer answer) { entry_.answers.push_back(std::move(answer)); },
                    std::move(inner));
  }

  std::size_t bytes() const { return older_.size() + newer_.size(); }
  bool any() const { return !newer_.empty(); }
  // All that is kept, as a file. `any()` must hold.
  base::Bytes file(About about) const {
    JCCL_CHECK(any());
    about.role = Side::kRole;
    about.layout = Side::layout();
    about.wire_version = wire::kVersion;
    return recording_of(about, {older_, newer_});
  }

 private:
  template <typename Act>
  Effects keep(Machine& machine, base::Time now, const Event* event, Act act) {
    if (off()) return act();
    if (newer_.size() >= limit_) turn(machine, now);
    entry_.answers.clear();
    Effects effects = act();
    entry_.kind = event == nullptr ? EntryKind::kStart : EntryKind::kEvent;
    entry_.at = now;
    entry_.effects = Side::notes_of(effects, scratch_);
    scratch_.clear();
    if (event != nullptr) Side::put(*event, scratch_);
    add(scratch_.made());
    return effects;
  }

  // A full half becomes the older one. The new one begins with what the machine is now.
  void turn(const Machine& machine, base::Time now) {
    older_ = std::exchange(newer_, {});
    const base::Bytes state = Side::state_of(machine);
    limit_ = std::max(half_bytes_, 2 * state.size());
    newer_.reserve(limit_);
    entry_ = {EntryKind::kState, now, {}, {}, {}};
    add(state);
  }

  void add(base::ByteView body) {
    entry_.body = body;
    framed_.clear();
    put_entry(entry_, framed_);
    newer_.insert(newer_.end(), framed_.made().begin(), framed_.made().end());
    entry_.body = {};
  }

  std::size_t half_bytes_;
  std::size_t limit_ = 0;  // of the newer half
  base::Bytes older_, newer_;
  Entry entry_;
  Saver scratch_, framed_;
};

}  // namespace jccl::protocol
