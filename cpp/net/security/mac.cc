#include "net/security/mac.h"

#include <openssl/evp.h>

#include <algorithm>
#include <memory>

#include "base/check.h"
#include "net/security/credentials.h"

namespace jccl::net {
namespace {

constexpr std::size_t kNonceBytes = 12;
constexpr std::size_t kAtOnce = std::size_t{1} << 30;  // OpenSSL takes an int

}  // namespace

// GMAC is GCM without anything to encrypt. The key is used once, so the nonce may be fixed.
Mac mac_of(const MacKey& key, base::ByteView bytes) {
  const std::unique_ptr<EVP_CIPHER_CTX, decltype(&EVP_CIPHER_CTX_free)> context(
      EVP_CIPHER_CTX_new(), EVP_CIPHER_CTX_free);
  JCCL_CHECK(context != nullptr);
  const std::array<std::uint8_t, kNonceBytes> nonce{};
  Mac mac{};
  int size = 0;
  bool ok =
      EVP_EncryptInit_ex2(context.get(), EVP_aes_128_gcm(), key.data(), nonce.data(), nullptr) == 1;
  while (ok && !bytes.empty()) {
    const base::ByteView piece = bytes.first(std::min(bytes.size(), kAtOnce));
    ok = EVP_EncryptUpdate(context.get(), nullptr, &size, piece.data(),
                           static_cast<int>(piece.size())) == 1;
    bytes = bytes.subspan(piece.size());
  }
  ok = ok && EVP_EncryptFinal_ex(context.get(), mac.data(), &size) == 1;
  ok = ok && EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_AEAD_GET_TAG, static_cast<int>(mac.size()),
                                 mac.data()) == 1;
  JCCL_CHECK(ok);  // AES-128-GCM is part of every OpenSSL 3
  return mac;
}

base::Result<MacKey> draw_mac_key() {
  MacKey key;
  const base::Status status = fill_random(key);
  if (!status.ok()) return status;
  return key;
}

}  // namespace jccl::net
