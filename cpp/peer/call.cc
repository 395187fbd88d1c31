// Checks and descriptors of calls.
#include "peer/call.h"

#include <cstring>

#include "base/limits.h"
#include "base/planted.h"
#include "base/text.h"
#include "base/utf8.h"
#include "codec/encoded.h"
#include "codec/roundtrip.h"
#include "collective/audit.h"
#include "collective/hint.h"
#include "collective/kernels/kernels.h"
#include "collective/plan.h"
#include "snapshot/digest.h"

namespace jccl::peer {
namespace {

using base::cat;
using base::Code;
using base::Status;
using collective::CollectiveSpec;

constexpr std::size_t kLeavesTextMax = base::kSummaryBytesMax / 2;  // the call's other words follow

void write_leaves(base::Writer& out, const std::vector<Leaf>& leaves) {
  out.u32(static_cast<std::uint32_t>(leaves.size()));
  for (const Leaf& leaf : leaves) {
    out.u8(static_cast<std::uint8_t>(leaf.dtype));
    out.u64(leaf.count);
    out.u32(static_cast<std::uint32_t>(leaf.shape.size()));
    for (std::uint64_t extent : leaf.shape)
      out.u64(JCCL_PLANTED("shape-not-in-descriptor") ? 1 : extent);
    // Names too, where the caller has some: leaves of one shape in another order are other leaves.
    out.blob({reinterpret_cast<const std::uint8_t*>(leaf.path.data()),
              JCCL_PLANTED("path-not-in-descriptor") ? 0 : leaf.path.size()},
             leaf.path.size());
  }
}

std::string leaves_text(const std::vector<Leaf>& leaves) {
  std::string text = cat(leaves.size(), leaves.size() == 1 ? " leaf" : " leaves");
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const std::string leaf = cat(i == 0 ? ": " : ", ", leaf_text(leaves[i], i));
    if (text.size() + leaf.size() > kLeavesTextMax) return text + ", …";
    text += leaf;
  }
  return text;
}

std::string aggregator_text(const collective::Aggregator& aggregator) {
  const bool robust = collective::is_robust(aggregator);
  return robust ? cat(", aggregator ", collective::name_of(aggregator)) : "";
}

std::string quorum_text(const base::Quorum& quorum) {
  return quorum.asked() ? cat(", quorum ", base::to_text(quorum), " s") : "";
}

std::uint32_t contributors_max(const RoundOptions& options) {
  const CollectiveSpec& spec = collective::spec_of(options.collective);
  if (spec.contributors == CollectiveSpec::Contributors::kOne) return 1;
  return spec.has_slots() ? options.slots : 0;
}

collective::HintKind hint_of(const RoundOptions& options) {
  return collective::hint_for(collective::spec_of(options.collective), options.plan,
                              collective::is_robust(options.aggregator), options.codec);
}

Status check_codec(const RoundOptions& options) {
  const Status parameters = codec::check(options.codec);
  if (!parameters.ok()) return parameters;
  const bool ring = options.plan == "ring";
  return ring ? collective::check_codec(collective::PlanKind::kRing, options.codec) : Status{};
}

Status check_aggregator(const RoundOptions& options) {
  const collective::Aggregator& aggregator = options.aggregator;
  if (const Status parameter = collective::check(aggregator); !parameter.ok()) return parameter;
  if (!collective::is_robust(aggregator)) return {};
  if (!collective::spec_of(options.collective).aggregators) {
    return {Code::kInvalid, cat("aggregator ", collective::name_of(aggregator),
                                " is for all_reduce, not for ", name_of(options.collective))};
  }
  const bool ring = options.plan == "ring";
  return ring ? collective::check_aggregator(aggregator, collective::PlanKind::kRing) : Status{};
}

Status check_quorum(const RoundOptions& options) {
  const CollectiveSpec& spec = collective::spec_of(options.collective);
  if (!options.quorum.asked() || spec.quorums) return {};
  return {Code::kInvalid, cat("a quorum is for all_reduce and all_gather; ", spec.name,
                              " waits for everybody: leave the quorum out")};
}

// Where inputs have a leading axis of slots: whether the leaf has it.
Status check_blocks(const Leaf& leaf, std::size_t index, const RoundOptions& options) {
  const bool whole = leaf.count % options.slots == 0;
  const bool axis = leaf.shape.empty() || leaf.shape.front() == options.slots;
  if ((whole && axis) || JCCL_PLANTED("blocks-of-any-size")) return {};
  return {Code::kInvalid, cat(leaf_text(leaf, index), ": ", name_of(options.collective),
                              " with slots=", options.slots, " takes arrays whose first axis is ",
                              options.slots, " long: one block for each slot")};
}

// `bytes`: of all inputs.
Status check_slots(const std::vector<Leaf>& leaves, const RoundOptions& options,
                   std::uint64_t bytes) {
  const CollectiveSpec& spec = collective::spec_of(options.collective);
  if (!spec.has_slots()) return {};
  if (options.slots == 0) {
    return {Code::kInvalid,
            cat(spec.name, " with slots=0; give it one slot or more for each contributor")};
  }
  if (spec.slots == CollectiveSpec::Slots::kInAndOut) {
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      if (const Status blocks = check_blocks(leaves[i], i, options); !blocks.ok()) return blocks;
    }
    return {};
  }
  if (bytes > base::kRoundBytesMax / options.slots && !JCCL_PLANTED("gather-size-not-bounded")) {
    return {Code::kLimit, cat(options.slots, " slots of ", bytes, " bytes; at most ",
                              base::kRoundBytesMax, " bytes in one round")};
  }
  return {};
}

