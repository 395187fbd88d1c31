// What the tests of this folder share: a running loop, waiting under a deadline, connected pairs.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "net/socket/dial.h"
#include "net/socket/listener.h"

namespace jccl::net::test {

// True once `holds` does; asked on the loop's thread.
inline bool eventually(Loop& loop, const std::function<bool()>& holds,
                       Duration time_max = 30 * base::kSecond) {
  const Time end = loop.now() + time_max;
  while (true) {
    bool held = false;
    loop.call([&] { held = holds(); });
    if (held) return true;
    if (loop.now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

inline Bytes bytes_of(std::string_view text) { return {text.begin(), text.end()}; }
inline std::string text_of(ByteView bytes) { return {bytes.begin(), bytes.end()}; }

inline RunSecret secret_of(std::uint8_t seed) {
  RunSecret secret;
  secret.run.fill(seed);
  secret.seed.fill(seed);
  secret.root.fill(static_cast<std::uint8_t>(seed + 1));
  return secret;
}
inline Token token_of(std::uint8_t seed) {
  return make_token(secret_of(seed), parse_rights("p-0-0-0-0000000a").value());
}

inline Credentials plain() { return Credentials::plain(token_of(1).run); }
// For both ends.
inline Credentials tls() {
  Credentials out = Credentials::of_master(secret_of(1));
  out.shared = Credentials::from(token_of(1)).shared;
  return out;
}

// A listener whose accepted streams are kept, on 127.0.0.1 or `host`.
struct Server {
  Server(Loop& loop, const Credentials& credentials, ListenerOptions options = {},
         const std::string& host = "127.0.0.1") {
    auto opened = Listener::open(loop, Address{host, 0}, credentials, options,
                                 [this](Accepted a) { accepted.push_back(std::move(a)); });
    if (!opened.ok()) {
      ADD_FAILURE() << opened.status().text;
      return;
    }
    listener = std::move(opened.value());
    address = Address{host, listener->port()};
  }
  std::vector<Accepted> accepted;
  std::unique_ptr<Listener> listener;
  Address address;
};

// A TCP connection that says nothing by itself.
inline std::unique_ptr<ByteStream> bare_connection(Loop& loop, const Address& address) {
  const auto endpoints = resolve_now(address);
  if (!endpoints.ok() || endpoints.value().empty()) return nullptr;
  const Endpoint& to = endpoints.value().front();
  const int fd = ::socket(to.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool connected =
      ::connect(fd, reinterpret_cast<const sockaddr*>(&to.storage), to.size) == 0;
  EXPECT_TRUE(connected && ::fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
  return plain_stream(loop, fd);
}

struct Dialled {
  void start(Loop& loop, std::vector<Address> addresses, const Credentials& credentials,
             DialOptions options = {}) {
    handle = dial(loop, std::move(addresses), credentials, options,
                  [this](Result<std::unique_ptr<ByteStream>> result) {
                    ++calls;
                    status = result.status();
                    if (result.ok()) stream = std::move(result.value());
                  });
  }
  int calls = 0;
  Status status;
  std::unique_ptr<ByteStream> stream;
  std::unique_ptr<Dial> handle;
};

// A stream through a valve: shut, nothing comes through and nobody is told, as if the way were
// blocked. What was written before waits beyond it, as in a proxy.
class Valve final : public ByteStream {
 public:
  explicit Valve(std::unique_ptr<ByteStream> inner) : inner_(std::move(inner)) {}
  void set(bool open) {
    open_ = open;
    if (open && readable_) inner_->when_readable(std::exchange(readable_, nullptr));
    if (open && writable_) inner_->when_writable(std::exchange(writable_, nullptr));
  }
  void when_readable(std::function<void()> fn) override {
    open_ ? inner_->when_readable(std::move(fn)) : void(readable_ = std::move(fn));
  }
  void when_writable(std::function<void()> fn) override {
    open_ ? inner_->when_writable(std::move(fn)) : void(writable_ = std::move(fn));
  }
  void shut_write() override { inner_->shut_write(); }
  const Status& failure() const override { return inner_->failure(); }
  StreamStats stats() const override { return inner_->stats(); }
  void pace(std::uint64_t rate) override { inner_->pace(rate); }
  Time last_received() const override { return inner_->last_received(); }
  std::string remote_text() const override { return inner_->remote_text(); }
  bool remote_is_loopback() const override { return true; }
  bool is_tls() const override { return inner_->is_tls(); }

 protected:
  std::size_t read_some(std::span<const MutableView> parts) override {
    return open_ ? inner_->read_now(parts) : 0;
  }
  std::size_t write_some(std::span<const ByteView> parts) override {
    return open_ ? inner_->write_now(parts) : 0;
  }

 private:
  std::unique_ptr<ByteStream> inner_;
  bool open_ = true;
  std::function<void()> readable_;
  std::function<void()> writable_;
};

// Everything confined is made, used and freed on the loop's thread.
class NetTest : public ::testing::Test {
 protected:
  NetTest() { loop.start(); }
  ~NetTest() override { loop.stop(); }
  void on(const std::function<void()>& fn) { ASSERT_TRUE(loop.call(fn)); }
  bool eventually(const std::function<bool()>& holds) { return test::eventually(loop, holds); }

  using Pair = std::pair<std::unique_ptr<ByteStream>, std::unique_ptr<ByteStream>>;
  // Under TLS such a one is sealed.
  std::vector<Pair> connect_link(const Credentials& credentials, std::size_t count = 1) {
    return connect(credentials, count, "127.0.0.1", Purpose::kLink);
  }
  // Two ends of `count` connections. The dialling end speaks first, so one byte is exchanged.
  std::vector<Pair> connect(const Credentials& credentials, std::size_t count = 1,
                            const std::string& host = "127.0.0.1",
                            Purpose purpose = Purpose::kControl) {
    std::vector<Pair> out;
    std::unique_ptr<Server> server;
    ListenerOptions listening;
    listening.purpose = purpose;
    DialOptions dialling;
    dialling.purpose = purpose;
    on([&] { server = std::make_unique<Server>(loop, credentials, listening, host); });
    for (std::size_t i = 0; i < count; ++i) {
      Dialled dialled;
      on([&] { dialled.start(loop, {server->address}, credentials, dialling); });
      EXPECT_TRUE(eventually([&] { return dialled.calls == 1; }));
      EXPECT_TRUE(dialled.status.ok()) << dialled.status.text;
      if (!dialled.stream) return out;
      on([&] {
        dialled.handle.reset();
        dialled.stream->write_ahead({1});
        EXPECT_TRUE(dialled.stream->flush_ahead());
      });
      EXPECT_TRUE(eventually([&] { return server->accepted.size() == i + 1; }));
      std::uint8_t byte = 0;
      EXPECT_TRUE(eventually(
          [&] { return server->accepted[i].stream->read_now(MutableView(&byte, 1)) == 1; }));
      EXPECT_EQ(byte, 1);
      out.emplace_back(std::move(dialled.stream), std::move(server->accepted[i].stream));
    }
    on([&] { server.reset(); });
    return out;
  }

  Loop loop;
};

}  // namespace jccl::net::test
