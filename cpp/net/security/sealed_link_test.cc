// Links over real TLS with somebody in the middle: when they leave it, and that nothing of one is
// taken for another's.
#include <sys/socket.h>

#include <algorithm>

#include "net/security/sealed_support.h"

namespace jccl::net::test {
namespace {

class SealedLinkTest : public NetTest {
 protected:
  ~SealedLinkTest() override {
    loop.call([&] { connections.clear(); });
  }
  // A connection through somebody in the middle, who sees and sends what he likes.
  struct Connection {
    std::unique_ptr<Handshake> handshakes[2];
    std::unique_ptr<ByteStream> ends[2];    // dialling, accepting
    std::unique_ptr<ByteStream> middle[2];  // towards them
    Status status[2];
    int done = 0;
    Bytes seen;  // from the dialling end
  };
  std::unique_ptr<ByteStream> wire(std::unique_ptr<ByteStream>* far) {
    int raw[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, raw), 0);
    *far = plain_stream(loop, raw[1]);
    return plain_stream(loop, raw[0]);
  }
  void begin(Connection* c, int side, Purpose purpose) {
    const Role role = side == 0 ? Role::kDialling : Role::kAccepting;
    c->handshakes[side] = tls_handshake(
        loop, wire(&c->middle[side]), role, tls(), 20 * base::kSecond, [=, this](auto tls_done) {
          ASSERT_TRUE(tls_done.ok()) << tls_done.status().text;
          IntroductionOptions options;
          options.purpose = purpose;
          options.time_max = 20 * base::kSecond;
          c->handshakes[side] =
              introduce(loop, std::move(tls_done.value()), role, tls(), options, [=](auto result) {
                c->status[side] = result.status();
                if (result.ok()) {
                  c->ends[side] = std::move(result.value());
                }
                ++c->done;
              });
        });
  }
  // Passes on what both say.
  void pass(Connection* c) {
    for (const int from : {0, 1}) {
      Bytes room(64 * 1024);
      room.resize(c->middle[from]->read_now(room));
      if (from == 0) c->seen.insert(c->seen.end(), room.begin(), room.end());
      c->middle[1 - from]->write_ahead(room);
      (void)c->middle[1 - from]->flush_ahead();
    }
  }
  Connection* open(Purpose purpose = Purpose::kLink) {
    connections.push_back(std::make_unique<Connection>());
    Connection* c = connections.back().get();
    on([&] { begin(c, 0, purpose), begin(c, 1, purpose); });
    EXPECT_TRUE(eventually([&] { return pass(c), c->done == 2; }));
    on([&] {
      EXPECT_TRUE(c->ends[0] && c->ends[1]) << c->status[0].text << c->status[1].text;
      c->seen.clear();
    });
    return c;
  }
  static void say(ByteStream& stream, std::string_view text) {
    stream.write_ahead(bytes_of(text));
    EXPECT_TRUE(stream.flush_ahead());
  }
  static Bytes take(ByteStream& stream) {
    Bytes out(4096);
    out.resize(stream.read_now(out));
    return out;
  }
  std::vector<std::unique_ptr<Connection>> connections;
};

TEST_F(SealedLinkTest, links_are_sealed_and_carry_no_plain_bytes) {
  Connection* c = open();
  Bytes got;
  on([&] { say(*c->ends[0], "what nobody else may read"); });
  EXPECT_TRUE(eventually([&] {
    pass(c);
    const Bytes more = take(*c->ends[1]);
    got.insert(got.end(), more.begin(), more.end());
    return got.size() == 25;
  }));
  EXPECT_EQ(text_of(got), "what nobody else may read");
  on([&] {
    EXPECT_TRUE(c->ends[0]->is_tls());
    EXPECT_EQ(sizes_of(c->seen), (std::vector<std::size_t>{25}));
    EXPECT_EQ(text_of(c->seen).find("nobody"), std::string::npos);
  });
}

// What one end sent comes to another one, as its first record.
TEST_F(SealedLinkTest, records_of_one_stripe_or_direction_are_none_of_another) {
  Connection* first = open();
  Connection* second = open();
  Bytes sealed;
  on([&] { say(*first->ends[0], "spliced"); });
  ASSERT_TRUE(eventually([&] {
    sealed = take(*first->middle[0]);
    return !sealed.empty();
  }));
  const auto fails_at = [&](Connection* c, int side) {
    on([&] {
      c->middle[side]->write_ahead(sealed);
      EXPECT_TRUE(c->middle[side]->flush_ahead());
    });
    return eventually([&] {
      EXPECT_EQ(take(*c->ends[side]), Bytes());
      return !c->ends[side]->failure().ok();
    });
  };
  EXPECT_TRUE(fails_at(second, 1)) << "of another stripe";
  EXPECT_TRUE(fails_at(second, 0)) << "of another stripe's other direction";
  EXPECT_TRUE(fails_at(first, 0)) << "back to its sender";
  on([&] {
    first->middle[1]->write_ahead(sealed);
    EXPECT_TRUE(first->middle[1]->flush_ahead());
  });
  Bytes got;
  EXPECT_TRUE(eventually([&] { return got = take(*first->ends[1]), !got.empty(); }));
  EXPECT_EQ(text_of(got), "spliced");  // where it belongs
}

TEST_F(SealedLinkTest, control_connections_stay_under_tls) {
  Connection* c = open(Purpose::kControl);
  on([&] { say(*c->ends[0], "a message"); });
  EXPECT_TRUE(eventually([&] { return pass(c), text_of(take(*c->ends[1])) == "a message"; }));
  on([&] {
    ASSERT_GT(c->seen.size(), 3u);
    EXPECT_EQ(c->seen[0], 0x17);  // a TLS record of application data
    EXPECT_EQ(c->seen[1], 0x03);
  });
}

// A member that proves its key and then goes on under TLS, or in clear, is not understood.
TEST_F(SealedLinkTest, who_does_not_seal_is_not_understood) {
  Connection* c = open();
  on([&] {
    c->middle[1]->write_ahead(bytes_of("in clear, as long as it likes to be"));
    EXPECT_TRUE(c->middle[1]->flush_ahead());
  });
  EXPECT_TRUE(eventually([&] {
    EXPECT_EQ(take(*c->ends[1]), Bytes());
    return !c->ends[1]->failure().ok();
  }));
  on([&] { EXPECT_EQ(c->ends[1]->failure().code, Code::kLinkLost); });
}

TEST_F(SealedLinkTest, bytes_behind_an_introduction_that_are_not_sealed_end_it) {
  auto pairs = connect(tls());
  ASSERT_EQ(pairs.size(), 1u);
  on([&] {
    pairs[0].second->unread(bytes_of("more"));
    const auto sealed = pairs[0].second->sealed();
    EXPECT_EQ(sealed.status().code, Code::kCorrupt);
    pairs.clear();
  });
}

}  // namespace
}  // namespace jccl::net::test
