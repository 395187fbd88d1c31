// What a Link holds of one connection. Internal to this folder.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>

#include "exchange/flight.h"
#include "net/link/frames.h"
#include "net/link/io_thread.h"
#include "net/link/retirement.h"
#include "net/link/stream.h"
#include "net/socket/batch.h"

namespace jccl::net {

struct Stripe {
  Stripe(StripeId i, std::unique_ptr<ByteStream> s, std::size_t header_bytes,
         std::unique_ptr<DataSink> to)
      : id(i), stream(std::move(s)), sink(std::move(to)), reader(header_bytes, sink.get()) {}

  // Frames of the owner that have arrived, for good or not; acks do not count.
  std::uint64_t arrived() const { return reader.frames_received() + reader.frames_drained(); }

  StripeId id;
  std::unique_ptr<ByteStream> stream;
  std::unique_ptr<DataSink> sink;
  DataReader reader;
  Batch batch;
  IoThread::JobPtr writing, reading;  // another thread has the batch, the reader's payload
  Time handed_at = 0;                 // to the writing one
  std::size_t takes = 0;              // bytes of a batch for it, as learned
  Retirement retirement;
  bool gone = false;          // handlers still queued do nothing
  bool write_broken = false;  // reads to the end, then reports its loss
  bool ack_due = false;       // leaves after the frames being written
  bool heard = false;         // a header came
  bool overcounted = false;   // the other side acknowledged what never left
  Time since = 0;
  double moved = 0;            // bytes delivered, older ones count less
  std::uint64_t paced_at = 0;  // bytes delivered when it was paced last
  std::uint64_t acked = 0;     // of arrived(), the other side knows so many
  Time acked_at = 0;
  std::size_t frames_sent = 0;
};

using StripePtr = std::shared_ptr<Stripe>;

}  // namespace jccl::net
