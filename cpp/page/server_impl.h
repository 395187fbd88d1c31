// The server's thread: its connections, what they wait for, and what it has heard of the master.
#pragma once

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "page/metrics.h"
#include "page/server.h"

namespace jccl::page {

struct Conn {
  enum class State : std::uint8_t { kReading, kWaiting, kWriting, kStreaming, kClosing };
  using Parser = boost::beast::http::request_parser<boost::beast::http::empty_body>;

  Conn(std::uint64_t number, boost::asio::ip::tcp::socket from)
      : id(number), socket(std::move(from)), timer(socket.get_executor()) {}

  const std::uint64_t id;
  boost::asio::ip::tcp::socket socket;
  boost::asio::steady_timer timer;  // whatever it does now has an end
  State state = State::kReading;
  Parser parser;
  std::array<char, 2048> heard;
  std::string head;  // heard, and not yet a whole head
  Decision asked;
  std::string first;                        // of what is written now: the head, or events
  std::shared_ptr<const std::string> body;  // and what follows, shared by all who asked
  bool writing = false;                     // of a stream
  std::uint64_t told = 0;                   // of a stream: the number of the last event
  base::Time spoke = 0;
  std::size_t drained = 0;
};

struct Server::Impl {
  explicit Impl(ServerOptions given) : options(std::move(given)) {}

  base::Status bind();
  void run();
  void accept();
  void on_accepted(boost::asio::ip::tcp::socket socket);
  bool make_room();
  void drop(Conn& conn);
  void read(const std::shared_ptr<Conn>& conn);
  void on_read(const std::shared_ptr<Conn>& conn, std::size_t size);
  void handle(const std::shared_ptr<Conn>& conn);
  void refuse(const std::shared_ptr<Conn>& conn, unsigned code, const std::string& text);
  void reply(const std::shared_ptr<Conn>& conn, unsigned code, std::string_view type,
             std::shared_ptr<const std::string> body);
  void linger(const std::shared_ptr<Conn>& conn);
  void limit(const std::shared_ptr<Conn>& conn, base::Duration time);

  bool is_known(const Conn& conn, base::Time now) const;
  void await(const std::shared_ptr<Conn>& conn);
  void ask();
  void ask_now();
  void answer(const std::shared_ptr<Conn>& conn);
  void answer_health(const std::shared_ptr<Conn>& conn, base::Time now);
  std::shared_ptr<const std::string> status_body(base::Time now);
  std::shared_ptr<const std::string> metrics_body(base::Time now);

  void begin_stream(const std::shared_ptr<Conn>& conn);
  void watch(const std::shared_ptr<Conn>& conn);
  void pump(const std::shared_ptr<Conn>& conn);
  void write_stream(const std::shared_ptr<Conn>& conn);
  void beat();
  std::size_t streams() const;

  void post_drain();
  void drain();
  void on_snapshot(Snapshot snapshot);

  base::Status unusable(const boost::system::error_code& error) const;

  const ServerOptions options;
  Birth birth;
  boost::asio::io_context io{1};
  boost::asio::ip::tcp::acceptor acceptor{io};
  boost::asio::steady_timer next_accept{io}, next_ask{io}, next_beat{io};
  std::thread thread;
  std::uint16_t port = 0;
  bool started = false;

  std::mutex inbox_guard;  // held for a moment only: the master's thread takes it, too
  std::vector<Event> inbox;
  std::optional<Snapshot> handed;
  std::uint64_t left_out = 0;
  std::uint64_t changes = 0;  // events after which an older snapshot shows what is no more
  bool drain_posted = false;

  // Of the thread alone.
  std::uint64_t next_id = 1;
  std::map<std::uint64_t, std::shared_ptr<Conn>> conns;  // the oldest first
  net::Allowance accepts;
  Story story;
  Served served;
  std::optional<Snapshot> snapshot;
  bool asking = false, ask_planned = false, beating = false;
  base::Time asked_at = 0;
  std::uint64_t changes_heard = 0;
  struct Kept {
    std::shared_ptr<const std::string> body;
    base::Time until = 0;
  };
  Kept status_kept, metrics_kept;
};

base::Time steady_now();

}  // namespace jccl::page
