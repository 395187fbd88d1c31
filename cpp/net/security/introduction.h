// How the two ends of a connection prove who they are, on a fresh stream, plain or TLS:
//
//   dialling                                     accepting
//   │ greeting: own key, nonce, name of the key shared, perhaps a group of the run
//   ├───────────────────────────────────────────────────▶│
//   │    answer: run, own key, nonce, signature, certificate
//   │◀───────────────────────────────────────────────────┤
//   │ proof: signature                                    │
//   ├───────────────────────────────────────────────────▶│
//
// Both sign the same words, but for the side they are on: both keys, the purpose, the run, and a
// binding to this one connection (RFC 9266's exporter under TLS, both nonces, the secret that is
// shared, and the group if one is asked for). A signature is worth nothing on any other connection,
// in the other direction, or for another purpose. Bytes: PROTOCOL.md.
#pragma once

#include <memory>
#include <optional>

#include "net/link/stream.h"
#include "net/security/credentials.h"
#include "net/security/identity.h"

namespace jccl::net {

// What a connection is for; a proof for one is none for another.
enum class Purpose : std::uint8_t { kControl = 1, kLink = 2 };

struct IntroductionOptions {
  Purpose purpose = Purpose::kControl;
  std::optional<PublicKey> expected;  // dialling: nobody else will do
  std::string group;                  // dialling for control: of the run; "": the run itself
  Duration time_max = 0;
};

// As tls_handshake(): `done` runs once with the stream, which says from now on whose it is, or with
// kAuth (who answers is somebody else, or nobody that may lead this run), kLinkLost, kDeadline or
// kCorrupt. Destroying it cancels.
[[nodiscard]] std::unique_ptr<Handshake> introduce(Loop& loop, std::unique_ptr<ByteStream> stream,
                                                   Role role, const Credentials& credentials,
                                                   const IntroductionOptions& options,
                                                   StreamDone done);

// What both ends know of one connection, and the words that one of them signs; for golden vectors.
struct Conversation {
  Purpose purpose = Purpose::kControl;
  base::RunId run{};
  PublicKey dialling{}, accepting{};
  std::array<std::uint8_t, 32> dialling_nonce{}, accepting_nonce{};
  std::array<std::uint8_t, 32> exporter{};  // all zero without TLS
  std::array<std::uint8_t, 32> secret{};    // shared; all zero without
  std::string group = {};                   // that is asked for
};
Bytes words_to_sign(const Conversation& said, Role side);

}  // namespace jccl::net
