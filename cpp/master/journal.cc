#include "master/journal.h"

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/planted.h"
#include "base/text.h"
#include "master/etcd/etcd_where.h"
#include "master/sqlite_store.h"
#include "protocol/master/ledger.h"
#include "protocol/master/master_machine.h"

namespace jccl::master {
namespace {

namespace json = boost::json;
using base::cat;
using base::Code;
using base::Status;

constexpr int kAsksMax = 20;              // some ten a second
constexpr std::size_t kRowsAtOnce = 256;  // of a transaction; etcd takes no long ones

Status named(const std::string& where, const Status& status) {
  return {status.code, cat("journal ", without_password(where), ": ", status.text)};
}

// Opening creates what is missing; to look at a journal must not make one.
Status exists(const std::string& where) {
  if (where == "memory:") {
    return {Code::kInvalid,
            "a journal in memory ends with its master; give sqlite:PATH or etcd://…"};
  }
  const auto path = sqlite_path(where);
  std::error_code error;
  if (!path.has_value() || std::filesystem::is_regular_file(*path, error)) return {};
  return {Code::kInvalid, cat("no journal at ", *path)};
}

struct Opened {
  std::unique_ptr<StateStore> store;
  std::vector<wire::Row> rows;
};

// A store that another master has is waited for as long as it takes to hear of that.
base::Result<Opened> open(const std::string& where, StoreOptions options) {
  std::string said;
  int asked = 0;
  options.log = [&said](const std::string& line) { said = line; };
  options.keep_waiting = [&asked] { return ++asked < kAsksMax; };
  auto store = open_store(where, options);
  if (!store.ok() && store.status().code == Code::kAborted) {
    return Status{Code::kIo, cat("journal ", without_password(where),
                                 said.empty() ? ": no answer" : cat(": ", said),
                                 "; stop the active master first, if there is one")};
  }
  if (!store.ok()) return store.status();
  Opened out{std::move(store.value()), {}};
  auto rows = out.store->load();
  if (!rows.ok()) return rows.status();
  out.rows = std::move(rows.value());
  return out;
}

struct Read {
  Opened opened;
  wire::Chain chain;
};

base::Result<Read> read(const std::string& where, const StoreOptions& options) {
  if (const Status status = exists(where); !status.ok()) return status;
  auto opened = open(where, options);
  if (!opened.ok()) return opened.status();
  auto chain = wire::walk(opened.value().rows, nullptr);
  if (!chain.ok()) return named(where, chain.status());
  if (chain.value().records.empty()) {
    return Status{Code::kInvalid, cat("journal ", without_password(where), ": is empty")};
  }
  Read out{std::move(opened.value()), std::move(chain.value())};
  out.opened.rows.resize(out.opened.rows.size() - out.chain.cut_rows);
  return out;
}

template <typename Digests>
json::array hex_of(const Digests& digests) {
  json::array out;
  for (const auto& digest : digests) out.emplace_back(base::to_hex(digest));
  return out;
}

struct RecordFields {
  json::object& out;

