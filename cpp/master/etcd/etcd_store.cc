// Blocks on the network, but for appends no longer than the lease lasts: a master without its lease
// has nothing left to say.
#include "master/etcd/etcd_store.h"

#include <time.h>

#include <algorithm>

#include "base/limits.h"
#include "base/planted.h"
#include "base/text.h"
#include "master/etcd/etcd_copy.h"
#include "master/etcd/etcd_http.h"
#include "master/etcd/etcd_lease.h"
#include "master/etcd/etcd_where.h"
#include "master/log_valve.h"
#include "net/security/credentials.h"

namespace jccl::master {
namespace {

using base::cat;
using base::Code;
using base::Result;
using base::Status;
using base::Time;

constexpr base::Duration kFirstContactMax = 10 * base::kSecond;
constexpr base::Duration kNameMax = base::kSecond;  // to ask who is active now
constexpr base::Duration kComplaintInterval = 5 * base::kSecond;
constexpr std::uint32_t kGroupsPerPage = 256;

std::string seconds(base::Duration d) {
  const auto tenths =
      (std::max<base::Duration>(d, 0) + 50 * base::kMillisecond) / (100 * base::kMillisecond);
  return cat(tenths / 10, ".", tenths % 10, " s");
}

// "<address> <id>"
std::string address_in(const EtcdPair& leader) {
  return leader.value.substr(0, leader.value.find(' '));
}

class EtcdStore final : public StateStore {
 public:
  EtcdStore(EtcdWhere where, StoreOptions options)
      : where_(std::move(where)),
        options_(std::move(options)),
        copy_(EtcdKeys(where_.prefix)),
        valve_(kComplaintInterval) {}

  EtcdStore(const EtcdStore& run, const std::string& group, StoreOptions options)
      : where_(run.where_),
        options_(std::move(options)),
        copy_(EtcdKeys(where_.prefix, group)),
        lease_(run.lease_),
        term_(run.term_),
        valve_(kComplaintInterval) {}

  Status open();
  Status open_group();
  Result<std::vector<wire::Row>> load() override;
  Status append(const std::vector<wire::Row>& rows) override;
  Status truncate(std::uint64_t last) override;
  Status held() override;
  Result<std::unique_ptr<StateStore>> of_group(const std::string& name,
                                               const StoreOptions& options) override;

 private:
  const EtcdKeys& keys() const { return copy_.keys(); }
  void say(const std::string& line) {
    if (options_.log) options_.log(line);
  }
  Result<EtcdReply> ask(const EtcdTxn& txn, Time by);
  Status read_along(Time by);
  Status campaign();
  void announce();
  Result<bool> try_to_lead();
  Status read_the_rest();
  std::vector<EtcdCompare> fence() const;
  Status judge_refusal(const EtcdFound& leader, const EtcdFound& journal);
  Status fail_for_good(Status status);
  Status fenced(const std::optional<EtcdPair>* leader);

