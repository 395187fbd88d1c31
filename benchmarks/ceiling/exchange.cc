#include "exchange.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "codec/codec.h"

#if defined(__x86_64__)
#define JCCL_BENCH_CLONES __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define JCCL_BENCH_CLONES
#endif

namespace jccl::bench {
namespace {

constexpr std::size_t kChunk = 256 * 1024 / sizeof(float);
constexpr std::size_t kBlock = codec::kInt8Block;

[[noreturn]] void fail(const char* what) {
  std::perror(what);
  std::exit(1);
}

void send_all(int socket, const void* data, std::size_t bytes) {
  const auto* next = static_cast<const std::uint8_t*>(data);
  while (bytes > 0) {
    const ssize_t sent = ::send(socket, next, bytes, MSG_NOSIGNAL);
    if (sent <= 0) fail("bench-ceiling: send");
    next += sent;
    bytes -= static_cast<std::size_t>(sent);
  }
}

void receive_all(int socket, void* data, std::size_t bytes) {
  auto* next = static_cast<std::uint8_t*>(data);
  while (bytes > 0) {
    const ssize_t got = ::recv(socket, next, bytes, MSG_WAITALL);
    if (got <= 0) fail("bench-ceiling: recv");
    next += got;
    bytes -= static_cast<std::size_t>(got);
  }
}

JCCL_BENCH_CLONES void add(const float* __restrict a, const float* __restrict b,
                           float* __restrict out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out[i] = a[i] + b[i];
}

JCCL_BENCH_CLONES void add_codes(const float* __restrict a, const std::int8_t* __restrict codes,
                                 float scale, float* __restrict out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out[i] = a[i] + static_cast<float>(codes[i]) * scale;
}

void add_encoded(const float* in, const std::uint8_t* encoded, float* out, std::size_t count) {
  for (std::size_t first = 0; first < count; first += kBlock) {
    const std::size_t length = std::min(kBlock, count - first);
    float scale;
    std::memcpy(&scale, encoded, sizeof scale);
    const auto* codes = reinterpret_cast<const std::int8_t*>(encoded + sizeof scale);
    add_codes(in + first, codes, scale, out + first, length);
    encoded += sizeof scale + length;
  }
}

int connect_one(int peer, int listener, const sockaddr_in& address) {
  int socket = -1;
  if (peer == 0) {
    socket = ::accept(listener, nullptr, nullptr);
  } else {
    for (int tries = 0; tries < 500; ++tries) {  // the other one may not listen yet
      socket = ::socket(AF_INET, SOCK_STREAM, 0);
      if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
        break;
      }
      ::close(socket);
      socket = -1;
      ::usleep(20'000);
    }
  }
  if (socket < 0) fail("bench-ceiling: connect");
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5);  // else the system's choice
  return socket;
}

}  // namespace

Exchange::Exchange(int peer, int port, int connections) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int listener = -1;
  if (peer == 0) {
    listener = ::socket(AF_INET, SOCK_STREAM, 0);
    const int on = 1;
    ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        ::listen(listener, connections + 1) != 0) {
      fail("bench-ceiling: listen");
    }
  }
  // One after another on both sides, so that the last one is the same connection.
  for (int i = 0; i <= connections; ++i) sockets_.push_back(connect_one(peer, listener, address));
  if (listener >= 0) ::close(listener);
}

Exchange::~Exchange() {
  for (const int socket : sockets_) ::close(socket);
}

void Exchange::meet() {
  char byte = 0;
  send_all(sockets_.back(), &byte, 1);
  receive_all(sockets_.back(), &byte, 1);
}

void Exchange::send_share(std::size_t connection, const float* in, std::size_t count, bool int8) {
  std::vector<std::uint8_t> encoded;
  const std::size_t step = kChunk * (sockets_.size() - 1);
  for (std::size_t first = connection * kChunk; first < count; first += step) {
    const std::size_t length = std::min(kChunk, count - first);
    if (int8) {
      encoded.resize(codec::encoded_bytes(codec::CodecId::kInt8, codec::Dtype::kF32, length));
      codec::encode(codec::CodecId::kInt8, codec::Dtype::kF32, in + first, length, encoded.data());
      send_all(sockets_[connection], encoded.data(), encoded.size());
    } else {
      send_all(sockets_[connection], in + first, length * sizeof(float));
    }
  }
}

void Exchange::receive_share(std::size_t connection, const float* in, float* out, std::size_t count,
                             bool int8) {
  std::vector<float> hot(std::min(kChunk, count) + 2048);  // room for scales
  const std::size_t step = kChunk * (sockets_.size() - 1);
  for (std::size_t first = connection * kChunk; first < count; first += step) {
    const std::size_t length = std::min(kChunk, count - first);
    const std::size_t bytes =
        int8 ? codec::encoded_bytes(codec::CodecId::kInt8, codec::Dtype::kF32, length)
             : length * sizeof(float);
    receive_all(sockets_[connection], hot.data(), bytes);
    if (int8) {
      add_encoded(in + first, reinterpret_cast<const std::uint8_t*>(hot.data()), out + first,
                  length);
    } else {
      add(in + first, hot.data(), out + first, length);
    }
  }
}

void Exchange::sum(const float* in, float* out, std::size_t count, bool int8) {
  if (count <= kChunk / 4) {  // fits the socket's buffer: no thread needed
    send_share(0, in, count, int8);
    receive_share(0, in, out, count, int8);
    return;
  }
  std::vector<std::thread> threads;
  for (std::size_t c = 0; c + 1 < sockets_.size(); ++c) {
    threads.emplace_back([=, this] { send_share(c, in, count, int8); });
    threads.emplace_back([=, this] { receive_share(c, in, out, count, int8); });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace jccl::bench
