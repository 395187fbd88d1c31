#include "base/quorum.h"

#include <cmath>

#include "base/number.h"
#include "base/planted.h"
#include "base/text.h"

namespace jccl::base {

std::optional<Quorum> quorum_of(double share, double grace_s) {
  if (!(share > 0.5 && share < 1)) return std::nullopt;
  if (!(grace_s >= 0 && grace_s <= static_cast<double>(kGraceMax / kSecond))) return std::nullopt;
  Quorum quorum;
  quorum.share = static_cast<std::uint32_t>(std::lround(share * 1000));
  quorum.grace = std::llround(grace_s * 1000) * kMillisecond;
  if (!is_usable(quorum)) return std::nullopt;  // 0.5001
  return quorum;
}

std::optional<Quorum> quorum_from_text(std::string_view text) {
  if (text.empty()) return Quorum{};
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const auto share = decimal(text.substr(0, colon)), grace = decimal(text.substr(colon + 1));
  return share && grace ? quorum_of(*share, *grace) : std::nullopt;
}

std::string to_text(const Quorum& quorum) {
  if (!quorum.asked()) return "";
  return cat(quorum.share / 1000.0, ":", static_cast<double>(quorum.grace) / kSecond);
}

}  // namespace jccl::base
