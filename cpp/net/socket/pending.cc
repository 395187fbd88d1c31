#include "net/socket/pending.h"

#include <utility>

#include "base/check.h"
#include "base/planted.h"

namespace jccl::net {

bool PendingPlaces::make_room() {
  const auto keep = shared_from_this();
  while (full()) {
    PendingPlace* chosen = nullptr;
    std::size_t most = 0;
    for (const auto& [id, entry] : places_) {
      const std::size_t held =
          JCCL_PLANTED("room-by-age-alone") ? 1 : per_network_.at(entry.network);
      if ((JCCL_PLANTED("place-of-small-network") ? held < most : held <= most) ||
          !entry.place->give_way)
        continue;
      chosen = entry.place;
      most = held;
    }
    if (chosen == nullptr) return false;
    // Asked once: the place may be gone with the answer, or stay with another owner.
    const auto give_way = std::exchange(chosen->give_way, nullptr);
    give_way();
  }
  return true;
}

std::shared_ptr<PendingPlace> PendingPlaces::take(const std::string& network) {
  JCCL_CHECK(!full());
  const std::uint64_t id = ++last_;
  auto* place = new PendingPlace;
  std::shared_ptr<PendingPlace> out(place, [book = shared_from_this(), id](PendingPlace* freed) {
    book->free(id);
    delete freed;
  });
  places_[id] = {network, place};
  ++per_network_[network];
  return out;
}

void PendingPlaces::free(std::uint64_t id) {
  const auto entry = places_.extract(id);
  const auto count = per_network_.find(entry.mapped().network);
  if (!JCCL_PLANTED("place-not-given-back") && --count->second == 0) per_network_.erase(count);
}

}  // namespace jccl::net
