// Whoever connects to a port, or answers at one, until it is known who it is: on a plain connection
// and inside TLS, with the run's secret and without. It says right things, bent ones, parts in any
// order and raw bytes, in pieces. A plain reading decides how it has to come out: nobody is
// introduced without a signature of this conversation by a key that the input has, nobody hears
// more than its due, and no more room is made than a hello takes.
#include <algorithm>
#include <array>
#include <utility>

#include "base/crc32c.h"
#include "base/text.h"
#include "fuzz/targets/introduction_judge.h"
#include "fuzz/targets/memory_stream.h"
#include "net/security/group_name.h"

namespace jccl::fuzz {
namespace {

constexpr std::size_t kSaidMax = 16 * 1024;
constexpr std::size_t kRoomMax = 8 + base::kHelloBytesMax;  // of our end, for what it hears

struct Facts {
  Bytes heard;  // what we said
  bool sealed = false;
};

// The input decides what it says by what it hears, so its bytes come to be one after another.
class Wire final : public MemoryStream {
 public:
  Wire(ByteView room, bool tls, Facts* facts) : MemoryStream(room), tls_(tls), facts_(facts) {}

  bool is_tls() const override { return tls_; }
  std::array<std::uint8_t, 32> exporter() const override {
    std::array<std::uint8_t, 32> out{};
    if (tls_) out.fill(0x55);
    return out;
  }
  base::Result<std::unique_ptr<net::ByteStream>> sealed() override {
    JCCL_CHECK(tls_ && flush_ahead() && !std::exchange(facts_->sealed, true));
    if (has_unread()) return base::Status{base::Code::kCorrupt, "not sealed"};
    return std::unique_ptr<net::ByteStream>(std::make_unique<MemoryStream>(ByteView{}));
  }

 protected:
  std::size_t read_some(std::span<const net::MutableView> parts) override {
    std::size_t room = 0;
    for (const net::MutableView& part : parts) room += part.size();
    JCCL_CHECK(room <= kRoomMax);
    return MemoryStream::read_some(parts);
  }
  std::size_t write_some(std::span<const ByteView> parts) override {
    for (const ByteView& part : parts) {
      facts_->heard.insert(facts_->heard.end(), part.begin(), part.end());
    }
    JCCL_CHECK(facts_->heard.size() <= kRoomMax);
    return MemoryStream::write_some(parts);
  }

 private:
  bool tls_;
  Facts* facts_;
};

// ---- what the input says -----------------------------------------------------------------------

// One thing wrong with a frame, or none.
enum class Flaw : std::uint8_t {
  kMagic = 8,
  kPart,
  kPurpose,
  kZeros,
  kShort,
  kLong,
  kBit,
  kChecksum,
  kSize
};

class Speaker {
 public:
  Speaker(Input& in, const Setup& setup) : in_(in), setup_(setup) {
    said_.purpose = setup.purpose;
    said_.run = run_of_all();
    if (setup.tls) said_.exporter.fill(0x55);
    if (setup.holder) said_.secret = setup.shared().key;
  }

  // The next thing, by what was heard so far.
  Bytes next(ByteView heard) {
    listen(heard);
    Said due = Said::kAnswer;
    if (setup_.role == net::Role::kAccepting) due = greeted_ ? Said::kProof : Said::kGreeting;
    const std::size_t what = in_.below(8);
    if (what == 6) {
      if (in_.flag()) return in_.bytes(120);
      const std::size_t size = in_.u16() % 1200;
      return Bytes(size, in_.u8());
    }
    const Said which = what == 5 ? static_cast<Said>(1 + in_.below(3)) : due;
    greeted_ |= which == Said::kGreeting;
    Bytes out = framed(part(which));
    if (in_.below(8) == 7) {  // and more behind it
      const Bytes more = in_.bytes(40);
      out.insert(out.end(), more.begin(), more.end());
    }
    return out;
  }

 private:
  void listen(ByteView heard) {
    const PlainFrame frame = next_frame(&heard);
    if (frame.ending != Ending::kIntroduced) return;
    if (setup_.role == net::Role::kDialling) {
      const Part greeting = read_part(frame.payload, Said::kGreeting, setup_.purpose);
      said_.dialling = greeting.said.dialling, said_.dialling_nonce = greeting.said.dialling_nonce;
    } else {
      const Part answer = read_part(frame.payload, Said::kAnswer, setup_.purpose);
      said_.accepting = answer.said.accepting, said_.accepting_nonce = answer.said.accepting_nonce;
      heard_signature_ = answer.signature;
    }
  }

