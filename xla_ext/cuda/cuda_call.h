// A call of the CUDA platform between its launch and its end: buffers on the device, pinned copies
// of them, and what is enqueued on the stream to bring the one to the other. Steps answer kInternal
// when the device refuses them; what a round may bring is in the status words instead.
#pragma once

#include <memory>
#include <optional>

#include "cuda/cuda_state.h"
#include "cuda/device_frame.h"

namespace jccl::xla_ext::cuda {

// Which operands and results of a call mean what.
struct Form {
  std::size_t leaves = 0;               // the first operands, and the first results
  std::optional<std::size_t> status;    // result s32[4]
  std::optional<std::size_t> deadline;  // operand s32, in ms
  bool leaves_again = false;            // the results after the leaves are like them
  bool starts = false;                  // the first result is the handle u32[2] of a round
  std::optional<std::size_t> ends;      // operand u32[2]: handle of the round, with its deadline

  // Whose value a result has where there was no round; nullopt: none's.
  std::optional<std::size_t> operand_of(std::size_t result) const {
    const std::size_t like = leaves_again && result >= leaves ? result - leaves : result;
    return like < leaves ? std::optional(like) : std::nullopt;
  }
};

// What the host needs once the launch is over; lives as long as the host's part.
struct Parts {
  std::shared_ptr<DeviceFrame> frame;
  std::string target;            // whose CPU handler is run
  std::shared_ptr<Entry> entry;  // null: closed, or a call without a communicator
  Form form;
  EncodedLeaves encoded;  // operands that are bytes, of results that are values

  base::Tag tag() const { return frame->attribute<std::string>("tag", ""); }
  void carry_out() const;                       // the handler, on the pinned copies
  void give_up(const base::Status& why) const;  // results: the operands, and a status
  base::Duration patience() const;
};

class DeviceCall {
 public:
  DeviceCall(const StreamScope& scope, Parts parts);

  base::Status stage();      // kLimit if there is no pinned memory
  base::Status fetch();      // operands, once what was enqueued before is done
  base::Status begin();      // the same, and the host's part, for which nobody waits yet
  base::Status carry_out();  // the same, and the stream waits
  base::Status store(std::size_t first);  // results from this one on
  base::Status retire() { return staged_->retire(scope_); }

  // Without memory of the host: operands as results; words of one result; a fault as an answer.
  base::Status keep(std::size_t first_operand, std::size_t first_result, std::size_t count) const;
  base::Status fill(std::size_t result, std::uint32_t first, std::uint32_t last = 0) const;
  base::Status answer(const base::Status& fault) const;

  HostCall& host() const { return parts_.frame->host; }
  const Parts& parts() const { return parts_; }
  State& state() const { return *state_; }
  const std::shared_ptr<StagedCall>& staged() const { return staged_; }
  std::size_t region_of_result(std::size_t at) const { return host().operands.size() + at; }

 private:
  base::Status refused(const char* function, Result error) const;
  base::Status fetch(std::size_t operand);
  base::Status post();
  std::uint64_t feeds() const;
  base::Status feed();
  base::Status decode(std::size_t leaf) const;

  const StreamScope& scope_;
  const Parts parts_;
  const std::shared_ptr<State> state_;
  std::shared_ptr<StagedCall> staged_;
};

// The first failure; what comes after it is not done.
class Steps {
 public:
  template <typename Step>
  Steps& then(Step step) {
    if (status.ok()) status = step();
    return *this;
  }
  base::Status status;
};

}  // namespace jccl::xla_ext::cuda
