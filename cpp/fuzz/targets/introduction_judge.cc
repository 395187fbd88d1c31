#include "fuzz/targets/introduction_judge.h"

#include <array>

#include "base/crc32c.h"
#include "net/security/group_name.h"

namespace jccl::fuzz {
namespace {

using net::Conversation;
using net::Purpose;
using net::Role;

constexpr std::uint32_t kIntroductionMagic = 0x3249434A;
constexpr std::size_t kFrameHead = 8;
constexpr std::string_view kSecretNames[] = {"", "links 7", "p-0-0-0-0000000a"};

const net::Identity& key_pair(std::uint8_t seed) {
  static const std::vector<net::Identity> all = [] {
    std::vector<net::Identity> out;
    for (std::uint8_t i = 0; i < 4; ++i) {
      std::array<std::uint8_t, 32> bytes;
      bytes.fill(i);
      out.push_back(net::Identity::from_seed(bytes).value());
    }
    return out;
  }();
  return all[seed];
}

net::RunSecret secret_of_run() {
  net::RunSecret secret;  // its seed is that of run_pair()
  secret.run.fill(5);
  secret.root.fill(6);
  return secret;
}

// A signature by the input's own key is the one that Ed25519 makes; of other keys it has none.
bool proves(const base::PublicKey& key, const Conversation& said, Role side,
            const net::Signature& signature) {
  return key == its_pair().key() && signature == its_pair().sign(words_to_sign(said, side));
}

class IntroductionJudge {
 public:
  IntroductionJudge(const Setup& setup, ByteView sent, ByteView heard)
      : setup_(setup), credentials_(setup.credentials()), left_(sent), heard_(heard) {
    said_.purpose = setup.purpose;
    said_.run = credentials_.run;
    if (setup.tls) said_.exporter.fill(0x55);
  }

  IntroductionReading read() {
    out_.ending = setup_.role == Role::kDialling ? dialling() : accepting();
    out_.rest = left_;
    const bool sealed = setup_.tls && setup_.purpose == Purpose::kLink;
    if (out_.ending == Ending::kIntroduced && sealed && !left_.empty()) {
      out_.ending = Ending::kNotSealed;
    }
    JCCL_CHECK(heard_.empty());  // nothing beyond its due
    return out_;
  }

 private:
  Ending accepting() {
    const PlainFrame greeting = frame();
    if (greeting.ending != Ending::kIntroduced) return greeting.ending;
    const Part hello = read_part(greeting.payload, Said::kGreeting, setup_.purpose);
    if (!hello.ours || hello.said.dialling == base::PublicKey{}) return Ending::kForeign;
    const auto shared = credentials_.find(hello.name);
    if (!shared || hello.name == kExpiredToken) return Ending::kNoSecret;
    out_.name = hello.name;
    said_.dialling = hello.said.dialling, said_.dialling_nonce = hello.said.dialling_nonce;
    said_.secret = shared->key;
    said_.group = out_.group = hello.said.group;
    const bool answered = heard_answer();
    const PlainFrame proof = frame();
    if (proof.ending != Ending::kIntroduced) return proof.ending;
    const Part last = read_part(proof.payload, Said::kProof, setup_.purpose);
    if (!last.ours) return Ending::kForeign;
    const bool proven = answered && proves(said_.dialling, said_, Role::kDialling, last.signature);
    return proven ? Ending::kIntroduced : Ending::kNoProof;
  }

  // Ours, to this greeting. False: it has not left, so nobody can have signed it.
  bool heard_answer() {
    if (heard_.empty()) return false;
    const Part answer = heard_part(Said::kAnswer);
    said_.accepting = answer.said.accepting, said_.accepting_nonce = answer.said.accepting_nonce;
    JCCL_CHECK(answer.said.run == credentials_.run && said_.accepting == our_pair().key());
    JCCL_CHECK(answer.signature == our_pair().sign(words_to_sign(said_, Role::kAccepting)));
    return true;
  }

  Ending dialling() {
    const Part greeting = heard_part(Said::kGreeting);
    JCCL_CHECK(greeting.said.dialling == our_pair().key() && greeting.name == setup_.name());
    JCCL_CHECK(greeting.said.group.empty());  // our end asks for none here
    said_.dialling = greeting.said.dialling, said_.dialling_nonce = greeting.said.dialling_nonce;
    said_.secret = credentials_.shared.key;
    const PlainFrame told = frame();
    if (told.ending != Ending::kIntroduced) return told.ending;
    const Part answer = read_part(told.payload, Said::kAnswer, setup_.purpose);
    if (!answer.ours) return Ending::kForeign;
    said_.run = answer.said.run, said_.accepting = answer.said.accepting;
    said_.accepting_nonce = answer.said.accepting_nonce;
    if (!proves(said_.accepting, said_, Role::kAccepting, answer.signature)) {
      return Ending::kNoProof;
    }
    const auto expected = setup_.options().expected;
    if (expected && *expected != said_.accepting) return Ending::kOtherKey;
    const bool leads =
        said_.run == credentials_.run &&
        answer.certificate == net::certify_master(run_pair(), credentials_.run, said_.accepting);
    if (setup_.purpose == Purpose::kControl && setup_.run_key && !leads) return Ending::kNoMaster;
    // To this one, and to nobody before, we prove our key.
    const Part proof = heard_part(Said::kProof);
    JCCL_CHECK(proof.signature == our_pair().sign(words_to_sign(said_, Role::kDialling)));
    return Ending::kIntroduced;
  }

