// What the device route keeps for a communicator: its pinned memory, and the rounds that programs
// started and have not ended. Goes when the communicator is closed; calls still under way keep what
// they use. Called from any thread.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "cuda/cuda_staging.h"
#include "registry.h"

namespace jccl::xla_ext::cuda {

struct Started {
  std::shared_ptr<StagedCall> call;
  std::size_t first_result = 0;  // region of the first leaf; the status comes after the last
  std::vector<Shape> shapes;
  base::Tag tag;
};

class State {
 public:
  explicit State(const Driver& driver) : pool(driver) {}

  // Of the entry; of the process for calls without one.
  static std::shared_ptr<State> of(const Driver& driver, const std::shared_ptr<Entry>& entry);

  // A handle is known when its call is launched, before the round begins: a number of our own.
  std::uint64_t opened(Started started);
  // Takes it out. kUnknownTag: there is none; kInvalid: its leaves are others.
  base::Status take(std::uint64_t handle, const std::vector<Shape>& shapes, Started* started);

  PinnedPool pool;

 private:
  std::mutex mutex_;
  std::map<std::uint64_t, Started> started_;
};

}  // namespace jccl::xla_ext::cuda
