// What requests wait for: snapshots that the master is asked for, and events as they come.
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/json.hpp>
#include <chrono>

#include "base/planted.h"
#include "base/text.h"
#include "base/utf8.h"
#include "page/reply.h"
#include "page/server_impl.h"

namespace jccl::page {

namespace asio = boost::asio;
using base::cat;
using boost::system::error_code;

namespace {

constexpr std::size_t kPieceBytesMax = 64 * 1024;  // of a stream, written at once
constexpr base::Duration kBeatInterval = base::kSecond;

// Of rounds a page learns soon enough.
bool is_change(const Event& event) {
  return !event.is_mark && event.kind != "start" && event.kind != "commit" &&
         !JCCL_PLANTED("page-shows-the-gone");
}

double in_seconds(base::Duration time) { return static_cast<double>(time) / 1e9; }

}  // namespace

void Server::publish(Snapshot snapshot) {
  const std::lock_guard lock(impl_->inbox_guard);
  impl_->handed = std::move(snapshot);
  impl_->handed->changes = impl_->changes;
  impl_->post_drain();
}

void Server::note(std::vector<Event> events) {
  const std::lock_guard lock(impl_->inbox_guard);
  for (Event& event : events) {
    if (is_change(event)) ++impl_->changes;
    if (impl_->inbox.size() < impl_->options.limits.events_waiting) {
      impl_->inbox.push_back(std::move(event));
    } else {
      ++impl_->left_out;
    }
  }
  impl_->post_drain();
}

void Server::Impl::post_drain() {
  if (std::exchange(drain_posted, true)) return;
  asio::post(io, [this] { drain(); });
}

void Server::Impl::drain() {
  std::vector<Event> events;
  std::optional<Snapshot> newest;
  {
    const std::lock_guard lock(inbox_guard);
    events.swap(inbox);
    newest.swap(handed);
    served.events_left_out = left_out;
    if (std::exchange(changes_heard, changes) != changes) status_kept = metrics_kept = {};
    drain_posted = false;
  }
  for (const Event& event : events) story.add(event);
  if (newest) on_snapshot(std::move(*newest));
  const auto all = conns;  // pump may close some
  for (const auto& [id, conn] : all) {
    if (conn->state == Conn::State::kStreaming) pump(conn);
  }
}

void Server::Impl::on_snapshot(Snapshot newest) {
  snapshot = std::move(newest);
  asking = false;
  status_kept = metrics_kept = {};
  const auto all = conns;
  const base::Time now = steady_now();
  bool more = false;
  for (const auto& [id, conn] : all) {
    const bool revoked = snapshot->revoked.count(conn->asked.token) > 0;
    if (conn->state == Conn::State::kStreaming && revoked &&
        !JCCL_PLANTED("page-streams-to-the-revoked")) {
      drop(*conn);
    } else if (conn->state == Conn::State::kWaiting) {
      if (is_known(*conn, now)) {
        answer(conn);
      } else {
        more = true;
      }
    }
  }
  if (more) ask();
}

// The last snapshot is new enough, of after the last change, and says whether its token was
// revoked.
bool Server::Impl::is_known(const Conn& conn, base::Time now) const {
  if (!snapshot || now - snapshot->at > options.limits.fresh) return false;
  if (snapshot->changes < changes_heard) return false;
  return conn.asked.token.empty() || snapshot->asked.count(conn.asked.token) > 0;
}

void Server::Impl::await(const std::shared_ptr<Conn>& conn) {
  if (is_known(*conn, steady_now())) return answer(conn);
  conn->state = Conn::State::kWaiting;
  limit(conn, options.limits.patience);
  ask();
}

void Server::Impl::ask() {
  if (asking || ask_planned) return;
  const base::Duration wait = asked_at + options.limits.pause - steady_now();
  if (wait <= 0) return ask_now();
  ask_planned = true;
  next_ask.expires_after(std::chrono::nanoseconds(wait));
  next_ask.async_wait([this](const error_code& error) {
    ask_planned = false;
    if (!error && !asking) ask_now();
  });
}

void Server::Impl::ask_now() {
  std::set<std::string> tokens;
  for (const auto& [id, conn] : conns) {
    if (!conn->asked.token.empty()) tokens.insert(conn->asked.token);
  }
  asking = true;
  asked_at = steady_now();
  options.want(std::move(tokens));
}

void Server::Impl::answer(const std::shared_ptr<Conn>& conn) {
  const base::Time now = steady_now();
  const std::string& token = conn->asked.token;
  if (snapshot && snapshot->revoked.count(token) > 0) {
    return refuse(conn, 401, "this token was revoked: ask the operator of the run for another");
  }
  if (conn->asked.route == Route::kHealth) return answer_health(conn, now);
  // What nobody has said yet is no leave to look.
  if (!snapshot || (!token.empty() && snapshot->asked.count(token) == 0)) {
    return refuse(conn, 503, "the master has not answered yet; try again");
  }
  if (conn->asked.route == Route::kEvents) return begin_stream(conn);
  reply(conn, 200, type_of(conn->asked.route),
        conn->asked.route == Route::kMetrics ? metrics_body(now) : status_body(now));
}

void Server::Impl::answer_health(const std::shared_ptr<Conn>& conn, base::Time now) {
  if (!snapshot) return refuse(conn, 503, "the master has not answered yet");
  if (snapshot->failed) return refuse(conn, 503, "the master has failed; its log says why");
  const base::Duration age = now - snapshot->at;
  if (age > options.limits.stuck && !JCCL_PLANTED("page-always-healthy")) {
    return refuse(conn, 503,
                  cat("the master's loop has not answered for ", age / base::kSecond, " s"));
  }
  reply(conn, 200, type_of(Route::kHealth), std::make_shared<const std::string>("ok\n"));
}

std::shared_ptr<const std::string> Server::Impl::status_body(base::Time now) {
  if (status_kept.body != nullptr && now < status_kept.until) return status_kept.body;
  const boost::json::object frame{{"schema", 1},
                                  {"run", birth.run},
                                  {"t", in_seconds(now - birth.started)},
                                  {"started_unix_ms", birth.started_unix_ms},
                                  {"age_s", in_seconds(now - snapshot->at)},
                                  {"last_event", story.last()},
                                  {"joined", story.joined()},
                                  {"rounds", story.rounds()}};
  std::string text = base::printable(base::to_utf8(boost::json::serialize(frame)));
  text.pop_back();
  text += cat(",\"status\":", *snapshot->status, "}\n");
  status_kept = {std::make_shared<const std::string>(std::move(text)), now + options.limits.fresh};
  return status_kept.body;
}

std::shared_ptr<const std::string> Server::Impl::metrics_body(base::Time now) {
  if (metrics_kept.body != nullptr && now < metrics_kept.until) return metrics_kept.body;
  error_code bad;
  const auto status = boost::json::parse(*snapshot->status, bad);
  served.connections = conns.size();
  served.streams = streams();
  std::string text =
      metrics_text(bad || !status.is_object() ? boost::json::object() : status.get_object(),
                   in_seconds(now - snapshot->at), story, served);
  metrics_kept = {std::make_shared<const std::string>(std::move(text)), now + options.limits.fresh};
  return metrics_kept.body;
}

std::size_t Server::Impl::streams() const {
  std::size_t count = 0;
  for (const auto& [id, conn] : conns) count += conn->state == Conn::State::kStreaming;
  return count;
}

void Server::Impl::begin_stream(const std::shared_ptr<Conn>& conn) {
  if (conn->asked.head) {
    return reply(conn, 200, type_of(Route::kEvents), std::make_shared<const std::string>());
  }
  if (streams() >= options.limits.streams) {
    return refuse(
        conn, 503,
        cat("there are ", options.limits.streams, " streams of events already; close one"));
  }
  ++served.requests;
  conn->timer.cancel();
  conn->state = Conn::State::kStreaming;
  // Numbers begin anew with each master: a client that has more was another one's.
  conn->told = conn->asked.after <= story.last() ? conn->asked.after : 0;
  const boost::json::object hello{{"run", birth.run}, {"started_unix_ms", birth.started_unix_ms}};
  conn->first = cat(reply_head(200, type_of(Route::kEvents), std::nullopt),
                    "retry: 1000\nevent: hello\ndata: ", boost::json::serialize(hello), "\n\n");
  watch(conn);
  write_stream(conn);
  if (!std::exchange(beating, true)) beat();
}

// A stream's client has nothing more to say: it goes, or is no client.
void Server::Impl::watch(const std::shared_ptr<Conn>& conn) {
  conn->socket.async_read_some(asio::buffer(conn->heard),
                               [this, conn](const error_code&, std::size_t) {
                                 if (conns.count(conn->id) > 0) drop(*conn);
                               });
}

void Server::Impl::pump(const std::shared_ptr<Conn>& conn) {
  if (conn->writing) return;
  conn->first.clear();
  for (const Story::Numbered* event : story.after(conn->told)) {
    if (event->id > conn->told + 1) {
      conn->first += cat("event: gap\ndata: {\"left_out\":", event->id - conn->told - 1, "}\n\n");
    }
    conn->first += event_text(*event);
    conn->told = event->id;
    if (conn->first.size() > kPieceBytesMax) break;
  }
  if (!conn->first.empty()) write_stream(conn);
}

void Server::Impl::write_stream(const std::shared_ptr<Conn>& conn) {
  conn->writing = true;
  conn->spoke = steady_now();
  limit(conn, options.limits.write_max);
  asio::async_write(conn->socket, asio::buffer(conn->first),
                    [this, conn](const error_code& error, std::size_t) {
                      if (conns.count(conn->id) == 0) return;
                      conn->writing = false;
                      conn->timer.cancel();
                      if (error) return drop(*conn);
                      pump(conn);
                    });
}

// While there are streams: their tokens may be revoked, and what lies between may end them if they
// are silent.
void Server::Impl::beat() {
  const base::Time now = steady_now();
  bool tokens = false;
  const auto all = conns;
  for (const auto& [id, conn] : all) {
    if (conn->state != Conn::State::kStreaming) continue;
    tokens = tokens || !conn->asked.token.empty();
    if (conn->writing || now - conn->spoke < options.limits.beat) continue;
    conn->first = ": nothing new\n\n";
    write_stream(conn);
  }
  if (tokens) ask();
  beating = streams() > 0;
  if (!beating) return;
  next_beat.expires_after(std::chrono::nanoseconds(kBeatInterval));
  next_beat.async_wait([this](const error_code& error) {
    if (!error) beat();
  });
}

}  // namespace jccl::page
