// A last word: writes what a stream still has to say, ends our side, and keeps it open until the
// other side has read it and closed, at most 1 s. Closing at once would reset the connection and
// take the last word with it. Internal to this folder.
#pragma once

#include <memory>

#include "net/link/stream.h"
#include "net/socket/pending.h"

namespace jccl::net {

// `held` is freed with the stream. At most 64 at a time; beyond that the stream closes at once.
void linger(Loop& loop, std::unique_ptr<ByteStream> stream,
            std::shared_ptr<PendingPlace> held = nullptr);

// A TLS alert record (fatal, handshake_failure). It tells a TLS peer that there is no common
// ground, and a plain one of ours knows it for what it is.
Bytes alert_record();
// What the first bytes of a frame mean if they are a TLS record: Ok if they are none.
Status explain_tls_record(ByteView first, const std::string& remote);

}  // namespace jccl::net
