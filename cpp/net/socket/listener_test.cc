#include "net/socket/listener.h"

#include <sys/socket.h>

#include "net/link/frames.h"
#include "net/socket/reach.h"
#include "net/test_support.h"

namespace jccl::net::test {
namespace {

class ListenerTest : public NetTest {
 protected:
  ~ListenerTest() override {
    loop.call([&] {
      raw.clear();
      server.reset();
    });
  }
  void listen(const Credentials& credentials, ListenerOptions options = {}) {
    on([&] { server = std::make_unique<Server>(loop, credentials, options); });
  }
  // A plain connection that has sent `bytes`.
  ByteStream* stranger(Bytes bytes) {
    on([&] {
      raw.push_back(bare_connection(loop, server->address));
      raw.back()->write_ahead(std::move(bytes));
      (void)raw.back()->flush_ahead();
    });
    return raw.back().get();
  }
  // One that has proved who it is.
  ByteStream* guest() {
    Dialled dialled;
    on([&] { dialled.start(loop, {server->address}, plain()); });
    EXPECT_TRUE(eventually([&] { return dialled.calls == 1; }));
    EXPECT_TRUE(dialled.status.ok()) << dialled.status.text;
    on([&] {
      dialled.handle.reset();
      raw.push_back(std::move(dialled.stream));
    });
    return raw.back().get();
  }
  bool closed(ByteStream* stream) {
    std::uint8_t ignored[64];
    while (stream->read_now(ignored) > 0) {
    }
    return !stream->failure().ok();
  }