  Bytes part(Said which) {
    flaw_ = static_cast<Flaw>(in_.below(32));
    base::Writer out;
    out.u32(0x3249434A ^ (flaw_ == Flaw::kMagic ? 1u << in_.below(32) : 0));
    out.u8(static_cast<std::uint8_t>(flaw_ == Flaw::kPart ? in_.u8() : std::uint8_t(which)));
    out.u8(flaw_ == Flaw::kPurpose ? in_.u8() : static_cast<std::uint8_t>(setup_.purpose));
    out.u16(flaw_ == Flaw::kZeros ? in_.u16() : 0);
    if (which == Said::kGreeting) {
      out.raw(said_.dialling = any_key());
      fill(&said_.dialling_nonce);
      out.raw(said_.dialling_nonce);
      any_name(&out);
      any_group(&out);
    } else if (which == Said::kAnswer) {
      if (in_.below(8) == 7) said_.run[0] ^= 1;
      out.raw(said_.run);
      out.raw(said_.accepting = any_key());
      fill(&said_.accepting_nonce);
      out.raw(said_.accepting_nonce);
      out.raw(any_signature(net::Role::kAccepting));
      out.raw(any_certificate());
    } else {
      out.raw(any_signature(net::Role::kDialling));
    }
    Bytes bytes = out.take();
    if (flaw_ == Flaw::kShort) bytes.resize(in_.below(bytes.size()));
    if (flaw_ == Flaw::kLong) bytes.resize(bytes.size() + 1 + in_.u16() % 1200);
    if (flaw_ == Flaw::kBit) bytes[in_.below(bytes.size())] ^= std::uint8_t(1 << in_.below(8));
    return bytes;
  }

  Bytes framed(const Bytes& payload) {
    base::Writer out;
    const auto size = static_cast<std::uint32_t>(payload.size());
    out.u32(flaw_ == Flaw::kSize ? in_.u32() : size);
    out.u32(base::crc32c(payload) ^ (flaw_ == Flaw::kChecksum ? 1u << in_.below(32) : 0));
    out.raw(payload.data(), payload.size());
    return out.take();
  }

  base::PublicKey any_key() {
    switch (in_.below(8)) {
      case 5:
        return third_pair().key();
      case 6:
        return our_pair().key();
      case 7:  // none, and one that a constant signs everything for
        return in_.flag() ? base::PublicKey{1} : base::PublicKey{};
      default:
        return its_pair().key();
    }
  }

  void any_name(base::Writer* out) {
    std::string name = setup_.name();
    switch (in_.below(8)) {
      case 5:
        name.clear();
        break;
      case 6:
        name = in_.flag() ? "links 8" : kExpiredToken;
        break;
      case 7:
        name = in_.text(net::kSharedNameMax + 4);
        break;
      default:
        break;
    }
    // Who has a token has no other; who has any tries it by its name.
    if (setup_.holder && name != setup_.name()) said_.secret = token_of(name).key;
    out->u16(static_cast<std::uint16_t>(name.size()));
    out->raw(name.data(), name.size());
  }

  void any_group(base::Writer* out) {
    said_.group.clear();
    if (!setup_.asks_for_group) return;
    std::string name = in_.flag() ? in_.text(net::kGroupNameBytesMax + 4) : "west";
    out->u16(static_cast<std::uint16_t>(name.size()));
    out->raw(name.data(), name.size());
    said_.group = std::move(name);
  }

  net::Signature any_signature(net::Role side) {
    net::Conversation other = said_;
    switch (in_.below(8)) {
      case 4:
        side = side == net::Role::kDialling ? net::Role::kAccepting : net::Role::kDialling;
        break;
      case 5:
        other.purpose =
            setup_.purpose == net::Purpose::kLink ? net::Purpose::kControl : net::Purpose::kLink;
        break;
      case 6:
        return heard_signature_;  // what our end signed, said back
      case 7:
        if (in_.flag()) return net::Signature{1};  // of the weak key
        other.accepting_nonce[0] ^= 1;
        break;
      default:
        break;
    }
    return its_pair().sign(words_to_sign(other, side));
  }

  net::Signature any_certificate() {
    const std::size_t which = in_.below(4);
    if (which == 3) return {};
    const net::Identity& signer = which == 2 ? its_pair() : run_pair();
    return net::certify_master(signer, run_of_all(), said_.accepting);
  }

  template <std::size_t N>
  void fill(std::array<std::uint8_t, N>* out) {
    out->fill(in_.u8());
  }

  Input& in_;
  const Setup& setup_;
  net::Conversation said_;
  net::Signature heard_signature_{};
  Flaw flaw_{};
  bool greeted_ = false;
};

// ---- one connection ----------------------------------------------------------------------------

constexpr std::string_view kEndingNames[kEndings] = {
    "introduced", "foreign",  "no secret", "no proof", "another key", "no master",
    "not sealed", "too long", "damaged",   "gone",     "cancelled"};
std::array<std::array<std::uint64_t, kEndings>, 2> endings{};  // by our role

base::Code code_of(Ending ending) {
  switch (ending) {
    case Ending::kIntroduced:
    case Ending::kCancelled:
      return base::Code::kOk;
    case Ending::kForeign:
    case Ending::kDamaged:
    case Ending::kNotSealed:
      return base::Code::kCorrupt;
    case Ending::kTooLong:
      return base::Code::kLimit;
    case Ending::kGone:
      return base::Code::kLinkLost;
    default:
      return base::Code::kAuth;
  }
}

class Connection {
 public:
  explicit Connection(const Setup& setup) : setup_(setup), room_(kSaidMax) {
    auto wire = std::make_unique<Wire>(room_, setup.tls, &facts_);
    wire_ = wire.get();
    handshake_ =
        net::introduce(loop_, std::move(wire), setup.role, setup.credentials(), setup.options(),
                       [this](base::Result<std::unique_ptr<net::ByteStream>> result) {
                         JCCL_CHECK(!std::exchange(done_, true));
                         status_ = result.status();
                         if (result.ok()) stream_ = std::move(result.value());
                         handshake_.reset();  // as those do who give up then
                       });
    turn(loop_);
  }
  ~Connection() {
    handshake_.reset();
    turn(loop_);
  }

