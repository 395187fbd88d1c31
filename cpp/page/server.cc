// Takes the port, reads requests within their bounds, and writes answers.
#include "page/server.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <chrono>

#include "base/planted.h"
#include "base/text.h"
#include "page/files.h"
#include "page/reply.h"
#include "page/server_impl.h"

namespace jccl::page {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using base::cat;
using base::Code;
using base::Status;
using boost::system::error_code;
using Tcp = asio::ip::tcp;
using Shared = std::shared_ptr<Conn>;

namespace {

constexpr base::Duration kAcceptFailed = 100 * base::kMillisecond;
constexpr base::Duration kLinger = base::kSecond;
constexpr std::size_t kLingerBytesMax = 64 * 1024;
constexpr int kNice = 10;  // whoever asks much here takes no time from the master's loop

std::shared_ptr<const std::string> shared(std::string text) {
  return std::make_shared<const std::string>(std::move(text));
}

}  // namespace

base::Time steady_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Status Server::Impl::bind() {
  const auto endpoints = net::resolve_now(options.gate.bind);
  if (!endpoints.ok()) return endpoints.status();
  error_code error;
  for (const net::Endpoint& one : endpoints.value()) {
    Tcp::endpoint target;
    std::memcpy(target.data(), &one.storage, one.size);
    target.resize(one.size);
    error_code ignored;
    acceptor.close(ignored);
    acceptor.open(target.protocol(), error);
    if (!error) acceptor.set_option(Tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor.bind(target, error);
    if (error) continue;
    port = acceptor.local_endpoint(error).port();
    return {};
  }
  return unusable(error);
}

Status Server::Impl::unusable(const error_code& error) const {
  return {Code::kIo, cat("--http ", net::to_text(options.gate.bind), ": ", error.message(),
                         ". Choose another port, or stop the program that has it")};
}

void Server::Impl::run() {
  (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), kNice);
  accept();
  io.run();
}

void Server::Impl::accept() {
  acceptor.async_accept([this](const error_code& error, Tcp::socket socket) {
    if (error == asio::error::operation_aborted) return;
    base::Duration wait = error ? kAcceptFailed : 0;  // no file descriptor is left, or the like
    if (!error) {
      wait = accepts.charge(options.limits.accepts, steady_now());
      on_accepted(std::move(socket));
    }
    if (wait == 0) return accept();
    next_accept.expires_after(std::chrono::nanoseconds(wait));
    next_accept.async_wait([this](const error_code& why) {
      if (!why) accept();
    });
  });
}

// Who has not said yet what it wants makes room, the oldest first.
bool Server::Impl::make_room() {
  if (conns.size() < options.limits.connections || JCCL_PLANTED("page-takes-any-number")) {
    return true;
  }
  for (const auto& [id, conn] : conns) {
    if (conn->state != Conn::State::kReading && conn->state != Conn::State::kClosing) continue;
    const Shared oldest = conn;
    ++served.dropped;
    drop(*oldest);
    return true;
  }
  return false;
}

void Server::Impl::on_accepted(Tcp::socket socket) {
  if (!make_room()) {
    ++served.dropped;
    return;  // closed
  }
  const auto conn = std::make_shared<Conn>(next_id++, std::move(socket));
  conn->parser.header_limit(static_cast<std::uint32_t>(options.limits.head_bytes));
  conns[conn->id] = conn;
  limit(conn, options.limits.head_max);
  read(conn);
}

void Server::Impl::drop(Conn& conn) {
  error_code ignored;
  conn.timer.cancel();
  conn.socket.close(ignored);
  conns.erase(conn.id);
}

void Server::Impl::limit(const Shared& conn, base::Duration time) {
  conn->timer.expires_after(std::chrono::nanoseconds(time));
  conn->timer.async_wait([this, conn](const error_code& error) {
    if (error || conns.count(conn->id) == 0) return;
    // It was due already when something else was begun, or ended.
    if (conn->timer.expiry() > std::chrono::steady_clock::now()) return;
    if (conn->state == Conn::State::kStreaming && !conn->writing) return;
    if (conn->state == Conn::State::kWaiting) return answer(conn);  // with what there is
    if (conn->state == Conn::State::kReading && JCCL_PLANTED("page-waits-for-a-head")) return;
    if (conn->state != Conn::State::kClosing) ++served.dropped;
    drop(*conn);
  });
}

void Server::Impl::read(const Shared& conn) {
  conn->socket.async_read_some(asio::buffer(conn->heard),
                               [this, conn](const error_code& error, std::size_t size) {
                                 if (conns.count(conn->id) == 0) return;
                                 if (!error) return on_read(conn, size);
                                 ++served.dropped;
                                 drop(*conn);
                               });
}

void Server::Impl::on_read(const Shared& conn, std::size_t size) {
  conn->head.append(conn->heard.data(), size);
  error_code error;
  conn->head.erase(0, conn->parser.put(asio::buffer(conn->head), error));
  if (conn->parser.is_header_done()) return handle(conn);
  const bool large =
      error == http::error::header_limit || conn->head.size() > options.limits.head_bytes;
  if (large)
    return refuse(conn, 431,
                  cat("a request has at most ", options.limits.head_bytes, " bytes here"));
  if (error && error != http::error::need_more) return refuse(conn, 400, "this is no HTTP/1.1");
  read(conn);
}

void Server::Impl::handle(const Shared& conn) {
  const auto& message = conn->parser.get();
  const auto field = [&](http::field name) { return std::string_view(message[name]); };
  Request request;
  request.method = message.method_string();
  request.target = message.target();
  request.host = field(http::field::host);
  request.authorization = field(http::field::authorization);
  request.last_event_id = std::string_view(message["Last-Event-ID"]);
  request.fetch_site = std::string_view(message["Sec-Fetch-Site"]);
  request.hosts = static_cast<unsigned>(message.count(http::field::host));
  request.has_body = conn->parser.chunked() || conn->parser.content_length().value_or(0) > 0;
  conn->asked = decide(request, options.gate);
  if (conn->asked.code != 200) return refuse(conn, conn->asked.code, conn->asked.text);
  const auto file = [&](std::string_view content) {
    reply(conn, 200, type_of(conn->asked.route), shared(std::string(content)));
  };
  switch (conn->asked.route) {
    case Route::kIndex:
      return file(kIndexFile);
    case Route::kStyle:
      return file(kStyleFile);
    case Route::kScript:
      return file(kScriptFile);
    case Route::kIcon:
      return file(kIconFile);
    default:
      return await(conn);
  }
}

void Server::Impl::refuse(const Shared& conn, unsigned code, const std::string& text) {
  reply(conn, code, "text/plain; charset=utf-8", shared(base::printable(text) + "\n"));
}

void Server::Impl::reply(const Shared& conn, unsigned code, std::string_view type,
                         std::shared_ptr<const std::string> body) {
  ++(code == 200 ? served.requests : served.refused);
  conn->state = Conn::State::kWriting;
  conn->first = reply_head(code, type, body->size());
  conn->body = std::move(body);
  limit(conn, options.limits.write_max);
  const std::array<asio::const_buffer, 2> parts{
      asio::buffer(conn->first),
      conn->asked.head ? asio::const_buffer() : asio::buffer(*conn->body)};
  asio::async_write(conn->socket, parts, [this, conn](const error_code& error, std::size_t) {
    if (conns.count(conn->id) == 0) return;
    if (!error) return linger(conn);
    ++served.dropped;
    drop(*conn);
  });
}

// Closing while the client still sends would reset the connection, and take the answer from it.
void Server::Impl::linger(const Shared& conn) {
  if (conn->state != Conn::State::kClosing) {
    conn->state = Conn::State::kClosing;
    conn->body.reset();
    error_code ignored;
    conn->socket.shutdown(Tcp::socket::shutdown_send, ignored);
    limit(conn, kLinger);
  }
  conn->socket.async_read_some(asio::buffer(conn->heard),
                               [this, conn](const error_code& error, std::size_t size) {
                                 if (conns.count(conn->id) == 0) return;
                                 conn->drained += size;
                                 if (error || conn->drained > kLingerBytesMax) return drop(*conn);
                                 linger(conn);
                               });
}

base::Result<std::unique_ptr<Server>> Server::open(ServerOptions options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  if (const Status status = impl->bind(); !status.ok()) return status;
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() { stop(); }

std::uint16_t Server::port() const { return impl_->port; }

Status Server::listen() {
  error_code error;
  impl_->acceptor.listen(Tcp::acceptor::max_listen_connections, error);
  return error ? impl_->unusable(error) : Status();
}

void Server::start(Birth birth) {
  impl_->birth = std::move(birth);
  impl_->started = true;
  impl_->thread = std::thread([this] { impl_->run(); });
}

void Server::stop() {
  if (!std::exchange(impl_->started, false)) return;
  impl_->io.stop();
  impl_->thread.join();
  error_code ignored;
  for (const auto& [id, conn] : impl_->conns) conn->socket.close(ignored);  // handlers hold it
  impl_->conns.clear();
  impl_->acceptor.close(ignored);
}

}  // namespace jccl::page
