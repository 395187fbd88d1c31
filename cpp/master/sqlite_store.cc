// SQLite as a list of durable rows. locking_mode=EXCLUSIVE keeps the file's lock from the first
// access until close, also across transactions: a second master is refused, and a killed one
// leaves no lock behind. Blocks on the disk: fsync per append. The last acknowledged record is
// noted in a second file, PATH-last: a journal that lost its end is refused.
#include "master/sqlite_store.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>

#include "base/limits.h"
#include "base/planted.h"
#include "base/text.h"
#include "master/last_record.h"
#include "master/private_file.h"

namespace jccl::master {
namespace {

using base::Code;
using base::Status;

constexpr std::int64_t kApplicationId = 0x6A63636C;  // "jccl"
constexpr std::int64_t kFormat = 1;
constexpr std::string_view kGroupEnd = ".group";

struct CloseDb {
  void operator()(sqlite3* db) const { sqlite3_close_v2(db); }
};
struct Finalize {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Db = std::unique_ptr<sqlite3, CloseDb>;
using Statement = std::unique_ptr<sqlite3_stmt, Finalize>;

class SqliteStore : public StateStore {
 public:
  SqliteStore(std::string path, Db db) : path_(std::move(path)), db_(std::move(db)) {}

  Status open();
  base::Result<std::vector<wire::Row>> load() override;
  Status append(const std::vector<wire::Row>& rows) override;
  Status truncate(std::uint64_t last) override;
  base::Result<std::unique_ptr<StateStore>> of_group(const std::string& name,
                                                     const StoreOptions& options) override;

 private:
  Status adopt();
  Status create();
  Status insert(const std::vector<wire::Row>& rows);
  Status execute(const char* sql);
  Status prepare(const char* sql, Statement* statement);
  base::Result<std::int64_t> number(const char* sql);
  Status check_end(const std::vector<wire::Row>& rows) const;
  Status failed() const;  // what SQLite last complained of, in our codes
  Status fail_for_good(Status status);

