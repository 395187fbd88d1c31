// Chooses a store by its name, and the store that keeps rows in memory only.
#include "master/store.h"

#include "base/text.h"
#include "master/etcd/etcd_store.h"
#include "master/etcd/etcd_where.h"
#include "master/sqlite_store.h"

namespace jccl::master {
namespace {

class MemoryStore : public StateStore {
 public:
  base::Result<std::vector<wire::Row>> load() override { return rows_; }
  base::Status append(const std::vector<wire::Row>& rows) override {
    rows_.insert(rows_.end(), rows.begin(), rows.end());
    return {};
  }
  base::Status truncate(std::uint64_t last) override {
    std::erase_if(rows_, [last](const wire::Row& row) { return row.sequence > last; });
    return {};
  }

 private:
  std::vector<wire::Row> rows_;
};

}  // namespace

base::Result<std::unique_ptr<StateStore>> open_store(const std::string& where,
                                                     const StoreOptions& options) {
  if (where == "memory:") return std::unique_ptr<StateStore>(std::make_unique<MemoryStore>());
  if (const auto path = sqlite_path(where)) return open_sqlite_store(*path, options);
  if (is_etcd(where)) return open_etcd_store(where, options);
  return base::Status{base::Code::kInvalid,
                      base::cat("store '", where, "': give sqlite:PATH, etcd://… or memory:")};
}

}  // namespace jccl::master
