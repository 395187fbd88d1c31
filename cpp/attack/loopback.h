// Sockets on addresses of this machine, for programs that attack from several of them.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>

namespace jccl::attack {

inline sockaddr_in loopback(std::uint32_t host, std::uint16_t port) {  // 127.0.0.`host`
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(0x7F000000U | host);
  address.sin_port = htons(port);
  return address;
}

inline bool bind_to(int fd, sockaddr_in address) {
  return ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

inline bool connect_fd(int fd, sockaddr_in address) {
  return ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

inline std::uint16_t port_of(int fd) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  (void)::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin_port);
}

}  // namespace jccl::attack
