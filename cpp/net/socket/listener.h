// Accepts connections on one port, IPv4 and IPv6. A socket is pending until its owner releases
// `Accepted::pending`; pending sockets are bounded in number and time, and a stranger costs no
// more than that. Who is over its network's quotas is closed before a byte is read. When all places
// are taken the oldest of whoever holds most makes room. The dialling side sends first: a silent
// socket is closed at the deadline, and one that speaks TLS where none is (or the reverse) is told
// so and closed. What is handed over has proved who it is. Confined to its loop's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "base/limits.h"
#include "net/link/stream.h"
#include "net/quotas.h"
#include "net/security/credentials.h"
#include "net/security/introduction.h"
#include "net/socket/address.h"
#include "net/socket/pending.h"

namespace jccl::net {

struct Accepted {
  std::unique_ptr<ByteStream> stream;
  Time adopt_by = 0;    // close the stream unless its hello was accepted by then
  std::string network;  // who shares quotas with it: network_of() its address
  // Release when the hello was accepted (or the stream closed). A FramedStream with it makes room.
  std::shared_ptr<PendingPlace> pending;
};

struct ListenerOptions {
  std::size_t pending_max = base::kPendingSocketsMax;
  Duration handshake_max = base::kHandshakeMax;  // first byte, TLS, introduction and hello
  Purpose purpose = Purpose::kControl;
  std::optional<QuotaRates> quotas = std::nullopt;  // none: no bounds per second
};

struct ListenerStats {
  std::uint64_t accepted = 0;    // handed to the callback
  std::uint64_t refused = 0;     // by TLS or for want of a proof, or spoke something else
  std::uint64_t late = 0;        // closed at the deadline
  std::uint64_t excess = 0;      // closed because too many were pending, these or others for them
  std::uint64_t over_quota = 0;  // closed before they could say a word
  std::size_t pending = 0;
};

class Listener {
 public:
  virtual ~Listener() = default;  // closes; pending sockets too, handed-over ones not
  // Port 0 takes a free one. kIo if the port is in use or may not be bound.
  static Result<std::unique_ptr<Listener>> open(Loop& loop, const Address& bind,
                                                const Credentials& credentials,
                                                ListenerOptions options,
                                                std::function<void(Accepted)> on_accepted);
  virtual std::uint16_t port() const = 0;
  virtual ListenerStats stats() const = 0;
  // For connections that come from now on, and for those that are held.
  virtual void renew(const Credentials& credentials) = 0;
  // Until then whoever comes is not read: closing what comes before its time would cost the other
  // side a connection.
  virtual void hold() = 0;
};

// Holds a port without listening: whoever dials it is refused at once. A listener of this process
// can be opened on it meanwhile.
class Reservation {
 public:
  virtual ~Reservation() = default;
  // As Listener::open.
  static Result<std::unique_ptr<Reservation>> open(const Address& bind);
  virtual std::uint16_t port() const = 0;
};

}  // namespace jccl::net
