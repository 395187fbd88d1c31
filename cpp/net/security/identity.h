// Who a process is: an Ed25519 key pair (RFC 8032). The public key is the name that others know it
// by; only its owner can sign with it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/status.h"

namespace jccl::net {

using base::ByteView;
using base::PublicKey;
using base::Result;
using base::Status;
using Signature = std::array<std::uint8_t, 64>;

class Identity {
 public:
  static Result<Identity> make();  // a fresh pair
  static Result<Identity> from_seed(std::span<const std::uint8_t, 32> seed);
  // The pair in the file: 64 hex digits of the seed. A file that is not there is made, for its
  // owner's eyes only; one that others can read is refused (kAuth), and never overwritten.
  static Result<Identity> open(const std::string& path);

  const PublicKey& key() const { return key_; }
  Signature sign(ByteView message) const;

 private:
  struct Pair;
  explicit Identity(std::shared_ptr<const Pair> pair);
  std::shared_ptr<const Pair> pair_;
  PublicKey key_{};
};

std::string short_name(const PublicKey& key);  // "3f9a1c02…": the first eight digits, for people

bool verify(const PublicKey& key, ByteView message, const Signature& signature);

// What the key of a run says of a master: that this key may lead it.
Signature certify_master(const Identity& run_key, const base::RunId& run, const PublicKey& master);
bool may_lead(const PublicKey& run_key, const base::RunId& run, const PublicKey& master,
              const Signature& certificate);

}  // namespace jccl::net
