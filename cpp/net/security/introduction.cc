#include "net/security/introduction.h"

#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <openssl/sha.h>

#include <algorithm>
#include <string_view>

#include "base/check.h"
#include "base/planted.h"
#include "base/text.h"
#include "net/link/frames.h"
#include "net/security/group_name.h"

namespace jccl::net {
namespace {

using base::cat;

constexpr std::uint32_t kMagic = 0x3249434A;  // "JCI2"
enum class Part : std::uint8_t { kGreeting = 1, kAnswer = 2, kProof = 3 };

void put(Bytes* out, ByteView bytes) { out->insert(out->end(), bytes.begin(), bytes.end()); }

void head(base::Writer* out, Part part, Purpose purpose) {
  out->u32(kMagic);
  out->u8(static_cast<std::uint8_t>(part));
  out->u8(static_cast<std::uint8_t>(purpose));
  out->u16(0);
}

bool has_head(base::Reader* in, Part part, Purpose purpose) {
  const bool magic = in->u32() == kMagic;
  const bool kind = in->u8() == static_cast<std::uint8_t>(part);
  const bool fits = in->u8() == static_cast<std::uint8_t>(purpose);
  return magic && kind && (fits || JCCL_PLANTED("purpose-not-compared")) && in->u16() == 0;
}

class Introduction final : public Handshake {
 public:
  Introduction(Loop& loop, std::unique_ptr<ByteStream> stream, Role role,
               const Credentials& credentials, const IntroductionOptions& options, StreamDone done)
      : loop_(loop),
        role_(role),
        credentials_(credentials),
        options_(options),
        remote_(stream->remote_text()),
        exporter_(stream->exporter()),
        framed_(loop, std::move(stream)),
        done_(std::move(done)) {
    JCCL_CHECK(credentials_.identity != nullptr);
    said_.purpose = options.purpose;
    said_.run = credentials.run;
    said_.exporter = exporter_;
    timer_ = loop.run_after(options.time_max, [this] {
      timer_ = 0;
      finish(Status{Code::kDeadline, cat(remote_, " did not introduce itself in time")});
    });
    framed_.start([this](ByteView frame) { heard(frame); },
                  [this](const Status& status) { finish(lost(status)); });
    if (role == Role::kDialling) greet();
  }

  ~Introduction() override {
    loop_.cancel(timer_);
    OPENSSL_cleanse(said_.secret.data(), said_.secret.size());
  }

 private:
  void heard(ByteView frame) {
    base::Reader in(frame);
    if (role_ == Role::kDialling) return answered(&in);
    if (!greeted_) return greeting(&in);
    proof(&in);
  }

  void greet() {
    said_.dialling = credentials_.identity->key();
    said_.secret = credentials_.shared.key;
    said_.group = options_.group;
    fill(&said_.dialling_nonce);
    base::Writer out;
    head(&out, Part::kGreeting, options_.purpose);
    out.raw(said_.dialling);
    out.raw(said_.dialling_nonce);
    out.text(credentials_.shared.name, kSharedNameMax);
    if (!said_.group.empty()) out.text(said_.group, kGroupNameBytesMax);
    send(out.take());
  }

  // The accepting side signs first: it has nothing to hide from whoever knows the shared secret.
  void greeting(base::Reader* in) {
    const bool ours = has_head(in, Part::kGreeting, options_.purpose);
    in->raw(&said_.dialling);
    in->raw(&said_.dialling_nonce);
    const std::string name = in->text(kSharedNameMax);
    const bool fits = has_group(in);
    if (!ours || !fits || !in->finished() || said_.dialling == PublicKey{})
      return finish(foreign());
    const std::optional<SharedKey> shared = credentials_.find(name);
    if (!shared) {
      return finish(Status{Code::kAuth, cat(remote_, " does not know a secret of this run")});
    }
    greeted_ = true;
    said_.secret = shared->key;
    shared_ = name;
    said_.accepting = credentials_.identity->key();
    fill(&said_.accepting_nonce);
    base::Writer out;
    head(&out, Part::kAnswer, options_.purpose);
    out.raw(said_.run);
    out.raw(said_.accepting);
    out.raw(said_.accepting_nonce);
    const Signature signature = credentials_.identity->sign(words_to_sign(said_, Role::kAccepting));
    out.raw(signature);
    out.raw(credentials_.certificate);
    send(out.take());
  }

  // One that asks for none says nothing of it, as ends did before there were groups.
  bool has_group(base::Reader* in) {
    if (in->left() == 0) return true;
    said_.group = in->text(kGroupNameBytesMax);
    return options_.purpose == Purpose::kControl && is_group_name(said_.group);
  }

  void answered(base::Reader* in) {
    Signature signature, certificate;
    const bool ours = has_head(in, Part::kAnswer, options_.purpose);
    in->raw(&said_.run);
    in->raw(&said_.accepting);
    in->raw(&said_.accepting_nonce);
    in->raw(&signature);
    in->raw(&certificate);
    if (!ours || !in->finished()) return finish(foreign());
    if (const Status no = objection(signature, certificate); !no.ok()) return finish(no);
    base::Writer out;
    head(&out, Part::kProof, options_.purpose);
    const Signature own = credentials_.identity->sign(words_to_sign(said_, Role::kDialling));
    out.raw(own);
    send(out.take());
    succeed(said_.accepting);
  }

