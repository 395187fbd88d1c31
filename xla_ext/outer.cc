#include "outer.h"

#include "float_mode.h"

namespace jccl::xla_ext {

// Plain loops: element-wise code without contraction gives the same bits at every vector width, so
// one translation unit is enough and memory, not arithmetic, bounds the speed.
void outer_step(OuterKind kind, const OuterRates& rates, const OuterLeaf& leaf) {
  const ScopedFloatMode mode;
  const float lr = rates.learning_rate, mu = rates.momentum;
  switch (kind) {
    case OuterKind::kSgd:
      for (std::size_t i = 0; i < leaf.count; ++i) {
        leaf.anchor_out[i] = leaf.anchor[i] - lr * leaf.delta[i];
      }
      return;
    case OuterKind::kMomentum:
      for (std::size_t i = 0; i < leaf.count; ++i) {
        const float m = mu * leaf.momentum[i] + leaf.delta[i];
        leaf.momentum_out[i] = m;
        leaf.anchor_out[i] = leaf.anchor[i] - lr * m;
      }
      return;
    case OuterKind::kNesterov:
      for (std::size_t i = 0; i < leaf.count; ++i) {
        const float m = mu * leaf.momentum[i] + leaf.delta[i];
        leaf.momentum_out[i] = m;
        leaf.anchor_out[i] = leaf.anchor[i] - lr * (leaf.delta[i] + mu * m);
      }
      return;
  }
}

}  // namespace jccl::xla_ext
