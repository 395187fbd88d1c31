// What a peer knows of its own shared state under one tag: the revision it published or adopted
// last, and by marks what that was. A state that a caller hands in is compared with this alone: no
// vote, no other peer. Guarded by the communicator's mutex.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "peer/communicator.h"

namespace jccl::peer {

using TooLate = std::function<bool()>;  // asked by several threads; once true, true for good

// As marks_of(), unless it gets too late before the last byte is read.
std::optional<StateMarks> marks_in_time(const std::vector<Leaf>& leaves, const TooLate& too_late);

class OwnState {
 public:
  bool known() const { return known_; }  // has been synchronised
  std::uint64_t revision() const { return revision_; }
  const StateMarks& marks() const { return marks_; }

  // These leaves are that revision: the words are theirs.
  void become(std::uint64_t revision, const std::vector<Leaf>& leaves, StateMarks marks);
  void settled();  // it is the run's newest: a mistake that comes now is another one

  // kInvalid: a state where none was synchronised, or none where one was.
  base::Status admit(const base::Tag& tag, bool is_handed);
  // kResync: another state than that of the revision.
  base::Status compare(const base::Tag& tag, const StateMarks& handed,
                       const std::vector<Leaf>* leaves = nullptr);  // what was marked, if known
  // kResync if that is not the revision.
  base::Status check_before(const base::Tag& tag, const StateMarks& handed);
  base::Status never_synchronised(const base::Tag& tag);
  // Which leaf is of another type or size than that revision's; "": none.
  std::string other_type(const std::vector<Leaf>& leaves) const;

  std::string new_mistake();

 private:
  std::string difference(const StateMarks& handed) const;  // "" if there is none
  base::Status mistaken(base::Status status);

  bool known_ = false;
  std::uint64_t revision_ = 0;
  StateMarks marks_;
  std::vector<std::string> leaves_;
  std::vector<std::pair<codec::Dtype, std::uint64_t>> types_;
  std::string mistake_, unsaid_;
};

}  // namespace jccl::peer
