#include "net/link/stream.h"

#include <sys/socket.h>

#include <algorithm>

#include "base/rng.h"
#include "net/link/frames.h"
#include "net/test_support.h"

namespace jccl::net::test {
namespace {

using StreamTest = NetTest;

Bytes pattern(std::size_t size, std::uint64_t seed) {
  base::Rng rng(seed);
  Bytes out(size);
  for (std::uint8_t& byte : out) byte = static_cast<std::uint8_t>(rng.next());
  return out;
}

// Sends all of `data` in odd pieces and collects what comes the other way.
struct Mover {
  void write() {
    while (sent < data.size()) {
      const ByteView rest = ByteView(data).subspan(sent);
      const std::size_t cut = std::min<std::size_t>(rest.size(), 17 + sent % 70001);
      const ByteView parts[] = {rest.first(cut / 3), rest.subspan(cut / 3, 0),
                                rest.subspan(cut / 3, cut - cut / 3)};
      const std::size_t n = stream->write_now(parts);
      if (n == 0) {
        if (stream->failure().ok()) stream->when_writable([this] { write(); });
        return;
      }
      sent += n;
    }
  }
  void read() {
    while (true) {
      const std::size_t at = got.size();
      got.resize(at + 50021);
      const MutableView parts[] = {MutableView(got).subspan(at, 21),
                                   MutableView(got).subspan(at + 21)};
      const std::size_t n = stream->read_now(parts);
      got.resize(at + n);
      if (n > 0) continue;
      if (stream->failure().ok()) stream->when_readable([this] { read(); });
      return;
    }
  }
  std::unique_ptr<ByteStream> stream;
  Bytes data;
  std::size_t sent = 0;
  Bytes got;
};

void moves_both_ways(Loop& loop, std::unique_ptr<ByteStream> a, std::unique_ptr<ByteStream> b) {
  Mover one{std::move(a), pattern(3'000'001, 1), 0, {}};
  Mover two{std::move(b), pattern(2'000'003, 2), 0, {}};
  loop.call([&] {
    for (Mover* mover : {&one, &two}) mover->write(), mover->read();
  });
  EXPECT_TRUE(eventually(loop, [&] {
    return one.got.size() == two.data.size() && two.got.size() == one.data.size();
  }));
  loop.call([&] {
    EXPECT_EQ(one.got, two.data);
    EXPECT_EQ(two.got, one.data);
    const StreamStats stats = one.stream->stats();
    EXPECT_GE(stats.bytes_sent, one.data.size());
    EXPECT_GE(stats.bytes_received, two.data.size());
    EXPECT_GT(stats.sent_at, 0);
    one.stream.reset();
    two.stream.reset();
  });
}

TEST_F(StreamTest, plain_bytes_arrive_both_ways) {
  auto pairs = connect(plain());
  ASSERT_EQ(pairs.size(), 1u);
  EXPECT_FALSE(pairs[0].first->is_tls());
  EXPECT_TRUE(pairs[0].first->remote_is_loopback());
  moves_both_ways(loop, std::move(pairs[0].first), std::move(pairs[0].second));
}

TEST_F(StreamTest, encrypted_bytes_arrive_both_ways) {
  auto pairs = connect(tls());
  ASSERT_EQ(pairs.size(), 1u);
  EXPECT_TRUE(pairs[0].first->is_tls());
  EXPECT_TRUE(pairs[0].second->is_tls());
  moves_both_ways(loop, std::move(pairs[0].first), std::move(pairs[0].second));
}

TEST_F(StreamTest, ipv6_works_plain_and_encrypted) {
  for (const Credentials& credentials : {plain(), tls()}) {
    auto pairs = connect(credentials, 1, "::1");
    ASSERT_EQ(pairs.size(), 1u);
    EXPECT_EQ(pairs[0].first->remote_text().substr(0, 6), "[::1]:");
    moves_both_ways(loop, std::move(pairs[0].first), std::move(pairs[0].second));
  }
}

TEST_F(StreamTest, closing_is_seen_by_the_other_side) {
  for (const Credentials& credentials : {plain(), tls()}) {
    auto pairs = connect(credentials);
    ASSERT_EQ(pairs.size(), 1u);
    on([&] { pairs[0].first.reset(); });
    ByteStream& left = *pairs[0].second;
    std::uint8_t byte;
    EXPECT_TRUE(eventually([&] {
      (void)left.read_now(MutableView(&byte, 1));
      return !left.failure().ok();
    }));
    EXPECT_EQ(left.failure().code, Code::kLinkLost);
    on([&] { pairs.clear(); });
  }
}

TEST_F(StreamTest, shut_write_ends_one_direction_only) {
  for (const Credentials& credentials : {plain(), tls()}) {
    auto pairs = connect(credentials);
    ASSERT_EQ(pairs.size(), 1u);
    on([&] { pairs[0].first->shut_write(); });
    std::uint8_t byte = 0;
    ByteStream& second = *pairs[0].second;
    EXPECT_TRUE(eventually([&] {
      (void)second.read_now(MutableView(&byte, 1));
      return !second.failure().ok();
    }));
    on([&] { pairs.clear(); });
  }
}

TEST_F(StreamTest, writing_to_a_closed_connection_raises_no_signal) {
  auto pairs = connect(plain());
  ASSERT_EQ(pairs.size(), 1u);
  on([&] { pairs[0].second.reset(); });
  const Bytes data(1000, 7);
  const ByteView view(data);
  EXPECT_TRUE(eventually([&] {
    (void)pairs[0].first->write_now({&view, 1});
    return !pairs[0].first->failure().ok();
  }));
  on([&] { pairs.clear(); });
}

TEST_F(StreamTest, bytes_put_back_come_first_and_promised_bytes_go_first) {
  auto pairs = connect(plain());
  ASSERT_EQ(pairs.size(), 1u);
  std::string got;
  on([&] {
    ByteStream& a = *pairs[0].first;
    a.write_ahead(bytes_of("one "));
    a.write_ahead(bytes_of("two "));
    const Bytes last = bytes_of("three");
    const ByteView view(last);
    EXPECT_EQ(a.write_now({&view, 1}), last.size());
    pairs[0].second->unread(bytes_of("back "));
    pairs[0].second->unread(bytes_of("put "));
  });
  EXPECT_TRUE(eventually([&] {
    std::uint8_t buffer[3];
    const std::size_t n = pairs[0].second->read_now(buffer);
    got += text_of({buffer, n});
    return got.size() == 22;
  }));
  EXPECT_EQ(got, "put back one two three");
  on([&] { pairs.clear(); });
}

TEST_F(StreamTest, kernel_counters_show_what_was_acknowledged) {
  auto pairs = connect(plain());
  ASSERT_EQ(pairs.size(), 1u);
  const Bytes data(10'000, 7);
  const ByteView view(data);
  on([&] { EXPECT_EQ(pairs[0].first->write_now({&view, 1}), data.size()); });
  EXPECT_TRUE(eventually([&] {
    const StreamStats stats = pairs[0].first->stats();
    return stats.bytes_acked == stats.bytes_sent && stats.bytes_unacked == 0 && stats.rtt_ns > 0;
  }));
  on([&] { pairs.clear(); });
}

TEST_F(StreamTest, an_encrypted_connection_does_not_carry_the_plain_bytes) {
  // Both ends of a TLS pair over a socketpair, with the ciphertext seen in between.
  int raw[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, raw), 0);
  std::unique_ptr<ByteStream> plain_end, far_end;
  std::unique_ptr<Handshake> dialling;
  bool done = false;
  on([&] {
    far_end = plain_stream(loop, raw[1]);
    dialling = tls_handshake(loop, plain_stream(loop, raw[0]), Role::kDialling, tls(),
                             100 * base::kMillisecond, [&](auto result) {
                               EXPECT_EQ(result.status().code, Code::kDeadline);
                               done = true;
                             });
  });
  ASSERT_TRUE(eventually([&] { return done; }));
  on([&] {
    Bytes hello(4096);
    hello.resize(far_end->read_now(hello));
    ASSERT_GT(hello.size(), 100u);
    EXPECT_EQ(hello[0], 0x16);
    const Credentials credentials = tls();
    EXPECT_EQ(std::search(hello.begin(), hello.end(), credentials.shared.key.begin(),
                          credentials.shared.key.end()),
              hello.end());
    dialling.reset();
    far_end.reset();
  });
}

}  // namespace
}  // namespace jccl::net::test
