// What travels between an attempt and the stripes of a link: a frame on its way out, as views of
// whoever made it, and the place that the receiver gives to one that comes in. Pure.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"

namespace jccl::exchange {

struct OutFrame {
  base::Bytes header = {};                           // all headers of a link have one size
  std::vector<base::ByteView> payload = {};          // gathered in order; not copied
  std::shared_ptr<const void> keep_alive = nullptr;  // freed once sent, dropped or lost
  std::uint64_t key = 0;  // the owner's name for it; keys need not be unique
  bool urgent = false;    // before all frames that are not
};
std::uint64_t bytes_of(const OutFrame& frame);
void own_payload(OutFrame* frame);  // a copy of it, so that the owner's memory is free

// What a receiver answers to a data header.
struct Placement {
  enum class Kind {
    kInto,    // read the payload into these spans, in order
    kPause,   // not yet: stop reading this stripe until resumed, then ask again
    kDrain,   // read and forget so many bytes
    kAck,     // not a frame: the header was all of it, and it does not count
    kRefuse,  // nonsense: close the stripe
  };
  Kind kind = Kind::kRefuse;
  std::vector<base::MutableView> spans;
  std::uint64_t drain_bytes = 0;
  std::uint64_t token = 0;  // the receiver's name for this place: arrived and lost name it again
  base::Status status;

  static Placement into(base::MutableView span, std::uint64_t token = 0);
  static Placement into(std::vector<base::MutableView> spans, std::uint64_t token = 0);
  static Placement pause();
  static Placement drain(std::uint64_t bytes);
  static Placement ack();
  static Placement refuse(base::Status status);  // not Ok
};

}  // namespace jccl::exchange