  Status objection(const Signature& signature, const Signature& certificate) const {
    if (said_.accepting == PublicKey{} ||
        !verify(said_.accepting, words_to_sign(said_, Role::kAccepting), signature)) {
      return {Code::kAuth, cat("the process at ", remote_, " has not proved its key")};
    }
    if (options_.expected && *options_.expected != said_.accepting &&
        !JCCL_PLANTED("any-key-answers")) {
      return {Code::kAuth,
              cat("the process at ", remote_, " has the key ", short_name(said_.accepting),
                  ", not ", short_name(*options_.expected))};
    }
    if (options_.purpose != Purpose::kControl || !credentials_.run_key) return {};
    if (said_.run == credentials_.run &&
        may_lead(*credentials_.run_key, said_.run, said_.accepting, certificate)) {
      return {};
    }
    return {Code::kAuth, cat("the process at ", remote_, " (key ", short_name(said_.accepting),
                             ") is no master of this run: the run's key has not signed its key. "
                             "Start the master with the run's secret, see `jccl token`")};
  }

  void proof(base::Reader* in) {
    Signature signature;
    const bool ours = has_head(in, Part::kProof, options_.purpose);
    in->raw(&signature);
    if (!ours || !in->finished()) return finish(foreign());
    if (!verify(said_.dialling, words_to_sign(said_, Role::kDialling), signature)) {
      return finish(
          Status{Code::kAuth, cat(remote_, " has not proved its key, or has another secret")});
    }
    succeed(said_.dialling);
  }

  void succeed(const PublicKey& key) {
    std::unique_ptr<ByteStream> stream = framed_.take();
    if (!stream) return;  // its end was told
    if (options_.purpose == Purpose::kLink && stream->is_tls() &&
        !JCCL_PLANTED("link-not-sealed")) {
      Result<std::unique_ptr<ByteStream>> sealed = stream->sealed();
      if (!sealed.ok()) return finish(sealed.status());
      stream = std::move(sealed.value());
    }
    (void)stream->flush_ahead();
    stream->introduced({key, shared_, said_.group});
    finish(std::move(stream));
  }

  template <typename Array>
  void fill(Array* out) {
    JCCL_CHECK(RAND_bytes(out->data(), static_cast<int>(out->size())) == 1);
  }
  void send(const Bytes& frame) { (void)framed_.send(frame); }
  Status foreign() const {
    return {Code::kCorrupt,
            cat(remote_, " introduces itself in a form that this version does not know")};
  }
  // Who does not like our greeting closes without a word.
  Status lost(const Status& status) const {
    if (status.code != Code::kLinkLost || role_ == Role::kAccepting) return status;
    return {Code::kLinkLost, cat(status.text, ", before it introduced itself")};
  }

  void finish(Result<std::unique_ptr<ByteStream>> result) {
    loop_.cancel(std::exchange(timer_, 0));
    framed_.close();
    const StreamDone done = std::exchange(done_, nullptr);
    if (done) done(std::move(result));  // may destroy this
  }

  Loop& loop_;
  Role role_;
  Credentials credentials_;
  IntroductionOptions options_;
  std::string remote_;
  std::array<std::uint8_t, 32> exporter_;
  Conversation said_;
  bool greeted_ = false;
  std::string shared_;
  FramedStream framed_;
  StreamDone done_;
  TimerId timer_ = 0;
};

}  // namespace

// jccl id 2 | side | purpose | run | dialling key | accepting key | SHA-256 of the binding
Bytes words_to_sign(const Conversation& said, Role side) {
  constexpr std::string_view kBinding = "jccl binding 2";
  Bytes binding(kBinding.begin(), kBinding.end());
  if (!JCCL_PLANTED("exporter-not-signed")) put(&binding, said.exporter);
  if (!JCCL_PLANTED("nonces-not-signed")) {
    put(&binding, said.dialling_nonce);
    put(&binding, said.accepting_nonce);
  }
  if (!JCCL_PLANTED("secret-not-signed")) put(&binding, said.secret);
  std::array<std::uint8_t, 32> digest;
  put(&binding, base::ByteView(reinterpret_cast<const std::uint8_t*>(said.group.data()),
                               JCCL_PLANTED("group-not-signed") ? 0 : said.group.size()));
  SHA256(binding.data(), binding.size(), digest.data());
  OPENSSL_cleanse(binding.data(), binding.size());
  constexpr std::string_view kWords = "jccl id 2";
  Bytes out(kWords.begin(), kWords.end());
  const bool dialling = side == Role::kDialling || JCCL_PLANTED("side-not-signed");
  out.push_back(dialling ? 1 : 2);
  const Purpose purpose = JCCL_PLANTED("purpose-not-signed") ? Purpose::kControl : said.purpose;
  out.push_back(static_cast<std::uint8_t>(purpose));
  put(&out, said.run);
  if (!JCCL_PLANTED("keys-not-signed")) {
    put(&out, said.dialling);
    put(&out, said.accepting);
  }
  put(&out, digest);
  return out;
}

std::unique_ptr<Handshake> introduce(Loop& loop, std::unique_ptr<ByteStream> stream, Role role,
                                     const Credentials& credentials,
                                     const IntroductionOptions& options, StreamDone done) {
  JCCL_CHECK(loop.confined());
  return std::make_unique<Introduction>(loop, std::move(stream), role, credentials, options,
                                        std::move(done));
}

}  // namespace jccl::net
