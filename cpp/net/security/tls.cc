// TLS 1.3 with an external pre-shared key over any ByteStream: OpenSSL works on two buffers. For
// handshakes, introductions and control connections; the many bytes of links travel sealed. No
// certificates, tickets or early data.
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/ids.h"
#include "base/planted.h"
#include "base/text.h"
#include "net/link/stream.h"
#include "net/security/sealed_stream.h"
#include "net/socket/linger.h"

namespace jccl::net {
namespace {

constexpr std::size_t kTlsInBytes = 18 * 1024;    // one record
constexpr std::size_t kTlsOutBytes = 128 * 1024;  // records that leave in one write
// Far below AES-GCM's limit of 2^24.5 records under one key.
constexpr std::uint64_t kKeyBytesMax = std::uint64_t{64} << 30;

// Ciphertext on its way in and out; the other end of OpenSSL's BIO.
struct Pipes {
  Bytes in;
  std::size_t in_at = 0;
  std::size_t in_end = 0;
  Bytes out;
  std::size_t out_at = 0;
};

int bio_read(BIO* bio, char* data, int size) {
  auto* pipes = static_cast<Pipes*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  const std::size_t n =
      std::min<std::size_t>(static_cast<std::size_t>(size), pipes->in_end - pipes->in_at);
  if (n == 0) {
    BIO_set_retry_read(bio);
    return -1;
  }
  std::memcpy(data, pipes->in.data() + pipes->in_at, n);
  pipes->in_at += n;
  return static_cast<int>(n);
}

int bio_write(BIO* bio, const char* data, int size) {
  auto* pipes = static_cast<Pipes*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(data);
  pipes->out.insert(pipes->out.end(), bytes, bytes + size);
  return size;
}

long bio_control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

BIO_METHOD* bio_method() {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "jccl pipes");
    JCCL_CHECK(m != nullptr);
    BIO_meth_set_read(m, bio_read);
    BIO_meth_set_write(m, bio_write);
    BIO_meth_set_ctrl(m, bio_control);
    return m;
  }();
  return method;
}

// The pre-shared key as OpenSSL wants it: a session that was never negotiated.
SSL_SESSION* session_of(SSL* ssl, const SharedKey& shared) {
  constexpr unsigned char kAes128GcmSha256[] = {0x13, 0x01};
  const SSL_CIPHER* cipher = SSL_CIPHER_find(ssl, kAes128GcmSha256);
  SSL_SESSION* session = SSL_SESSION_new();
  if (session == nullptr || cipher == nullptr ||
      SSL_SESSION_set1_master_key(session, shared.key.data(), shared.key.size()) != 1 ||
      SSL_SESSION_set_cipher(session, cipher) != 1 ||
      SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) != 1) {
    SSL_SESSION_free(session);
    return nullptr;
  }
  return session;
}

// The callbacks get the credentials, which live as long as the SSL object.
int use_session(SSL* ssl, const EVP_MD* digest, const unsigned char** id, std::size_t* id_size,
                SSL_SESSION** session) {
  const auto* credentials = static_cast<const Credentials*>(SSL_get_app_data(ssl));
  *session = nullptr;
  if (digest != nullptr && !EVP_MD_is_a(digest, "SHA256")) return 1;
  *session = session_of(ssl, credentials->shared);
  if (*session == nullptr) return 0;
  *id = reinterpret_cast<const unsigned char*>(credentials->shared.name.data());
  *id_size = credentials->shared.name.size();
  return 1;
}

int find_session(SSL* ssl, const unsigned char* id, std::size_t id_size, SSL_SESSION** session) {
  const auto* credentials = static_cast<const Credentials*>(SSL_get_app_data(ssl));
  *session = nullptr;
  if (id_size > kSharedNameMax) return 1;
  const auto shared = credentials->find({reinterpret_cast<const char*>(id), id_size});
  if (!shared) return 1;
  *session = session_of(ssl, *shared);
  return *session != nullptr;
}

SSL_CTX* make_context() {
  SSL_CTX* context = SSL_CTX_new(TLS_method());
  JCCL_CHECK(context != nullptr);
  JCCL_CHECK(SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1);
  JCCL_CHECK(SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) == 1);
  JCCL_CHECK(SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256") == 1);
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_num_tickets(context, 0);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_max_early_data(context, 0);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_psk_use_session_callback(context, use_session);
  SSL_CTX_set_psk_find_session_callback(context, find_session);
  return context;
}

