// Rows of what is said before the first message of a connection, and of how a link is sealed: the
// introduction, a token's name, records. See fields_table.h.
#include "fuzz/fields/fields_table.h"

namespace jccl::fuzz {
namespace {

constexpr std::string_view kNotOurs = "the connection closes, the dial fails";
constexpr std::string_view kNoKey = "the dial fails, AUTH";
constexpr std::string_view kNoToken = "no name of a token: as one that the master does not know";

FieldsOf token_row() {
  return {
      "token name",
      "the process that made it with the run's secret. Its holder says it as TLS's identity and as "
      "the greeting's secret. A holder that changes the name has no secret for it",
      {{"role", "one of p o a", Bend::kNone, "p joins, o asks, a joins and gives orders", kNoToken},
       {"uses", "decimal", Bend::kNone,
        "0 to 4,294,967,295 keys of one shard; 0: any number; a key that joined by it once "
        "more",
        "another form: no token; a key beyond them: Refuse BANNED, closed"},
       {"expires", "decimal", Bend::kNone,
        "a Unix time in seconds of 64 bits, still to come; 0: never",
        "no token; over: TLS refuses, and the greeting's name is not known"},
       {"site", "hex 16", Bend::kNone, "0, or of the Hello's site",
        "another form: no token; another site: Refuse AUTH, closed"},
       {"number", "hex 8", Bend::kNone, "any; tells tokens apart", kNoToken}}};
}

}  // namespace

const std::vector<FieldsOf>& fields_of_connections() {
  static const std::vector<FieldsOf> all = {
      {"introduction head",
       "both ends of every connection, before each part of the introduction",
       {{"magic", "u32", Bend::kNone, "JCI2", kNotOurs},
        {"part", "u8", Bend::kNone, "1 from the dialling end, 2 in answer, then 3; each once",
         kNotOurs},
        {"purpose", "u8", Bend::kNone, "that of the port: 1 a master's, 2 a peer's", kNotOurs},
        {"zeros", "u16", Bend::kNone, "0", kNotOurs}}},
      {"greeting",
       "the dialling end, once, as its first frame, of at most 1,024 bytes",
       {{"head", "introduction head", Bend::kNone, "of a greeting", "closed"},
        {"key", "raw 32", Bend::kNone,
         "not zeros, and no key that one text signs everything for; the proof is to be by it",
         "closed"},
        {"nonce", "raw 32", Bend::kNone, "any; both ends sign it", "–"},
        {"secret", "name 64", Bend::kNone,
         "64 bytes, no more behind them; names a secret that this end has: a token of the run that "
         "is not over; to a peer `links` and one of the eight newest generations; empty: to a "
         "master "
         "without tokens",
         "closed without an answer"},
        {"group", "n bytes", Bend::kNone,
         "nothing: the run itself; else a `name 64` of 1 to 64 letters, digits, `-`, `_` and `.`, "
         "the "
         "first a letter or digit, and to a master alone; both ends sign it",
         "closed without an answer"}}},
      {"answer",
       "the accepting end, once, to a greeting that names a secret it has",
       {{"head", "introduction head", Bend::kNone, "of an answer", "the dial fails"},
        {"run", "run", Bend::kNone,
         "the dialling end's, if it dials a master with a token; else any; both ends sign it",
         kNoKey},
        {"key", "raw 32", Bend::kNone,
         "as of a greeting; of a peer, the one in the roster and no other", kNoKey},
        {"nonce", "raw 32", Bend::kNone, "any; both ends sign it", "–"},
        {"signature", "raw 64", Bend::kNone, "by that key, of this conversation and this side",
         "the dial fails, AUTH; the dialling end proves nothing to it"},
        {"certificate", "raw 64", Bend::kNone,
         "by the run's key, of run and key, where a master is dialled with a token; else any",
         kNoKey}}},
      {"proof",
       "the dialling end, after the answer has proven its key",
       {{"head", "introduction head", Bend::kNone, "of a proof", "closed"},
        {"signature", "raw 64", Bend::kNone,
         "by the key of the greeting, of this conversation and this side", "closed"}}},
      token_row(),
      {"sealed record",
       "either end of a link under TLS, behind the introduction",
       {{"size", "u32", Bend::kNone, "at most 131,072; 0: the end, sealed too", "the stripe ends"},
        {"sealed bytes", "n bytes", Bend::kNone, "what the tag is of",
         "the stripe ends, and nobody is told of them"},
        {"tag", "raw 16", Bend::kNone,
         "of this record, the next one of this direction of this connection",
         "the stripe ends before it; so does one that ends without a record of size 0"}}},
  };
  return all;
}

}  // namespace jccl::fuzz
