#include "net/socket/watch.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "base/check.h"

namespace jccl::net {

using Descriptor = boost::asio::posix::stream_descriptor;

struct Watch::State : std::enable_shared_from_this<State> {
  State(boost::asio::io_context& context, int fd) : descriptor(context) {
    boost::system::error_code error;
    descriptor.assign(fd, error);
    JCCL_CHECK(!error);
  }

  struct Side {
    std::function<void()> fn;
    bool waiting = false;
  };

  void wait(Side State::* side, Descriptor::wait_type type, std::function<void()> fn) {
    (this->*side).fn = std::move(fn);
    if ((this->*side).waiting) return;
    (this->*side).waiting = true;
    descriptor.async_wait(type,
                          [self = shared_from_this(), side](const boost::system::error_code&) {
                            Side& mine = (*self).*side;
                            mine.waiting = false;
                            const std::function<void()> ready = std::move(mine.fn);
                            mine.fn = nullptr;
                            if (ready) ready();
                          });
  }

  Descriptor descriptor;
  Side read;
  Side write;
};

Watch::Watch(Loop& loop, int fd)
    : state_(
          std::make_shared<State>(*static_cast<boost::asio::io_context*>(loop.io_context()), fd)),
      fd_(fd) {}

Watch::~Watch() { close(); }

void Watch::readable(std::function<void()> fn) {
  state_->wait(&State::read, Descriptor::wait_read, std::move(fn));
}

void Watch::writable(std::function<void()> fn) {
  state_->wait(&State::write, Descriptor::wait_write, std::move(fn));
}

void Watch::close() {
  state_->read.fn = nullptr;
  state_->write.fn = nullptr;
  boost::system::error_code ignored;
  if (state_->descriptor.is_open()) state_->descriptor.close(ignored);
  fd_ = -1;
}

int Watch::release() {
  state_->read.fn = nullptr;
  state_->write.fn = nullptr;
  fd_ = -1;
  return state_->descriptor.release();
}

}  // namespace jccl::net
