// Connects to every endpoint at once and counts the refusals. Connections that succeed are reset
// at once, so that they leave no pending socket at the listener.
#include "net/socket/probe.h"

#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cerrno>

#include "base/planted.h"

namespace jccl::net {
namespace {

namespace asio = boost::asio;
using Descriptor = asio::posix::stream_descriptor;

struct State : std::enable_shared_from_this<State> {
  Loop& loop;
  std::function<void(bool)> done;
  std::vector<std::unique_ptr<Descriptor>> sockets;
  std::size_t open = 0;  // resolutions and connections not yet answered
  std::size_t refused = 0;
  TimerId timer = 0;

  State(Loop& l, std::function<void(bool)> d) : loop(l), done(std::move(d)) {}

  void stop() {
    done = nullptr;
    loop.cancel(timer);
    for (auto& socket : sockets) {
      boost::system::error_code ignored;
      socket->close(ignored);
    }
  }
  void finish(bool answer) {
    if (!done) return;
    const auto report = std::move(done);
    stop();
    report(answer);
  }
  void one_less() {
    if (--open == 0) finish(refused > 0 || JCCL_PLANTED("no-address-is-death"));
  }
  void answered(int error) {
    if (!done) return;
    if (error == 0 || error == ETIMEDOUT) return finish(false);  // alive, or silent
    if (error == ECONNREFUSED) ++refused;  // anything else: no way from here, says nothing
    one_less();
  }
  void connect(const Endpoint& endpoint);
};

void State::connect(const Endpoint& endpoint) {
  ++open;
  const int fd =
      ::socket(endpoint.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return answered(errno);
  const struct ::linger reset{1, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  auto* io = static_cast<asio::io_context*>(loop.io_context());
  auto socket = std::make_unique<Descriptor>(*io);
  boost::system::error_code error;
  socket->assign(fd, error);
  if (error) {
    ::close(fd);
    return answered(EBADF);
  }
  const int rc = ::connect(fd, reinterpret_cast<const sockaddr*>(&endpoint.storage), endpoint.size);
  const int failed = rc == 0 ? 0 : errno;
  Descriptor& kept = *sockets.emplace_back(std::move(socket));
  if (failed != EINPROGRESS) return answered(failed);
  kept.async_wait(Descriptor::wait_write,
                  [self = shared_from_this(), fd](const boost::system::error_code& waited) {
                    if (waited || !self->done) return;
                    int result = 0;
                    socklen_t size = sizeof result;
                    ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &result, &size);
                    self->answered(result);
                  });
}

class ProbeImpl : public Probe {
 public:
  explicit ProbeImpl(std::shared_ptr<State> state) : state_(std::move(state)) {}
  ~ProbeImpl() override {
    if (state_->done) state_->stop();
  }

 private:
  std::shared_ptr<State> state_;
};

}  // namespace

std::unique_ptr<Probe> probe(Loop& loop, std::vector<Address> addresses, DialPolicy policy,
                             Duration time_max, std::function<void(bool)> done) {
  auto state = std::make_shared<State>(loop, std::move(done));
  state->timer = loop.run_after(time_max, [state] { state->finish(false); });
  state->open = 1;  // until every address was asked for
  for (const Address& address : addresses) {
    ++state->open;
    resolve(loop, address, [state, policy](Result<std::vector<Endpoint>> found) {
      if (!state->done) return;
      if (found.ok()) {
        for (const Endpoint& endpoint : found.value()) {
          if (!state->done) return;
          const bool allowed = policy.check(endpoint).ok() || JCCL_PLANTED("anything-probed");
          if (allowed) state->connect(endpoint);
        }
      }
      if (state->done) state->one_less();
    });
  }
  loop.post([state] {
    if (state->done) state->one_less();
  });
  return std::make_unique<ProbeImpl>(std::move(state));
}

}  // namespace jccl::net