  PlainFrame frame() {
    const PlainFrame out = next_frame(&left_);
    if (out.ending == Ending::kIntroduced) ++out_.frames;
    return out;
  }
  Part heard_part(Said which) {
    const PlainFrame frame = next_frame(&heard_);
    JCCL_CHECK(frame.ending == Ending::kIntroduced);
    const Part out = read_part(frame.payload, which, setup_.purpose);
    JCCL_CHECK(out.ours);
    return out;
  }

  const Setup& setup_;
  const net::Credentials credentials_;
  Conversation said_;
  ByteView left_, heard_;
  IntroductionReading out_;
};

}  // namespace

const net::Identity& run_pair() { return key_pair(0); }
const net::Identity& our_pair() { return key_pair(1); }
const net::Identity& its_pair() { return key_pair(2); }
const net::Identity& third_pair() { return key_pair(3); }

net::SharedKey token_of(std::string_view name) {
  static const net::Credentials master = net::Credentials::of_master(secret_of_run());
  return master.find(name).value_or(net::SharedKey{std::string(name), {}});
}

base::RunId run_of_all() { return secret_of_run().run; }

Setup Setup::from(Input& in) {
  Setup out;
  const std::uint8_t bits = in.u8(), more = in.u8();
  out.role = (bits & 1) != 0 ? Role::kDialling : Role::kAccepting;
  out.purpose = (bits & 2) != 0 ? Purpose::kLink : Purpose::kControl;
  out.tls = (bits & 4) != 0;
  out.holder = (bits & 8) == 0;
  out.run_key = (bits & 16) != 0;
  out.expected = (bits & 32) != 0;
  out.its_own = (bits & 64) == 0;
  out.asks_for_group = (bits & 128) != 0;
  out.secret = static_cast<Secret>(more % 3);
  out.piece = 256 - in.u8();
  return out;
}

std::string Setup::name() const { return std::string(kSecretNames[static_cast<int>(secret)]); }
net::SharedKey Setup::shared() const {
  if (secret == Secret::kToken) return token_of(name());
  net::SharedKey out{name(), {}};
  if (secret == Secret::kLinks) out.key.fill(9);
  return out;
}

net::Credentials Setup::credentials() const {
  net::Credentials out;
  out.run = secret_of_run().run;
  out.tls = tls;
  out.identity = std::make_shared<const net::Identity>(our_pair());
  out.shared = shared();
  if (secret == Secret::kToken && role == Role::kAccepting) {
    out.known = net::Credentials::of_master(secret_of_run()).known;
  }
  if (run_key) out.run_key = run_pair().key();
  return out;
}

net::IntroductionOptions Setup::options() const {
  net::IntroductionOptions out;
  out.purpose = purpose;
  out.time_max = 3600 * base::kSecond;
  if (expected) out.expected = its_own ? its_pair().key() : third_pair().key();
  return out;
}

Part read_part(ByteView payload, Said which, Purpose purpose) {
  Part out;
  base::Reader in(payload);
  out.ours = in.u32() == kIntroductionMagic;
  out.ours &= in.u8() == static_cast<std::uint8_t>(which);
  out.ours &= in.u8() == static_cast<std::uint8_t>(purpose);
  out.ours &= in.u16() == 0;
  if (which == Said::kGreeting) {
    in.raw(&out.said.dialling), in.raw(&out.said.dialling_nonce);
    out.name = in.text(net::kSharedNameMax);
    const bool asks = in.left() > 0;
    if (asks) out.said.group = in.text(net::kGroupNameBytesMax);
    out.ours &= !asks || (purpose == Purpose::kControl && net::is_group_name(out.said.group));
  } else if (which == Said::kAnswer) {
    in.raw(&out.said.run), in.raw(&out.said.accepting), in.raw(&out.said.accepting_nonce);
    in.raw(&out.signature), in.raw(&out.certificate);
  } else {
    in.raw(&out.signature);
  }
  out.ours &= in.finished();
  return out;
}

PlainFrame next_frame(ByteView* bytes) {
  base::Reader head(*bytes);
  const std::uint32_t size = head.u32(), crc = head.u32();
  if (bytes->size() >= 4 && base::Reader(*bytes).u32() > base::kHelloBytesMax) {
    return {Ending::kTooLong, {}};
  }
  if (bytes->size() < kFrameHead || bytes->size() - kFrameHead < size) return {Ending::kGone, {}};
  const ByteView payload = bytes->subspan(kFrameHead, size);
  *bytes = bytes->subspan(kFrameHead + size);
  if (base::crc32c(payload) != crc) return {Ending::kDamaged, {}};
  return {Ending::kIntroduced, payload};
}

IntroductionReading read_introduction(const Setup& setup, ByteView sent, ByteView heard) {
  return IntroductionJudge(setup, sent, heard).read();
}

}  // namespace jccl::fuzz
