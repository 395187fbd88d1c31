#include "net/security/identity.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/check.h"
#include "base/planted.h"
#include "base/text.h"

namespace jccl::net {
namespace {

using base::cat;
using base::Code;

constexpr std::size_t kSeedBytes = 32;
constexpr std::size_t kFileBytesMax = 4096;

struct FreeContext {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};
using Context = std::unique_ptr<EVP_MD_CTX, FreeContext>;

Status file_error(const std::string& path, const char* what) {
  return {Code::kIo, cat("key file ", path, ": ", what, ": ", std::strerror(errno))};
}

// A new file with a fresh seed. Another process may have made it meanwhile: then that one is it.
Status make_file(const std::string& path) {
  std::array<std::uint8_t, kSeedBytes> seed;
  if (RAND_priv_bytes(seed.data(), static_cast<int>(seed.size())) != 1) {
    return {Code::kIo, "the system's random generator failed"};
  }
  const std::string text = base::to_hex(std::span<const std::uint8_t>(seed)) + "\n";
  OPENSSL_cleanse(seed.data(), seed.size());
  std::string fresh = path + ".XXXXXX";
  const int fd = ::mkostemp(fresh.data(), O_CLOEXEC);  // 0600
  if (fd < 0) return file_error(path, "cannot be made");
  const bool written = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                       ::fsync(fd) == 0;
  ::close(fd);
  // A link, not a rename: it fails if the file is there by now.
  const bool named = written && ::link(fresh.c_str(), path.c_str()) == 0;
  const int error = errno;
  ::unlink(fresh.c_str());
  errno = error;
  if (!named && !(written && error == EEXIST)) return file_error(path, "cannot be written");
  return {};
}

Result<std::string> read_private(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe would wait
  if (fd < 0) return file_error(path, "cannot be read");
  struct stat facts{};
  std::string text(kFileBytesMax, '\0');
  const bool known = ::fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode);
  if (!known) errno = EINVAL;
  const ssize_t n = known ? ::read(fd, text.data(), text.size()) : -1;
  ::close(fd);
  if (n < 0) return file_error(path, "cannot be read");
  if ((facts.st_mode & 077) != 0 && !JCCL_PLANTED("key-file-for-all")) {
    OPENSSL_cleanse(text.data(), text.size());
    return Status(Code::kAuth, cat("key file ", path,
                                   " can be read by other users of this machine; take their rights "
                                   "away (chmod 600), or make a new key if they may have read it"));
  }
  text.resize(static_cast<std::size_t>(n));
  while (!text.empty() && std::string_view(" \r\n").find(text.back()) != std::string_view::npos) {
    text.pop_back();
  }
  return text;
}

// Points of small order (and their other encodings): one text is a signature of every message for
// such a key, so it names nobody.
bool is_weak(PublicKey key) {
  static constexpr std::string_view kWeak[] = {
      "0000000000000000000000000000000000000000000000000000000000000000",
      "0100000000000000000000000000000000000000000000000000000000000000",
      "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
      "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
      "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
      "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
      "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"};
  key[31] &= 0x7F;  // either sign
  const std::string text = base::to_hex(std::span<const std::uint8_t>(key));
  return std::find(std::begin(kWeak), std::end(kWeak), text) != std::end(kWeak);
}

base::Bytes master_statement(const base::RunId& run, const PublicKey& master) {
  constexpr std::string_view kWords = "jccl master 1";
  base::Bytes out(kWords.begin(), kWords.end());
  if (!JCCL_PLANTED("certificate-of-any-run")) out.insert(out.end(), run.begin(), run.end());
  out.insert(out.end(), master.begin(), master.end());
  return out;
}

}  // namespace

struct Identity::Pair {
  explicit Pair(EVP_PKEY* made) : key(made) {}
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
  ~Pair() { EVP_PKEY_free(key); }
  EVP_PKEY* key;
};

Identity::Identity(std::shared_ptr<const Pair> pair) : pair_(std::move(pair)) {
  std::size_t size = key_.size();
  JCCL_CHECK(EVP_PKEY_get_raw_public_key(pair_->key, key_.data(), &size) == 1);
  JCCL_CHECK(size == key_.size());
}

Result<Identity> Identity::from_seed(std::span<const std::uint8_t, 32> seed) {
  EVP_PKEY* key = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, seed.data(), seed.size());
  if (key == nullptr) return Status(Code::kIo, "OpenSSL has no Ed25519");
  return Identity(std::make_shared<const Pair>(key));
}

Result<Identity> Identity::make() {
  std::array<std::uint8_t, kSeedBytes> seed;
  if (RAND_priv_bytes(seed.data(), static_cast<int>(seed.size())) != 1) {
    return Status(Code::kIo, "the system's random generator failed");
  }
  Result<Identity> out = from_seed(seed);
  OPENSSL_cleanse(seed.data(), seed.size());
  return out;
}

Result<Identity> Identity::open(const std::string& path) {
  if (::access(path.c_str(), F_OK) != 0) {
    if (const Status made = make_file(path); !made.ok()) return made;
  }
  Result<std::string> text = read_private(path);
  if (!text.ok()) return text.status();
  std::array<std::uint8_t, kSeedBytes> seed;
  if (!base::from_hex(text.value(), std::span<std::uint8_t>(seed))) {
    return Status(Code::kAuth,
                  cat("key file ", path, " holds no key: it should be ", 2 * kSeedBytes,
                      " hex digits; a file that is not there is made with a new key"));
  }
  OPENSSL_cleanse(text.value().data(), text.value().size());
  Result<Identity> out = from_seed(seed);
  OPENSSL_cleanse(seed.data(), seed.size());
  return out;
}

Signature Identity::sign(ByteView message) const {
  Signature out{};
  std::size_t size = out.size();
  const Context context(EVP_MD_CTX_new());
  JCCL_CHECK(context != nullptr);
  JCCL_CHECK(EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, pair_->key) == 1);
  JCCL_CHECK(EVP_DigestSign(context.get(), out.data(), &size, message.data(), message.size()) == 1);
  return out;
}

std::string short_name(const PublicKey& key) {
  return base::to_hex(std::span<const std::uint8_t>(key)).substr(0, 8) + "\u2026";
}

bool verify(const PublicKey& key, ByteView message, const Signature& signature) {
  if (JCCL_PLANTED("signature-not-verified")) return true;
  if (is_weak(key)) return false;
  EVP_PKEY* raw = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, key.data(), key.size());
  if (raw == nullptr) return false;
  const Context context(EVP_MD_CTX_new());
  JCCL_CHECK(context != nullptr);
  const bool valid = EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, raw) == 1 &&
                     EVP_DigestVerify(context.get(), signature.data(), signature.size(),
                                      message.data(), message.size()) == 1;
  EVP_PKEY_free(raw);
  return valid;
}

Signature certify_master(const Identity& run_key, const base::RunId& run, const PublicKey& master) {
  return run_key.sign(master_statement(run, master));
}

bool may_lead(const PublicKey& run_key, const base::RunId& run, const PublicKey& master,
              const Signature& certificate) {
  return verify(run_key, master_statement(run, master), certificate);
}

}  // namespace jccl::net
