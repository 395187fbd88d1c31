#include "net/security/credentials.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/rand.h>
#include <openssl/sha.h>

#include <charconv>
#include <chrono>
#include <span>

#include "base/planted.h"
#include "base/text.h"

namespace jccl::net {
namespace {

constexpr std::string_view kForm = "jccl2.<run id>.<run's public key>.<name>.<secret>";
constexpr std::string_view kRunForm = "jccl2run.<run id>.<seed>.<root>";

Status bad_token(std::string_view why) {
  return Status{Code::kAuth, base::cat("the token is not of the form ", kForm, ": ", why)};
}

Status bad_secret(std::string_view why) {
  return Status{Code::kAuth,
                base::cat("the run's secret is not of the form ", kRunForm, ": ", why)};
}

std::shared_ptr<const Identity> fresh() {
  Result<Identity> made = Identity::make();
  JCCL_CHECK(made.ok());  // a random generator and Ed25519 are part of every OpenSSL 3
  return std::make_shared<const Identity>(std::move(made.value()));
}

// Parts between the marks; false unless there are exactly N.
template <std::size_t N>
bool split(std::string_view text, char mark, std::array<std::string_view, N>* parts) {
  for (std::size_t i = 0; i < N; ++i) {
    const std::size_t dot = text.find(mark);
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

template <typename T>
bool read_number(std::string_view text, T* out) {
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, *out);
  return read.ec == std::errc() && read.ptr == end;
}

std::array<std::uint8_t, 32> secret_of(const RunSecret& secret, std::string_view name) {
  std::array<std::uint8_t, 16> salt = secret.run;
  if (JCCL_PLANTED("key-without-run")) salt = {};
  std::array<std::uint8_t, 32> out;
  derive(secret.root, salt,
         base::cat("jccl2 token ", JCCL_PLANTED("rights-not-in-the-secret") ? "" : name), out);
  return out;
}

}  // namespace

Status fill_random(std::span<std::uint8_t> out) {
  if (RAND_priv_bytes(out.data(), static_cast<int>(out.size())) == 1) return {};
  return Status{Code::kIo, "the system's random generator failed"};
}

bool expired(const TokenRights& rights) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  return rights.expires_unix_s != 0 && !JCCL_PLANTED("tokens-never-expire") &&
         static_cast<std::uint64_t>(seconds) >= rights.expires_unix_s;
}

std::string site_digest(std::string_view site) {
  std::array<std::uint8_t, 32> digest;
  SHA256(reinterpret_cast<const std::uint8_t*>(site.data()), site.size(), digest.data());
  return base::to_hex(digest).substr(0, 16);
}

std::string to_text(const TokenRights& rights) {
  return base::cat(std::string(1, static_cast<char>(rights.role)), "-", rights.uses, "-",
                   rights.expires_unix_s, "-", rights.site_digest, "-", rights.number);
}

std::optional<TokenRights> parse_rights(std::string_view name) {
  std::array<std::string_view, 5> parts;
  TokenRights out;
  if (!split(name, '-', &parts) || parts[0].size() != 1) return std::nullopt;
  out.role = static_cast<TokenRole>(parts[0][0]);
  if (out.role != TokenRole::kPeer && out.role != TokenRole::kObserver &&
      out.role != TokenRole::kAdmin) {
    return std::nullopt;
  }
  if (!read_number(parts[1], &out.uses) || !read_number(parts[2], &out.expires_unix_s)) {
    return std::nullopt;
  }
  std::array<std::uint8_t, 8> digest;
  std::array<std::uint8_t, 4> number;
  if (parts[3] != "0" && !base::from_hex(parts[3], digest)) return std::nullopt;
  if (!base::from_hex(parts[4], number)) return std::nullopt;
  out.site_digest = std::string(parts[3]);
  out.number = std::string(parts[4]);
  return out;
}

Result<RunSecret> parse_run_secret(std::string_view text) {
  std::array<std::string_view, 4> parts;
  if (text.starts_with("jccl2.")) {
    return Status{Code::kAuth,
                  "this is a token, which admits peers; a master needs the run's own secret, as "
                  "`jccl token` makes it"};
  }
  if (!split(text, '.', &parts)) return bad_secret("it needs four parts with dots between");
  if (parts[0] != "jccl2run") return bad_secret("it does not start with jccl2run");
  RunSecret secret;
  if (!base::from_hex(parts[1], secret.run)) {
    return bad_secret("the run id is not 32 hex digits");
  }
  if (!base::from_hex(parts[2], secret.seed)) return bad_secret("the seed is not 64 hex digits");
  if (!base::from_hex(parts[3], secret.root)) {
    return bad_secret("the root is not 32 hex digits");
  }
  return secret;
}

std::string to_text(const RunSecret& secret) {
  return base::cat("jccl2run.", base::to_hex(secret.run), ".", base::to_hex(secret.seed), ".",
                   base::to_hex(secret.root));
}

Result<RunSecret> new_run_secret() {
  RunSecret secret;
  Status status = fill_random(secret.run);
  if (status.ok()) status = fill_random(secret.seed);
  if (status.ok()) status = fill_random(secret.root);
  if (!status.ok()) return status;
  return secret;
}

Status admits(std::string_view name, std::string_view site) {
  const auto rights = parse_rights(name);
  if (name.empty() || !rights) return {};
  // An operator joins to put the run back to a state.
  if (rights->role == TokenRole::kObserver && !JCCL_PLANTED("observers-join")) {
    return {Code::kAuth,
            "this is an observer's token: it can read the status of the run, but not join it"};
  }
  if (rights->site_digest != "0" && rights->site_digest != site_digest(site) &&
      !JCCL_PLANTED("token-of-another-site")) {
    return {Code::kAuth, base::cat("this token is for another site than '", site,
                                   "': pass the site that it was made for")};
  }
  return {};
}

bool is_for(std::string_view name, std::string_view site_digest) {
  const auto rights = parse_rights(name);
  return rights && rights->site_digest == site_digest && !expired(*rights);
}

Result<TokenRights> new_rights() {
  const auto number = random_bytes<4>();
  if (!number.ok()) return number.status();
  TokenRights rights;
  rights.number = base::to_hex(number.value());
  return rights;
}

Token make_token(const RunSecret& secret, const TokenRights& rights) {
  Token token;
  token.run = secret.run;
  token.run_key = Identity::from_seed(secret.seed).value().key();
  token.name = to_text(rights);
  JCCL_CHECK(token.name.size() <= kSharedNameMax);
  token.secret = secret_of(secret, token.name);
  return token;
}

Result<Token> parse_token(std::string_view text, TokenRole role) {
  if (text.starts_with("jccl2run.")) {
    const Result<RunSecret> secret = parse_run_secret(text);
    if (!secret.ok()) return secret.status();
    Result<TokenRights> rights = new_rights();
    if (!rights.ok()) return rights.status();
    rights.value().role = role;
    return make_token(secret.value(), rights.value());
  }
  std::array<std::string_view, 5> parts;
  if (!split(text, '.', &parts)) return bad_token("it needs five parts with dots between");
  if (parts[0] != "jccl2") return bad_token("it does not start with jccl2");
  Token token;
  if (!base::from_hex(parts[1], token.run)) {
    return bad_token("the run id is not 32 hex digits");
  }
  if (!base::from_hex(parts[2], token.run_key)) {
    return bad_token("the run's public key is not 64 hex digits");
  }
  if (!parse_rights(parts[3])) return bad_token("its name does not say which rights it gives");
  token.name = std::string(parts[3]);
  const bool long_secret =
      JCCL_PLANTED("token-secret-short") && parts[4].size() > 2 * token.secret.size();
  const std::string_view secret =
      long_secret ? parts[4].substr(0, 2 * token.secret.size()) : parts[4];
  if (!base::from_hex(secret, token.secret)) return bad_token("the secret is not 64 hex digits");
  return token;
}

std::string to_text(const Token& token) {
  return base::cat("jccl2.", base::to_hex(token.run), ".", base::to_hex(token.run_key), ".",
                   token.name, ".", base::to_hex(token.secret));
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
  out.shared = {token.name, token.secret};
  out.run_key = token.run_key;
  return out;
}

Credentials Credentials::of_master(const RunSecret& secret) {
  Credentials out = plain(secret.run);
  out.tls = true;
  const Identity run_key = Identity::from_seed(secret.seed).value();
  out.run_key = run_key.key();
  out.certificate = certify_master(run_key, secret.run, out.identity->key());
  out.known = [secret](std::string_view name) -> std::optional<SharedKey> {
    const auto rights = parse_rights(name);
    if (!rights || expired(*rights)) return std::nullopt;
    return SharedKey{std::string(name), secret_of(secret, name)};
  };
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
