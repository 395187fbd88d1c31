// Turns what a user asked for into what the threads need: addresses, credentials, exposure checks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "net/recordings.h"
#include "net/security/credentials.h"
#include "net/socket/address.h"
#include "peer/communicator.h"
#include "protocol/peer/peer_machine.h"

namespace jccl::peer {

struct Setup {
  std::vector<net::Address> master;
  std::optional<net::Address> bind;  // none: this peer can only dial out
  net::Credentials credentials;
  protocol::PeerOptions machine;
  base::Incarnation incarnation = 0;
  net::Recordings recordings;
};

base::Result<Setup> make_setup(const ConnectOptions& options);

// What others are told to dial, once the port is known.
std::vector<std::string> advertised(const ConnectOptions& options, const net::Address& bound,
                                    const std::vector<net::Address>& master);

}  // namespace jccl::peer
