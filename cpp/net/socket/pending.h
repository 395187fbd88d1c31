// The places for sockets that have not said hello: bounded in number, and fair to who comes. When
// all are taken, the network (an IPv4 address, 64 bits of an IPv6 one) that holds most of them
// gives up its oldest, so that neither silence nor a first byte nor half a hello keeps others out.
// Addresses of the loopback are told apart like any others.
// Confined to its loop's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

namespace jccl::net {

// One place; freed with its last owner, who may outlive the listener.
struct PendingPlace {
  // How its socket makes room for another. Whoever holds the socket says it, anew when it is
  // handed on; a place without it is not asked.
  std::function<void()> give_way;
};

class PendingPlaces : public std::enable_shared_from_this<PendingPlaces> {
 public:
  explicit PendingPlaces(std::size_t most) : most_(most) {}
  std::size_t taken() const { return places_.size(); }
  bool full() const { return places_.size() >= most_; }
  // Whether there is a place now; somebody was asked to leave if there was none.
  bool make_room();
  // Only when there is a place.
  std::shared_ptr<PendingPlace> take(const std::string& network);

 private:
  struct Entry {
    std::string network;
    PendingPlace* place;
  };
  void free(std::uint64_t id);

  std::size_t most_;
  std::uint64_t last_ = 0;
  std::map<std::uint64_t, Entry> places_;  // the oldest first
  std::map<std::string, std::size_t> per_network_;
};

}  // namespace jccl::net
