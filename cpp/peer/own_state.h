// What a peer knows of its own shared state under one tag: the revision it published or adopted
// last, and by marks what that was. The check of a state that a caller hands in is against this
// alone: no vote, no other peer. Guarded by the communicator's mutex.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "peer/communicator.h"

namespace jccl::peer {

class OwnState {
 public:
  bool known() const { return known_; }  // has been synchronised
  std::uint64_t revision() const { return revision_; }
  const StateMarks& marks() const { return marks_; }

  // These leaves are that revision: the words are theirs.
  void become(std::uint64_t revision, const std::vector<Leaf>& leaves, StateMarks marks);
  void settled();  // it is the run's newest: a mistake that comes now is another one

  // kInvalid: a state where none was synchronised, or none where one was. kResync: another state
  // than that of the revision; not asked where this peer is `ahead`: it has a result that it has
  // published no revision of.
  base::Status check(const base::Tag& tag, const std::optional<StateMarks>& handed, bool ahead);
  // kResync if that is not the revision.
  base::Status check_before(const base::Tag& tag, const StateMarks& handed);
  base::Status never_synchronised(const base::Tag& tag);

  std::string new_mistake();

 private:
  std::string difference(const StateMarks& handed) const;  // "" if there is none
  base::Status mistaken(base::Status status);

  bool known_ = false;
  std::uint64_t revision_ = 0;
  StateMarks marks_;
  std::vector<std::string> leaves_;
  std::string mistake_, unsaid_;
};

}  // namespace jccl::peer
