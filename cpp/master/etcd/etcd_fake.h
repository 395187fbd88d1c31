// For tests: etcd's JSON gateway as far as the store uses it, in memory on one thread, with answers
// as odd as a network makes them. Leases end only when a test says so.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/json.hpp>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "base/check.h"
#include "master/etcd/etcd_http.h"
#include "master/etcd/etcd_kv.h"

namespace jccl::master {

enum class Odd {
  kRight,       // as etcd does
  kDropBefore,  // closes without doing it
  kDropAfter,   // does it and closes without an answer
  kSilent,      // does it and never answers
  kGarbage,     // does it and answers nonsense with 200
  kHalf,        // does it and sends half of the answer
  kOther,       // does it and answers what was not asked
  kHuge,        // does it and answers more than is read
  kNoLeader,    // 503, not done
  kTimedOut,    // 504, but done
  kTooLarge,    // 400
  kFull,        // 429
};

class FakeEtcd {
 public:
  FakeEtcd() : acceptor_(io_, {boost::asio::ip::address_v4::loopback(), 0}) {
    thread_ = std::thread([this] { serve(); });
  }
  ~FakeEtcd() {
    stop_ = true;
    boost::system::error_code ignored;
    boost::asio::ip::tcp::socket wake(io_);
    wake.connect(acceptor_.local_endpoint(), ignored);
    thread_.join();
    {
      const std::lock_guard lock(mutex_);
      for (auto& one : sockets_) ::shutdown(one.native_handle(), SHUT_RDWR);
    }
    for (auto& one : workers_) one.join();
  }

  std::string where(const std::string& options = "?lease=1") const {
    return "etcd://127.0.0.1:" + std::to_string(acceptor_.local_endpoint().port()) + "/run" +
           options;
  }
  // The next requests of `path`, one each.
  void next(const std::string& path, std::deque<Odd> odd) {
    const std::lock_guard lock(mutex_);
    odd_[path] = std::move(odd);
  }
  bool told_all(const std::string& path) {
    const std::lock_guard lock(mutex_);
    return odd_[path].empty();
  }
  void reachable(bool on) {  // off: as if every packet were lost
    const std::lock_guard lock(mutex_);
    reachable_ = on;
  }
  void put(const std::string& key, const std::string& value) {
    const std::lock_guard lock(mutex_);
    set(key, value, 0);
  }
  void remove(const std::string& key) {
    const std::lock_guard lock(mutex_);
    ++revision_;
    keys_.erase(key);
  }
  void end_leases() {
    const std::lock_guard lock(mutex_);
    while (!leases_.empty()) end_lease(leases_.begin()->first);
  }
  std::string value(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const auto found = keys_.find(key);
    return found == keys_.end() ? "" : found->second.value;
  }
  std::size_t count(const std::string& prefix) {
    const std::lock_guard lock(mutex_);
    std::size_t n = 0;
    for (const auto& [key, held] : keys_) n += key.starts_with(prefix) ? 1 : 0;
    return n;
  }

 private:
  using Tcp = boost::asio::ip::tcp;
  struct Held {
    std::string value;
    std::int64_t create = 0, mod = 0, lease = 0;
  };

  void serve() {
    while (!stop_) {
      Tcp::socket socket(io_);
      boost::system::error_code error;
      acceptor_.accept(socket, error);
      if (stop_ || error) return;
      const std::lock_guard lock(mutex_);
      sockets_.push_back(std::move(socket));
      workers_.emplace_back([this, one = &sockets_.back()] { talk(*one); });
    }
  }

  void talk(Tcp::socket& socket) {
    namespace http = boost::beast::http;
    boost::beast::flat_buffer buffer;
    for (;;) {
      http::request<http::string_body> request;
      boost::system::error_code error;
      http::read(socket, buffer, request, error);
      if (error) break;
      const std::string path = request.target();
      http::response<http::string_body> response;
      response.set(http::field::content_type, "application/json");
      bool half = false;
      {
        const std::lock_guard lock(mutex_);
        if (!reachable_) continue;
        if (!answer(path, request.body(), &response, &half)) break;
        if (response.result_int() == 0) continue;  // silence
      }
      response.prepare_payload();
      if (half) response.body().resize(response.body().size() / 2);
      http::write(socket, response, error);
      if (error || half) break;
    }
    ::shutdown(socket.native_handle(), SHUT_RDWR);
  }