  bool done() const { return done_; }
  ByteView heard() const { return facts_.heard; }
  void say(const Bytes& bytes) {
    for (std::size_t at = 0; at < bytes.size() && !done_; at += setup_.piece) {
      const std::size_t size = std::min(setup_.piece, bytes.size() - at);
      JCCL_CHECK(said_ + size <= room_.size());
      std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), size,
                  room_.begin() + static_cast<std::ptrdiff_t>(said_));
      said_ += size;
      wire_->arrive(size);
      turn(loop_);
    }
  }
  void end() {
    wire_->end();
    turn(loop_);
    JCCL_CHECK(done_);
  }
  void cancel() {
    handshake_.reset();
    turn(loop_);
    JCCL_CHECK(!done_);
    ++endings[setup_.role == net::Role::kDialling][std::size_t(Ending::kCancelled)];
  }

  void judge() {
    const ByteView sent = ByteView(room_).first(said_);
    const IntroductionReading reading = read_introduction(setup_, sent, facts_.heard);
    ++endings[setup_.role == net::Role::kDialling][std::size_t(reading.ending)];
    // A first frame that looks like TLS is called by that name.
    JCCL_CHECK(status_.code == code_of(reading.ending) ||
               (reading.frames == 0 && status_.code == base::Code::kAuth));
    const bool proven =
        reading.ending == Ending::kIntroduced || reading.ending == Ending::kNotSealed;
    const bool sealed = setup_.tls && setup_.purpose == net::Purpose::kLink;
    JCCL_CHECK(facts_.sealed == (proven && sealed));
    JCCL_CHECK((stream_ != nullptr) == (reading.ending == Ending::kIntroduced));
    if (!stream_) return;
    JCCL_CHECK(stream_->remote().key == its_pair().key());
    JCCL_CHECK(stream_->remote().secret == reading.name);
    JCCL_CHECK(stream_->remote().group == reading.group);
    Bytes rest(reading.rest.size() + 1);
    JCCL_CHECK(stream_->read_now(rest) == reading.rest.size());
    JCCL_CHECK(std::equal(reading.rest.begin(), reading.rest.end(), rest.begin()));
  }

 private:
  const Setup& setup_;
  net::Loop loop_;
  Bytes room_;
  std::size_t said_ = 0;
  Facts facts_;
  Wire* wire_ = nullptr;  // until done
  std::unique_ptr<net::Handshake> handshake_;
  bool done_ = false;
  base::Status status_;
  std::unique_ptr<net::ByteStream> stream_;
};

// Of our end, in a connection where the input says all that is right.
std::vector<Bytes> payloads_of_ours(const Setup& setup) {
  Input right({});
  Connection connection(setup);
  Speaker speaker(right, setup);
  while (!connection.done()) connection.say(speaker.next(connection.heard()));
  std::vector<Bytes> out;
  for (ByteView left = connection.heard(); !left.empty();) {
    const ByteView payload = next_frame(&left).payload;
    out.emplace_back(payload.begin(), payload.end());
  }
  return out;
}

}  // namespace

void run_introduction(ByteView bytes) {
  Input in(bytes);
  const Setup setup = Setup::from(in);
  Connection connection(setup);
  Speaker speaker(in, setup);
  for (std::size_t things = 4 - in.below(4); things > 0 && !connection.done(); --things) {
    connection.say(speaker.next(connection.heard()));
  }
  if (!connection.done()) {
    if (in.below(4) == 3) return connection.cancel();
    connection.end();
  }
  connection.judge();
}

std::vector<Bytes> honest_introduction() {
  Setup dialling;
  dialling.role = net::Role::kDialling;
  std::vector<Bytes> out = payloads_of_ours(dialling);
  JCCL_CHECK(out.size() == 2);
  out.insert(out.begin() + 1, payloads_of_ours(Setup{}).at(0));
  return out;
}

std::vector<std::string> endings_not_reached() {
  std::vector<std::string> missing;
  for (std::size_t role = 0; role < 2; ++role) {
    const Ending never[] = {role == 0 ? Ending::kOtherKey : Ending::kNoSecret,
                            role == 0 ? Ending::kNoMaster : Ending::kNoSecret};
    for (std::size_t i = 0; i < kEndings; ++i) {
      if (std::ranges::count(never, static_cast<Ending>(i)) > 0 || endings[role][i] > 0) continue;
      missing.push_back(
          base::cat("introduction, ", role == 0 ? "accepting" : "dialling", ": ", kEndingNames[i]));
    }
  }
  return missing;
}

}  // namespace jccl::fuzz
