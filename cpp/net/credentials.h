// What proves membership of a run: the token and what is derived from it. Off loopback everything
// needs a token; `check_exposure` is that rule. The secret is a TLS 1.3 external pre-shared key:
// it proves membership of the run, not who a member is.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "base/status.h"
#include "net/address.h"
#include "net/identity.h"

namespace jccl::net {

// jccl1.<run id, 32 hex>.<CA fingerprint, 64 hex, or 0>.<secret, 32 hex>
struct Token {
  base::RunId run{};
  std::string ca_fingerprint = "0";
  std::array<std::uint8_t, 16> secret{};
  bool operator==(const Token&) const = default;
};

// The error text never repeats the secret.
Result<Token> parse_token(std::string_view text);
std::string to_text(const Token& token);
Result<Token> new_token();  // fresh run and secret
Result<base::RunId> new_run_id();
Result<std::uint64_t> random_u64();  // never 0: incarnations
Status fill_random(std::span<std::uint8_t> out);
template <std::size_t N>
Result<std::array<std::uint8_t, N>> random_bytes() {
  std::array<std::uint8_t, N> out;
  const Status status = fill_random(out);
  if (!status.ok()) return status;
  return out;
}

inline constexpr std::size_t kSharedNameMax = 64;

// A secret that both ends of a connection have, by a name that is none.
struct SharedKey {
  std::string name;
  std::array<std::uint8_t, 32> key{};
};

struct Credentials {
  base::RunId run{};
  bool tls = false;  // false: plain TCP, for loopback or by explicit wish
  SharedKey shared;  // what this end dials with; without TLS it may be none
  // What an accepting end takes, by name; null: `shared` and no other.
  std::function<std::optional<SharedKey>(std::string_view name)> known = nullptr;
  std::shared_ptr<const Identity> identity;  // of this process
  std::optional<PublicKey> run_key;          // signs the keys of masters; none: any may lead
  Signature certificate{};                   // by the run's key, of this end's

  std::optional<SharedKey> find(std::string_view name) const;

  // Both with a fresh identity.
  static Credentials plain(const base::RunId& run);
  // HKDF-SHA256 of the secret, bound to the run.
  static Credentials from(const Token& token);
};

// Of one generation, from what only the master knows.
std::array<std::uint8_t, 16> link_secret(const base::RunId& run,
                                         const std::array<std::uint8_t, 32>& root,
                                         std::uint64_t generation);
// What links of a run show each other: "links <generation>", and a key by HKDF-SHA256.
SharedKey link_key(const base::RunId& run, std::uint64_t generation,
                   const std::array<std::uint8_t, 16>& secret);

// Binding or dialling `address` without a token is refused off loopback, unless `insecure`.
Status check_exposure(const Address& address, bool has_token, bool insecure);

}  // namespace jccl::net
