// Rows of the parts that several messages share. See fields_table.h.
#include "fuzz/fields_table.h"

namespace jccl::fuzz {

const std::vector<FieldsOf>& fields_of_parts() {
  static const std::vector<FieldsOf> all = {
      {"round",
       "",
       {{"tag", "tag", Bend::kTag, "1 to 64 bytes of UTF-8; 256 tags in a run",
         "decoder refuses; Reject LIMIT for the tag that is too many"},
        {"n", "u64", Bend::kCounter, "committed + 1 of the tag", "see the message"}}},
      {"member",
       "",
       {{"id", "u32", Bend::kPeer, "ascending in a list", "decoder refuses"},
        {"incarnation", "u64", Bend::kLife, "any", "–"},
        {"site", "name 64", Bend::kSite, "64 bytes of UTF-8", "decoder refuses"},
        {"shard", "u32", Bend::kShards, "any; for names in texts", "–"},
        {"shards", "u32", Bend::kShards, "any; for names in texts", "–"},
        {"addresses", "list 8 of name 128", Bend::kAddress, "8 of 128 bytes",
         "decoder refuses; what is no address is not dialled"},
        {"key", "raw 32", Bend::kNumber, "any; what answers at the addresses has to prove it",
         "the dial fails, AUTH"}}},
      {"link secret",
       "",
       {{"generation", "u64", Bend::kCounter, "any", "links to peers that have another fail"},
        {"secret", "raw 16", Bend::kNumber, "any", "links to peers that have another fail"}}},
      {"moving",
       "",
       {{"attempt", "attempt", Bend::kAttempt, "any; looked up among running attempts",
         "names nothing"},
        {"left", "u64", Bend::kNumber, "any; compared with others' by the straggler policy", "–"},
        {"all", "u64", Bend::kNumber, "any; shown to people", "–"},
        {"waits on", "u32", Bend::kPeer, "any; looked up among the parts of the attempt",
         "names nobody"}}},
      {"tag info",
       "",
       {{"tag", "tag", Bend::kTag, "1 to 64 bytes of UTF-8", "decoder refuses"},
        {"committed", "u64", Bend::kCounter, "any; the greatest heard counts",
         "a state call below it ends RESYNC"},
        {"is state", "flag", Bend::kFlag, "0 or 1", "decoder refuses"}}},
      {"held",
       "",
       {{"tag", "tag", Bend::kTag, "1 to 64 bytes of UTF-8; 256 kept of one life",
         "decoder refuses; one more drops one that is kept"},
        {"revision", "u64", Bend::kCounter, "any; counts if it is the newest of the tag",
         "kept, decides nothing"},
        {"digest", "digest", Bend::kDigest,
         "equal to the journaled one of the revision; before there is one, the vote of who took "
         "part",
         "decides nothing; who says it is no holder"}}},
      {"unresolved",
       "",
       {{"attempt", "attempt", Bend::kAttempt, "any",
         "one that is not remembered is answered as aborted or expired, by its round"},
        {"round", "round", Bend::kNone, "any; read only for attempts that are not remembered",
         "–"}}},
      {"measured link",
       "",
       {{"peer", "u32", Bend::kPeer, "ascending in the list; looked up among the contributors",
         "decoder refuses; names nobody"},
        {"rtt", "u32", Bend::kNumber, "any; an input of the cost model", "–"},
        {"rate", "u64", Bend::kNumber, "any; 0: not measured", "–"}}},
  };
  return all;
}

}  // namespace jccl::fuzz
