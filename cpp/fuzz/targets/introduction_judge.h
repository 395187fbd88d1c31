// What the target `introduction` is made of: the ends of one connection, and a plain reading of all
// that was said on it, which decides how it has to come out. Test only.
#pragma once

#include <string>
#include <vector>

#include "base/limits.h"
#include "fuzz/input.h"
#include "net/security/introduction.h"

namespace jccl::fuzz {

enum class Ending : std::uint8_t {
  kIntroduced,
  kForeign,    // a frame that is not of this form
  kNoSecret,   // accepting: no secret of that name
  kNoProof,    // a signature that is not the key's, or not of this conversation
  kOtherKey,   // dialling: not the one that will do
  kNoMaster,   // dialling a master: no certificate by the run's key
  kNotSealed,  // a link under TLS, with bytes behind the introduction that are not sealed
  kTooLong,    // a frame beyond the size of a hello
  kDamaged,    // a frame whose checksum is of other bytes
  kGone,       // the bytes ended
  kCancelled   // by us
};
inline constexpr std::size_t kEndings = 11;

// The key pairs of the run, of our end and of the input, and one that nobody here has.
const net::Identity& run_pair();
const net::Identity& our_pair();
const net::Identity& its_pair();
const net::Identity& third_pair();
// By the name of a token, of the run that our end is of; zeros if there is none.
net::SharedKey token_of(std::string_view name);
base::RunId run_of_all();
// A name of that run's whose time is over.
inline constexpr std::string_view kExpiredToken = "p-0-1-0-0000000a";

enum class Secret : std::uint8_t { kNone, kLinks, kToken };

// One end is ours; the input is the other.
struct Setup {
  net::Role role = net::Role::kAccepting;  // ours
  net::Purpose purpose = net::Purpose::kControl;
  bool tls = false;
  Secret secret = Secret::kNone;  // that our end dials with, or takes
  bool holder = true;             // the input has it
  bool run_key = false;           // dialling: only masters of the run will do
  bool expected = false;          // dialling: only one key will do,
  bool its_own = true;            // the input's
  bool asks_for_group = false;    // accepting: the input asks for a group of the run
  std::size_t piece = 1;          // so many bytes arrive at once

  static Setup from(Input& in);
  std::string name() const;
  net::SharedKey shared() const;
  net::Credentials credentials() const;
  net::IntroductionOptions options() const;
};

enum class Said : std::uint8_t { kGreeting = 1, kAnswer = 2, kProof = 3 };
struct Part {
  bool ours = false;  // of this form and purpose, and the whole of its frame
  net::Conversation said;
  std::string name;  // of the secret; the group is in `said`
  net::Signature signature{}, certificate{};
};
Part read_part(ByteView payload, Said which, net::Purpose purpose);

struct PlainFrame {
  Ending ending = Ending::kIntroduced;  // else there is no frame
  ByteView payload;
};
PlainFrame next_frame(ByteView* bytes);

struct IntroductionReading {
  Ending ending = Ending::kIntroduced;
  std::size_t frames = 0;  // that were read whole
  std::string name;        // of the secret that was shared
  std::string group;       // of the run, that was asked for
  ByteView rest;           // what came behind the introduction
};
// Of what the input said, and of what our end said, which it checks: nothing beyond its due, and
// signed by its key.
IntroductionReading read_introduction(const Setup& setup, ByteView sent, ByteView heard);

// ---- introduction_target.cc
// Greeting, answer and proof as our ends say them when all is well: what their frames hold.
std::vector<Bytes> honest_introduction();
// In words: which endings no input of this process has come to.
std::vector<std::string> endings_not_reached();

}  // namespace jccl::fuzz
