// The two ends of a link after their introduction under TLS: the same connection goes on in records
// of seal.h, from the byte behind the last TLS record of each direction. A record is encrypted from
// where its bytes lie into the buffer that is sent, and decrypted to where they belong, once all of
// it is here; nothing is told to have come before its tag was compared. Confined to the loop's
// thread.
#pragma once

#include <memory>

#include "net/link/stream.h"
#include "net/security/seal.h"

namespace jccl::net {

// Of one connection, by its TLS exporter.
struct SealSecrets {
  SealSecret writing{}, reading{};
};

// `lower` has nothing of an earlier owner's to read or write that is not sealed.
std::unique_ptr<ByteStream> sealed_stream(std::unique_ptr<ByteStream> lower,
                                          const SealSecrets& secrets,
                                          std::uint64_t records_per_key = kRecordsPerKey);

}  // namespace jccl::net