  std::unique_ptr<Server> server;
  std::vector<std::unique_ptr<ByteStream>> raw;
};

TEST_F(ListenerTest, a_reserved_port_refuses_until_it_is_listened_on) {
  const auto reserved = Reservation::open({"127.0.0.1", 0});
  ASSERT_TRUE(reserved.ok()) << reserved.status().text;
  const Address address{"127.0.0.1", reserved.value()->port()};
  const auto dial_it = [&] {
    Dialled dialled;
    on([&] { dialled.start(loop, {address}, plain()); });
    EXPECT_TRUE(eventually([&] { return dialled.calls == 1; }));
    on([&] {
      dialled.handle.reset();
      dialled.stream.reset();
    });
    return dialled.status;
  };
  EXPECT_EQ(dial_it().code, Code::kLinkLost);
  std::unique_ptr<Listener> listener;
  on([&] {
    auto opened = Listener::open(loop, address, plain(), {}, [](Accepted) {});
    EXPECT_TRUE(opened.ok()) << opened.status().text;
    listener = std::move(opened.value());
  });
  EXPECT_TRUE(dial_it().ok());
  EXPECT_EQ(Reservation::open(address).status().code, Code::kIo);  // somebody listens there
  on([&] { listener.reset(); });
}

TEST_F(ListenerTest, a_port_in_use_is_named) {
  listen(plain());
  on([&] {
    const auto second =
        Listener::open(loop, server->address, plain(), ListenerOptions{}, [](Accepted) {});
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.status().code, Code::kIo);
    EXPECT_NE(second.status().text.find("port " + std::to_string(server->address.port)),
              std::string::npos)
        << second.status().text;
  });
}

TEST_F(ListenerTest, every_interface_takes_ipv4_and_ipv6_on_one_port) {
  on([&] { server = std::make_unique<Server>(loop, plain(), ListenerOptions{}, ""); });
  for (const char* host : {"127.0.0.1", "::1", "localhost"}) {
    const std::uint16_t port = server->address.port;
    server->address = Address{host, port};
    ASSERT_NE(guest(), nullptr);
  }
  EXPECT_TRUE(eventually([&] { return server->accepted.size() == 3; }));
  on([&] { EXPECT_TRUE(server->accepted[0].stream->remote_is_loopback()); });
}

TEST_F(ListenerTest, localhost_listens_in_both_families_on_one_port) {
  on([&] { server = std::make_unique<Server>(loop, plain(), ListenerOptions{}, "localhost"); });
  for (const char* host : {"127.0.0.1", "::1"}) {
    server->address.host = host;
    ASSERT_NE(guest(), nullptr);
  }
  EXPECT_TRUE(eventually([&] { return server->accepted.size() == 2; }));
}

TEST_F(ListenerTest, garbage_never_gets_past_a_listener_with_a_token) {
  listen(tls());
  const std::vector<Bytes> garbage = {
      bytes_of("GET / HTTP/1.1\r\n\r\n"), Bytes(5000, 0), Bytes(5000, 0xff),
      // A TLS record header, then nonsense.
      [] {
        Bytes bytes(300, 0x42);
        bytes[0] = 0x16, bytes[1] = 3, bytes[2] = 1, bytes[3] = 0, bytes[4] = 200;
        return bytes;
      }()};
  for (const Bytes& bytes : garbage) {
    ByteStream* stream = stranger(bytes);
    EXPECT_TRUE(eventually([&] { return closed(stream); }));
  }
  EXPECT_TRUE(eventually([&] { return server->listener->stats().refused == garbage.size(); }));
  on([&] { EXPECT_TRUE(server->accepted.empty()); });
}

TEST_F(ListenerTest, silent_and_slow_sockets_are_closed_at_the_deadline) {
  for (const Credentials& credentials : {plain(), tls()}) {
    listen(credentials, {.handshake_max = 50 * base::kMillisecond});
    ByteStream* silent = stranger({});
    ByteStream* slow = stranger({0x16, 0x03});  // the beginning of a TLS record
    ByteStream* half =
        stranger({credentials.tls ? Bytes{0x16, 0x03, 0x01, 0x00} : Bytes{40, 0, 0}});
    EXPECT_TRUE(eventually([&] { return closed(silent) && closed(slow) && closed(half); }));
    on([&] {
      EXPECT_EQ(server->listener->stats().late, 3u);
      EXPECT_EQ(server->listener->stats().pending, 0u);
      EXPECT_TRUE(server->accepted.empty());
    });
  }
}

TEST_F(ListenerTest, who_proves_its_key_and_says_no_more_is_closed_by_the_hello_deadline) {
  listen(plain(), {.handshake_max = 50 * base::kMillisecond});
  ByteStream* slow = guest();
  ASSERT_TRUE(eventually([&] { return server->accepted.size() == 1; }));
  std::unique_ptr<FramedStream> framed;
  Status status;
  on([&] {
    Accepted& accepted = server->accepted[0];
    FramedOptions options;
    options.hello_by = accepted.adopt_by;
    options.pending = std::move(accepted.pending);
    framed = std::make_unique<FramedStream>(loop, std::move(accepted.stream), options);
    framed->start([](ByteView) {}, [&](Status s) { status = s; });
    EXPECT_EQ(server->listener->stats().pending, 1u);
  });
  EXPECT_TRUE(eventually([&] { return status.code == Code::kDeadline; }));
  EXPECT_TRUE(eventually([&] { return closed(slow); }));
  on([&] {
    EXPECT_EQ(server->listener->stats().pending, 0u);
    framed.reset();
  });
}

TEST_F(ListenerTest, pending_sockets_are_bounded_and_newcomers_still_get_through) {
  listen(plain(), {.pending_max = 8, .handshake_max = 60 * base::kSecond});
  for (int i = 0; i < 20; ++i) stranger({});  // silent: the oldest make room
  EXPECT_TRUE(eventually([&] { return server->listener->stats().excess == 12; }));
  on([&] { EXPECT_EQ(server->listener->stats().pending, 8u); });
  guest();
  EXPECT_TRUE(eventually([&] { return server->accepted.size() == 1; }));
}

TEST_F(ListenerTest, who_is_gone_before_it_is_accepted_takes_nobody_s_place) {
  listen(plain(), {.pending_max = 2, .handshake_max = 60 * base::kSecond});
  ByteStream* silent[] = {stranger({}), stranger({})};
  ASSERT_TRUE(eventually([&] { return server->listener->stats().pending == 2; }));
  on([&] {
    for (int i = 0; i < 20; ++i) bare_connection(loop, server->address);  // closed at once
  });
  EXPECT_TRUE(eventually([&] { return server->listener->stats().refused == 20; }));
  on([&] {
    EXPECT_EQ(server->listener->stats().excess, 0u);
    for (ByteStream* each : silent) EXPECT_FALSE(closed(each));
  });
}

// A frame of 790 bytes begins as a TLS record does, but for its third byte. Each listener refuses
// what the other kind says, as soon as it can be known, whatever pieces it comes in.
TEST_F(ListenerTest, the_first_bytes_tell_tls_from_frames_in_any_pieces) {
  const ListenerOptions patient{.handshake_max = 60 * base::kSecond};
  listen(plain(), patient);
  stranger({0x16, 0x03, 0x00});
  ASSERT_TRUE(eventually([&] { return server->listener->stats().pending == 1; }));
  ByteStream* tls_client = stranger({0x16});
  ASSERT_TRUE(eventually([&] { return server->listener->stats().pending == 2; }));
  on([&] {
    EXPECT_EQ(server->listener->stats().refused, 0u);
    tls_client->write_ahead({0x03, 0x01});
    (void)tls_client->flush_ahead();
  });
  EXPECT_TRUE(eventually([&] { return server->listener->stats().refused == 1; }));
  on([&] { server.reset(); });

  listen(tls(), patient);
  stranger({0x17});  // one byte is enough
  EXPECT_TRUE(eventually([&] { return server->listener->stats().refused == 1; }));
  stranger({0x16, 0x04});
  EXPECT_TRUE(eventually([&] { return server->listener->stats().refused == 2; }));
  stranger({0x16, 0x03, 0x00});
  EXPECT_TRUE(eventually([&] { return server->listener->stats().refused == 3; }));
}

TEST_F(ListenerTest, excess_is_closed_while_all_slots_are_handed_over) {
  listen(plain(), {.pending_max = 2});
  guest();
  guest();
  ASSERT_TRUE(eventually([&] { return server->accepted.size() == 2; }));
  ByteStream* third = stranger({});
  EXPECT_TRUE(eventually([&] { return closed(third); }));
  on([&] { server->accepted[0].pending.reset(); });  // adopted: its slot is free
  guest();
  EXPECT_TRUE(eventually([&] { return server->accepted.size() == 3; }));
}

// A key makes a connection somebody's who waits for its hello.
TEST_F(ListenerTest, connections_that_wait_for_a_hello_make_room_for_newer_ones) {
  listen(plain(), {.pending_max = 4, .handshake_max = 60 * base::kSecond});
  std::vector<std::unique_ptr<FramedStream>> waiting;
  std::vector<Code> ended(12, Code::kOk);
  std::vector<ByteStream*> sent;
  for (std::size_t i = 0; i < ended.size(); ++i) {
    sent.push_back(guest());
    ASSERT_TRUE(eventually([&] { return server->accepted.size() == i + 1; })) << i;
    on([&] {
      FramedOptions options;
      options.pending = std::move(server->accepted[i].pending);
      waiting.push_back(std::make_unique<FramedStream>(loop, std::move(server->accepted[i].stream),
                                                       std::move(options)));
      waiting.back()->start([](ByteView) {}, [&, i](const Status& s) { ended[i] = s.code; });
    });
  }
  on([&] {
    for (std::size_t i = 0; i < ended.size(); ++i) {
      EXPECT_EQ(ended[i], i < 8 ? Code::kLimit : Code::kOk) << i;  // the newest stay
    }
    EXPECT_EQ(server->listener->stats().pending, 4u);
    EXPECT_EQ(server->listener->stats().excess, 8u);
  });
  EXPECT_TRUE(eventually([&] { return closed(sent[0]); }));
  on([&] { waiting.clear(); });
}

TEST_F(ListenerTest, who_comes_while_it_holds_is_read_when_it_is_renewed) {
  listen(plain());
  on([&] { server->listener->hold(); });
  std::vector<std::unique_ptr<Dialled>> early;
  on([&] {
    for (int i = 0; i < 20; ++i) {
      early.push_back(std::make_unique<Dialled>());
      early.back()->start(loop, {server->address}, plain());
    }
  });
  ASSERT_TRUE(eventually([&] { return server->listener->stats().pending == 20; }));
  for (int turn = 0; turn < 20; ++turn) on([] {});
  on([&] {
    EXPECT_TRUE(server->accepted.empty());
    server->listener->renew(plain());
  });
  EXPECT_TRUE(eventually([&] { return server->accepted.size() == 20; }));
  on([&] { early.clear(); });
}

TEST_F(ListenerTest, who_holds_most_places_makes_room_first) {
  const auto places = std::make_shared<PendingPlaces>(4);
  std::vector<std::shared_ptr<PendingPlace>> held;
  const auto take = [&](const std::string& network) {
    ASSERT_TRUE(places->make_room());
    held.push_back(places->take(network));
    held.back()->give_way = [&held, i = held.size() - 1] { held[i].reset(); };
  };
  take("honest");
  for (int i = 0; i < 10; ++i) take("crowd");
  EXPECT_NE(held[0], nullptr);  // the oldest, but the only one of its network
  EXPECT_EQ(places->taken(), 4u);
  take("other");
  EXPECT_NE(held[0], nullptr);
  EXPECT_NE(held.back(), nullptr);
}

TEST_F(ListenerTest, places_that_were_given_back_do_not_count) {
  const auto places = std::make_shared<PendingPlaces>(4);
  std::vector<std::shared_ptr<PendingPlace>> held;
  for (int i = 0; i < 3; ++i) held.push_back(places->take("few now"));
  held[1].reset(), held[2].reset();
  std::string asked;
  held[0]->give_way = [&] { asked += "few now ", held[0].reset(); };
  for (int i = 0; i < 3; ++i) held.push_back(places->take("three"));
  held[3]->give_way = [&] { asked += "three ", held[3].reset(); };
  EXPECT_TRUE(places->make_room());
  EXPECT_EQ(asked, "three ");
}

TEST_F(ListenerTest, networks_are_ipv4_addresses_and_64_bits_of_ipv6) {
  const auto network = [](const char* host) {
    return network_of(resolve_now(Address{host, 1}).value().front());
  };
  EXPECT_EQ(network("127.0.0.1"), network("::ffff:127.0.0.1"));
  EXPECT_NE(network("127.0.0.1"), network("127.0.0.2"));
  EXPECT_EQ(network("2001:db8::1"), network("2001:db8::2"));
  EXPECT_NE(network("2001:db8::1"), network("2001:db8:0:1::1"));
}

TEST_F(ListenerTest, a_slot_may_outlive_the_listener) {
  listen(plain());
  guest();
  ASSERT_TRUE(eventually([&] { return server->accepted.size() == 1; }));
  on([&] {
    Accepted kept = std::move(server->accepted[0]);
    server.reset();
    EXPECT_NE(kept.pending, nullptr);
  });
}

}  // namespace
}  // namespace jccl::net::test
