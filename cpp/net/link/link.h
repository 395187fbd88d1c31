// One peer's way to another: n stripes (connections) fed from one queue. Whichever stripe has
// room takes the next frame, so a slow one never holds the others, and frames arrive in any order
// across stripes. A lost stripe is no error of the link: what may not have arrived is named, and
// the owner sends it again; so is what a stripe holds that is much later than its peers. Nothing
// is retransmitted here. Confined to its loop's thread; callbacks never run inside a call of the
// owner, and the owner may destroy the link in one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "exchange/flight.h"
#include "net/link/frames.h"
#include "net/link/io_thread.h"
#include "net/link/stream.h"
#include "net/socket/batch.h"
#include "net/throttle.h"

namespace jccl::net {

using exchange::Flight;
using exchange::StripeId;

struct StripeLoss {
  StripeId stripe = 0;
  Status status;
  // Frames written to the stripe, wholly or in part, and neither forgotten nor known to be there:
  // they may have arrived or not. In the order they were sent.
  std::vector<std::uint64_t> keys;
  bool complete = true;      // false: more than sent_keys_max were sent; the oldest are not named
  bool overcounted = false;  // it was lost since the other side acknowledged what never left
  bool heard = false;        // anything of the other side's link ever came by it
  Duration stood = 0;        // since add_stripe()
};

struct LinkEvents {
  // A stripe has room and no frame waits: the owner may send() some now, best one stripe's worth.
  std::function<void()> on_room = nullptr;
  std::function<void(std::uint64_t key)> on_sent =
      nullptr;  // the kernel has all of it; memory is free
  // Frames in a stripe that is much later than its peers: worth sending again.
  std::function<void(const std::vector<std::uint64_t>& keys)> on_late = nullptr;
  std::function<void(const StripeLoss&)> on_stripe_lost = nullptr;
  // After the on_stripe_lost of the last stripe that did not retire. Queued frames stay:
  // add_stripe() revives.
  std::function<void(Status)> on_dead = nullptr;
};

// "So many frames of this stripe have arrived", and "no frame of mine follows by it".
struct Ack {
  std::uint64_t frames = 0;
  bool last = false;
};

// How the owner spells that as a header without payload. Acks travel on the stripe they speak of.
// Without them a late stripe is not noticed, and none can retire.
struct Acks {
  std::function<Bytes(const Ack&)> make = nullptr;
  std::function<std::optional<Ack>(ByteView header)> read = nullptr;
};

struct LinkOptions {
  std::size_t header_bytes = 64;
  std::size_t sent_keys_max = 65536;  // remembered per stripe
  Acks acks = {};
  Duration retire_max = 20 * base::kSecond;  // who has not answered by then is lost
  IoThreads* io = nullptr;                   // outlive the link
  Throttle* throttle = nullptr;              // outlives the link; of several
};

struct StripeStats {
  StripeId stripe = 0;
  StreamStats stream;
  std::size_t frames_sent = 0;
  std::size_t frames_received = 0;
  bool sending = false;  // holds a frame it could not write out yet
  bool paused = false;   // the sink said so
  bool late = false;
  std::string remote;
};

struct LinkStats {
  std::size_t frames_queued = 0;
  std::uint64_t bytes_queued = 0;  // not yet taken by a stripe
  std::uint64_t sent_again = 0;    // frames named by on_late
  std::vector<StripeStats> stripes;
};

class Link {
 public:
  // `sink` outlives the link.
  Link(Loop& loop, LinkOptions options, DataSink* sink, LinkEvents events);
  ~Link();  // close()

  StripeId add_stripe(std::unique_ptr<ByteStream> stream);
  // From here on frames are given to so many stripes, the oldest; 0: to all. The others stand by.
  void use(std::size_t stripes);
  // So many stripes, the newest, are one too many: both sides finish what they have in them and
  // close them (Retirement). No loss, and nothing is sent again.
  void retire(std::size_t stripes);
  // As if the stripe had failed with `status`: reports its loss.
  void drop_stripe(StripeId stripe, Status status);
  void send(OutFrame frame);
  // Asks on_room() when stripes have room; for an owner that has something new.
  void wake();
  // Asks the sink again about every paused stripe.
  void resume();
  // Tells the other side what arrived and looks for late stripes. To be called every 100 ms. With
  // `alive_every`, each stripe tells so at least that often, even if nothing arrived: who waits
  // for frames of this side can tell a slow one from one that is cut off.
  void tick(Duration alive_every = 0);

  // Queued frames for which the predicate holds go, unsent and unreported. Number dropped.
  std::size_t drop_queued(const std::function<bool(std::uint64_t key)>& which);
  // For an aborted attempt: drops queued frames and copies what is left of frames being written,
  // so that on return nothing points at the owner's memory. No on_sent for them.
  void abandon_sending(const std::function<bool(std::uint64_t key)>& which);
  // Copies what is left of such frames, queued or being written, and goes on sending them.
  void own(const std::function<bool(std::uint64_t key)>& which);
  // Bytes that these two have copied and that are still held, and the end of the stripes with such.
  std::uint64_t copied_bytes() const;
  void drop_copied(const Status& status);
  // As abandon_sending() for frames being received: the rest is drained, their place is not touched
  // again.
  void abandon_receiving(const std::function<bool(ByteView header)>& which);
  // Sent keys whose fate no longer matters (round decided): not named by a later loss.
  void forget(const std::function<bool(std::uint64_t key)>& which);

  std::size_t stripe_count() const;  // without those that retire
  std::size_t connections() const;   // with them
  std::size_t room() const;          // bytes that the next stripe takes at a time
  bool sending() const;              // a frame is queued, or being written
  Duration rtt() const;              // the least of its stripes; 0: none is known yet
  // Bytes that reached the other side's kernel, also over stripes that are gone.
  std::uint64_t bytes_delivered() const;
  // Bytes a second that all stripes together should send, and a little more to find out that the
  // path got faster; 0: no bound. Each is given an equal part, or the one it had of what was
  // delivered lately if that is more: so the fast ones take what slow ones leave.
  void pace(double bytes_per_second);
  // Those that are used look for their rates anew, within pace().
  void probe();
  Time last_received() const;  // 0: nothing ever
  LinkStats stats() const;
  // Stops at once; no callback but DataSink::lost() for frames being received.
  void close();

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace jccl::net
