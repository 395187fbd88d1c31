// For tests and benchmarks that speak over a plain blocking socket: the dialling side of an
// introduction, without a shared secret.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <cstring>
#include <string>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "net/security/introduction.h"

namespace jccl::net {

inline bool introduce_blocking(int fd, const Identity& identity, Purpose purpose,
                               int patience_ms = 20'000, const std::string& group = {}) {
  constexpr std::size_t kHead = 8, kAnswer = 216;
  const auto send_part = [&](std::uint8_t part, const base::Bytes& rest) {
    base::Writer payload, frame;
    payload.u32(0x3249434A), payload.u8(part), payload.u8(static_cast<std::uint8_t>(purpose));
    payload.u16(0), payload.raw(rest.data(), rest.size());
    frame.u32(static_cast<std::uint32_t>(payload.size()));
    frame.u32(base::crc32c(payload.bytes()));
    frame.raw(payload.bytes().data(), payload.size());
    const base::Bytes bytes = frame.take();
    return ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  };
  Conversation said;
  said.purpose = purpose;
  said.dialling = identity.key();
  said.group = group;
  base::Writer greeting;
  greeting.raw(said.dialling), greeting.raw(said.dialling_nonce), greeting.u16(0);
  if (!group.empty()) greeting.text(group, group.size());
  if (!send_part(1, greeting.take())) return false;
  base::Bytes answer(kHead + kAnswer);
  for (std::size_t got = 0; got < answer.size();) {
    pollfd wait{fd, POLLIN, 0};
    if (::poll(&wait, 1, patience_ms) <= 0) return false;
    const ssize_t n = ::recv(fd, answer.data() + got, answer.size() - got, 0);
    if (n <= 0) return false;
    got += static_cast<std::size_t>(n);
  }
  base::Reader in(base::ByteView(answer).subspan(kHead + 8));
  in.raw(&said.run), in.raw(&said.accepting), in.raw(&said.accepting_nonce);
  const Signature proof = identity.sign(words_to_sign(said, Role::kDialling));
  return send_part(3, {proof.begin(), proof.end()});
}

}  // namespace jccl::net
