#include "net/socket/dial.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>

#include "base/planted.h"
#include "base/text.h"
#include "net/socket/watch.h"

namespace jccl::net {
namespace {

// 0 when none: the highest wins as the code of the whole dial.
int weight_of(Code code) {
  if (code == Code::kAuth) return 3;
  if (code == Code::kLinkLost) return 2;
  return code == Code::kDeadline ? 1 : 0;
}

class DialTask final : public std::enable_shared_from_this<DialTask> {
 public:
  DialTask(Loop& loop, std::vector<Address> addresses, const Credentials& credentials,
           DialOptions options, StreamDone done)
      : loop_(loop),
        addresses_(addresses.begin(), addresses.end()),
        credentials_(credentials),
        options_(options),
        done_(std::move(done)),
        wanted_(to_text(std::vector<Address>(addresses_.begin(), addresses_.end()))) {}

  void start() {
    deadline_ =
        loop_.run_after(options_.time_max * (JCCL_PLANTED("dial-in-time-unbounded") ? 10 : 1),
                        [weak = weak_from_this()] {
                          if (const auto self = weak.lock()) self->out_of_time();
                        });
    next_ = loop_.run_after(0, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->next_address();
    });
  }

  void cancel() {
    done_ = nullptr;
    drop_attempt();
    loop_.cancel(std::exchange(deadline_, 0));
    loop_.cancel(std::exchange(next_, 0));
  }

 private:
  void next_address() {
    if (addresses_.empty()) return give_up();
    address_ = addresses_.front();
    addresses_.pop_front();
    resolve(loop_, address_,
            [weak = weak_from_this(), address = address_](Result<std::vector<Endpoint>> result) {
              const auto self = weak.lock();
              if (self && self->done_ && self->address_ == address) self->resolved(result);
            });
  }

  void resolved(Result<std::vector<Endpoint>>& result) {
    if (!result.ok()) {
      note(to_text(address_), result.status());
      return next_address();
    }
    for (const Endpoint& endpoint : result.value()) {
      const Status allowed =
          options_.allow && !JCCL_PLANTED("policy-not-asked") ? options_.allow(endpoint) : Status{};
      if (!allowed.ok()) note(to_text(endpoint), allowed);
      // A name may have any number of addresses.
      if (allowed.ok() && endpoints_.size() < base::kAddressesMax) endpoints_.push_back(endpoint);
    }
    next_endpoint();
  }

  void next_endpoint() {
    if (endpoints_.empty()) return next_address();
    endpoint_ = endpoints_.front();
    endpoints_.pop_front();
    const int fd =
        ::socket(endpoint_.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return failed(io_status(errno));
    int error = 0;
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&endpoint_.storage), endpoint_.size) != 0) {
      error = errno;
    }
    if (error != 0 && error != EINPROGRESS && error != EINTR) {
      ::close(fd);
      return failed(io_status(error));
    }
    socket_ = std::make_unique<Watch>(loop_, fd);
    attempt_ = loop_.run_after(
        options_.connect_max * (JCCL_PLANTED("connect-time-ten-times") ? 10 : 1), [this] {
          attempt_ = 0;
          failed(Status{Code::kLinkLost, "no answer"});
        });
    socket_->writable([this] { connected(); });
  }

  void connected() {
    int error = 0;
    socklen_t size = sizeof(error);
    ::getsockopt(socket_->fd(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return failed(io_status(error));
    const int fd = socket_->fd();
    // A free local port can be chosen as source port of a call to itself.
    if (to_text(local_endpoint(fd)) == to_text(remote_endpoint(fd))) {
      return failed(io_status(ECONNREFUSED));
    }
    const int own = socket_->release();
    drop_attempt();
    std::unique_ptr<ByteStream> stream = plain_stream(loop_, own);
    if (!credentials_.tls) return introduce(std::move(stream));
    handshake_ =
        tls_handshake(loop_, std::move(stream), Role::kDialling, credentials_,
                      options_.handshake_max, [this](Result<std::unique_ptr<ByteStream>> result) {
                        if (!result.ok() && JCCL_PLANTED("token-falls-back-to-plain")) {
                          credentials_ = Credentials::plain(credentials_.run);
                          endpoints_.push_front(endpoint_);
                        }
                        if (!result.ok()) return failed(result.status());
                        introduce(std::move(result.value()));
                      });
  }

  void introduce(std::unique_ptr<ByteStream> stream) {
    IntroductionOptions options;
    options.purpose = options_.purpose;
    options.expected = options_.expected;
    options.group = options_.group;
    options.time_max = options_.handshake_max;
    handshake_ = net::introduce(loop_, std::move(stream), Role::kDialling, credentials_, options,
                                [this](Result<std::unique_ptr<ByteStream>> result) {
                                  if (!result.ok()) return failed(result.status());
                                  finish(std::move(result));
                                });
  }

  Status io_status(int error) const {
    const bool network = error != EMFILE && error != ENFILE && error != EAFNOSUPPORT;
    return Status{network ? Code::kLinkLost : Code::kIo, std::strerror(error)};
  }

  void failed(const Status& status) {
    note(to_text(endpoint_), status);
    const auto keep = shared_from_this();
    drop_attempt();
    next_endpoint();
  }

  void note(const std::string& what, const Status& status) {
    tried_ += base::cat(tried_.empty() ? "" : "; ", what, ": ", status.text);
    if (JCCL_PLANTED("refused-token-hidden") || weight_of(status.code) > weight_of(code_))
      code_ = status.code;
  }

  void out_of_time() {
    deadline_ = 0;
    note(to_text(address_), Status{Code::kDeadline, "no connection in time"});
    give_up();
  }

  void give_up() { finish(Status{code_, base::cat("cannot reach ", wanted_, " (", tried_, ")")}); }

  void finish(Result<std::unique_ptr<ByteStream>> result) {
    const auto keep = shared_from_this();
    const StreamDone done = std::move(done_);
    cancel();
    if (done) done(std::move(result));
  }

  void drop_attempt() {
    loop_.cancel(std::exchange(attempt_, 0));
    socket_.reset();
    handshake_.reset();
  }

  Loop& loop_;
  std::deque<Address> addresses_;
  Credentials credentials_;
  DialOptions options_;
  StreamDone done_;
  std::string wanted_;
  std::string tried_;
  Code code_ = Code::kIo;
  Address address_;
  std::deque<Endpoint> endpoints_;
  Endpoint endpoint_;
  std::unique_ptr<Watch> socket_;
  std::unique_ptr<Handshake> handshake_;
  TimerId deadline_ = 0;
  TimerId attempt_ = 0;
  TimerId next_ = 0;
};

class DialHandle final : public Dial {
 public:
  explicit DialHandle(std::shared_ptr<DialTask> task) : task_(std::move(task)) {}
  ~DialHandle() override { task_->cancel(); }

 private:
  std::shared_ptr<DialTask> task_;
};

}  // namespace

std::unique_ptr<Dial> dial(Loop& loop, std::vector<Address> addresses,
                           const Credentials& credentials, DialOptions options, StreamDone done) {
  JCCL_CHECK(loop.confined());
  auto task =
      std::make_shared<DialTask>(loop, std::move(addresses), credentials, options, std::move(done));
  task->start();
  return std::make_unique<DialHandle>(std::move(task));
}

}  // namespace jccl::net
