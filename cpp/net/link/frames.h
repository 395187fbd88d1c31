// Frames on a ByteStream. Control frames: u32 payload bytes | u32 crc32c(payload) | payload, small
// and bounded, smaller still before authentication; memory grows with what has arrived, not with
// what a frame announces. Data frames: a header of fixed size that is
// opaque here, then a payload whose size and place the sink decides; no size is taken from the
// wire. Confined to the loop's thread; any method may be called, and the object destroyed, from
// its own callbacks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/limits.h"
#include "base/status.h"
#include "exchange/frame.h"
#include "net/link/stream.h"
#include "net/socket/pending.h"

namespace jccl::net {

// What the other ends make this process hold, counted in one place: of each stream that is given
// it, what arrives and what is queued. Of one loop.
struct HeldMemory {
  std::size_t bytes = 0, max = SIZE_MAX;
  std::function<void()> over = nullptr;  // more than `max`; inside a stream's own call
};

struct FramedOptions {
  std::uint32_t hello_bytes_max = base::kHelloBytesMax;    // until authenticated()
  std::uint32_t frame_bytes_max = base::kControlBytesMax;  // from then on
  std::uint32_t sent_bytes_max = base::kControlBytesMax;   // of a frame that send() takes
  std::size_t queue_bytes_max = 16 * 1024 * 1024;          // unsent; beyond it send() refuses
  Time hello_by = base::kNever;  // closes unless authenticated() was called by then
  // Released by authenticated() or closing; until then this closes (kLimit) to make room.
  std::shared_ptr<PendingPlace> pending = nullptr;
  std::shared_ptr<HeldMemory> memory = nullptr;
};

class FramedStream {
 public:
  FramedStream(Loop& loop, std::unique_ptr<ByteStream> stream, FramedOptions options = {});
  ~FramedStream();  // closes at once

  // Starts reading. The view is valid during the call. on_closed comes at most once, and not
  // after close(), finish() or take(): kLinkLost, kAuth, kDeadline (no hello in time), kCorrupt
  // (checksum), kLimit (frame too large).
  void start(std::function<void(ByteView)> on_frame, std::function<void(Status)> on_closed);
  void authenticated();
  // Between pause() and resume() nothing is read and no frame is handed over, not even those that
  // have arrived: the other side is held back by its full window, and its end is noticed later.
  void pause();
  void resume();
  // Queues a frame; those queued in one turn of the loop leave in one write. kLimit if the queue
  // is full or the frame too large, kClosed after the end. Takes effect before start() too.
  Status send(ByteView payload);
  void close();
  // Closes once the queue is written and the other side has read it (or 1 s passed): for a last
  // word to a stranger. Frames that still arrive are dropped. At once if more than 256 KiB wait:
  // who does not read hears no last word.
  void finish();
  // Gives the stream on, with what was read too far and what is still unsent, e.g. to a Link.
  std::unique_ptr<ByteStream> take();

  const ByteStream* stream() const;  // null after the end
  std::size_t queued_bytes() const;
  std::size_t held_bytes() const;  // of memory: for what arrives and what is queued
  StreamStats stats() const;       // the last known after the end

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

using exchange::Placement;

class DataSink {
 public:
  virtual ~DataSink() = default;
  virtual Placement place(ByteView header) = 0;
  // The payload is in place; the sink checks its CRC. Anything but Ok closes the stripe. `token` is
  // the placement's: two copies of one frame may be under way on two stripes.
  virtual Status arrived(ByteView header, std::uint64_t token) = 0;
  // The stripe ended between place() and arrived(): the place is free again.
  virtual void lost(ByteView header, std::uint64_t token) = 0;
};

// Reads data frames from one stream; a Link has one per stripe.
class DataReader {
 public:
  // `sink` outlives the reader.
  DataReader(std::size_t header_bytes, DataSink* sink);
  ~DataReader();  // cancel()
  // Moves up to about `budget` bytes. kBlocked: ask the stream when_readable(). kMore: the budget
  // is used up. kPaused: call again after resume. kFailed: see status().
  // With `large`, kLarge: so much is missing of a payload; see missing().
  enum class Outcome { kBlocked, kMore, kPaused, kFailed, kLarge };
  Outcome pump(ByteStream& stream, std::size_t budget, std::size_t large = SIZE_MAX);
  // What is missing of the payload under way and of the header behind it, for another thread to
  // fill. took(): so much of it was filled, from the front; says so to the sink when it is whole,
  // but not with `quiet`: then took(0) has to follow, unless the frame is abandoned.
  std::vector<MutableView> missing();
  void took(std::size_t bytes, bool quiet = false);
  // A payload is, of such a frame.
  bool under_way(const std::function<bool(ByteView header)>& which) const;
  bool paused() const;
  const Status& status() const;
  // Ends reading: pump() fails from here on, also one under way. Calls lost() as at the end.
  void cancel();
  std::size_t frames_received() const;
  std::size_t frames_drained() const;
  // The frame under way, if the predicate holds for its header, is drained from here on and its
  // place is not touched any more; neither arrived() nor lost() will come.
  void abandon(const std::function<bool(ByteView header)>& which);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace jccl::net
