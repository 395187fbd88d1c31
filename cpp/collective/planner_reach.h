// Which contributors of an attempt have links with each other, who has one with all, and a ring
// over such links only. Positions are those of the sorted members. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace jccl::collective {

class Reach {
 public:
  // Links that failed, either way round, and peers that only dial out: no two of them have a link.
  Reach(const std::vector<base::PeerId>& members,
        const std::vector<std::pair<base::PeerId, base::PeerId>>& failed,
        const std::vector<base::PeerId>& dial_only);

  bool complete() const { return failed_.empty() && dial_only_count_ < 2; }
  bool linked(std::uint32_t a, std::uint32_t b) const;
  std::vector<bool> hubs() const;  // who has a link with everybody
  // A ring of linked neighbours, from position 0 on. A Hamiltonian cycle: searched exhaustively
  // for up to 16 members, above that by repairing an order (E. Palmer, 1997), which always
  // succeeds if every peer has links to at least half of the others and gives up otherwise only
  // when no repair step is left.
  std::optional<std::vector<std::uint32_t>> ring() const;
  base::Status no_way_around(std::string_view plan) const;  // kLinkLost, with a remedy

 private:
  std::uint32_t count_ = 0;
  std::set<std::pair<std::uint32_t, std::uint32_t>> failed_;
  std::pair<base::PeerId, base::PeerId> first_failed_{0, 0};
  std::vector<bool> dial_only_;
  std::size_t dial_only_count_ = 0;
  std::pair<base::PeerId, base::PeerId> first_dialling_{0, 0};
};

}  // namespace jccl::collective
