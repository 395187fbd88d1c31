// Rows of what peers send to the master. See fields_table.h.
#include "fuzz/fields_table.h"

namespace jccl::fuzz {
namespace {

constexpr std::string_view kAnyBody = "every process that connects, once, as its first message";
constexpr std::string_view kResumed =
    "a life after its Resume; before it: Refuse INVALID, closed; before its Hello: closed";

FieldsOf hello_row() {
  return {"Hello",
          kAnyBody,
          {{"version", "u16", Bend::kNumber, "the master's or newer", "Refuse VERSION, closed"},
           {"oldest", "u16", Bend::kNumber, "the master's or older", "Refuse VERSION, closed"},
           {"run", "run", Bend::kNone, "zeros, or the master's", "Refuse WRONG_RUN, closed"},
           {"incarnation", "u64", Bend::kLife,
            "not 0; of no other seat; not of a life that was evicted",
            "Refuse INVALID or Evicted, closed"},
           {"site", "name 64", Bend::kSite, "1 to 64 bytes of UTF-8; 1,024 sites",
            "Refuse INVALID or LIMIT, closed"},
           {"shard", "u32", Bend::kShards, "below `shards`", "Refuse INVALID, closed"},
           {"shards", "u32", Bend::kShards,
            "1 to 1,024; equal on the site's connected peers; members in all ≤ 1,024",
            "Refuse INVALID, closed; a site that is too many stays outside"},
           {"addresses", "list 8 of name 128", Bend::kAddress, "8 of 128 bytes",
            "decoder refuses, closed"},
           {"start peers", "u32", Bend::kNumber, "a request before the first round, at most 1,024",
            "Refuse INVALID, closed"},
           {"max rate", "u64", Bend::kCounter, "any; shown in `status`", "–"},
           {"day bytes", "u64", Bend::kCounter, "any; shown in `status`", "–"}}};
}

FieldsOf ready_row() {
  return {
      "Ready",
      kResumed,
      {{"round", "round", Bend::kNone,
        "n = committed + 1; of a life that may call: a member, or one without born state tags",
        "below: Moved, or Reject RESYNC on a state tag; above: Reject RESYNC"},
       {"descriptor", "digest", Bend::kDigest, "equal on all members of one shard",
        "Reject MISMATCH that lists what each sent: to the one that most contradict, else to all"},
       {"summary", "text 2048", Bend::kText, "2,048 bytes of UTF-8; for texts only",
        "decoder refuses, closed"},
       {"hint", "blob 16384", Bend::kHint,
        "a hint of this release; equal on all contributors of one shard",
        "Reject INVALID or MISMATCH to all; a plan that does not fit the own call is FAIL INVALID"},
       {"contributors max", "u32", Bend::kNumber, "equal on all contributors of one shard",
        "Reject INVALID or MISMATCH"},
       {"unit weights", "flag", Bend::kFlag, "equal on all contributors of one shard",
        "Reject INVALID or MISMATCH"},
       {"weight", "weight", Bend::kWeight,
        "0, or 1e-12 to 1e12; at most the master's weight_max times the round's median; 1 where "
        "weights are no use",
        "decoder refuses; Reject INVALID to its sender"},
       {"has state", "flag", Bend::kFlag, "as the tag: set on a state tag, clear elsewhere",
        "Reject MISMATCH, or RESYNC before the birth"},
       {"revision", "u64", Bend::kCounter, "committed of the tag", "Reject RESYNC"},
       {"state", "digest", Bend::kDigest, "the journaled digest of the revision", "Reject RESYNC"},
       {"fingerprint", "digest", Bend::kDigest, "equal on all members with state",
        "Reject MISMATCH to whom most contradict, else to all"},
       {"deadline", "i64", Bend::kTime, "0 to ten years", "cut to that; 0: DEADLINE at once"},
       {"call", "u64", Bend::kNumber, "any; echoed to its sender only", "–"},
       {"before", "text 64", Bend::kText,
        "a tag, or none; a READY there of a member that this tag lacks ends the calls that name it",
        "none such: without effect"}}};
}

FieldsOf sync_row() {
  return {"Sync",
          kResumed,
          {{"tag", "tag", Bend::kTag, "1 to 64 bytes; 256 tags; not in use without state",
            "SyncReply refused: INVALID, LIMIT or MISMATCH"},
           {"source", "flag", Bend::kFlag, "counts before the birth of the tag", "ignored"},
           {"fetching", "flag", Bend::kFlag, "of a born tag", "ignored"},
           {"changed", "flag", Bend::kFlag, "of a member", "ignored"},
           {"restore", "wish", Bend::kCode,
            "from a peer that may give orders; 2 and 3: also for a state that is no known revision",
            "SyncReply refused: AUTH or MISMATCH"},
           {"revision", "u64", Bend::kCounter, "any", "not the newest: offered the newest"},
           {"digest", "digest", Bend::kDigest, "that of the newest revision",
            "offered the newest; decides nothing"},
           {"descriptor", "digest", Bend::kDigest, "that of the shard at the tag's birth",
            "SyncReply refused MISMATCH"},
           {"summary", "text 2048", Bend::kText, "2,048 bytes of UTF-8; for texts only",
            "decoder refuses, closed"},
           {"deadline", "i64", Bend::kTime, "0 to ten years", "cut to that; 0: over at once"}}};
}

}  // namespace

const std::vector<FieldsOf>& fields_to_master() {
  static const std::vector<FieldsOf> all = {
      hello_row(),
      {"Resume",
       "a life, once, right after Welcome; a second one: Refuse INVALID, closed",
       {{"unresolved", "list 256 of unresolved", Bend::kList, "256", "decoder refuses, closed"},
        {"held", "list 256 of held", Bend::kList, "256", "decoder refuses, closed"}}},
      ready_row(),
      {"Done",
       kResumed,
       {{"attempt", "attempt", Bend::kAttempt, "a running one that the sender takes part in",
         "answered with the outcome; without a part: when it is decided"},
        {"result", "digest", Bend::kDigest,
         "equal on all contributors of one shard; the first report of a part counts",
         "abort; an outvoted peer is named, and its call ends CORRUPT the second time; without a "
         "majority all calls"},
        {"shares", "list 64 of share", Bend::kList,
         "64, ascending owner; by whose frames, as the plan has it",
         "decoder refuses, closed; from elsewhere: as if empty"},
        {"audit", "audit roots", Bend::kNone, "of a contributor to an audited attempt",
         "ignored where none is audited; zeros where one is: as a result that differs"}}},
      {"Fail",
       kResumed,
       {{"attempt", "attempt", Bend::kAttempt, "a running one that the sender takes part in",
         "answered with the outcome"},
        {"cause", "code", Bend::kCode, "a code",
         "decoder refuses; RESYNC ends the calls of the sender's site; a code that names no cause "
         "aborts, with a retry"},
        {"peer", "u32", Bend::kPeer, "another part of the attempt", "names nobody"},
        {"text", "text 512", Bend::kText, "512 bytes of UTF-8; for texts only",
         "decoder refuses, closed"}}},
      {"Withdraw",
       kResumed,
       {{"round", "round", Bend::kNone, "of an own READY, or of an attempt with an own part",
         "ignored"}}},
      {"Query",
       kResumed,
       {{"about", "unresolved", Bend::kNone, "any",
         "an attempt that was never started is answered as aborted"}}},
      {"Heartbeat",
       "a life after Welcome",
       {{"sequence", "u64", Bend::kNumber, "any; echoed to its sender only", "–"},
        {"progress", "u64", Bend::kNumber, "any; shown to people", "–"},
        {"moving", "list 256 of moving", Bend::kList, "256", "decoder refuses, closed"}}},
      {"Leave", "a life after Welcome: it ends, its site with it", {}},
      sync_row(),
      {"Published",
       kResumed,
       {{"held", "held", Bend::kNone, "the newest revision of a state tag",
         "kept, decides nothing"}}},
      {"Outvoted",
       kResumed,
       {{"held", "held", Bend::kNone, "the state that the master last sent the sender to fetch",
         "ignored"},
        {"holder", "u64", Bend::kLife, "a life with another key that said it holds this",
         "ignored"},
        {"part", "u32", Bend::kNumber, "any; for texts only", "–"}}},
      {"Violation",
       kResumed,
       {{"attempt", "attempt", Bend::kAttempt, "any; for texts only", "–"},
        {"peer", "u32", Bend::kPeer, "a member of another site and key", "ignored"},
        {"kind", "violation", Bend::kCode, "1 to 7; for texts only", "decoder refuses, closed"}}},
      {"AuditPart",
       kResumed,
       {{"attempt", "attempt", Bend::kAttempt, "an audited one that the sender contributes to",
         "ignored"},
        {"cell", "u32", Bend::kNumber, "one that it was asked for, once", "ignored"},
        {"result", "flag", Bend::kFlag, "of a cell that the sender owns", "ignored"},
        {"terms", "blob 128", Bend::kHint, "as its DONE bound", "convicted: evicted, a fault of 1"},
        {"path", "list 32 of raw 32", Bend::kList, "as its DONE bound",
         "convicted: evicted, a fault of 1"},
        {"bytes", "blob 16384", Bend::kHint, "as its DONE bound; of a result: the sum of the parts",
         "convicted: evicted, a fault of 1"}}},
      {"Order",
       "a holder of the run's secret or of an admin's token, instead of a Hello; without a token, "
       "from every process that connects; others: Refuse AUTH, closed",
       {{"verb", "order verb", Bend::kCode, "1 to 7", "decoder refuses, closed"},
        {"subject", "name 64", Bend::kSite, "a site that is there; 64 hex digits; a token's name",
         "OrderReply UNKNOWN_TAG or INVALID"},
        {"span", "i64", Bend::kTime, "0 to ten years", "OrderReply INVALID"},
        {"reason", "text 512", Bend::kText, "512 bytes of UTF-8; for texts only",
         "decoder refuses, closed"}}},
      {"StatusAsk", "every process that connects, instead of a Hello; answered and closed", {}},
      {"Measured",
       "a member after its Resume; of an observer: ignored",
       {{"up", "u64", Bend::kNumber, "any; an input of the cost model", "–"},
        {"links", "list 1024 of measured link", Bend::kList, "1,024, ascending ids",
         "decoder refuses, closed"}}},
  };
  return all;
}

}  // namespace jccl::fuzz