// Of a feed only what needs no look at the bytes; an attempt looks at them when they are here.
Status check_encoded(const Leaf& leaf, const RoundOptions& options) {
  if (leaf.encoded == nullptr) return {};
  const codec::Codec& codec = options.codec;
  if (options.feed) {
    return codec::check_encoded_size(codec, leaf.dtype, leaf.encoded_bytes, leaf.count);
  }
  return codec::check_encoded(codec, leaf.dtype, leaf.encoded, leaf.encoded_bytes, leaf.count);
}

}  // namespace

Status check_tag(const base::Tag& tag) {
  if (!tag.empty() && tag.size() <= base::kTagBytesMax + (JCCL_PLANTED("long-tag-taken") ? 1 : 0) &&
      base::is_utf8(tag))
    return {};
  return {Code::kInvalid, cat("a tag has 1 to ", base::kTagBytesMax, " bytes of UTF-8")};
}

Status check_call(const std::vector<Leaf>& leaves, const RoundOptions& options) {
  if (Status status = check_tag(options.tag); !status.ok()) return status;
  if (leaves.size() > base::kLeavesMax) {
    return {Code::kLimit, cat(leaves.size(), " leaves; at most ", base::kLeavesMax)};
  }
  if (!base::is_usable_weight(options.weight)) {
    return {Code::kInvalid, cat("weight ", options.weight, " is neither 0 nor between ",
                                base::kWeightMin, " and ", base::kWeightMax)};
  }
  if (options.plan != "" && options.plan != "auto" && options.plan != "direct" &&
      options.plan != "ring" && options.plan != "exchange" &&
      options.plan != collective::kFastestPlan) {
    return {Code::kInvalid,
            cat("unknown plan '", options.plan, "'; use auto, fastest, direct, exchange or ring")};
  }
  const Status codec = check_codec(options);
  if (!codec.ok()) return codec;
  if (const Status aggregator = check_aggregator(options); !aggregator.ok()) return aggregator;
  if (const Status quorum = check_quorum(options); !quorum.ok()) return quorum;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const Leaf& leaf = leaves[i];
    const std::size_t size = codec::size_of(leaf.dtype);
    if (size == 0) return {Code::kInvalid, cat(leaf_text(leaf, i), ": unknown dtype")};
    if (leaf.count > base::kRoundBytesMax / size) {
      return {Code::kLimit,
              cat(leaf_text(leaf, i), ": more than ", base::kRoundBytesMax, " bytes")};
    }
    bytes += leaf.count * size;
    if (leaf.count > 0 && !JCCL_PLANTED("no-input-taken") && leaf.in == nullptr &&
        leaf.encoded == nullptr) {
      return {Code::kInvalid, cat(leaf_text(leaf, i), ": no input memory")};
    }
    const Status supported = collective::check_supported(options.op, leaf.dtype, options.codec);
    if (!supported.ok()) {
      return {supported.code, cat(leaf_text(leaf, i), ": ", supported.text)};
    }
    const Status ranked =
        collective::check_aggregator(options.aggregator, options.op, leaf.dtype, options.codec);
    if (!ranked.ok()) return {ranked.code, cat(leaf_text(leaf, i), ": ", ranked.text)};
    if (options.weight != 0) {
      const Status weight = collective::check_weight(options.op, leaf.dtype, options.weight);
      if (!weight.ok()) return {weight.code, cat(leaf_text(leaf, i), ": ", weight.text)};
    }
    const Status encoded = check_encoded(leaf, options);
    if (!encoded.ok()) return {encoded.code, cat(leaf_text(leaf, i), ": ", encoded.text)};
  }
  if (bytes > base::kRoundBytesMax) {
    return {Code::kLimit, cat(bytes, " bytes in one round; at most ", base::kRoundBytesMax)};
  }
  return check_slots(leaves, options, bytes);
}

