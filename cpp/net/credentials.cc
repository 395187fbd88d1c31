#include "net/credentials.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/rand.h>

#include <span>

#include "base/planted.h"
#include "base/text.h"

namespace jccl::net {
namespace {

constexpr std::string_view kForm = "jccl1.<run id>.<CA fingerprint or 0>.<secret>";

Status bad_token(std::string_view why) {
  return Status{Code::kAuth, base::cat("the token is not of the form ", kForm, ": ", why)};
}

std::shared_ptr<const Identity> fresh() {
  Result<Identity> made = Identity::make();
  JCCL_CHECK(made.ok());  // a random generator and Ed25519 are part of every OpenSSL 3
  return std::make_shared<const Identity>(std::move(made.value()));
}

// Parts between dots; false unless there are exactly N.
template <std::size_t N>
bool split(std::string_view text, std::array<std::string_view, N>* parts) {
  for (std::size_t i = 0; i < N; ++i) {
    const std::size_t dot = text.find('.');
    if ((dot == std::string_view::npos) && i + 1 < N) return false;
    if (dot != std::string_view::npos && i + 1 == N && !JCCL_PLANTED("token-fifth-part"))
      return false;
    (*parts)[i] = text.substr(0, dot);
    if (dot != std::string_view::npos) text.remove_prefix(dot + 1);
  }
  return true;
}

// HKDF-SHA256 (RFC 5869).
void derive(std::span<const std::uint8_t> secret, std::span<const std::uint8_t> salt,
            std::string_view info, std::span<std::uint8_t> out) {
  std::string digest = "SHA256", words(info);
  base::Bytes key(secret.begin(), secret.end()), salted(salt.begin(), salt.end());
  const OSSL_PARAM params[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest.data(), 0),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, key.data(), key.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, salted.data(), salted.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, words.data(), words.size()),
      OSSL_PARAM_construct_end()};
  EVP_KDF* kdf = EVP_KDF_fetch(nullptr, "HKDF", nullptr);
  JCCL_CHECK(kdf != nullptr);  // part of every OpenSSL 3 default provider
  EVP_KDF_CTX* context = EVP_KDF_CTX_new(kdf);
  JCCL_CHECK(context != nullptr);
  const int derived = EVP_KDF_derive(context, out.data(), out.size(), params);
  EVP_KDF_CTX_free(context);
  EVP_KDF_free(kdf);
  OPENSSL_cleanse(key.data(), key.size());
  JCCL_CHECK(derived == 1);
}

}  // namespace

Status fill_random(std::span<std::uint8_t> out) {
  if (RAND_priv_bytes(out.data(), static_cast<int>(out.size())) == 1) return {};
  return Status{Code::kIo, "the system's random generator failed"};
}

Result<Token> parse_token(std::string_view text) {
  std::array<std::string_view, 4> parts;
  if (!split(text, &parts)) return bad_token("it needs four parts with dots between");
  if (parts[0] != "jccl1") return bad_token("it does not start with jccl1");
  Token token;
  if (!base::from_hex(parts[1], std::span<std::uint8_t>(token.run)))
    return bad_token("the run id is not 32 hex digits");
  std::array<std::uint8_t, 32> fingerprint;
  if (parts[2] != "0" && !JCCL_PLANTED("fingerprint-not-checked") &&
      !base::from_hex(parts[2], fingerprint)) {
    return bad_token("the CA fingerprint is neither 0 nor 64 hex digits");
  }
  token.ca_fingerprint = std::string(parts[2]);
  const bool long_secret =
      JCCL_PLANTED("token-secret-short") && parts[3].size() > 2 * token.secret.size();
  const std::string_view secret =
      long_secret ? parts[3].substr(0, 2 * token.secret.size()) : parts[3];
  if (!base::from_hex(secret, std::span<std::uint8_t>(token.secret)))
    return bad_token("the secret is not 32 hex digits");
  return token;
}

std::string to_text(const Token& token) {
  return base::cat("jccl1.", base::to_hex(token.run), ".", token.ca_fingerprint, ".",
                   base::to_hex(std::span<const std::uint8_t>(token.secret)));
}

Result<base::RunId> new_run_id() {
  base::RunId run;
  const Status status = fill_random(run);
  if (!status.ok()) return status;
  return run;
}

Result<std::uint64_t> random_u64() {
  std::array<std::uint8_t, 8> bytes;
  const Status status = fill_random(bytes);
  if (!status.ok()) return status;
  std::uint64_t value = 0;
  for (const std::uint8_t byte : bytes) value = value << 8 | byte;
  return JCCL_PLANTED("random-may-be-zero") ? 0 : value == 0 ? 1 : value;
}

Result<Token> new_token() {
  Token token;
  Status status = fill_random(token.run);
  if (status.ok()) status = fill_random(token.secret);
  if (!status.ok()) return status;
  return token;
}

std::optional<SharedKey> Credentials::find(std::string_view name) const {
  if (known) return known(name);
  if (name != shared.name) return std::nullopt;
  return shared;
}

Credentials Credentials::plain(const base::RunId& run) {
  Credentials out;
  out.run = run;
  out.identity = fresh();
  return out;
}

Credentials Credentials::from(const Token& token) {
  Credentials out = plain(token.run);
  out.tls = true;
  out.shared.name = base::to_hex(token.run);
  std::array<std::uint8_t, 16> salt = token.run;
  if (JCCL_PLANTED("key-without-run")) salt = {};
  derive(token.secret, salt, "jccl1 tls external psk", out.shared.key);
  return out;
}

std::array<std::uint8_t, 16> link_secret(const base::RunId& run,
                                         const std::array<std::uint8_t, 32>& root,
                                         std::uint64_t generation) {
  std::array<std::uint8_t, 16> out;
  derive(root, run, base::cat("jccl1 links ", generation), out);
  return out;
}

SharedKey link_key(const base::RunId& run, std::uint64_t generation,
                   const std::array<std::uint8_t, 16>& secret) {
  SharedKey out;
  out.name = base::cat("links ", generation);
  derive(secret, run, "jccl1 link secret", out.key);
  return out;
}

Status check_exposure(const Address& address, bool has_token, bool insecure) {
  if (has_token || insecure || JCCL_PLANTED("exposure-not-refused") || is_loopback(address))
    return {};
  return Status{
      Code::kAuth,
      base::cat("refused: ", to_text(address),
                " is reachable from other machines and no token is set. Pass the run's token "
                "(JCCL_TOKEN or --token-file; `jccl token` makes one), or --insecure where "
                "everyone on the network may join and read the run")};
}

}  // namespace jccl::net