  void operator()(const wire::RunRecord& r) {
    out["kind"] = "run";
    out["run"] = base::to_hex(r.run);
    out["version"] = r.version;
  }
  void operator()(const wire::EpochRecord& r) {
    out["kind"] = "epoch";
    out["epoch"] = r.epoch;
    out["next_id"] = r.next_id;
    out["reason"] = r.reason;
    json::array members;
    for (const wire::Member& m : r.members) {
      members.push_back({{"id", m.id},
                         {"incarnation", base::to_hex(m.incarnation)},
                         {"site", m.site},
                         {"shard", m.shard},
                         {"shards", m.shards},
                         {"addresses", json::value_from(m.addresses)},
                         {"key", base::to_hex(m.key)}});
    }
    out["members"] = std::move(members);
  }
  void operator()(const wire::BirthRecord& r) {
    out["kind"] = "birth";
    out["tag"] = r.tag;
    out["site"] = r.site;
    out["sources"] = hex_of(r.sources);
    out["digests"] = hex_of(r.digests);
    out["descriptors"] = hex_of(r.descriptors);
    out["summary"] = r.summary;
  }
  void operator()(const wire::CommitRecord& r) {
    out["kind"] = "commit";
    out["tag"] = r.round.tag;
    out["n"] = r.round.n;
    out["attempt"] = base::to_text(r.attempt);
    json::array contributors;
    for (const wire::Contributor& c : r.contributors) {
      contributors.push_back({{"id", c.id}, {"weight", c.weight}});
    }
    out["contributors"] = std::move(contributors);
    out["receivers"] = json::value_from(r.receivers);
    out["world"] = r.world;
    out["result"] = base::to_hex(r.result);
    out["shard_results"] = hex_of(r.shard_results);
    out["is_state"] = r.is_state;
    out["state"] = r.is_state ? base::to_hex(r.state) : "";
    out["plan"] = base::to_hex(std::span<const std::uint8_t>(r.plan));
  }
  void operator()(const wire::StateRecord& r) {
    out["kind"] = "state";
    out["tag"] = r.tag;
    out["revision"] = r.revision;
    out["weak"] = r.weak;
    out["digests"] = hex_of(r.digests);
  }
  void operator()(const wire::RestoreRecord& r) {
    out["kind"] = "restore";
    out["tag"] = r.tag;
    out["revision"] = r.revision;
    out["of"] = r.of;
    out["wished"] = r.wished;
    out["site"] = r.site;
    out["digests"] = hex_of(r.digests);
  }
  void operator()(const wire::BanRecord& r) {
    out["kind"] = "ban";
    out["key"] = base::to_hex(r.key);
    out["until_unix_ms"] =
        r.until_unix_ms == wire::kForGood ? json::value(nullptr) : json::value(r.until_unix_ms);
    out["site"] = r.site;
    out["reason"] = r.reason;
  }
  void operator()(const wire::AdmitRecord& r) {
    out["kind"] = "admit";
    out["key"] = base::to_hex(r.key);
  }
  void operator()(const wire::TokenRecord& r) {
    out["kind"] = "token";
    out["token"] = r.token;
    out["revoked"] = r.revoked;
    out["key"] = r.revoked ? "" : base::to_hex(r.key);
    out["shard"] = r.shard;
  }
};

json::array tags_of(const protocol::Ledger& ledger) {
  json::array out;
  for (const auto& [tag, at] : ledger.tags()) {
    json::object one{{"tag", tag}, {"committed", at.committed}, {"is_state", at.born}};
    if (at.born) {
      json::array digests;
      for (const auto& [shard, digest] : at.digests) digests.emplace_back(base::to_hex(digest));
      one["digests"] = std::move(digests);
      one["from"] = at.site;
    }
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace

std::string record_json(std::uint64_t row, const wire::Record& record) {
  json::object out{{"row", row}};
  std::visit(RecordFields{out}, record);
  return json::serialize(out);
}

base::Result<std::string> journal_summary(const std::string& where, const StoreOptions& options) {
  auto got = read(where, options);
  if (!got.ok()) return got.status();
  protocol::Ledger ledger(protocol::MasterOptions{}.history);
  std::uint64_t bytes = 0, bans = 0;
  for (const wire::Row& row : got.value().opened.rows) bytes += row.payload.size();
  for (const wire::Record& record : got.value().chain.records) ledger.apply(record);
  for (const auto& [key, ban] : ledger.bans()) bans += ban.until_unix_ms != 0;
  json::array members;
  for (const auto& [id, member] : ledger.members()) {
    members.push_back({{"id", id},
                       {"site", member.site},
                       {"shard", member.shard},
                       {"key", base::to_hex(member.key)}});
  }
  return json::serialize(json::object{{"run", base::to_hex(ledger.run())},
                                      {"rows", got.value().opened.rows.size()},
                                      {"bytes", bytes},
                                      {"torn_rows", got.value().chain.cut_rows},
                                      {"epoch", ledger.epoch()},
                                      {"members", std::move(members)},
                                      {"tags", tags_of(ledger)},
                                      {"bans", bans},
                                      {"tokens", ledger.tokens().size()}});
}

base::Result<std::uint64_t> copy_journal(const std::string& from, const std::string& to,
                                         const StoreOptions& options) {
  if (to == "memory:") return exists(to);
  auto source = read(from, options);
  if (!source.ok()) return source.status();
  const std::vector<wire::Row>& rows = source.value().opened.rows;
  {
    auto target = open(to, options);
    if (!target.ok()) return target.status();
    if (!target.value().rows.empty() && !JCCL_PLANTED("copy-onto-a-journal")) {
      return Status{Code::kInvalid,
                    cat("journal ", without_password(to), ": has ", target.value().rows.size(),
                        " rows already; copy into an empty place")};
    }
    // A file has all of them or none, however this ends; etcd takes no such long writes.
    const std::size_t at_once = is_etcd(to) ? kRowsAtOnce : rows.size();
    for (std::size_t at = 0; at < rows.size(); at += at_once) {
      const auto begin = rows.begin() + static_cast<std::ptrdiff_t>(at);
      const auto size = static_cast<std::ptrdiff_t>(std::min(at_once, rows.size() - at));
      const Status status = target.value().store->append({begin, begin + size});
      if (!status.ok()) return status;
    }
  }
  auto back = open(to, options);
  if (!back.ok()) return back.status();
  if (back.value().rows != rows) {
    return Status{Code::kDamaged,
                  cat("journal ", without_password(to),
                      ": differs from what was written; copy again, to another place")};
  }
  return rows.size();
}

base::Status export_journal(const std::string& where, const StoreOptions& options,
                            const std::function<bool(const std::string&)>& write) {
  auto got = read(where, options);
  if (!got.ok()) return got.status();
  std::uint64_t row = 0;
  for (const wire::Record& record : got.value().chain.records) {
    if (!write(record_json(++row, record))) return {Code::kAborted, "the reader has stopped"};
  }
  return {};
}

}  // namespace jccl::master