class TlsStream final : public ByteStream {
 public:
  TlsStream(std::unique_ptr<ByteStream> lower, Role role, const Credentials& credentials)
      : lower_(std::move(lower)),
        role_(role),
        credentials_(credentials),
        pipes_(std::make_unique<Pipes>()) {
    static SSL_CTX* const context = make_context();
    pipes_->in.resize(kTlsInBytes);
    ssl_ = SSL_new(context);
    JCCL_CHECK(ssl_ != nullptr);
    SSL_set_app_data(ssl_, &credentials_);
    BIO* bio = BIO_new(bio_method());
    JCCL_CHECK(bio != nullptr);
    BIO_set_data(bio, pipes_.get());
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl_, bio, bio);
    if (role == Role::kDialling) {
      SSL_set_connect_state(ssl_);
      // No certificate is ever trusted; only the key proves anything.
      SSL_set_verify(ssl_, SSL_VERIFY_PEER, nullptr);
    } else {
      SSL_set_accept_state(ssl_);
    }
  }

  ~TlsStream() override {
    SSL_free(ssl_);
    OPENSSL_cleanse(credentials_.shared.key.data(), credentials_.shared.key.size());
  }

  // True when done; else failure() tells whether to go on when readable.
  bool shake() {
    while (failure_.ok()) {
      ERR_clear_error();
      const int result = SSL_do_handshake(ssl_);
      flush();
      if (!pipes_->out.empty()) arm_flush();
      if (result == 1) return accept_shaken();
      if (SSL_get_error(ssl_, result) == SSL_ERROR_WANT_READ) {
        if (!refill()) return false;
        continue;
      }
      char reason[160];
      ERR_error_string_n(ERR_peek_error(), reason, sizeof(reason));
      refuse(reason);
    }
    return false;
  }

  // The stream under the failed handshake, for a last word (the alert in it).
  std::unique_ptr<ByteStream> take_lower() {
    Bytes rest(pipes_->out.begin() + static_cast<std::ptrdiff_t>(pipes_->out_at),
               pipes_->out.end());
    if (!rest.empty()) lower_->write_ahead(std::move(rest));
    lower_->when_readable(nullptr);  // nothing may call back here
    lower_->when_writable(nullptr);
    return std::move(lower_);
  }

  void when_readable(std::function<void()> fn) override { lower_->when_readable(std::move(fn)); }
  void when_writable(std::function<void()> fn) override {
    on_writable_ = std::move(fn);
    arm_flush();
  }
  void shut_write() override {
    ERR_clear_error();
    (void)SSL_shutdown(ssl_);  // close_notify
    flush();
    if (pipes_->out.empty()) {
      lower_->shut_write();
    } else {
      shut_when_flushed_ = true;
    }
  }
  const Status& failure() const override { return failure_; }
  StreamStats stats() const override { return lower_->stats(); }
  void pace(std::uint64_t bytes_per_second) override { lower_->pace(bytes_per_second); }
  void probe() override { lower_->probe(); }
  Time last_received() const override { return lower_->last_received(); }
  std::string remote_text() const override { return lower_->remote_text(); }
  bool remote_is_loopback() const override { return lower_->remote_is_loopback(); }
  std::size_t held_bytes() const override { return pipes_->in.capacity() + pipes_->out.capacity(); }
  bool is_tls() const override { return true; }
  std::array<std::uint8_t, 32> exporter() const override {
    std::array<std::uint8_t, 32> out{};
    export_keys("EXPORTER-Channel-Binding", out);
    return out;
  }
  Result<std::unique_ptr<ByteStream>> sealed() override {
    if (!flush_ahead() && failure_.ok()) {
      lose(Status{Code::kLinkLost, base::cat(remote_text(), " takes no more bytes")});
    }
    if (!failure_.ok()) return failure_;
    if ((has_unread() || SSL_pending(ssl_) > 0) && !JCCL_PLANTED("unsealed-bytes-let-pass")) {
      return Status{Code::kCorrupt, base::cat(remote_text(), " sends data that is not sealed")};
    }
    // Of what the dialling end writes, and of what the accepting end does.
    std::array<std::uint8_t, 64> keys{};
    if (!JCCL_PLANTED("seal-keys-of-no-connection")) {
      export_keys("EXPERIMENTAL jccl seal 1", keys);
    }
    SealSecrets secrets;
    const bool dialling = role_ == Role::kDialling || JCCL_PLANTED("seal-one-key-both-ways");
    SealSecret& first = dialling ? secrets.writing : secrets.reading;
    SealSecret& second = dialling ? secrets.reading : secrets.writing;
    std::copy_n(keys.begin(), first.size(), first.begin());
    std::copy_n(keys.begin() + (JCCL_PLANTED("seal-one-key-both-ways") ? 0 : 32), second.size(),
                second.begin());
    OPENSSL_cleanse(keys.data(), keys.size());
    const Pipes& p = *pipes_;
    Bytes rest(p.in.begin() + static_cast<std::ptrdiff_t>(p.in_at),
               p.in.begin() + static_cast<std::ptrdiff_t>(p.in_end));
    std::unique_ptr<ByteStream> lower = take_lower();
    lower->unread(std::move(rest));
    std::unique_ptr<ByteStream> out = sealed_stream(std::move(lower), secrets);
    OPENSSL_cleanse(&secrets, sizeof(secrets));
    return out;
  }

 protected:
  // Of one record alone: what comes behind an introduction may be sealed.
  std::size_t read_some(std::span<const MutableView> parts) override {
    for (const MutableView& part : parts) {
      if (!part.empty()) return read_record(part);
    }
    return 0;
  }

  std::size_t write_some(std::span<const ByteView> parts) override {
    flush();
    std::size_t total = 0;
    for (const ByteView& part : parts) {
      std::size_t at = 0;
      while (at < part.size() && room()) {
        const std::size_t n = write_record(part.subspan(at));
        at += n;
        total += n;
      }
      if (at < part.size()) break;
    }
    flush();
    if (!pipes_->out.empty()) arm_flush();
    return total;
  }

 private:
  bool accept_shaken() {
    // Only the pre-shared key makes a handshake ours; anything else would be a stranger.
    if (SSL_session_reused(ssl_) != 1) {
      refuse("the pre-shared key was not used");
      return false;
    }
    return true;
  }

  void export_keys(std::string_view label, std::span<std::uint8_t> out) const {
    JCCL_CHECK(SSL_export_keying_material(ssl_, out.data(), out.size(), label.data(), label.size(),
                                          nullptr, 0, 0) == 1);
  }

  void refuse(std::string_view reason) {
    const auto rights = parse_rights(credentials_.shared.name);
    const bool late = rights && expired(*rights);
    failure_ =
        Status{Code::kAuth, base::cat("TLS handshake with ", remote_text(), " refused: the token ",
                                      late ? "has expired; ask for a new one"
                                           : "is wrong, of another run, or missing on one side",
                                      " (", reason, ")")};
  }

  void lose(const Status& status) {
    if (failure_.ok()) failure_ = status;
  }

  // Ciphertext from below; false if there is none now.
  bool refill() {
    Pipes& p = *pipes_;
    if (p.in_at == p.in_end) p.in_at = p.in_end = 0;
    if (p.in_end == p.in.size()) {
      std::memmove(p.in.data(), p.in.data() + p.in_at, p.in_end - p.in_at);
      p.in_end -= p.in_at;
      p.in_at = 0;
    }
    const std::size_t n = lower_->read_now(MutableView(p.in).subspan(p.in_end));
    p.in_end += n;
    // A write that failed below must not hide what can still be read.
    if (n == 0 && !lower_->failure().ok()) lose(lower_->failure());
    return n > 0;
  }

  std::size_t read_record(MutableView into) {
    while (!read_ended_) {
      std::size_t n = 0;
      ERR_clear_error();
      if (SSL_read_ex(ssl_, into.data(), into.size(), &n) == 1) return n;
      const int error = SSL_get_error(ssl_, 0);
      if (error == SSL_ERROR_WANT_READ) {
        if (refill()) continue;
        return 0;
      }
      read_ended_ = true;
      lose(error == SSL_ERROR_ZERO_RETURN
               ? Status{Code::kLinkLost, base::cat(remote_text(), " closed the connection")}
               : Status{Code::kLinkLost, base::cat("broken TLS record from ", remote_text())});
    }
    return 0;
  }

  // Records gather up to the buffer's size; once the kernel is full, what waits stays alone.
  bool room() {
    if (pipes_->out.size() >= kTlsOutBytes) flush();
    return failure_.ok() && pipes_->out_at == 0 && pipes_->out.size() < kTlsOutBytes && !stuck_;
  }

  std::size_t write_record(ByteView from) {
    if (key_bytes_ > kKeyBytesMax) {
      (void)SSL_key_update(ssl_, SSL_KEY_UPDATE_NOT_REQUESTED);
      key_bytes_ = 0;
    }
    std::size_t n = 0;
    ERR_clear_error();
    if (SSL_write_ex(ssl_, from.data(), from.size(), &n) != 1) {
      lose(Status{Code::kLinkLost, base::cat("TLS to ", remote_text(), " cannot send any more")});
      return 0;
    }
    key_bytes_ += n;
    return n;
  }

  void flush() {
    Pipes& p = *pipes_;
    while (p.out_at < p.out.size()) {
      const ByteView rest = ByteView(p.out).subspan(p.out_at);
      const std::size_t n = lower_->write_now(std::span<const ByteView>(&rest, 1));
      if (n == 0) {
        if (!lower_->failure().ok()) lose(lower_->failure());
        stuck_ = true;
        return;
      }
      p.out_at += n;
    }
    stuck_ = false;
    p.out.clear();  // keeps its memory for the next records
    p.out_at = 0;
    if (std::exchange(shut_when_flushed_, false)) lower_->shut_write();
  }

  // Ciphertext must leave even if nobody writes again.
  void arm_flush() {
    lower_->when_writable([this] {
      flush();
      if (!pipes_->out.empty() && failure_.ok()) return arm_flush();
      const std::function<void()> fn = std::exchange(on_writable_, nullptr);
      if (fn) fn();  // may destroy this stream
    });
  }

  std::unique_ptr<ByteStream> lower_;
  Role role_;
  Credentials credentials_;
  std::unique_ptr<Pipes> pipes_;
  SSL* ssl_ = nullptr;
  Status failure_;
  bool read_ended_ = false;
  bool stuck_ = false;  // the last flush left something
  bool shut_when_flushed_ = false;
  std::uint64_t key_bytes_ = 0;
  std::function<void()> on_writable_;
};

