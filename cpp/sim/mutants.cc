#include "sim/mutants.h"

#include <algorithm>
#include <charconv>

#include "base/text.h"

namespace jccl::sim {
namespace {

constexpr MutantRow kRows[] = {
    {"commit-told-early"},
    {"epoch-told-early"},
    {"torn-tail-left"},
    {"damage-taken-for-tear"},
    {"own-state-not-compared"},
    {"acknowledged-one-too-many"},
    {"lost-frames-forgotten"},
    {"chunk-check-not-compared"},
    {"weight-of-the-first"},
    {"sums-by-arrival"},
    {"stale-frame-accepted"},
    {"written-before-commit"},
    {"served-from-the-output"},
    {"commit-under-frames"},
    {"frames-outlive-attempt"},
    {"own-guard-not-asked"},
    {"mean-of-peers"},
    {"last-chunk-cut-short"},
    {"partial-forgotten"},
    {"copies-not-dropped"},
    {"early-frame-drained"},
    {"results-let-go-early"},
    {"swept-while-serving"},
    {"own-pause-counts"},
    {"arrivals-not-noted"},
    {"unnamed-frames-forgotten"},
    {"forgotten-sent-again"},
    {"late-frames-wait"},
    {"idle-stripes-say-nothing"},
    {"new-stripes-stand-by"},
    {"added-contributions-kept"},
    {"a-word-said-twice-counts-twice"},
    {"damaged-frame-counts"},
    {"served-without-end"},
    {"written-over-the-input"},
    {"commit-leaves-the-last-chunk"},
    {"done-before-the-last-chunk"},
    {"digest-of-one-chunk"},
    {"received-digest-left-out"},
    {"partial-stays-here"},
    {"receivers-get-no-result"},
    {"first-chunk-sent-for-all"},
    {"own-weight-left-out"},
    {"divided-at-each-step"},
    {"last-chunk-sent-at-once"},
    {"receivers-decide"},
    {"too-few-commit"},
    {"unequal-commit"},
    {"first-done-commits"},
    {"dead-contributor-left-out"},
    {"zero-weight-contributes"},
    {"any-attempt-fits"},
    {"attempts-reused"},
    {"receiver-holds-up"},
    {"committed-told-aborted"},
    {"expired-told-aborted"},
    {"running-told-aborted"},
    {"unknown-attempt-dropped"},
    {"result-of-another-shard"},
    {"new-call-in-old-attempt"},
    {"ready-kept-over-abort"},
    {"old-ready-dropped"},
    {"old-number-accepted"},
    {"start-before-roster"},
    {"fence-not-checked"},
    {"fences-forgotten"},
    {"ghost-keeps-its-seat"},
    {"life-of-another-key"},
    {"seat-of-another-key"},
    {"observers-hear-of-members"},
    {"ids-given-again"},
    {"silence-is-no-death"},
    {"own-pause-held-against-peers"},
    {"restart-gives-no-grace"},
    {"known-by-its-hello"},
    {"who-has-no-state-is-late"},
    {"resume-not-needed"},
    {"skipped-for-ever"},
    {"joiner-one-behind"},
    {"match-outlives-commit"},
    {"stranger-names-the-digest"},
    {"receivers-hold-nothing"},
    {"waits-for-one-who-is-behind"},
    {"born-again"},
    {"hold-never-ends"},
    {"door-never-shut"},
    {"no-hold-for-the-skipped"},
    {"held-round-says-nothing"},
    {"start-of-an-ended-call"},
    {"outcome-of-another-attempt"},
    {"visible-at-done"},
    {"guard-weight-kept"},
    {"result-not-compared"},
    {"doubt-presumes-commit"},
    {"doubt-told-as-failure"},
    {"late-askers-end-by-deadline"},
    {"deadline-timer-lost"},
    {"calls-end-before-half"},
    {"deadlines-teach-nothing"},
    {"deadlines-too-long"},
    {"sync-deadlines-too-long"},
    {"doubt-comes-late"},
    {"end-of-call-not-named"},
    {"old-master-followed"},
    {"second-source-is-taken"},
    {"unsynchronised-calls-are-made"},
};

}  // namespace

std::span<const MutantRow> mutants() { return kRows; }

const MutantRow* find_mutant(std::string_view name) {
  for (const std::span<const MutantRow> rows : {mutants(), hostile_mutants()}) {
    const auto found = std::find_if(rows.begin(), rows.end(),
                                    [&](const MutantRow& row) { return row.name == name; });
    if (found != rows.end()) return &*found;
  }
  return nullptr;
}

base::Result<Catches> read_catches(std::string_view text) {
  Catches catches;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, std::min(end, text.find('#')));
    text.remove_prefix(std::min(text.size(), end + 1));
    if (line.find_first_not_of(' ') == std::string_view::npos) continue;
    const std::size_t first = line.find(' '), second = line.find(' ', first + 1);
    Catch entry;
    const char* digits = line.data() + first + 1;
    const bool whole = first != line.npos && second != line.npos;
    if (!whole || std::from_chars(digits, line.data() + second, entry.seed).ptr == digits) {
      return base::Status{base::Code::kInvalid,
                          base::cat("not \"name seed promise\": ", std::string(line))};
    }
    entry.promise = line.substr(second + 1);
    catches[std::string(line.substr(0, first))] = entry;
  }
  return catches;
}

std::string write_catches(const Catches& catches) {
  std::string text =
      "# The seed that caught each planted bug last, and the promise that was broken.\n"
      "# Written by: jccl-sim --mutants [--hostile] --rewrite FILE\n";
  for (const auto& [name, entry] : catches) {
    text += base::cat(name, " ", entry.seed, " ", entry.promise, "\n");
  }
  return text;
}

}  // namespace jccl::sim
