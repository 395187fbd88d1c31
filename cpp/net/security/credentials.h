// What proves the right to take part in a run: the run's own secret, and tokens made from it. Off
// loopback everything needs one; `check_exposure` is that rule. A token's secret is a TLS 1.3
// external pre-shared key. Who somebody is, its key says (identity.h).
//
//   run secret  jccl2run.<run>.<seed of the run's key pair>.<root>   for masters, and to make
//   tokens token       jccl2.<run>.<the run's public key>.<name>.<secret>   for everybody else
//
// The name of a token says what it admits to, and its secret follows from root and name: a master
// knows all tokens without a list, and nobody can change a name. In hex: run and root 32 digits,
// seed, public key and secret 64.
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
#include "net/security/identity.h"
#include "net/socket/address.h"

namespace jccl::net {

// May join; may ask for the status; may give orders, too.
enum class TokenRole : char { kPeer = 'p', kObserver = 'o', kAdmin = 'a' };

// What a token admits to. As text: <role>-<uses>-<expires>-<site's digest, or 0>-<number>.
struct TokenRights {
  TokenRole role = TokenRole::kPeer;
  std::uint32_t uses = 0;            // keys of one shard that may join by it; 0: any number
  std::uint64_t expires_unix_s = 0;  // 0: never
  std::string site_digest = "0";     // of the one site that may use it; 0: any
  std::string number;                // 8 hex digits, so that two tokens differ
};
std::string site_digest(std::string_view site);  // 16 hex digits of SHA-256
std::string to_text(const TokenRights& rights);
std::optional<TokenRights> parse_rights(std::string_view name);
bool expired(const TokenRights& rights);  // by this machine's clock

// Of the run: whoever has it makes tokens and is a master.
struct RunSecret {
  base::RunId run{};
  std::array<std::uint8_t, 32> seed{};  // of the run's key pair
  std::array<std::uint8_t, 16> root{};
  bool operator==(const RunSecret&) const = default;
};
struct Token {
  base::RunId run{};
  PublicKey run_key{};
  std::string name;
  std::array<std::uint8_t, 32> secret{};
  bool operator==(const Token&) const = default;
};

// The error texts never repeat a secret.
Result<RunSecret> parse_run_secret(std::string_view text);
std::string to_text(const RunSecret& secret);
Result<RunSecret> new_run_secret();
// A token, or one that is made of a run's secret here: of that role, for good, at any site.
Result<Token> parse_token(std::string_view text, TokenRole role = TokenRole::kPeer);
std::string to_text(const Token& token);
Token make_token(const RunSecret& secret, const TokenRights& rights);
// Whether whoever has the token of this name may join as a peer of that site; "": no token is used.
Status admits(std::string_view name, std::string_view site);
// Whether the token of this name is made for the site of that digest, and has not expired.
bool is_for(std::string_view name, std::string_view site_digest);
Result<TokenRights> new_rights();  // of a peer, for good, at any site

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

  // All with a fresh identity.
  static Credentials plain(const base::RunId& run);
  static Credentials from(const Token& token);
  // Of a master: takes every token that the run's secret has made and that has not expired.
  static Credentials of_master(const RunSecret& secret);
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
