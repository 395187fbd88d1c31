// Sites that ask for a state before it begins, each with what it brings, and what they are told.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/text.h"
#include "protocol/hostile_rig.h"

namespace jccl::protocol {

class BirthTest : public HostileMember {
 public:
  // Each asks in this order with what is said of it; who is the source.
  struct Asks {
    const char* site;
    std::uint8_t leaves, values;
    bool source = false;
    std::uint32_t shard = 0, shards = 1;
    base::Duration for_s = 1000;
  };

 protected:
  static MasterOptions three() {
    MasterOptions options = HostileMember::options();
    options.start_peers = 3;
    return options;
  }
  static wire::PublicKey key(std::uint8_t conn) { return {conn, 7}; }
  std::string source_of(const std::vector<Asks>& all, const MasterOptions& options = three()) {
    begin(options);
    source_.clear();
    for (std::size_t i = 0; i < all.size(); ++i) enter(i, all[i]);
    for (std::size_t i = 0; i < all.size(); ++i) note(say(i + 1, asks(all[i]), its(i)));
    return source_;
  }
  void enter(std::size_t i, const Asks& one) {
    wire::Hello hello = HostileMember::hello(100 * (i + 1), one.site);
    hello.shard = one.shard, hello.shards = one.shards;
    (void)say(i + 1, hello, its(i));
    (void)say(i + 1, wire::Resume{}, its(i));
  }
  wire::PublicKey its(std::size_t i) const {
    const std::size_t first = i / keys_of_ * keys_of_ + 1;
    return {static_cast<std::uint8_t>(first), 7, static_cast<std::uint8_t>(first >> 8)};
  }
  static wire::Sync asks(const Asks& one) {
    wire::Sync sync;
    sync.tag = "model";
    sync.descriptor = {one.leaves}, sync.digest = {one.values};
    sync.summary = base::cat("leaves ", int{one.leaves});
    sync.source = one.source;
    sync.deadline = one.for_s * base::kSecond;
    return sync;
  }
  // The last thing that the one on the connection was told of its Sync.
  std::string told(ConnId conn) const { return told_.count(conn) > 0 ? told_.at(conn) : ""; }
  void note(const MasterEffects& effects) {
    note_lines(effects.history);
    for (const MasterSend& one : effects.send) {
      if (const auto* reply = std::get_if<wire::SyncReply>(&one.message)) {
        told_[one.conn] = reply->text;
      }
    }
  }
  void note_lines(const std::vector<HistoryLine>& lines) {
    for (const HistoryLine& line : lines) {
      if (line.kind != "birth") continue;
      for (const auto& [field, value] : line.fields) source_ = field == "source" ? value : source_;
    }
  }
  void comes(ConnId conn, const char* site, const wire::PublicKey& its) {
    (void)say(conn, hello(100 * (conn + 1), site), its);
    (void)say(conn, wire::Resume{}, its);
  }
  // The process of connection 2 ends; ten seconds later there is one with its name and another key.
  void another_comes_as(const char* site) {
    note(on(ConnClosed{2}));
    alive_ = {1, 3, 4};
    wait(10 * base::kSecond);
    comes(5, site, key(5));
    alive_ = {1, 3, 4, 5};
  }
  // It says for a moment that it is the source, or that it is not.
  void says(ConnId conn, const char* site, const wire::PublicKey& its, std::uint8_t values,
            bool source) {
    comes(conn, site, its);
    note(say(conn, asks({site, 1, values, source}), its));
    (void)say(conn, wire::Leave{}, its);
    note(on(ConnClosed{conn}));
  }
  void asks_for_a_moment(std::size_t i, const Asks& one) {
    enter(i, one);
    note(say(i + 1, asks(one), its(i)));
    (void)say(i + 1, wire::Leave{}, its(i));
    note(on(ConnClosed{i + 1}));
  }
  std::uint8_t keys_of_ = 1;  // so many in a row have one
  std::string source_;
  std::map<ConnId, std::string> told_;
};

// e on connection 1 says that it is the source, and a on 2, with other values.
inline const std::vector<BirthTest::Asks> kDispute = {
    {"e", 1, 1, true}, {"a", 1, 2, true}, {"b", 1, 3}, {"c", 1, 4}};

}  // namespace jccl::protocol
