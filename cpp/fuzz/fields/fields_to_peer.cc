// Rows of what the master sends to peers. See fields_table.h.
#include "fuzz/fields/fields_table.h"

namespace jccl::fuzz {
namespace {

constexpr std::string_view kMaster =
    "the master, after Welcome; from a peer: Refuse INVALID, closed; before its Hello: closed";
constexpr std::string_view kShown = "512 bytes of UTF-8; shown to people";
constexpr std::string_view kNonsense = "decoder refuses, the peer reconnects";

FieldsOf outcome_row() {
  return {"Outcome",
          kMaster,
          {{"attempt", "attempt", Bend::kAttempt, "of the open call, or in doubt", "ignored"},
           {"round", "round", Bend::kNone, "not read: the attempt names the call", "–"},
           {"verdict", "verdict", Bend::kCode, "1 to 3", kNonsense},
           {"contributors", "contributors", Bend::kList, "ascending, 1,024; handed to the caller",
            kNonsense},
           {"world", "u32", Bend::kNumber, "any; handed to the caller", "–"},
           {"result", "digest", Bend::kDigest, "equal to this peer's result",
            "the result is discarded, the call ends EVICTED"},
           {"retry", "flag", Bend::kFlag, "0 or 1", kNonsense},
           {"code", "code", Bend::kCode, "a code of a failure", "a code of a success is INTERNAL"},
           {"text", "text 512", Bend::kText, kShown, kNonsense}}};
}

FieldsOf start_row() {
  return {"Start",
          kMaster,
          {{"attempt", "attempt", Bend::kAttempt, "not one in doubt, not the one that runs",
            "ignored; an older one than was run fails LINK_LOST"},
           {"round", "round", Bend::kNone, "that of the open call", "FAIL ABORTED"},
           {"contributors", "contributors", Bend::kList,
            "ascending, 1,024; weights ≤ 2^100, not all 0; names all whom the plan names",
            "FAIL INVALID, EMPTY or INTERNAL"},
           {"receivers", "list 1024 of u32", Bend::kList, "ascending, 1,024", kNonsense},
           {"plan", "blob 16384", Bend::kHint,
            "one well-formed plan; of a kind that fits this peer's call and its codec",
            "FAIL INVALID; nothing is written"},
           {"call", "u64", Bend::kNumber, "the number of the open call", "FAIL ABORTED"},
           {"has state", "flag", Bend::kFlag, "as this peer's call", "FAIL, the call ends RESYNC"},
           {"revision", "u64", Bend::kCounter, "that of this peer's state",
            "FAIL, the call ends RESYNC"},
           {"state", "digest", Bend::kDigest, "that of this peer's state",
            "FAIL, the call ends RESYNC"},
           {"audit", "run", Bend::kNone,
            "zeros; the run, for a plan and a call that can be audited", "FAIL INTERNAL"}}};
}

FieldsOf sync_reply_row() {
  return {"SyncReply",
          kMaster,
          {{"tag", "tag", Bend::kTag, "of an open synchronisation", "ignored"},
           {"verdict", "sync verdict", Bend::kCode, "1 to 4", kNonsense},
           {"revision", "u64", Bend::kCounter, "any; it names the fetched state", "–"},
           {"restored", "u64", Bend::kCounter, "any; above this peer's: nothing is folded", "–"},
           {"digest", "digest", Bend::kDigest, "that of the fetched manifest",
            "the fetch fails and is asked for again"},
           {"holders", "list 1024 of member", Bend::kList, "1,024", kNonsense},
           {"code", "code", Bend::kCode, "a code of a failure", "a code of a success is INTERNAL"},
           {"text", "text 2048", Bend::kText, "2,048 bytes of UTF-8; shown to people", kNonsense},
           {"links", "link secret", Bend::kNone, "any", "–"}}};
}

}  // namespace

const std::vector<FieldsOf>& fields_to_peer() {
  static const std::vector<FieldsOf> all = {
      {"Welcome",
       "the master, once on a connection",
       {{"version", "u16", Bend::kNumber, "one that the peer speaks", "VERSION: its calls end"},
        {"run", "run", Bend::kNone, "any: its token proved the master", "–"},
        {"epoch", "u64", Bend::kCounter, "not below the newest heard", "the peer reconnects"},
        {"heartbeat", "i64", Bend::kTime, "1 ms to ten years", "cut to that"},
        {"silence", "i64", Bend::kTime, "two heartbeats to ten years", "cut to that"},
        {"max rate", "u64", Bend::kCounter, "0, or 10,000 and more", "taken for 10,000"}}},
      {"Refuse",
       "the master, before Welcome or as its last word",
       {{"code", "code", Bend::kCode, "a code",
         "AUTH, VERSION, WRONG_RUN, INVALID, LIMIT end the communicator; others: it reconnects"},
        {"text", "text 512", Bend::kText, kShown, kNonsense}}},
      {"Roster",
       kMaster,
       {{"epoch", "u64", Bend::kCounter, "any", "–"},
        {"base", "u64", Bend::kCounter, "0, or the epoch of the last Roster",
         "the peer reconnects"},
        {"members", "list 1024 of member", Bend::kList, "1,024, ascending ids", kNonsense},
        {"left", "list 1024 of u32", Bend::kList, "1,024, ascending", kNonsense},
        {"tags", "list 256 of tag info", Bend::kList, "256", kNonsense},
        {"links", "link secret", Bend::kNone, "any", "–"},
        {"why", "text 512", Bend::kText, kShown, kNonsense}}},
      start_row(),
      outcome_row(),
      {"Reject",
       kMaster,
       {{"round", "round", Bend::kNone, "the tag of an open call that waits", "ignored"},
        {"code", "code", Bend::kCode, "a code of a failure", "a code of a success is INTERNAL"},
        {"text", "text 2048", Bend::kText, "2,048 bytes of UTF-8; shown to people", kNonsense},
        {"call", "u64", Bend::kNumber, "the number of the open call", "ignored"}}},
      {"Moved",
       kMaster,
       {{"round", "round", Bend::kNone, "that of an open call without state", "ignored"},
        {"committed", "u64", Bend::kCounter, "any; the greatest heard counts",
         "a state call below it ends RESYNC"}}},
      {"Waiting",
       kMaster,
       {{"round", "round", Bend::kNone, "that of the open call", "ignored"},
        {"text", "text 512", Bend::kText, kShown, kNonsense}}},
      {"Evicted",
       "the master, as its last word",
       {{"text", "text 512", Bend::kText, kShown, kNonsense}}},
      {"HeartbeatAck",
       kMaster,
       {{"sequence", "u64", Bend::kNumber, "any; only that it came counts", "–"}}},
      sync_reply_row(),
      {"AuditAsk",
       kMaster,
       {{"attempt", "attempt", Bend::kAttempt, "an audited one that is done here",
         "FAIL ABORTED; of a call that ends: ignored"},
        {"cells", "list 1024 of u32", Bend::kList, "ascending, 1,024; cells of the plan",
         "decoder refuses, the peer reconnects; the rest is not shown"}}},
      {"OrderReply",
       "the master, to the process that gave an order",
       {{"code", "code", Bend::kCode, "a code", "shown as it is"},
        {"text", "text 512", Bend::kText, kShown, kNonsense}}},
      {"Drain", kMaster, {{"text", "text 512", Bend::kText, kShown, kNonsense}}},
      {"Notice", kMaster, {{"text", "text 512", Bend::kText, kShown, kNonsense}}},
      {"StatusReply",
       "the master, to whoever asked; a peer ignores it",
       {{"json", "blob 61440", Bend::kNone, "61,440 bytes of UTF-8", "decoder refuses"}}},
  };
  return all;
}

}  // namespace jccl::fuzz