  const EtcdWhere where_;
  const StoreOptions options_;
  std::unique_ptr<EtcdHttp> http_;
  EtcdCopy copy_;
  std::shared_ptr<EtcdLease> lease_;  // of the run and its groups
  std::uint64_t term_ = 0;            // creation revision of our leader key
  std::uint32_t page_ = kGroupsPerPage;
  LogValve valve_;
  std::string announced_;
  Status broken_;
};

Result<EtcdReply> EtcdStore::ask(const EtcdTxn& txn, Time by) {
  const auto body = http_->post("/v3/kv/txn", to_json(txn), by, [&txn](const std::string& text) {
    return parse_txn_reply(text, txn).status();
  });
  if (!body.ok()) return body.status();
  return parse_txn_reply(body.value(), txn);
}

// Everything that is new, page by page.
Status EtcdStore::read_along(Time by) {
  for (;;) {
    const auto reply = ask(copy_.ask(page_), by);
    if (!reply.ok() && reply.status().code == Code::kLimit && page_ > 1) {
      page_ /= 2;
      continue;
    }
    if (!reply.ok()) return reply.status();
    const auto more = copy_.take(reply.value());
    if (!more.ok()) return more.status();
    if (!more.value()) return {};
  }
}

Status EtcdStore::open() {
  auto http = EtcdHttp::open(where_);
  if (!http.ok()) return http.status();
  http_ = std::move(http.value());
  return campaign();
}

// Waits until nobody else is the active master, reading along.
Status EtcdStore::campaign() {
  const Time begun = boot_now();
  const base::Duration pause =
      std::clamp(where_.lease / 20, 50 * base::kMillisecond, 250 * base::kMillisecond);
  bool reached = false;
  for (;;) {
    Status status = read_along(boot_now() + where_.lease / 2);
    reached = reached || status.ok();
    if (status.ok() && copy_.leader().has_value()) announce();
    if (status.ok() && !copy_.leader().has_value()) {
      const auto leads = try_to_lead();
      status = leads.status();
      if (leads.ok() && leads.value()) {
        say(cat("active after ", seconds(boot_now() - begun), " of waiting"));
        return {};
      }
    }
    if (!status.ok()) {
      if (status.code != Code::kLinkLost && (status.code != Code::kAuth || !reached)) return status;
      if (!reached && boot_now() >= begun + kFirstContactMax) return {Code::kIo, status.text};
      if (const auto line = valve_.pass(cat("standby: ", status.text), boot_now())) say(*line);
    }
    if (options_.keep_waiting && !options_.keep_waiting()) {
      return {Code::kAborted, "stopped while it waited as a standby"};
    }
    const timespec nap{0, static_cast<long>(pause)};
    ::nanosleep(&nap, nullptr);
  }
}

void EtcdStore::announce() {
  if (announced_ == copy_.leader()->value) return;
  announced_ = copy_.leader()->value;
  say(cat("standby: the active master is at ", address_in(*copy_.leader()),
          "; takes over when its lease of ", seconds(where_.lease), " ends"));
}

// False: another master was quicker.
Result<bool> EtcdStore::try_to_lead() {
  auto lease = EtcdLease::grant(where_, boot_now() + where_.lease);
  if (!lease.ok()) return lease.status();
  const auto id = net::random_u64();
  if (!id.ok()) return id.status();
  const std::string value = cat(options_.address, " ", id.value());
  EtcdTxn txn;
  txn.when = {{keys().leader, EtcdCompare::Of::kCreate, 0},
              {keys().journal, EtcdCompare::Of::kMod, copy_.journal_mod()}};
  txn.then = {EtcdPut{keys().leader, value, lease.value()->id()}};
  if (copy_.journal_mod() == 0) {
    txn.then.push_back(EtcdPut{keys().journal, std::string(kEtcdFormat)});
  }
  txn.otherwise = {EtcdRange{keys().leader, ""}};
  const auto reply = ask(txn, lease.value()->until());
  if (!reply.ok()) {
    // Refused for good: the lease is gone already, because this process or machine slept.
    const bool slept = reply.status().code == Code::kInvalid;
    return slept ? Result<bool>(false) : Result<bool>(reply.status());
  }
  if (reply.value().succeeded) {
    term_ = reply.value().revision;
  } else {  // perhaps the answer to our first try was lost
    const auto& pairs = reply.value().found[0].pairs;
    if (pairs.empty() || pairs.front().value != value) return false;
    term_ = pairs.front().create;
  }
  lease_ = std::move(lease.value());
  const Status read = read_the_rest();
  if (read.ok()) return true;
  lease_.reset();
  return read.code == Code::kEvicted ? Result<bool>(false) : Result<bool>(read);
}

// From now on nobody else writes, so what is read now is all there is.
Status EtcdStore::read_the_rest() {
  for (int i = 0; i < 2; ++i) {
    if (const Status read = read_along(lease_->until()); !read.ok()) return read;
    if (!copy_.leader().has_value() || copy_.leader()->create != term_) {
      return {Code::kEvicted, "the lease ended at once"};
    }
    EtcdTxn count;
    count.then = {EtcdRange{keys().rows, keys().rows_end, 0, true}};
    const auto reply = ask(count, lease_->until());
    if (!reply.ok()) return reply.status();
    if (JCCL_PLANTED("lost-rows-not-counted") ||
        reply.value().found[0].count == copy_.groups().size())
      return {};
    copy_.forget();  // rows went that were read long ago
  }
  return {Code::kDamaged, cat(keys().rows, " holds other keys than rows")};
}

// By the lease and the term of the run: whoever leads it leads its groups.
Result<std::unique_ptr<StateStore>> EtcdStore::of_group(const std::string& name,
                                                        const StoreOptions& options) {
  if (const Status still = held(); !still.ok()) return still;
  auto store = std::make_unique<EtcdStore>(*this, name, options);
  if (const Status opened = store->open_group(); !opened.ok()) return opened;
  return std::unique_ptr<StateStore>(std::move(store));
}

Status EtcdStore::open_group() {
  auto http = EtcdHttp::open(where_);
  if (!http.ok()) return http.status();
  http_ = std::move(http.value());
  if (const Status read = read_the_rest(); !read.ok()) return read;
  if (copy_.journal_mod() != 0) return {};
  EtcdTxn txn;
  txn.then = {EtcdRange{cat(where_.prefix, "/group-journals/"),
                        cat(where_.prefix, "/group-journals0"), 0, true}};
  const auto count = ask(txn, lease_->until());
  if (!count.ok()) return count.status();
  const std::size_t journals = count.value().found[0].count;
  if (journals >= base::kGroupJournalsMax) return too_many_groups(journals);
  txn.when = {{keys().leader, EtcdCompare::Of::kCreate, term_}};
  txn.then = {EtcdPut{keys().journal, std::string(kEtcdFormat)}};
  const auto made = ask(txn, lease_->until());
  if (!made.ok()) return made.status();
  return read_the_rest();  // whoever leads now has seen to it
}

Result<std::vector<wire::Row>> EtcdStore::load() {
  if (!broken_.ok()) return broken_;
  return copy_.take_rows();
}

std::vector<EtcdCompare> EtcdStore::fence() const {
  std::vector<EtcdCompare> out{{keys().leader, EtcdCompare::Of::kCreate, term_},
                               {keys().journal, EtcdCompare::Of::kMod, copy_.journal_mod()}};
  if (!copy_.groups().empty() && !JCCL_PLANTED("fence-without-last-row")) {
    out.push_back({keys().row(copy_.groups().back()), EtcdCompare::Of::kMod, copy_.last_mod()});
  }
  return out;
}

Status EtcdStore::fail_for_good(Status status) {
  if (broken_.ok()) broken_ = status;
  return broken_;
}

// Who is active now is a courtesy; that this master is not, is certain. Without `leader` etcd is
// asked once.
Status EtcdStore::fenced(const std::optional<EtcdPair>* leader) {
  std::optional<EtcdPair> now;
  std::string unknown;
  if (leader != nullptr) {
    now = *leader;
  } else {
    EtcdTxn txn;
    txn.then = {EtcdRange{keys().leader, ""}};
    const auto reply = ask(txn, boot_now() + kNameMax);
    if (!reply.ok()) unknown = reply.status().text;
    if (reply.ok() && !reply.value().found[0].pairs.empty()) now = reply.value().found[0].pairs[0];
  }
  const bool other = now.has_value() && now->create != term_;
  const std::string who = other             ? cat("the active master is at ", address_in(*now))
                          : unknown.empty() ? std::string("no other master is active yet")
                                            : cat("the active master is not known: ", unknown);
  std::string why = lease_->trouble();
  if (why.empty()) why = "it was paused, or cut off from etcd";
  return fail_for_good({Code::kEvicted, cat(who, " (this one lost its lease: ", why, ")")});
}

// Why a fenced transaction did not go through.
Status EtcdStore::judge_refusal(const EtcdFound& leader, const EtcdFound& journal) {
  const auto now = leader.pairs.empty() ? std::nullopt : std::optional(leader.pairs.front());
  if (!now.has_value() || now->create != term_) return fenced(&now);
  if (journal.pairs.empty() || journal.pairs.front().mod != copy_.journal_mod()) {
    return fail_for_good({Code::kDamaged, cat(keys().journal, " was changed under this master")});
  }
  return fail_for_good(
      {Code::kDamaged, cat(keys().rows, ": another program wrote or removed the last row")});
}

Status EtcdStore::append(const std::vector<wire::Row>& rows) {
  if (!broken_.ok()) return broken_;
  if (rows.empty()) return {};
  if (const Status still = held(); !still.ok()) return still;
  const std::uint64_t first = rows.front().sequence;
  const std::string key = keys().row(first), value = encode_rows(rows);
  EtcdTxn txn;
  txn.when = fence();
  txn.when.push_back({key, EtcdCompare::Of::kCreate, 0});
  txn.then = {EtcdPut{key, value}};
  txn.otherwise = {EtcdRange{keys().leader, ""}, EtcdRange{keys().journal, ""}, EtcdRange{key, ""}};
  Time by = lease_->until();
  auto reply = ask(txn, by);
  // Renewed meanwhile: whoever holds the lease goes on. The same try twice is one row.
  while (!reply.ok() && boot_now() >= by && boot_now() < lease_->until()) {
    by = lease_->until();
    reply = ask(txn, by);
  }
  if (!reply.ok()) {
    if (boot_now() >= lease_->until()) return fenced(nullptr);
    return fail_for_good(
        {Code::kIo, cat("row ", first, " (", value.size(), " bytes): ", reply.status().text)});
  }
  if (reply.value().succeeded) {
    copy_.appended(first, rows.size(), reply.value().revision);
    return {};
  }
  const auto& found = reply.value().found;
  const bool leads = !found[0].pairs.empty() && found[0].pairs[0].create == term_;
  if (leads && !JCCL_PLANTED("own-write-not-recognised") && !found[2].pairs.empty() &&
      found[2].pairs[0].value == value) {
    copy_.appended(first, rows.size(), found[2].pairs[0].mod);  // by a try whose answer was lost
    return {};
  }
  return judge_refusal(found[0], found[1]);
}

// etcd has rows whole or not at all: one that is damaged was told, and was damaged since.
Status EtcdStore::truncate(std::uint64_t last) {
  if (!broken_.ok()) return broken_;
  return fail_for_good({Code::kDamaged, cat(keys().rows, ": row ", last + 1,
                                            " is damaged; restore etcd from a snapshot")});
}

Status EtcdStore::held() {
  if (!broken_.ok()) return broken_;
  return boot_now() < lease_->until() || JCCL_PLANTED("lease-end-not-noticed") ? Status{}
                                                                               : fenced(nullptr);
}

}  // namespace

Result<std::unique_ptr<StateStore>> open_etcd_store(const std::string& where,
                                                    const StoreOptions& options) {
  auto parsed = parse_etcd(where);
  if (!parsed.ok()) return parsed.status();
  for (const net::Address& address : parsed.value().endpoints) {
    if (parsed.value().tls || options.insecure || JCCL_PLANTED("plain-etcd-off-loopback") ||
        net::is_loopback(address))
      continue;
    return Status{Code::kInvalid, cat("store '", without_password(where),
                                      "': plain etcd off loopback; use etcds:// "
                                      "with ca=, cert= and key=, or --insecure")};
  }
  auto store = std::make_unique<EtcdStore>(std::move(parsed.value()), options);
  if (const Status status = store->open(); !status.ok()) {
    return Status{status.code, cat("store ", without_password(where), ": ", status.text)};
  }
  return std::unique_ptr<StateStore>(std::move(store));
}

}  // namespace jccl::master
