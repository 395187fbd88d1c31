// Opens a connection: each address, and each endpoint it resolves to, in order, until one is
// connected, its TLS handshake is done where credentials ask for it, and it has proved who it is.
// The error lists what was tried and why each failed. Confined to its loop's thread.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/limits.h"
#include "net/link/stream.h"
#include "net/security/credentials.h"
#include "net/security/introduction.h"
#include "net/socket/address.h"

namespace jccl::net {

struct DialOptions {
  Duration time_max = 10 * base::kSecond;    // for the whole list
  Duration connect_max = 5 * base::kSecond;  // for one endpoint's TCP connection
  Duration handshake_max = base::kHandshakeMax;
  Purpose purpose = Purpose::kControl;
  std::optional<PublicKey> expected = std::nullopt;  // nobody else will do
  std::string group = {};                            // of the run; "": the run itself
  // Asked about each endpoint, after names are resolved; not ok: it is passed over, and said so.
  std::function<Status(const Endpoint&)> allow = nullptr;
};

// A dial under way. Destroying it cancels: `done` is not called afterwards.
class Dial {
 public:
  virtual ~Dial() = default;
};

// `done` runs once. Codes: kAuth if any address refused the token, lacked one, or was not whom it
// should be, else kLinkLost
// if one was reached or refused, kIo if none could be resolved, kDeadline if time ran out. The
// dialling side must send first.
[[nodiscard]] std::unique_ptr<Dial> dial(Loop& loop, std::vector<Address> addresses,
                                         const Credentials& credentials, DialOptions options,
                                         StreamDone done);

}  // namespace jccl::net
