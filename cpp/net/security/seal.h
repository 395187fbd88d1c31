// One direction of a sealed connection: its keys, and records under them. A record is a head of 4
// bytes (how many bytes it holds, little-endian), those bytes by AES-128-GCM, and the tag of 16.
// The head is authenticated with them, the nonce counts the records of a key, and a key seals a
// fixed number of records: then both ends derive the next one and forget what they had. Bytes:
// PROTOCOL.md. Refuses what was changed, repeated, left out, moved or sealed for another direction
// or connection, by its tag alone. Confined to whoever owns it.
#pragma once

#include <openssl/evp.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "base/bytes.h"

namespace jccl::net {

inline constexpr std::size_t kSealHeadBytes = 4;
inline constexpr std::size_t kSealTagBytes = 16;
inline constexpr std::size_t kSealOverhead = kSealHeadBytes + kSealTagBytes;
// Plain bytes of a record. Fewer, larger ones gain nothing once both ends' fit their caches.
inline constexpr std::size_t kSealedBytesMax = 128 * 1024;
// 2^29 blocks of AES, where 2^34.5 are thought safe (RFC 8446, 5.5).
inline constexpr std::uint64_t kRecordsPerKey = 1 << 16;

using SealSecret = std::array<std::uint8_t, 32>;

// Each record by begin(), add() for its bytes in any pieces, and end().
class Seal {
 public:
  enum class Way { kSealing, kOpening };
  Seal(Way way, const SealSecret& secret, std::uint64_t records_per_key = kRecordsPerKey);
  ~Seal();
  Seal(const Seal&) = delete;
  Seal& operator=(const Seal&) = delete;

  static void put_size(std::size_t size, std::uint8_t* head);
  static std::uint32_t size_in(const std::uint8_t* head);

  void begin(const std::uint8_t* head);
  // From plain to sealed bytes or back; in place, or where the two do not touch.
  void add(base::ByteView from, std::uint8_t* to);
  // Writes the tag.
  void end_sealing(std::uint8_t* tag);
  // False: not what the other end sealed next. What add() wrote is worthless then.
  [[nodiscard]] bool end_opening(const std::uint8_t* tag);

 private:
  void use_key();
  void next_record();

  struct Free {
    void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
  };
  Way way_;
  SealSecret secret_;
  std::uint64_t records_per_key_;
  std::uint64_t records_ = 0;  // under this key
  std::array<std::uint8_t, 12> iv_{};
  std::unique_ptr<EVP_CIPHER_CTX, Free> context_;
};

// Some bytes of a secret by a label: HKDF-Expand of RFC 5869, with SHA-256 and at most 32 bytes.
void expand(const SealSecret& secret, std::string_view label, std::span<std::uint8_t> out);

}  // namespace jccl::net
