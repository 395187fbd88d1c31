#include "exchange/call.h"

#include <algorithm>

#include "base/text.h"

namespace jccl::exchange {

using base::cat;

std::string leaf_text(const Leaf& leaf, std::size_t index) {
  std::string text = leaf.path.empty() ? cat("leaf ", index) : leaf.path;
  text += cat(" ", codec::name_of(leaf.dtype), "[");
  if (leaf.shape.empty()) {
    text += cat(leaf.count);
  } else {
    for (std::size_t i = 0; i < leaf.shape.size(); ++i) text += cat(i ? "," : "", leaf.shape[i]);
  }
  return text + "]";
}

std::vector<collective::LeafSpec> specs_of(const std::vector<Leaf>& leaves, const Terms& terms) {
  const bool blocks =
      collective::spec_of(terms.collective).slots == collective::CollectiveSpec::Slots::kInAndOut;
  std::vector<collective::LeafSpec> specs;
  for (const Leaf& leaf : leaves) {
    specs.push_back({leaf.dtype, blocks ? leaf.count / std::max(terms.slots, 1U) : leaf.count});
  }
  return specs;
}

std::uint64_t input_bytes(const Leaf& leaf) {
  return leaf.encoded != nullptr ? leaf.encoded_bytes : leaf.count * codec::size_of(leaf.dtype);
}

}  // namespace jccl::exchange
