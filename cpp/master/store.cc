// Chooses a store by its name, and the store that keeps rows in memory only.
#include "master/store.h"

#include <map>

#include "base/limits.h"
#include "base/text.h"
#include "master/etcd/etcd_store.h"
#include "master/etcd/etcd_where.h"
#include "master/sqlite_store.h"

namespace jccl::master {
namespace {

class MemoryStore : public StateStore {
 public:
  using Rows = std::shared_ptr<std::vector<wire::Row>>;

  explicit MemoryStore(Rows rows) : rows_(std::move(rows)) {}
  base::Result<std::vector<wire::Row>> load() override { return *rows_; }
  base::Status append(const std::vector<wire::Row>& rows) override {
    rows_->insert(rows_->end(), rows.begin(), rows.end());
    return {};
  }
  base::Status truncate(std::uint64_t last) override {
    std::erase_if(*rows_, [last](const wire::Row& row) { return row.sequence > last; });
    return {};
  }
  base::Result<std::unique_ptr<StateStore>> of_group(const std::string& name,
                                                     const StoreOptions&) override {
    if (groups_.count(name) == 0 && groups_.size() >= base::kGroupJournalsMax) {
      return too_many_groups(groups_.size());
    }
    Rows& rows = groups_[name];
    if (rows == nullptr) rows = std::make_shared<std::vector<wire::Row>>();
    return std::unique_ptr<StateStore>(std::make_unique<MemoryStore>(rows));
  }

 private:
  const Rows rows_;
  std::map<std::string, Rows> groups_;  // they end with this master, as the run's do
};

}  // namespace

base::Status too_many_groups(std::size_t journals) {
  return {
      base::Code::kLimit,
      base::cat("this run has had ", journals, " groups, and keeps the journal of each: take a ",
                "name that was in use, or have journals removed that nobody needs")};
}

base::Result<std::unique_ptr<StateStore>> open_store(const std::string& where,
                                                     const StoreOptions& options) {
  if (where == "memory:") {
    return std::unique_ptr<StateStore>(
        std::make_unique<MemoryStore>(std::make_shared<std::vector<wire::Row>>()));
  }
  if (const auto path = sqlite_path(where)) return open_sqlite_store(*path, options);
  if (is_etcd(where)) return open_etcd_store(where, options);
  return base::Status{base::Code::kInvalid,
                      base::cat("store '", where, "': give sqlite:PATH, etcd://… or memory:")};
}

}  // namespace jccl::master
