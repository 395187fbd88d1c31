#include "net/security/seal.h"

#include <openssl/crypto.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <string_view>

#include "base/check.h"
#include "base/planted.h"

namespace jccl::net {

void expand(const SealSecret& secret, std::string_view label, std::span<std::uint8_t> out) {
  base::Bytes info(label.begin(), label.end());
  info.push_back(1);  // the first and only block
  SealSecret block;
  JCCL_CHECK(out.size() <= block.size());
  unsigned int size = 0;
  JCCL_CHECK(HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()), info.data(),
                  info.size(), block.data(), &size) != nullptr);
  JCCL_CHECK(size == block.size());
  std::copy_n(block.begin(), out.size(), out.begin());
  OPENSSL_cleanse(block.data(), block.size());
}

Seal::Seal(Way way, const SealSecret& secret, std::uint64_t records_per_key)
    : way_(way),
      secret_(secret),
      records_per_key_(records_per_key),
      context_(EVP_CIPHER_CTX_new()) {
  JCCL_CHECK(context_ != nullptr);
  JCCL_CHECK(EVP_CipherInit_ex(context_.get(), EVP_aes_128_gcm(), nullptr, nullptr, nullptr,
                               way_ == Way::kSealing ? 1 : 0) == 1);
  use_key();
}

Seal::~Seal() {
  OPENSSL_cleanse(secret_.data(), secret_.size());
  OPENSSL_cleanse(iv_.data(), iv_.size());
}

void Seal::use_key() {
  std::array<std::uint8_t, 16> key;
  expand(secret_, "jccl seal key", key);
  expand(secret_, "jccl seal iv", iv_);
  JCCL_CHECK(EVP_CipherInit_ex(context_.get(), nullptr, nullptr, key.data(), nullptr, -1) == 1);
  OPENSSL_cleanse(key.data(), key.size());
  records_ = 0;
}

void Seal::next_record() {
  if (!JCCL_PLANTED("seal-nonce-stands")) ++records_;
  if (records_ < records_per_key_) return;
  if (JCCL_PLANTED("seal-key-kept-by-the-opener") && way_ == Way::kOpening) return;
  SealSecret next;
  expand(secret_, "jccl seal next", next);
  secret_ = next;
  OPENSSL_cleanse(next.data(), next.size());
  if (!JCCL_PLANTED("seal-key-never-changed")) use_key();
}

void Seal::put_size(std::size_t size, std::uint8_t* head) {
  for (std::size_t i = 0; i < kSealHeadBytes; ++i) {
    head[i] = static_cast<std::uint8_t>(size >> (8 * i));
  }
}

std::uint32_t Seal::size_in(const std::uint8_t* head) {
  std::uint32_t size = 0;
  for (std::size_t i = 0; i < kSealHeadBytes; ++i) size |= std::uint32_t{head[i]} << (8 * i);
  return size;
}

void Seal::begin(const std::uint8_t* head) {
  std::array<std::uint8_t, 12> nonce = iv_;
  for (std::size_t i = 0; i < 8; ++i) {
    nonce[11 - i] ^= static_cast<std::uint8_t>(records_ >> (8 * i));
  }
  JCCL_CHECK(EVP_CipherInit_ex(context_.get(), nullptr, nullptr, nullptr, nonce.data(), -1) == 1);
  int size = 0;
  if (JCCL_PLANTED("seal-length-not-authenticated")) return;
  JCCL_CHECK(EVP_CipherUpdate(context_.get(), nullptr, &size, head, kSealHeadBytes) == 1);
}

void Seal::add(base::ByteView from, std::uint8_t* to) {
  if (from.empty()) return;
  int size = 0;
  JCCL_CHECK(
      EVP_CipherUpdate(context_.get(), to, &size, from.data(), static_cast<int>(from.size())) == 1);
  JCCL_CHECK(static_cast<std::size_t>(size) == from.size());
}

void Seal::end_sealing(std::uint8_t* tag) {
  int size = 0;
  JCCL_CHECK(EVP_EncryptFinal_ex(context_.get(), tag, &size) == 1);
  JCCL_CHECK(EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_GET_TAG, kSealTagBytes, tag) == 1);
  next_record();
}

bool Seal::end_opening(const std::uint8_t* tag) {
  std::array<std::uint8_t, kSealTagBytes> expected;
  std::copy_n(tag, kSealTagBytes, expected.begin());
  JCCL_CHECK(EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_SET_TAG, kSealTagBytes,
                                 expected.data()) == 1);
  std::uint8_t none[kSealTagBytes];
  int size = 0;
  const bool good = EVP_DecryptFinal_ex(context_.get(), none, &size) == 1;
  next_record();
  return good || JCCL_PLANTED("seal-tag-not-checked");
}

}  // namespace jccl::net