Status check_feed(const std::vector<Leaf>& leaves, const std::shared_ptr<StreamedInput>& feed,
                  bool stage) {
  if (!feed) return {};
  if (stage)
    return {Code::kInvalid, "a staged round copies its inputs at its start, so it takes no feed"};
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const Leaf& leaf = leaves[i];
    bytes += input_bytes(leaf);
    const void* in = leaf.encoded != nullptr ? leaf.encoded : leaf.in;
    if (leaf.out == nullptr || leaf.out != in) continue;
    return {Code::kInvalid, cat(leaf_text(leaf, i),
                                ": the feed would overwrite the result; give the result memory "
                                "apart from the input")};
  }
  if (bytes <= feed->bytes() && (JCCL_PLANTED("feed-size-not-compared") || bytes == feed->bytes()))
    return {};
  return {Code::kInvalid,
          cat("the feed has ", feed->bytes(), " bytes, but the leaves have ", bytes)};
}

bool has_output_of_its_own(const RoundOptions& options) {
  return collective::spec_of(options.collective).slots == CollectiveSpec::Slots::kOut;
}

std::size_t output_bytes(const RoundOptions& options, const Leaf& leaf) {
  const std::size_t bytes = leaf.count * codec::size_of(leaf.dtype);
  return has_output_of_its_own(options) ? bytes * options.slots : bytes;
}

Status roundtrip(const Leaf& leaf, const RoundOptions& options, bool residual) {
  const Status parameters = codec::check(options.codec);
  if (!parameters.ok()) return parameters;
  const Status supported =
      collective::check_supported(collective::Op::kSum, leaf.dtype, options.codec);
  if (!supported.ok()) return supported;
  if (options.codec.stochastic && !JCCL_PLANTED("stochastic-residual-taken")) {
    return {Code::kInvalid,
            "a stochastic codec has another error in each round; use the codec without it"};
  }
  if (leaf.count > 0 && (leaf.in == nullptr || leaf.out == nullptr)) {
    return {Code::kInvalid, "the array has elements, but its in or out is NULL"};
  }
  if (residual) {
    codec::residual(options.codec, leaf.dtype, leaf.in, leaf.count, leaf.out);
  } else {
    codec::roundtrip(options.codec, leaf.dtype, leaf.in, leaf.count, leaf.out);
  }
  return {};
}

