// Names and parameters of the aggregators, and the texts of the refusals.
#include "collective/aggregator.h"

#include <algorithm>
#include <charconv>
#include <iterator>

#include "base/planted.h"
#include "base/text.h"

namespace jccl::collective {
namespace {

using base::cat;
using base::Code;

struct Row {
  std::string_view name;
  std::string_view parameter;  // empty: it has none
  double usual = 0;
  double most = 0;  // the parameter is above 0 and no more than this
};

// A share of a half would drop everything; the next number below it drops all but the middle ones.
constexpr double kTrimMost = 0x1.fffffffffffffp-2;
constexpr Row kRows[] = {{"mean", "", 0, 0},
                         {"trimmed_mean", "trim", 0.25, kTrimMost},
                         {"median", "", 0, 0},
                         {"centered_clip", "radius", 1, 1e6},
                         {"norm_limit", "times", 2, 1e6}};
static_assert(std::size(kRows) == kAggregatorNumberMax + 1);

const Row* row_of(AggregatorId id) {
  const auto number = static_cast<std::size_t>(id);
  return number < std::size(kRows) ? &kRows[number] : nullptr;
}

// The shortest decimal that reads back as the same number.
std::string number_text(double value) {
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof(text), value);
  return error == std::errc{} ? std::string(text, end) : "?";
}

}  // namespace

std::string name_of(const Aggregator& aggregator) {
  const Row* row = row_of(aggregator.id);
  if (row == nullptr) return "?";
  std::string text(row->name);
  if (!row->parameter.empty()) {
    text += cat(":", row->parameter, "=") + number_text(aggregator.parameter);
  }
  return text;
}

std::optional<Aggregator> aggregator_from_name(std::string_view name) {
  const std::size_t colon = std::min(name.find(':'), name.size());
  const auto* row = std::find_if(std::begin(kRows), std::end(kRows),
                                 [&](const Row& r) { return r.name == name.substr(0, colon); });
  if (row == std::end(kRows)) return std::nullopt;
  Aggregator aggregator{static_cast<AggregatorId>(row - std::begin(kRows)), row->usual};
  std::string_view rest = name.substr(colon);
  if (!rest.empty()) {
    const std::string key = cat(":", row->parameter, "=");
    if (row->parameter.empty() || rest.substr(0, key.size()) != key) return std::nullopt;
    rest.remove_prefix(key.size());
    const auto [end, error] =
        std::from_chars(rest.data(), rest.data() + rest.size(), aggregator.parameter);
    if (error != std::errc{} || end != rest.data() + rest.size()) return std::nullopt;
  }
  if (!check(aggregator).ok()) return std::nullopt;
  return aggregator;
}

base::Status check(const Aggregator& aggregator) {
  const Row* row = row_of(aggregator.id);
  if (row == nullptr) return {Code::kInvalid, "unknown aggregator"};
  if (row->parameter.empty()) {
    if (aggregator.parameter == 0) return {};
    return {Code::kInvalid, cat("aggregator ", row->name, " has no parameter")};
  }
  if (aggregator.parameter > 0 && aggregator.parameter <= row->most) return {};
  if (JCCL_PLANTED("trim-of-everything-taken")) return {};
  return {
      Code::kInvalid,
      cat("aggregator ", row->name, ": ", row->parameter, " ", number_text(aggregator.parameter),
          row->most < 1 ? " is not above 0 and below 0.5" : " is not above 0 and at most 1e6")};
}

base::Status check_aggregator(const Aggregator& aggregator, Op op, codec::Dtype dtype,
                              const codec::Codec& codec) {
  if (!is_robust(aggregator)) return {};
  const auto refused = [&](const std::string& why) {
    return base::Status{Code::kInvalid, cat("aggregator ", name_of(aggregator), ": ", why)};
  };
  if (op != Op::kMean) return refused(cat("it takes the place of op mean, not of ", name_of(op)));
  if (!codec::is_float(dtype)) {
    return refused(cat("it applies to floating-point leaves, not to ", codec::name_of(dtype)));
  }
  if (codec::is_sparse(codec.id) && !JCCL_PLANTED("sparse-contributions-ranked")) {
    return refused(cat("with codec ", codec::name_of(codec.id),
                       " most peers leave each element out, so its median is 0; use a dense "
                       "codec, for example int8, int4 or stat2"));
  }
  return {};
}

base::Status check_aggregator(const Aggregator& aggregator, PlanKind kind) {
  const bool whole = kind == PlanKind::kDirect || kind == PlanKind::kExchange;
  if (!is_robust(aggregator) || whole || JCCL_PLANTED("robust-in-a-ring")) return {};
  return {Code::kInvalid, cat("aggregator ", name_of(aggregator), " in plan ", name_of(kind),
                              ": there nobody sees all contributions; use plan auto, direct or "
                              "exchange")};
}

}  // namespace jccl::collective
