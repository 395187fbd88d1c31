// A run whose rounds are audited, for tests of the master. Cells are one byte each here, and their
// sum is the sum of the bytes.
#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "protocol/hostile_rig.h"
#include "wire/cell_leaf.h"

namespace jccl::protocol {

inline constexpr std::uint32_t kCells = 3;  // of each owner
inline constexpr base::Duration kCellTime = 150 * base::kMillisecond;
inline constexpr base::Duration kAskTime = 500 * base::kMillisecond;

// What one contributor holds, as an honest one would.
struct Holder {
  std::vector<base::MerkleTree> parts;  // by owner
  base::MerkleTree result;
};

class AuditTest : public HostileMember {
 protected:
  void run_of(std::size_t members, double share = 1) {
    run_of(members, share, HostileMember::options());
  }
  void run_of(std::size_t members, double share, MasterOptions options) {
    options.start_peers = static_cast<std::uint32_t>(members);
    options.audit = share;
    options.auditor.refusal = [this](base::ByteView, base::ByteView) { return refusal_; };
    options.auditor.add_up = [](const ShownCell& cell) {
      Sum sum;
      std::uint8_t all = 0;
      for (std::size_t i = 0; i < cell.parts.size(); ++i) {
        if (cell.parts[i].size() != 1) {
          sum.wrong = i, sum.why = "it is no byte";
          return sum;
        }
        all = static_cast<std::uint8_t>(all + cell.parts[i][0]);
      }
      sum.right = cell.result.size() == 1 && cell.result[0] == all;
      return sum;
    };
    options.auditor.random = [this] { return ++seed_; };
    begin(options, [this](const PlanRequest& request) {
      rings_ = rings_ || request.may_ring;
      return plan(request);
    });
    constexpr const char* kNames[] = {"a", "b", "c", "d", "e", "f", "g"};
    for (std::size_t i = 0; i < members; ++i) join({kNames[i]}), alive_.push_back(last_);
    size_ = members;
  }

  static std::uint8_t part_of(std::size_t i, std::uint32_t cell) {
    return static_cast<std::uint8_t>(10 * i + cell);
  }
  std::uint8_t sum_of(std::uint32_t cell) const {
    std::uint8_t sum = wrong_.count(cell) > 0 ? 1 : 0;  // as its owner says
    for (std::size_t i = 0; i < size_; ++i) sum += part_of(i, cell);
    return sum;
  }
  base::Bytes bytes_of(std::size_t i, std::uint32_t cell, bool result) const {
    if (!result && i == long_) return {1, 2};
    return {result ? sum_of(cell) : part_of(i, cell)};
  }
  wire::Sha256 leaf(std::size_t i, std::uint32_t cell, bool result) const {
    const base::Bytes byte = bytes_of(i, cell, result);
    const wire::PeerId id = result ? 0 : start_.contributors[i].id;
    return wire::cell_leaf(start_.audit, start_.attempt, id, cell, terms_, byte);
  }
  Holder holder(std::size_t i) const {
    Holder holder;
    std::vector<wire::Sha256> results;
    for (std::uint32_t cell = 0; cell < kCells * size_; ++cell)
      results.push_back(leaf(i, cell, true));
    for (std::size_t owner = 0; owner < size_; ++owner) {
      std::vector<wire::Sha256> leaves;
      for (std::uint32_t k = 0; k < kCells; ++k) {
        leaves.push_back(leaf(i, static_cast<std::uint32_t>(kCells * owner) + k, false));
      }
      holder.parts.emplace_back(std::move(leaves));
    }
    holder.result = base::MerkleTree(std::move(results));
    return holder;
  }
  wire::Done done(std::size_t i) const {
    wire::Done done{start_.attempt, {7, 7}};
    done.audit.cells = kCells;
    done.audit.result = holder(i).result.root();
    for (std::size_t other = 0; other < size_; ++other) {
      done.audit.parts.push_back({kCells, holder(i).parts[other].root()});
      done.audit.receipts.push_back(holder(other).parts[i].root());
    }
    return done;
  }
  wire::AuditPart shown(std::size_t i, std::uint32_t cell, bool result = false) const {
    wire::AuditPart part{start_.attempt, cell, result, terms_, {}, {}};
    part.path =
        result ? holder(i).result.path(cell) : holder(i).parts[cell / kCells].path(cell % kCells);
    part.bytes = bytes_of(i, cell, result);
    return part;
  }

  // The effects of the last READY; start_ is what it brought.
  MasterEffects calls(std::uint64_t n = 1, std::size_t members = 0,
                      base::Duration deadline = 1000 * base::kSecond) {
    MasterEffects last;
    for (std::size_t i = 0; i < (members == 0 ? size_ : members); ++i) {
      wire::Ready one = ready("grads", n);
      one.deadline = deadline;
      last = say(conn_[i], one);
    }
    const auto starts = sent<wire::Start>(last);
    if (!starts.empty()) start_ = starts.front();
    return last;
  }
  // … of which one has another deadline.
  void calls_but(std::size_t odd, base::Duration its, base::Duration others,
                 std::uint64_t call = 0) {
    for (std::size_t i = 0; i < size_; ++i) {
      wire::Ready one = ready("grads");
      one.call = call, one.deadline = i == odd ? its : others;
      const auto starts = sent<wire::Start>(say(conn_[i], one));
      if (!starts.empty()) start_ = starts.front();
    }
  }
  MasterEffects all_done() {
    MasterEffects last;
    for (std::size_t i = 0; i < size_; ++i) last = say(conn_[i], done(i));
    return last;
  }
  // Everything that `asked` asks for, but of whom `but` names; and what all of it brings.
  MasterEffects answer(const MasterEffects& asked, std::size_t but = 99) {
    MasterEffects all;
    const auto show = [&](ConnId conn, const wire::AuditPart& part) {
      MasterEffects effects = say(conn, part);
      all.send.insert(all.send.end(), effects.send.begin(), effects.send.end());
      all.history.insert(all.history.end(), effects.history.begin(), effects.history.end());
    };
    for (const MasterSend& one : asked.send) {
      const auto* ask = std::get_if<wire::AuditAsk>(&one.message);
      const auto i =
          static_cast<std::size_t>(std::find(conn_.begin(), conn_.end(), one.conn) - conn_.begin());
      if (ask == nullptr || i == but) continue;
      for (const std::uint32_t cell : ask->cells) {
        show(one.conn, shown(i, cell));
        if (cell / kCells == i) show(one.conn, shown(i, cell, true));
      }
    }
    return all;
  }
  static std::string history(const MasterEffects& effects, const std::string& kind) {
    return history(effects.history, kind);
  }
  static std::string history(const std::vector<HistoryLine>& lines, const std::string& kind) {
    for (const HistoryLine& line : lines) {
      if (line.kind != kind) continue;
      std::string text;
      for (const auto& [key, value] : line.fields) text += key + "=" + value + " ";
      return text;
    }
    return "";
  }
  static bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }

  wire::Start start_;
  std::vector<ConnId> conn_{1, 2, 3, 4, 5, 6, 7};  // by position
  bool rings_ = false;  // the planner might choose one, which has no audit
  std::size_t size_ = 0;
  std::uint64_t seed_ = 0;
  std::string refusal_;
  std::set<std::uint32_t> wrong_;  // cells that their owners add up wrong
  base::Bytes terms_{1, 2, 3};
  std::size_t long_ = 99;  // whose parts have a byte too many
};

}  // namespace jccl::protocol
