// Proofs of keys: what two honest ends say, bit for bit, and what an attacker makes of it.
#include "net/security/introduction.h"

#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>

#include "net/link/frames.h"
#include "net/test_support.h"

namespace jccl::net::test {
namespace {

std::shared_ptr<const Identity> pair_of(std::uint8_t seed) {
  std::array<std::uint8_t, 32> bytes;
  bytes.fill(seed);
  return std::make_shared<const Identity>(Identity::from_seed(bytes).value());
}

Credentials as(std::uint8_t seed, Credentials credentials = plain()) {
  credentials.identity = pair_of(seed);
  return credentials;
}

std::string hex(ByteView bytes) { return base::to_hex(bytes); }

struct End {
  void begin(Loop& loop, std::unique_ptr<ByteStream> over, Role role, const Credentials& who,
             IntroductionOptions options = {}) {
    if (options.time_max == 0) options.time_max = 20 * base::kSecond;
    handshake = introduce(loop, std::move(over), role, who, options,
                          [this](Result<std::unique_ptr<ByteStream>> result) {
                            done = true;
                            status = result.status();
                            if (result.ok()) stream = std::move(result.value());
                          });
  }
  std::unique_ptr<Handshake> handshake;
  std::unique_ptr<ByteStream> stream;
  Status status;
  bool done = false;
};

class IntroductionTest : public NetTest {
 protected:
  ~IntroductionTest() override {
    loop.call([&] {
      ends.clear();
      echo.reset();
      relay = {};
    });
  }
  // Two streams that are each other's far end.
  Pair wires() {
    int raw[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, raw), 0);
    return {plain_stream(loop, raw[0]), plain_stream(loop, raw[1])};
  }
  End& end() {
    ends.push_back(std::make_unique<End>());
    return *ends.back();
  }
  bool both_done() {
    return eventually([&] {
      return std::all_of(ends.begin(), ends.end(), [](const auto& e) { return e->done; });
    });
  }
  // In the middle: passes on what both say, and keeps what goes up.
  struct Relay {
    std::unique_ptr<ByteStream> up, down;
    Bytes recorded;
    void pump() {
      Bytes room(4096);
      const std::size_t sent = up->read_now(room);
      recorded.insert(recorded.end(), room.begin(), room.begin() + static_cast<long>(sent));
      if (sent > 0) down->write_ahead({room.begin(), room.begin() + static_cast<long>(sent)});
      const std::size_t back = down->read_now(room);
      if (back > 0) up->write_ahead({room.begin(), room.begin() + static_cast<long>(back)});
      (void)up->flush_ahead();
      (void)down->flush_ahead();
    }
  };
  Relay relay;
  std::vector<std::unique_ptr<Handshake>> shaking;
  std::unique_ptr<FramedStream> echo;
  std::vector<std::unique_ptr<End>> ends;
};

TEST_F(IntroductionTest, both_ends_learn_the_key_of_the_other) {
  on([&] {
    Pair wire = wires();
    end().begin(loop, std::move(wire.first), Role::kDialling, as(1));
    end().begin(loop, std::move(wire.second), Role::kAccepting, as(2));
  });
  ASSERT_TRUE(both_done());
  EXPECT_TRUE(ends[0]->status.ok()) << ends[0]->status.text;
  EXPECT_EQ(ends[0]->stream->remote().key, pair_of(2)->key());
  EXPECT_EQ(ends[1]->stream->remote().key, pair_of(1)->key());
}

TEST_F(IntroductionTest, what_is_signed_has_these_bytes) {
  Conversation said;
  said.purpose = Purpose::kLink;
  said.run.fill(7);
  said.dialling = pair_of(1)->key();
  said.accepting = pair_of(2)->key();
  said.dialling_nonce.fill(3);
  said.accepting_nonce.fill(4);
  said.exporter.fill(5);
  said.secret.fill(6);
  const Bytes words = words_to_sign(said, Role::kAccepting);
  // Computed with Python's hashlib and the Ed25519 of RFC 8032, §6.
  std::ifstream file(std::string(JCCL_TEST_DATA) + "/introduction_v2.hex");
  std::string expected_words, expected_signature, expected_certificate, dialling_words, dialling;
  file >> expected_words >> expected_signature >> expected_certificate;
  file >> dialling_words >> dialling;
  EXPECT_EQ(hex(words), expected_words);
  EXPECT_EQ(hex(pair_of(2)->sign(words)), expected_signature);
  EXPECT_EQ(hex(certify_master(*pair_of(1), said.run, said.accepting)), expected_certificate);
  const Bytes others = words_to_sign(said, Role::kDialling);
  EXPECT_EQ(hex(others), dialling_words);
  EXPECT_EQ(hex(pair_of(1)->sign(others)), dialling);
}

// Each change of what is signed: a proof of one is none of the other.
TEST_F(IntroductionTest, a_proof_is_of_one_conversation_one_side_and_one_purpose) {
  Conversation said;
  said.dialling = pair_of(1)->key();
  said.accepting = pair_of(2)->key();
  const Signature proof = pair_of(1)->sign(words_to_sign(said, Role::kDialling));
  const auto holds = [&](const Conversation& other, Role side) {
    return verify(said.dialling, words_to_sign(other, side), proof);
  };
  EXPECT_TRUE(holds(said, Role::kDialling));
  EXPECT_FALSE(holds(said, Role::kAccepting));
  const auto changed = [&](const std::function<void(Conversation*)>& change) {
    Conversation other = said;
    change(&other);
    return !holds(other, Role::kDialling);
  };
  EXPECT_TRUE(changed([](Conversation* c) { c->purpose = Purpose::kLink; }));
  EXPECT_TRUE(changed([](Conversation* c) { c->run[0] = 1; }));
  EXPECT_TRUE(changed([](Conversation* c) { c->accepting[31] ^= 1; }));
  EXPECT_TRUE(changed([](Conversation* c) { c->dialling_nonce[0] = 1; }));
  EXPECT_TRUE(changed([](Conversation* c) { c->accepting_nonce[31] = 1; }));
  EXPECT_TRUE(changed([](Conversation* c) { c->exporter[0] = 1; }));
  EXPECT_TRUE(changed([](Conversation* c) { c->secret[0] = 1; }));
  EXPECT_TRUE(changed([](Conversation* c) { c->group = "west"; }));
}

TEST_F(IntroductionTest, another_key_than_expected_is_refused_by_its_name) {
  on([&] {
    Pair wire = wires();
    IntroductionOptions options;
    options.expected = pair_of(3)->key();
    end().begin(loop, std::move(wire.first), Role::kDialling, as(1), options);
    end().begin(loop, std::move(wire.second), Role::kAccepting, as(2));
  });
  ASSERT_TRUE(both_done());
  EXPECT_EQ(ends[0]->status.code, Code::kAuth);
  EXPECT_NE(ends[0]->status.text.find(short_name(pair_of(2)->key())), std::string::npos);
  EXPECT_FALSE(ends[1]->status.ok());
}

TEST_F(IntroductionTest, a_connection_for_one_purpose_is_none_for_another) {
  on([&] {
    Pair wire = wires();
    IntroductionOptions link;
    link.purpose = Purpose::kLink;
    end().begin(loop, std::move(wire.first), Role::kDialling, as(1), link);
    end().begin(loop, std::move(wire.second), Role::kAccepting, as(2));
  });
  ASSERT_TRUE(both_done());
  EXPECT_FALSE(ends[0]->status.ok());
  EXPECT_EQ(ends[1]->status.code, Code::kCorrupt);
}

TEST_F(IntroductionTest, without_the_shared_secret_a_key_proves_nothing) {
  on([&] {
    Pair wire = wires();
    Credentials knows = as(2);
    knows.shared = {"links 1", {}};
    knows.shared.key.fill(9);
    Credentials guesses = as(1);
    guesses.shared = {"links 1", {}};
    guesses.shared.key.fill(8);
    end().begin(loop, std::move(wire.first), Role::kDialling, guesses);
    end().begin(loop, std::move(wire.second), Role::kAccepting, knows);
  });
  ASSERT_TRUE(eventually([&] { return ends[0]->done; }));
  EXPECT_EQ(ends[0]->status.code, Code::kAuth);  // nor does the answer mean anything to it
  on([&] { ends[0].reset(); });
}

// A man in the middle passes on what two honest ends say: on plain connections that is one
// conversation, and he learns nothing; he cannot make two of it.
TEST_F(IntroductionTest, who_relays_between_two_connections_is_not_taken_for_either_end) {
  on([&] {
    // An honest peer dials the attacker, who answers with his own key and, with what the peer
    // said, dials an honest master.
    Pair near = wires(), far = wires();
    end().begin(loop, std::move(near.first), Role::kDialling, as(1));
    end().begin(loop, std::move(near.second), Role::kAccepting, as(66));
    end().begin(loop, std::move(far.first), Role::kDialling, as(66));
    end().begin(loop, std::move(far.second), Role::kAccepting, as(2));
  });
  ASSERT_TRUE(both_done());
  EXPECT_EQ(ends[0]->stream->remote().key, pair_of(66)->key());
  EXPECT_EQ(ends[3]->stream->remote().key, pair_of(66)->key());
}

// Frames of an honest dialling end, said again on another connection.
TEST_F(IntroductionTest, a_recorded_introduction_is_refused) {
  on([&] {
    Pair near = wires(), far = wires();
    end().begin(loop, std::move(near.first), Role::kDialling, as(1));
    end().begin(loop, std::move(far.second), Role::kAccepting, as(2));
    relay.up = std::move(near.second);
    relay.down = std::move(far.first);
  });
  ASSERT_TRUE(eventually([&] { return relay.pump(), ends[0]->done && ends[1]->done; }));
  ASSERT_TRUE(ends[1]->status.ok()) << ends[1]->status.text;
  on([&] {
    ends.clear();
    Pair wire = wires();
    end().begin(loop, std::move(wire.second), Role::kAccepting, as(2));
    wire.first->write_ahead(Bytes(relay.recorded));
    (void)wire.first->flush_ahead();
    relay.up = std::move(wire.first);  // stays open
  });
  ASSERT_TRUE(both_done());
  EXPECT_EQ(ends[0]->status.code, Code::kAuth) << ends[0]->status.text;
}

TEST_F(IntroductionTest, what_a_peer_signed_is_no_answer_to_a_peer) {
  // An attacker that has no key sends a peer's own greeting back as its answer would be.
  on([&] {
    Pair wire = wires();
    end().begin(loop, std::move(wire.first), Role::kDialling, as(1));
    echo = std::make_unique<FramedStream>(loop, std::move(wire.second));
    echo->start(
        [&](ByteView greeting) {
          Bytes answer(greeting.begin(), greeting.begin() + 4);
          answer.insert(answer.end(), {2, 1, 0, 0});
          answer.resize(answer.size() + 16);  // a run
          answer.insert(answer.end(), greeting.begin() + 8, greeting.begin() + 72);
          answer.resize(answer.size() + 128, 0x11);
          (void)echo->send(answer);
        },
        [](const Status&) {});
  });
  ASSERT_TRUE(both_done());
  EXPECT_EQ(ends[0]->status.code, Code::kAuth) << ends[0]->status.text;
}

TEST_F(IntroductionTest, with_the_runs_key_only_its_masters_are_taken) {
  const auto run_key = pair_of(40);
  for (const bool certified : {true, false}) {
    on([&] {
      ends.clear();
      Pair wire = wires();
      Credentials peer = as(1), master = as(2);
      peer.run_key = run_key->key();
      const auto signer = certified ? run_key : pair_of(41);
      master.certificate = certify_master(*signer, master.run, master.identity->key());
      end().begin(loop, std::move(wire.first), Role::kDialling, peer);
      end().begin(loop, std::move(wire.second), Role::kAccepting, master);
    });
    ASSERT_TRUE(eventually([&] { return ends[0]->done; }));
    EXPECT_EQ(ends[0]->status.code, certified ? Code::kOk : Code::kAuth) << ends[0]->status.text;
  }
  // A certificate is of one run and one key.
  const base::RunId one{1}, two{2};
  const Signature of_one = certify_master(*run_key, one, pair_of(2)->key());
  EXPECT_TRUE(may_lead(run_key->key(), one, pair_of(2)->key(), of_one));
  EXPECT_FALSE(may_lead(run_key->key(), two, pair_of(2)->key(), of_one));
  EXPECT_FALSE(may_lead(run_key->key(), one, pair_of(3)->key(), of_one));
}

TEST_F(IntroductionTest, under_tls_each_connection_has_an_exporter_of_its_own) {
  std::vector<Pair> pairs = connect(tls(), 2);
  on([&] {
    ASSERT_EQ(pairs.size(), 2u);
    EXPECT_EQ(pairs[0].first->exporter(), pairs[0].second->exporter());
    EXPECT_NE(pairs[0].first->exporter(), pairs[1].first->exporter());
    pairs.clear();
  });
}

TEST_F(IntroductionTest, garbage_and_silence_end_it) {
  on([&] {
    Pair garbage = wires();
    garbage.first->write_ahead(Bytes(200, 0x77));
    (void)garbage.first->flush_ahead();
    end().begin(loop, std::move(garbage.second), Role::kAccepting, as(2));
    Pair silent = wires();
    IntroductionOptions options;
    options.time_max = 30 * base::kMillisecond;
    end().begin(loop, std::move(silent.second), Role::kAccepting, as(2), options);
    end().stream = std::move(silent.first);
    ends.back()->done = true;
  });
  ASSERT_TRUE(both_done());
  EXPECT_FALSE(ends[0]->status.ok());
  EXPECT_EQ(ends[1]->status.code, Code::kDeadline);
}

// Two TLS connections, and somebody with the token between them who passes on what both say.
TEST_F(IntroductionTest, a_proof_on_one_tls_connection_is_none_on_another) {
  std::vector<std::unique_ptr<ByteStream>> streams;
  const auto shake = [&](std::unique_ptr<ByteStream> over, Role role) {
    auto handshake = std::make_shared<std::unique_ptr<Handshake>>();
    *handshake = tls_handshake(loop, std::move(over), role, tls(), 20 * base::kSecond,
                               [&streams, role](Result<std::unique_ptr<ByteStream>> result) {
                                 EXPECT_TRUE(result.ok());
                                 if (!result.ok()) return;
                                 const auto at =
                                     role == Role::kDialling ? streams.begin() : streams.end();
                                 streams.insert(at, std::move(result.value()));
                               });
    shaking.push_back(std::move(*handshake));
  };
  std::vector<std::unique_ptr<ByteStream>> all;
  for (int i = 0; i < 2; ++i) {
    on([&] {
      Pair wire = wires();
      shake(std::move(wire.first), Role::kDialling);
      shake(std::move(wire.second), Role::kAccepting);
    });
    ASSERT_TRUE(eventually([&] { return streams.size() == 2; }));
    on([&] {
      for (auto& one : streams) all.push_back(std::move(one));
      streams.clear();
    });
  }
  on([&] {
    relay.up = std::move(all[1]);
    relay.down = std::move(all[2]);
    end().begin(loop, std::move(all[0]), Role::kDialling, as(1, tls()));
    end().begin(loop, std::move(all[3]), Role::kAccepting, as(2, tls()));
  });
  EXPECT_TRUE(eventually([&] { return relay.pump(), ends[0]->done; }));
  EXPECT_EQ(ends[0]->status.code, Code::kAuth) << ends[0]->status.text;
  // For that reason, and not for want of a certificate.
  EXPECT_NE(ends[0]->status.text.find("has not proved its key"), std::string::npos)
      << ends[0]->status.text;
  on([&] { shaking.clear(); });
}

TEST_F(IntroductionTest, a_key_that_one_text_signs_everything_for_proves_nothing) {
  PublicKey weak{1};
  Signature constant{1};  // R = 1, S = 0
  EXPECT_FALSE(verify(weak, bytes_of("anything"), constant));
  weak[31] = 0x80;
  EXPECT_FALSE(verify(weak, bytes_of("anything"), constant));
}

class IdentityTest : public ::testing::Test {
 protected:
  std::string path = ::testing::TempDir() + "/jccl-key-" + std::to_string(::getpid());
  void TearDown() override { std::remove(path.c_str()); }
};

TEST_F(IdentityTest, a_key_file_is_made_once_for_its_owner_and_kept) {
  const auto first = Identity::open(path);
  ASSERT_TRUE(first.ok()) << first.status().text;
  struct stat facts{};
  ASSERT_EQ(::stat(path.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600u);
  EXPECT_EQ(Identity::open(path).value().key(), first.value().key());
  EXPECT_NE(Identity::make().value().key(), first.value().key());
}

TEST_F(IdentityTest, a_key_that_others_can_read_is_refused_in_words) {
  ASSERT_TRUE(Identity::open(path).ok());
  ASSERT_EQ(::chmod(path.c_str(), 0644), 0);
  const auto refused = Identity::open(path);
  EXPECT_EQ(refused.status().code, Code::kAuth);
  EXPECT_NE(refused.status().text.find("chmod 600"), std::string::npos);
}

TEST_F(IdentityTest, a_file_that_holds_no_key_is_refused_and_not_repeated) {
  std::ofstream(path) << "not a key, but perhaps a secret";
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  const auto refused = Identity::open(path);
  EXPECT_EQ(refused.status().code, Code::kAuth);
  EXPECT_EQ(refused.status().text.find("perhaps"), std::string::npos);
}

}  // namespace
}  // namespace jccl::net::test