class TlsHandshake final : public Handshake {
 public:
  TlsHandshake(Loop& loop, std::unique_ptr<ByteStream> lower, Role role,
               const Credentials& credentials, Duration time_max, StreamDone done)
      : loop_(loop), done_(std::move(done)) {
    stream_ = std::make_unique<TlsStream>(std::move(lower), role, credentials);
    timer_ = loop.run_after(time_max * (JCCL_PLANTED("handshake-time-four-times") ? 4 : 1), [this] {
      timer_ = 0;
      finish(Status{Code::kDeadline,
                    base::cat("no TLS handshake from ", stream_->remote_text(), " in time")});
    });
    first_ = loop.run_after(0, [this] {
      first_ = 0;
      step();
    });
  }

  ~TlsHandshake() override {
    loop_.cancel(timer_);
    loop_.cancel(first_);
  }

 private:
  void step() {
    const bool done = stream_->shake();
    if (done) {
      finish(std::unique_ptr<ByteStream>(std::move(stream_)));
    } else if (!stream_->failure().ok()) {
      const Status status = stream_->failure();
      if (status.code == Code::kAuth) linger(loop_, stream_->take_lower());
      finish(status);
    } else {
      stream_->when_readable([this] { step(); });
    }
  }

  void finish(Result<std::unique_ptr<ByteStream>> result) {
    loop_.cancel(std::exchange(timer_, 0));
    const StreamDone done = std::move(done_);
    done(std::move(result));  // may destroy this handshake
  }

  Loop& loop_;
  std::unique_ptr<TlsStream> stream_;
  StreamDone done_;
  TimerId timer_ = 0;
  TimerId first_ = 0;
};

}  // namespace

std::unique_ptr<Handshake> tls_handshake(Loop& loop, std::unique_ptr<ByteStream> lower, Role role,
                                         const Credentials& credentials, Duration time_max,
                                         StreamDone done) {
  JCCL_CHECK(loop.confined());
  JCCL_CHECK(credentials.tls);
  return std::make_unique<TlsHandshake>(loop, std::move(lower), role, credentials, time_max,
                                        std::move(done));
}

}  // namespace jccl::net
