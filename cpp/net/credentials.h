// What proves membership of a run: the token and what is derived from it. Off loopback everything
// needs a token; `check_exposure` is that rule. The secret is a TLS 1.3 external pre-shared key:
// it proves membership of the run, not who a member is.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "base/status.h"
#include "net/address.h"

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

struct Credentials {
  base::RunId run{};
  bool tls = false;                    // false: plain TCP, for loopback or by explicit wish
  std::array<std::uint8_t, 32> key{};  // pre-shared key; all zero without TLS

  static Credentials plain(const base::RunId& run);
  // HKDF-SHA256 of the secret, bound to the run.
  static Credentials from(const Token& token);
};

// Binding or dialling `address` without a token is refused off loopback, unless `insecure`.
Status check_exposure(const Address& address, bool has_token, bool insecure);

}  // namespace jccl::net
