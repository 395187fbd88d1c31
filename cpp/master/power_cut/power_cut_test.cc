// The power goes after any operation of a store on its disk, also while it opens what an earlier
// cut has left: what is found then has every acknowledged row and no other. JCCL_CUTS says after
// how many cuts to end, JCCL_SEED where to begin.
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>

#include "base/sanitized.h"
#include "base/text.h"
#include "master/master.h"
#include "master/power_cut/disk.h"
#include "master/raw_peer.h"
#include "master/store.h"
#include "master/test_folder.h"
#include "wire/samples.h"

namespace jccl::master::power_cut {
namespace {

using base::cat;
using Rows = std::vector<wire::Row>;

constexpr std::uint64_t kCuts = base::kSanitized ? 400 : 4000;  // an opening costs much more
// A planted mistake is found within so many; each is found within a twentieth of them.
constexpr std::uint64_t kCutsOfMistakes = 20'000;

std::uint64_t number_of(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

struct Mistakes {                // planted ones
  const char* pragma = nullptr;  // said after the store has opened
  bool told_before_durable = false;
  Lies disk;
};

sqlite3* newest_db = nullptr;  // the store's, as SQLite tells each extension

int on_open(sqlite3* db, char**, const void*) {
  newest_db = db;
  return SQLITE_OK;
}

Rows first_of(const Rows& rows, std::size_t count) {
  return {rows.begin(), rows.begin() + static_cast<long>(count)};
}

class PowerCut : public FolderTest {
 protected:
  PowerCut() : FolderTest(memory_or_disk()) {}
  void SetUp() override {
    for (const char* name : {"run", "left"}) std::filesystem::create_directory(folder_ / name);
    sqlite3_auto_extension(reinterpret_cast<void (*)()>(&on_open));
  }
  void TearDown() override { sqlite3_reset_auto_extension(); }

  static std::string where(const std::filesystem::path& folder) {
    return "sqlite:" + (folder / "run.db").string();
  }
};

// What a store finds, or why it finds nothing.
base::Result<Rows> rows_in(StateStore& store) {
  base::Result<Rows> rows = store.load();
  if (!rows.ok()) return rows;
  const base::Result<wire::Chain> chain = wire::walk(rows.value(), nullptr);
  if (!chain.ok()) return chain.status();
  if (chain.value().cut_rows == 0) return rows;
  return base::Status{base::Code::kDamaged, "the journal's last row is torn"};
}

// Stores that live one after the other on one disk, each until the power goes.
class Lives {
 public:
  Lives(std::filesystem::path root, std::uint64_t seed, Mistakes mistakes)
      : run_(root / "run"), left_(root / "left"), rng_(seed), mistakes_(mistakes) {}

  // What broke first, or nothing after the last life or the last cut.
  std::string go(std::uint64_t lives, std::uint64_t cuts) {
    cuts_left_ = cuts;
    while (lives-- > 0 && cuts_left_ > 0 && wrong_.empty()) live();
    return wrong_;
  }
  std::uint64_t cuts() const { return cuts_; }

 private:
  struct Mark {  // from this operation on
    std::size_t at = 0;
    std::size_t told = 0, asked = 0;  // rows that were acknowledged; handed in
  };

  void live();
  void work();
  bool session();
  void append(StateStore& store);
  void cut_everywhere(const std::vector<Op>& ops);
  void judge(const Image& image, const Mark& mark, std::size_t at);
  void fail(std::string text) {
    if (wrong_.empty()) wrong_ = std::move(text);
  }
  void mark(std::size_t told, std::size_t asked) { marks_.push_back({recorded(), told, asked}); }
  wire::Record next_record();

  const std::filesystem::path run_, left_;
  base::Rng rng_;
  const Mistakes mistakes_;
  Image disk_;        // after the last cut
  Rows rows_, kept_;  // handed in, in this life; found after the last cut
  std::size_t told_ = 0;
  std::vector<Mark> marks_;
  std::unique_ptr<StateStore> open_;
  std::uint64_t cuts_ = 0, cuts_left_ = 0;
  std::string wrong_;
};

void Lives::live() {
  write_folder(run_, disk_);
  record(run_, disk_, mistakes_.disk);
  rows_ = kept_;
  told_ = rows_.size();
  marks_.clear();
  mark(told_, rows_.size());
  for (std::uint64_t sessions = 1 + rng_.below(2); sessions > 0 && wrong_.empty(); --sessions) {
    open_.reset();  // the one before has stopped in peace
    if (!session()) break;
  }
  const std::vector<Op> ops = stop_recording();
  Disk all(disk_);
  for (const Op& op : ops) all.apply(op);
  if (wrong_.empty() && !mistakes_.disk.folder_syncs && all.whole() != read_folder(run_)) {
    fail("the record of the disk is not what the process did");
  }
  open_.reset();
  if (wrong_.empty()) cut_everywhere(ops);
}

bool Lives::session() {
  base::Result<std::unique_ptr<StateStore>> store =
      open_store("sqlite:" + (run_ / "run.db").string());
  if (!store.ok()) return fail("does not open: " + store.status().text), false;
  if (rng_.chance(0.7)) {  // or, as it is, after a thousand pages
    sqlite3_wal_autocheckpoint(newest_db, static_cast<int>(1 + rng_.below(20)));
  }
  if (mistakes_.pragma != nullptr) {
    sqlite3_exec(newest_db, mistakes_.pragma, nullptr, nullptr, nullptr);
  }
  open_ = std::move(store.value());
  const base::Result<Rows> found = rows_in(*open_);
  if (!found.ok()) return fail(found.status().text), false;
  if (found.value() != rows_) return fail("other rows than after the cut"), false;
  for (std::uint64_t appends = rng_.below(12); appends > 0; --appends) append(*open_);
  return true;
}

wire::Record Lives::next_record() {
  if (rows_.empty()) return wire::sample_records()[0];
  const std::vector<wire::Record> samples = wire::sample_records();
  wire::Record record = samples[1 + rng_.below(samples.size() - 1)];
  if (auto* epoch = std::get_if<wire::EpochRecord>(&record)) {
    epoch->reason = cat(rng_.next(), std::string(rng_.below(300), 'x'));  // of this life only
  }
  return record;
}

void Lives::append(StateStore& store) {
  wire::ChainWriter writer =
      rows_.empty() ? wire::ChainWriter() : wire::walk(rows_, nullptr).value().writer;
  Rows fresh;
  for (std::uint64_t count = 1 + (rng_.chance(0.2) ? rng_.below(60) : 0); count > 0; --count) {
    fresh.push_back(writer.append(next_record()));
    rows_.push_back(fresh.back());
  }
  if (mistakes_.told_before_durable) told_ = rows_.size();
  mark(told_, rows_.size());
  if (const base::Status status = store.append(fresh); !status.ok()) return fail(status.text);
  told_ = rows_.size();
  mark(told_, rows_.size());
}

void Lives::cut_everywhere(const std::vector<Op>& ops) {
  Disk disk(disk_);
  const std::size_t next = rng_.below(ops.size() + 1);  // the cut that the next life begins with
  Image follows;
  Rows follows_rows;
  std::size_t mark = 0;
  for (std::size_t at = 0; at <= ops.size() && cuts_left_ > 0; ++at) {
    if (at > 0) disk.apply(ops[at - 1]);
    while (mark + 1 < marks_.size() && marks_[mark + 1].at <= at) ++mark;
    const Image image = disk.after_cut(rng_);
    judge(image, marks_[mark], at);
    if (!wrong_.empty()) return;
    if (at == next) follows = image, follows_rows = kept_;
  }
  disk_ = std::move(follows);
  kept_ = std::move(follows_rows);
}

void Lives::judge(const Image& image, const Mark& mark, std::size_t at) {
  ++cuts_, --cuts_left_;
  write_folder(left_, image);
  const std::string name = cat("cut after operation ", at, ", ", mark.told, " rows acknowledged, ",
                               mark.asked, " handed in: ");
  auto store = open_store("sqlite:" + (left_ / "run.db").string());
  if (!store.ok()) return fail(name + store.status().text);
  const base::Result<Rows> found = rows_in(*store.value());
  if (!found.ok()) return fail(name + found.status().text);
  const std::size_t count = found.value().size();
  if (count != mark.told && count != mark.asked) return fail(cat(name, count, " are there"));
  if (found.value() != first_of(rows_, count)) return fail(name + "another history is there");
  kept_ = found.value();
  wire::ChainWriter writer =
      kept_.empty() ? wire::ChainWriter() : wire::walk(kept_, nullptr).value().writer;
  const base::Status goes_on = store.value()->append({writer.append(wire::sample_records()[0])});
  if (!goes_on.ok()) fail(name + goes_on.text);
}

struct Search {
  std::string wrong;
  std::uint64_t cuts = 0, seed = 0;
};

Search search(const std::filesystem::path& root, std::uint64_t cuts, const Mistakes& mistakes) {
  Search result;
  result.seed = number_of("JCCL_SEED", 1);
  for (;; ++result.seed) {
    Lives lives(root, result.seed, mistakes);
    result.wrong = lives.go(4, cuts - result.cuts);
    result.cuts += lives.cuts();
    if (!result.wrong.empty() || result.cuts >= cuts) return result;
  }
}

TEST_F(PowerCut, every_acknowledged_row_is_there_and_no_other) {
  const Search search_ = search(folder_, number_of("JCCL_CUTS", kCuts), {});
  EXPECT_EQ(search_.wrong, "") << "JCCL_SEED=" << search_.seed;
  std::printf("%llu cuts, seeds up to %llu\n", static_cast<unsigned long long>(search_.cuts),
              static_cast<unsigned long long>(search_.seed));
}

// The mistakes that this test is for, planted: each is found.
TEST_F(PowerCut, planted_mistakes_are_found) {
  Mistakes off, normal, early, no_folder;
  off.pragma = "PRAGMA synchronous=OFF";
  normal.pragma = "PRAGMA synchronous=NORMAL";
  early.told_before_durable = true;
  no_folder.disk.folder_syncs = true;
  for (const auto& [name, mistakes] :
       {std::pair<const char*, const Mistakes*>{"synchronous=OFF", &off},
        {"synchronous=NORMAL", &normal},
        {"acknowledged before the commit", &early},
        {"the folder is not synced", &no_folder}}) {
    const Search found = search(folder_, kCutsOfMistakes, *mistakes);
    EXPECT_NE(found.wrong, "") << name;
    std::printf("%s: after %llu cuts: %s\n", name, static_cast<unsigned long long>(found.cuts),
                found.wrong.c_str());
  }
}

// ---- a whole master ----------------------------------------------------------------------------

struct Told {  // what a peer knows, and how many operations the disk had seen by then
  std::size_t at = 0;
  std::uint64_t epoch = 0;
  std::optional<base::Attempt> committed;
};

// The next message of this kind, and what is told on the way.
template <typename T>
std::optional<T> hear(Member& member, std::vector<Told>* told) {
  while (const auto message = member.socket.next()) {
    Told one{recorded(), 0, std::nullopt};
    if (const auto* roster = std::get_if<wire::Roster>(&*message)) one.epoch = roster->epoch;
    if (const auto* start = std::get_if<wire::Start>(&*message)) one.epoch = start->attempt.epoch;
    if (const auto* outcome = std::get_if<wire::Outcome>(&*message)) {
      if (outcome->verdict == wire::Verdict::kCommitted) one.committed = outcome->attempt;
    }
    told->push_back(one);
    if (const auto* wanted = std::get_if<T>(&*message)) return *wanted;
  }
  return std::nullopt;
}

bool holds(const Rows& rows, const Told& told) {
  const base::Result<wire::Chain> chain = wire::walk(rows, nullptr);
  if (!chain.ok()) return false;
  std::uint64_t epoch = 0;
  bool committed = !told.committed.has_value();
  for (const wire::Record& record : chain.value().records) {
    if (const auto* one = std::get_if<wire::EpochRecord>(&record)) epoch = one->epoch;
    const auto* commit = std::get_if<wire::CommitRecord>(&record);
    committed = committed || (commit != nullptr && commit->attempt == told.committed);
  }
  return committed && epoch >= told.epoch;
}

// Each sync takes 3 ms, so that what is told too early is heard before it is durable.
TEST_F(PowerCut, what_a_master_has_told_is_there_after_a_cut_at_that_moment) {
  record(folder_ / "run", {});
  slow_syncs(3000);
  MasterConfig config;
  config.store = where(folder_ / "run");
  config.start_peers = 2;
  config.log = [](const std::string&) {};
  auto master = std::move(Master::start(config).value());
  Member a(master->address(), 11), b(master->address(), 22, {}, true);
  std::vector<Told> told{{recorded(), a.welcome->epoch, {}}, {recorded(), b.welcome->epoch, {}}};
  for (std::uint64_t n = 1; n <= 12; ++n) {
    for (Member* member : {&a, &b}) member->ready("grads", n);
    for (Member* member : {&a, &b}) {
      const auto start = hear<wire::Start>(*member, &told);
      ASSERT_TRUE(start) << n;
      member->socket.send(wire::Done{start->attempt, {3, 4}});
    }
    for (Member* member : {&a, &b}) ASSERT_TRUE(hear<wire::Outcome>(*member, &told)) << n;
  }
  const std::vector<Op> ops = stop_recording();
  slow_syncs(0);
  master.reset();
  base::Rng rng(number_of("JCCL_SEED", 1));
  std::size_t commits = 0;
  for (const Told& one : told) {
    commits += one.committed.has_value();
    Disk disk({});
    for (std::size_t i = 0; i < one.at; ++i) disk.apply(ops[i]);
    for (int cut = 0; cut < 4; ++cut) {
      write_folder(folder_ / "left", disk.after_cut(rng));
      auto store = open_store(where(folder_ / "left"));
      ASSERT_TRUE(store.ok()) << store.status().text;
      const base::Result<Rows> rows = rows_in(*store.value());
      ASSERT_TRUE(rows.ok()) << rows.status().text;
      EXPECT_TRUE(holds(rows.value(), one))
          << "after operation " << one.at << " a peer knew of epoch " << one.epoch
          << (one.committed ? " and a commit" : "");
    }
  }
  EXPECT_EQ(commits, 24U);
}

}  // namespace
}  // namespace jccl::master::power_cut
