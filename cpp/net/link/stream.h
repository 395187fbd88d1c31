// A connected byte stream, plain TCP or encrypted, in readiness style: calls move what can be moved
// now and never block, so between calls nothing points at the caller's memory. Control connections
// stay in TLS 1.3, links go on sealed (sealed_stream.h).
// Confined to its loop's thread. Closing is destroying; after that no handler runs.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/bytes.h"
#include "base/status.h"
#include "net/security/credentials.h"
#include "net/socket/loop.h"

namespace jccl::net {

using base::Bytes;
using base::ByteView;
using base::MutableView;

struct StreamStats {
  std::uint64_t bytes_sent = 0;      // accepted by the kernel
  std::uint64_t bytes_received = 0;  // read from the kernel
  std::uint64_t bytes_acked = 0;     // acknowledged by the other kernel
  // The same with what arrived behind a gap, which is counted in segments: grows evenly where
  // bytes_acked leaps when a lost segment is repaired.
  std::uint64_t bytes_delivered = 0;
  std::uint64_t bytes_unacked = 0;  // in our kernel's send queue, sent or not
  Time sent_at = 0;                 // last time bytes_sent grew; creation at first
  Time received_at = 0;
  Duration rtt_ns = 0;  // as the kernel smooths it
};

// Who the other end of a connection has proved to be, and by which shared secret it was let in.
struct Introduced {
  base::PublicKey key{};
  std::string secret;  // its name
  std::string group;   // of the run, that it asks for; "": the run itself
};

class ByteStream {
 public:
  virtual ~ByteStream() = default;

  // Fills `parts` in order with what is there. Bytes moved; 0 = nothing now, or failed: see
  // failure(). Call until 0 before asking when_readable().
  std::size_t read_now(std::span<const MutableView> parts);
  std::size_t read_now(MutableView into) {
    return read_now(std::span<const MutableView>(&into, 1));
  }
  // Writes a prefix of `parts`, in order. 0 = no room now, or failed: see failure().
  std::size_t write_now(std::span<const ByteView> parts);
  // write_now() in three steps. Where descriptor() is one, another thread may take the middle one,
  // more than once, while this one does no more than read and ask for stats(). False: not now.
  bool begin_apart() { return flush_ahead() && prepare_apart(); }
  virtual std::size_t write_apart(std::span<const ByteView> parts) { return write_some(parts); }
  virtual bool write_apart_failed() const { return false; }
  virtual void end_apart() {}  // failure() says from here on what became of it
  // The same for read_now().
  bool begin_read_apart() const { return !has_unread(); }
  virtual std::size_t read_apart(std::span<const MutableView> parts) { return read_some(parts); }
  virtual bool read_apart_failed() const { return false; }
  virtual void end_read_apart() {}
  virtual int descriptor() const { return -1; }  // to wait for, of a stream that allows this
  // Runs `fn` once when a read (write) is worth another try, also after a failure. One of each
  // may wait at a time; a later call replaces the earlier.
  virtual void when_readable(std::function<void()> fn) = 0;
  virtual void when_writable(std::function<void()> fn) = 0;
  // No more bytes from us; reading goes on.
  virtual void shut_write() = 0;
  // Ok while the stream lives. kLinkLost when the other side closed, reset or timed out; kAuth
  // when TLS refused.
  virtual const Status& failure() const = 0;

  virtual StreamStats stats() const = 0;
  // At most so many bytes a second; 0: no bound. Loopback has none.
  virtual void pace(std::uint64_t bytes_per_second) = 0;
  // Looks for the path's rate anew, within pace(): congestion control that has found little room
  // grows by a quarter in eight round trips only. For those that do so.
  virtual void probe() {}
  virtual Time last_received() const = 0;       // stats().received_at, without asking the kernel
  virtual std::string remote_text() const = 0;  // "10.0.0.7:4711"
  virtual bool remote_is_loopback() const = 0;
  virtual bool is_tls() const = 0;  // or sealed: what is read is authentic
  // 32 bytes that only the two ends of this connection know (RFC 9266, tls-exporter); zeros of a
  // plain one.
  virtual std::array<std::uint8_t, 32> exporter() const { return {}; }
  // Of TLS alone: its connection, sealed from the next byte on in both directions; this stream is
  // of no use any more. Both ends ask for it at the same place. kCorrupt if the other one did not.
  virtual Result<std::unique_ptr<ByteStream>> sealed();

  void introduced(Introduced remote) { introduced_ = std::move(remote); }
  const Introduced& remote() const { return introduced_; }

  virtual std::size_t held_bytes() const { return 0; }  // of memory for what is on its way

  // Bytes read too far by an earlier owner: read_now gives them first.
  void unread(Bytes bytes);
  // Bytes an earlier owner had promised: written before anything else.
  void write_ahead(Bytes bytes);
  // Writes what write_ahead() left. True when nothing of it is left.
  bool flush_ahead();

 protected:
  virtual std::size_t read_some(std::span<const MutableView> parts) = 0;
  virtual std::size_t write_some(std::span<const ByteView> parts) = 0;
  virtual bool prepare_apart() { return failure().ok(); }
  bool has_unread() const { return unread_at_ < unread_.size(); }

 private:
  Bytes unread_;
  std::size_t unread_at_ = 0;
  Bytes ahead_;
  std::size_t ahead_at_ = 0;
  Introduced introduced_;
};

// Takes a connected, non-blocking socket and tunes it: no Nagle delay, no SIGPIPE, keepalive,
// congestion control by round-trip time.
std::unique_ptr<ByteStream> plain_stream(Loop& loop, int fd);

enum class Role { kDialling, kAccepting };

// A TLS handshake over `lower`. Destroying it cancels. `done` runs once, on the loop's thread,
// with the encrypted stream or with kAuth (token wrong or missing on one side), kLinkLost or
// kDeadline. No certificates, no tickets, no early data.
class Handshake {
 public:
  virtual ~Handshake() = default;
};
using StreamDone = std::function<void(Result<std::unique_ptr<ByteStream>>)>;
[[nodiscard]] std::unique_ptr<Handshake> tls_handshake(Loop& loop,
                                                       std::unique_ptr<ByteStream> lower, Role role,
                                                       const Credentials& credentials,
                                                       Duration time_max, StreamDone done);

}  // namespace jccl::net