  const std::string path_;
  Db db_;
  Statement insert_;
  LastRecord last_;
  Status broken_;
};

Status SqliteStore::failed() const {
  const int code = sqlite3_errcode(db_.get()) & 0xFF;
  const std::string name = base::cat("journal ", path_, ": ");
  switch (code) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return {Code::kIo, name + "in use by another master (or another program reads it)"};
    case SQLITE_NOTADB:
      return {Code::kDamaged, name + "not a jccl journal; name another file"};
    case SQLITE_CORRUPT:
      return {Code::kDamaged, name + "the file is damaged; restore it from a copy"};
    case SQLITE_CONSTRAINT:
      return {Code::kDamaged, name + "a row with this sequence exists already"};
    case SQLITE_FULL:
      return {Code::kIo, name + "the disk is full"};
    default:
      return {Code::kIo, base::cat(name, sqlite3_errmsg(db_.get()))};
  }
}

Status SqliteStore::fail_for_good(Status status) {
  if (broken_.ok() && !JCCL_PLANTED("write-after-failure")) broken_ = status;
  return status;
}

Status SqliteStore::execute(const char* sql) {
  const int code = sqlite3_exec(db_.get(), sql, nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? Status{} : failed();
}

Status SqliteStore::prepare(const char* sql, Statement* statement) {
  sqlite3_stmt* raw = nullptr;
  const int code = sqlite3_prepare_v2(db_.get(), sql, -1, &raw, nullptr);
  statement->reset(raw);
  return code == SQLITE_OK ? Status{} : failed();
}

base::Result<std::int64_t> SqliteStore::number(const char* sql) {
  Statement statement;
  if (Status status = prepare(sql, &statement); !status.ok()) return status;
  if (sqlite3_step(statement.get()) != SQLITE_ROW) return failed();
  return sqlite3_column_int64(statement.get(), 0);
}

Status SqliteStore::open() {
  sqlite3_extended_result_codes(db_.get(), 1);
  if (sqlite3_db_readonly(db_.get(), "main") != 0) {  // SQLite's silent second choice
    return {Code::kIo,
            base::cat("journal ", path_, ": is read-only; give this user the right to write it")};
  }
  for (const char* sql :
       {JCCL_PLANTED("two-masters-on-one-file") ? "PRAGMA locking_mode=NORMAL"
                                                : "PRAGMA locking_mode=EXCLUSIVE",
        "PRAGMA synchronous=FULL", "PRAGMA trusted_schema=OFF", "BEGIN IMMEDIATE"}) {
    if (Status status = execute(sql); !status.ok()) return status;
  }
  // A foreign file is recognised before anything in it is changed, its journal mode included.
  if (Status status = adopt(); !status.ok()) return status;
  if (Status status = execute("COMMIT"); !status.ok()) return status;
  if (Status status = execute("PRAGMA journal_mode=WAL"); !status.ok()) return status;
  if (Status status = last_.open(path_ + "-last"); !status.ok()) return status;
  return prepare("INSERT INTO journal(sequence, payload, crc, previous) VALUES(?, ?, ?, ?)",
                 &insert_);
}

Status SqliteStore::adopt() {
  const base::Result<std::int64_t> tables = number("SELECT count(*) FROM sqlite_schema");
  if (!tables.ok()) return tables.status();
  const base::Result<std::int64_t> id = number("PRAGMA application_id");
  if (!id.ok()) return id.status();
  if (id.value() == 0 && tables.value() == 0) return create();
  if (id.value() != kApplicationId && !JCCL_PLANTED("foreign-database-adopted")) {
    return {Code::kDamaged, base::cat("journal ", path_,
                                      ": not a jccl journal (another program's "
                                      "database); name another file")};
  }
  const base::Result<std::int64_t> format = number("PRAGMA user_version");
  if (!format.ok()) return format.status();
  if (format.value() != kFormat && !JCCL_PLANTED("format-not-compared")) {
    return {Code::kVersion,
            base::cat("journal ", path_, ": has file format ", format.value(),
                      "; this master reads format ", kFormat, ": use the jccl that wrote it")};
  }
  return {};
}

Status SqliteStore::create() {
  const std::string sql = base::cat(
      "CREATE TABLE journal(sequence INTEGER PRIMARY KEY, payload BLOB NOT NULL, "
      "crc INTEGER NOT NULL, previous INTEGER NOT NULL);"
      "PRAGMA application_id=",
      kApplicationId, "; PRAGMA user_version=", kFormat);
  return execute(sql.c_str());
}

base::Result<std::vector<wire::Row>> SqliteStore::load() {
  if (!broken_.ok()) return broken_;
  Statement statement;
  const char* sql = "SELECT sequence, payload, crc, previous FROM journal ORDER BY sequence";
  if (Status status = prepare(sql, &statement); !status.ok()) return status;
  std::vector<wire::Row> rows;
  int step = 0;
  while ((step = sqlite3_step(statement.get())) == SQLITE_ROW) {
    wire::Row row;
    row.sequence = static_cast<std::uint64_t>(sqlite3_column_int64(statement.get(), 0));
    const auto* payload = static_cast<const std::uint8_t*>(sqlite3_column_blob(statement.get(), 1));
    const int size = sqlite3_column_bytes(statement.get(), 1);
    if (payload != nullptr) row.payload.assign(payload, payload + size);
    const std::int64_t crc = sqlite3_column_int64(statement.get(), 2);
    row.crc = static_cast<std::uint32_t>(crc);
    if (crc != static_cast<std::int64_t>(row.crc) && !JCCL_PLANTED("wide-crc-taken")) {
      return Status{Code::kDamaged, base::cat("journal ", path_, ": row ", row.sequence,
                                              ": its CRC32C has more than 32 bits")};
    }
    row.previous = static_cast<std::uint64_t>(sqlite3_column_int64(statement.get(), 3));
    rows.push_back(std::move(row));
  }
  if (step != SQLITE_DONE) return failed();
  if (Status status = check_end(rows); !status.ok()) return status;
  return rows;
}

// The rows hold what was acknowledged last, if that is known.
Status SqliteStore::check_end(const std::vector<wire::Row>& rows) const {
  const std::uint64_t told = last_.sequence();
  const std::uint64_t end = rows.empty() ? 0 : rows.back().sequence;
  if (told == 0) return {};
  const std::string cure = base::cat("; restore all files of the journal from one copy, or remove ",
                                     last_.path(), " to go on without the missing rows");
  if (end < told && !JCCL_PLANTED("end-of-journal-not-compared")) {
    return {Code::kDamaged, base::cat("journal ", path_, ": ends at row ", end, ", but row ", told,
                                      " was acknowledged: its end is damaged (", path_,
                                      "-wal?) or missing, or this is an older copy", cure)};
  }
  for (const wire::Row& row : rows) {
    if (row.sequence != told || JCCL_PLANTED("last-row-not-compared") || row.crc == last_.crc())
      continue;
    return {Code::kDamaged, base::cat("journal ", path_, ": row ", told,
                                      " is not the one that was acknowledged", cure)};
  }
  return {};
}

Status SqliteStore::insert(const std::vector<wire::Row>& rows) {
  sqlite3_stmt* statement = insert_.get();
  for (const wire::Row& row : rows) {
    sqlite3_reset(statement);
    sqlite3_bind_int64(statement, 1, static_cast<std::int64_t>(row.sequence));
    // A null pointer would bind NULL, also for an empty blob.
    const void* payload = row.payload.empty() ? "" : static_cast<const void*>(row.payload.data());
    sqlite3_bind_blob64(statement, 2, payload, row.payload.size(), SQLITE_STATIC);
    sqlite3_bind_int64(statement, 3, row.crc);
    sqlite3_bind_int64(statement, 4, static_cast<std::int64_t>(row.previous));
    if (sqlite3_step(statement) != SQLITE_DONE) return failed();
  }
  return {};
}

Status SqliteStore::append(const std::vector<wire::Row>& rows) {
  if (!broken_.ok()) return broken_;
  if (rows.empty()) return {};
  Status status = execute("BEGIN IMMEDIATE");
  if (status.ok()) status = insert(rows);
  sqlite3_reset(insert_.get());
  sqlite3_clear_bindings(insert_.get());
  if (status.ok()) status = execute("COMMIT");
  if (status.ok()) {
    if (!JCCL_PLANTED("acknowledged-not-noted"))
      status = last_.note(rows.back().sequence, rows.back().crc);
    return status.ok() ? status : fail_for_good(std::move(status));
  }
  (void)execute("ROLLBACK");  // SQLite may have done so already
  return fail_for_good(std::move(status));
}

Status SqliteStore::truncate(std::uint64_t last) {
  if (!broken_.ok()) return broken_;
  // No write that was cut short: it had been acknowledged.
  if (last < last_.sequence() && !JCCL_PLANTED("acknowledged-row-cut")) {
    return fail_for_good({Code::kDamaged, base::cat("journal ", path_, ": row ", last + 1,
                                                    " is damaged; restore it from a copy")});
  }
  const std::string sql = base::cat("DELETE FROM journal WHERE sequence > ",
                                    last + (JCCL_PLANTED("truncate-one-too-few") ? 1 : 0));
  Status status = execute(sql.c_str());
  return status.ok() ? status : fail_for_good(std::move(status));
}

std::size_t groups_beside(const std::filesystem::path& run) {
  const std::string begin = run.filename().string() + ".";
  const auto folder = run.has_parent_path() ? run.parent_path() : std::filesystem::path(".");
  std::size_t count = 0;
  std::error_code error;
  for (auto file = std::filesystem::directory_iterator(folder, error);
       !error && file != std::filesystem::directory_iterator(); file.increment(error)) {
    const std::string name = file->path().filename().string();
    count += name.starts_with(begin) && name.ends_with(kGroupEnd);
  }
  return count;
}

base::Result<std::unique_ptr<StateStore>> SqliteStore::of_group(const std::string& name,
                                                                const StoreOptions& options) {
  const std::string file = JCCL_PLANTED("groups-share-a-journal") ? file_of_group(path_, "all")
                                                                  : file_of_group(path_, name);
  std::error_code error;
  if (!std::filesystem::exists(file, error)) {
    const std::size_t journals = groups_beside(path_);
    if (journals >= base::kGroupJournalsMax) return too_many_groups(journals);
  }
  return open_sqlite_store(file, options);
}

}  // namespace

std::string file_of_group(const std::string& path, const std::string& group) {
  return base::cat(path, ".", group, kGroupEnd);
}

std::optional<std::string> sqlite_path(std::string_view where) {
  constexpr std::string_view kSqlite = "sqlite:";
  if (!where.starts_with(kSqlite) || where.size() == kSqlite.size()) return std::nullopt;
  return std::string(where.substr(kSqlite.size()));
}

base::Result<std::unique_ptr<StateStore>> open_sqlite_store(const std::string& path,
                                                            const StoreOptions& options) {
  // SQLite gives names that begin with a colon a meaning of their own.
  const std::string file = path.front() == ':' ? "./" + path : path;
  // A new journal is its owner's to read. One that is there is not opened here: to close it again
  // would give up the locks that this process has on it.
  const int made = JCCL_PLANTED("journal-for-all")
                       ? -1
                       : ::open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (made >= 0) ::close(made);
  sqlite3* raw = nullptr;
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
  const int code = sqlite3_open_v2(file.c_str(), &raw, flags, nullptr);
  Db db(raw);
  if (code != SQLITE_OK) {
    return Status{Code::kIo, base::cat("journal ", path, ": ",
                                       raw == nullptr ? "out of memory" : sqlite3_errmsg(raw))};
  }
  auto store = std::make_unique<SqliteStore>(path, std::move(db));
  if (Status status = store->open(); !status.ok()) return status;
  for (const char* beside : {"", "-wal", "-shm", "-journal", "-last"}) {
    if (!options.make_private) break;
    if (Status kept = make_private("journal", file + beside, options.log); !kept.ok()) return kept;
  }
  return std::unique_ptr<StateStore>(std::move(store));
}

}  // namespace jccl::master
