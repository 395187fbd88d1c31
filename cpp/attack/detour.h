// A way to a master of this machine from an address of its own, 127.0.0.2: what comes from
// 127.0.0.1 uses up the quotas of that address alone. Carries one connection at a time, whole. Any
// thread; the end of the object is the end of the way.
#pragma once

#include <atomic>
#include <string>
#include <thread>

namespace jccl::attack {

class Detour {
 public:
  explicit Detour(const std::string& master);  // HOST:PORT, of which the port counts
  ~Detour();
  Detour(const Detour&) = delete;
  Detour& operator=(const Detour&) = delete;

  const std::string& address() const { return address_; }  // to dial; empty: there is none

 private:
  void serve(std::uint16_t port) const;
  void carry(int near, int far) const;  // until either side ends

  int listener_ = -1;
  std::string address_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace jccl::attack