  // False: closes.
  bool answer(const std::string& path, const std::string& body,
              boost::beast::http::response<boost::beast::http::string_body>* out, bool* half) {
    auto& odd = odd_[path];
    std::optional<Odd> now;
    if (!odd.empty()) {
      now = odd.front();
      odd.pop_front();
    }
    const auto error = [&](unsigned code, const char* text) {
      out->result(code);
      out->body() = std::string(R"({"error":")") + text + R"(","code":1})";
      return true;
    };
    if (now == Odd::kDropBefore) return false;
    if (now == Odd::kNoLeader) return error(503, "etcdserver: no leader");
    if (now == Odd::kTooLarge) return error(400, "etcdserver: request is too large");
    if (now == Odd::kFull) return error(429, "etcdserver: mvcc: database space exceeded");
    const auto done = act(path, boost::json::parse(body).as_object());
    if (!done.has_value()) return error(404, "etcdserver: requested lease not found");
    out->result(200);
    out->body() = boost::json::serialize(*done);
    if (now == Odd::kDropAfter) return false;
    if (now == Odd::kTimedOut) return error(504, "etcdserver: request timed out");
    if (now == Odd::kSilent) out->result(0u);
    if (now == Odd::kGarbage) out->body() = "<html>what?</html>";
    if (now == Odd::kOther) out->body() = R"({"header":{"revision":"7"},"succeeded":true})";
    if (now == Odd::kHuge) out->body().assign(EtcdHttp::kAnswerBytesMax + 1, ' ');
    *half = now == Odd::kHalf;
    return true;
  }

  std::optional<boost::json::object> act(const std::string& path, const boost::json::object& ask) {
    const auto id = [&] { return std::stoll(std::string(ask.at("ID").as_string())); };
    if (path == "/v3/lease/grant") {
      leases_[++last_lease_] = std::stoll(std::string(ask.at("TTL").as_string()));
      return lease_reply(last_lease_);
    }
    if (path == "/v3/auth/authenticate") return {{{"token", "anybody"}}};
    if (path == "/v3/lease/keepalive") return {{{"result", lease_reply(id())}}};
    if (path == "/v3/lease/revoke") {
      end_lease(id());
      return boost::json::object{};
    }
    return transact(ask);
  }

  boost::json::object lease_reply(std::int64_t id) {
    boost::json::object out{{"ID", std::to_string(id)}};
    if (leases_.count(id) > 0) out["TTL"] = std::to_string(leases_[id]);
    return out;
  }

  void end_lease(std::int64_t id) {
    ++revision_;
    leases_.erase(id);
    std::erase_if(keys_, [id](const auto& one) { return one.second.lease == id; });
  }

  static std::string bytes(const boost::json::object& from, const char* name) {
    const auto* text = from.if_contains(name);
    return text == nullptr ? "" : from_base64(text->as_string()).value();
  }

  std::optional<boost::json::object> transact(const boost::json::object& ask) {
    bool holds = true;
    for (const auto& one : ask.at("compare").as_array()) {
      const auto& when = one.as_object();
      const bool create = when.at("target").as_string() == "CREATE";
      const auto found = keys_.find(bytes(when, "key"));
      const std::int64_t is = found == keys_.end() ? 0
                              : create             ? found->second.create
                                                   : found->second.mod;
      const auto& wanted = when.at(create ? "create_revision" : "mod_revision").as_string();
      holds = holds && std::to_string(is) == wanted;
    }
    const auto& ops = ask.at(holds ? "success" : "failure").as_array();
    bool writes = false;
    for (const auto& op : ops) writes = writes || !op.as_object().contains("request_range");
    if (writes) ++revision_;
    boost::json::array responses;
    for (const auto& op : ops) {
      auto done = carry_out(op.as_object());
      if (!done.has_value()) return std::nullopt;
      responses.push_back(std::move(*done));
    }
    boost::json::object out{{"header", {{"revision", std::to_string(revision_)}}}};
    if (holds) out["succeeded"] = true;
    out["responses"] = std::move(responses);
    return out;
  }

  std::optional<boost::json::object> carry_out(const boost::json::object& op) {
    if (const auto* put = op.if_contains("request_put")) {
      const auto& ask = put->as_object();
      const auto* lease = ask.if_contains("lease");
      const std::int64_t id = lease == nullptr ? 0 : std::stoll(std::string(lease->as_string()));
      if (id != 0 && leases_.count(id) == 0) return std::nullopt;
      --revision_;
      set(bytes(ask, "key"), bytes(ask, "value"), id);
      return boost::json::object{{"response_put", boost::json::object{}}};
    }
    const auto& ask = op.at("request_range").as_object();
    const std::string from = bytes(ask, "key");
    const std::string to = ask.contains("range_end") ? bytes(ask, "range_end") : from + '\0';
    const auto begin = keys_.lower_bound(from), end = keys_.lower_bound(to);
    return boost::json::object{{"response_range", found(ask, begin, end)}};
  }

  template <typename At>
  static boost::json::object found(const boost::json::object& ask, At at, At end) {
    const auto* limit = ask.if_contains("limit");
    const std::size_t most =
        limit == nullptr ? 1 << 20 : std::stoul(std::string(limit->as_string()));
    boost::json::array pairs;
    std::size_t count = 0;
    for (; at != end; ++at) {
      if (++count > most || ask.contains("count_only")) continue;
      pairs.push_back({{"key", base64(at->first)},
                       {"value", base64(at->second.value)},
                       {"create_revision", std::to_string(at->second.create)},
                       {"mod_revision", std::to_string(at->second.mod)}});
    }
    boost::json::object out;
    if (count > 0) out["count"] = std::to_string(count);
    if (count > most) out["more"] = true;
    if (!pairs.empty()) out["kvs"] = std::move(pairs);
    return out;
  }

  void set(const std::string& key, const std::string& value, std::int64_t lease) {
    ++revision_;
    Held& held = keys_[key];
    if (held.create == 0) held.create = revision_;
    held.value = value;
    held.mod = revision_;
    held.lease = lease;
  }

  boost::asio::io_context io_;
  Tcp::acceptor acceptor_;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  bool reachable_ = true;
  std::map<std::string, std::deque<Odd>> odd_;
  std::map<std::string, Held> keys_;
  std::map<std::int64_t, std::int64_t> leases_;
  std::int64_t revision_ = 1, last_lease_ = 100;
  std::list<Tcp::socket> sockets_;
  std::list<std::thread> workers_;
  std::thread thread_;
};

}  // namespace jccl::master