void keep_input(const RoundOptions& options, const Leaf& leaf) {
  const std::size_t bytes = leaf.count * codec::size_of(leaf.dtype);
  const bool fits = !has_output_of_its_own(options) && !options.feed;
  if (!options.out_private || !fits || bytes == 0 || leaf.out == nullptr) return;
  if (leaf.encoded != nullptr) {
    return codec::decode(options.codec, leaf.dtype, leaf.encoded, leaf.count, leaf.out);
  }
  if (leaf.in != nullptr && !JCCL_PLANTED("input-not-kept") && leaf.out != leaf.in)
    std::memcpy(leaf.out, leaf.in, bytes);
}

Descriptor describe_call(const CallRecord& call, std::size_t chunk_bytes) {
  const RoundOptions& o = call.options;
  Descriptor descriptor;
  collective::Hint hint{hint_of(o)};
  for (const collective::LeafSpec& leaf : call.specs) {
    hint.data_bytes += leaf.count * codec::size_of(leaf.dtype);
    hint.encoded_bytes += codec::encoded_bytes(o.codec, leaf.dtype, leaf.count);
    hint.accumulator_bytes += collective::accumulator_bytes(leaf.dtype, leaf.count);
  }
  hint.audit = collective::auditable(call.specs, o.codec, o.aggregator);
  descriptor.hint = collective::encode_hint(hint);
  descriptor.contributors_max = contributors_max(o);
  descriptor.unit_weights = std::any_of(
      call.specs.begin(), call.specs.end(),
      [&](const collective::LeafSpec& leaf) { return !collective::is_weighted(o.op, leaf.dtype); });
  descriptor.quorum = o.quorum;
  base::Writer out;
  out.u8(static_cast<std::uint8_t>(o.collective));
  out.u8(static_cast<std::uint8_t>(o.op));
  out.u8(static_cast<std::uint8_t>(o.codec.id));
  out.u32(o.codec.kept);
  out.u8(o.codec.stochastic ? 1 : 0);
  out.u64(JCCL_PLANTED("codec-seed-not-in-descriptor") ? 0 : o.codec.seed);
  out.u8(static_cast<std::uint8_t>(o.aggregator.id));
  out.f64(JCCL_PLANTED("parameter-not-in-descriptor") ? 0 : o.aggregator.parameter);
  out.u8(o.guard || JCCL_PLANTED("guard-not-in-descriptor") ? 1 : 0);
  out.u32(JCCL_PLANTED("quorum-not-in-descriptor") ? 0 : o.quorum.share);
  out.u64(static_cast<std::uint64_t>(o.quorum.grace));
  out.u32(o.slots);
  out.u64(JCCL_PLANTED("chunk-size-not-in-descriptor") ? 0 : chunk_bytes);
  out.blob(descriptor.hint, base::kPlanBytesMax);
  write_leaves(out, call.leaves);
  descriptor.digest = snapshot::digest_of(out.bytes());
  descriptor.summary =
      cat(name_of(o.collective), " ", collective::name_of(o.op), ", codec ",
          codec::name_of(o.codec), aggregator_text(o.aggregator), o.guard ? "" : ", guard off",
          ", plan ", o.plan.empty() ? "auto" : o.plan, quorum_text(o.quorum), ", chunk ",
          chunk_bytes, ", ", leaves_text(call.leaves));
  return descriptor;
}

Descriptor describe_state(const std::vector<Leaf>& leaves) {
  Descriptor descriptor;
  base::Writer out;
  write_leaves(out, leaves);
  descriptor.digest = snapshot::digest_of(out.bytes());
  descriptor.summary = cat("state, ", leaves_text(leaves));
  return descriptor;
}

}  // namespace jccl::peer
