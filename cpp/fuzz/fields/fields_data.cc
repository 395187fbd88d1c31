// Rows of what travels between peers, of the journal, and of the texts that others write: status
// and etcd's answers. See fields_table.h.
#include "fuzz/fields/fields_table.h"

namespace jccl::fuzz {
namespace {

constexpr std::string_view kRefused = "the master does not start and names the row";
constexpr std::string_view kClosed = "the connection closes, the reason in the log";

}  // namespace

const std::vector<FieldsOf>& fields_of_links() {
  static const std::vector<FieldsOf> all = {
      {"link hello",
       "every process that connects to a peer, once, as its first frame",
       {{"magic", "u32", Bend::kNone, "JCL1", "closed"},
        {"version", "u16", Bend::kNone, "the own", "closed"},
        {"run", "run", Bend::kNone, "the own", "closed"},
        {"from, to", "u64` `u64", Bend::kNone,
         "`to` is this life; `from` is another, not 0: a member, with the key that the master "
         "named, "
         "or one that is none yet and comes by the newest link secret",
         "closed; of those that are no members 32 links from a network, 64 in all and 128 stripes "
         "stay, 16 a link, the idlest make room"},
        {"stripe, stripes", "u16` `u16", Bend::kNone, "stripe < stripes ≤ 64",
         "closed; so is the 65th connection of one link"}}},
      {"header",
       "the other end of a link, either way",
       {{"magic", "u32", Bend::kNone, "JCF1", "the stripe closes"},
        {"kind", "u8` + 3 zero bytes", Bend::kFrameKind, "1 to 9, and what the route awaits",
         "unknown: the stripe closes; not awaited: drained"},
        {"attempt", "attempt", Bend::kAttempt,
         "a running one of which the sender is a part; snapshots: an own question",
         "ended: drained; not started yet: that stripe waits; of a stranger: the stripe closes"},
        {"chunk", "u32", Bend::kNumber,
         "a chunk of the attempt, or part of the snapshot; arrived: 1 with the last word",
         "the stripe closes; of a snapshot: drained; arrived: as 0"},
        {"payload bytes", "u32", Bend::kNumber, "what chunk and kind say; ≤ 8,388,608",
         "the stripe closes"},
        {"payload check", "u32", Bend::kNumber, "of the payload; 0 where links are sealed",
         "the stripe closes"},
        {"header CRC32C", "u32", Bend::kNone, "of the header", "the stripe closes"}}},
      {"snapshot ask",
       "the other end of a link: peers of the run, and joiners that the master sent",
       {{"tag", "tag", Bend::kTag, "one of which snapshots are kept", "answered: gone"},
        {"revision", "u64", Bend::kCounter, "one of the two newest", "answered: gone"},
        {"ask", "u64", Bend::kSmall, "any; echoed to its sender only", "–"},
        {"first part, last part", "u32` `u32", Bend::kSmall, "first < last ≤ parts of the snapshot",
         "the stripe closes, or answered: gone"}}},
      {"proof ask",
       "the other end of a link: peers of the run, and joiners that the master sent",
       {{"tag", "tag", Bend::kTag, "one of which snapshots are kept", "answered: gone"},
        {"revision", "u64", Bend::kCounter, "one of the two newest", "answered: gone"},
        {"ask", "u64", Bend::kSmall, "any; echoed to its sender only", "–"},
        {"part", "u32", Bend::kSmall, "below the parts of the snapshot; 1,024 a second",
         "answered: gone; more: answered later, at most 608 wait"},
        {"key", "raw 16", Bend::kNone, "any", "–"}}},
      {"manifest",
       "a holder whom the master named, asked by this peer",
       {{"magic", "u32", Bend::kNone, "JCM1", "CORRUPT: the fetch fails"},
        {"version", "u16` + 2 zero bytes", Bend::kNone, "the own", "CORRUPT"},
        {"revision", "u64", Bend::kNone, "the one asked for", "CORRUPT"},
        {"kept for later", "u64", Bend::kNone, "0", "CORRUPT"},
        {"descriptor", "digest", Bend::kNone, "that of this peer's leaves", "MISMATCH"},
        {"total bytes", "u64", Bend::kNone, "that of this peer's leaves", "MISMATCH"},
        {"part bytes", "u32", Bend::kNone, "that of this peer's layout", "MISMATCH"},
        {"parts", "u32` and a `digest` each", Bend::kDigest,
         "as many as this peer's layout has; all together have the digest that the master named",
         "CORRUPT; a part with another digest is asked of another holder"}}},
  };
  return all;
}

const std::vector<FieldsOf>& fields_of_journal() {
  static const std::vector<FieldsOf> all = {
      {"RunRecord",
       "the master, first",
       {{"run", "run", Bend::kNone, "the run that was asked for, if one was", kRefused},
        {"version", "u16", Bend::kNone, "the own", kRefused}}},
      {"EpochRecord",
       "the master",
       {{"epoch", "u64", Bend::kNone, "any; ascends as written", "–"},
        {"next id", "u32", Bend::kNone, "any", "–"},
        {"members", "list 1024 of member", Bend::kNone, "1,024, ascending ids", kRefused},
        {"reason", "text 512", Bend::kNone, "512 bytes of UTF-8", kRefused}}},
      {"BirthRecord",
       "the master",
       {{"tag", "tag", Bend::kNone, "1 to 64 bytes of UTF-8", kRefused},
        {"site", "name 64", Bend::kNone, "64 bytes of UTF-8", kRefused},
        {"sources", "list 1024 of u64", Bend::kNone, "1,024", kRefused},
        {"digests", "list 1024 of digest", Bend::kNone, "1,024", kRefused},
        {"descriptors", "list 1024 of digest", Bend::kNone, "1,024", kRefused},
        {"summary", "text 2048", Bend::kNone, "2,048 bytes of UTF-8", kRefused}}},
      {"CommitRecord",
       "the master",
       {{"attempt", "attempt", Bend::kNone, "any", "–"},
        {"round", "round", Bend::kNone, "any; n ascends as written", "–"},
        {"contributors", "contributors", Bend::kNone, "1,024, ascending", kRefused},
        {"world", "u32", Bend::kNone, "any", "–"},
        {"result", "digest", Bend::kNone, "any", "–"},
        {"is state", "flag", Bend::kNone, "0 or 1", kRefused},
        {"state", "digest", Bend::kNone, "any", "–"},
        {"plan", "blob 16384", Bend::kNone, "16,384 bytes; for tools", kRefused},
        {"shard results", "list 1024 of digest", Bend::kNone, "1,024", kRefused},
        {"receivers", "list 1024 of u32", Bend::kNone, "1,024, ascending", kRefused}}},
      {"StateRecord",
       "the master",
       {{"tag", "tag", Bend::kNone, "1 to 64 bytes of UTF-8", kRefused},
        {"revision", "u64", Bend::kNone, "any; counts if it is the newest of the tag", "–"},
        {"weak", "flag", Bend::kNone, "0 or 1", kRefused},
        {"digests", "list 1024 of digest", Bend::kNone, "1,024", kRefused}}},
      {"RestoreRecord",
       "the master",
       {{"tag", "tag", Bend::kNone, "1 to 64 bytes of UTF-8", kRefused},
        {"revision", "u64", Bend::kNone, "any; one more than the newest, as written", "–"},
        {"of", "u64", Bend::kNone, "any; for texts", "–"},
        {"wished", "flag", Bend::kNone, "0 or 1", kRefused},
        {"site", "name 64", Bend::kNone, "64 bytes of UTF-8", kRefused},
        {"digests", "list 1024 of digest", Bend::kNone, "1,024", kRefused}}},
      {"BanRecord",
       "the master",
       {{"key", "raw 32", Bend::kNone, "any", "–"},
        {"until", "u64", Bend::kNone, "any", "–"},
        {"site", "name 64", Bend::kNone, "64 bytes of UTF-8", kRefused},
        {"reason", "text 512", Bend::kNone, "512 bytes of UTF-8", kRefused}}},
      {"AdmitRecord", "the master", {{"key", "raw 32", Bend::kNone, "any", "–"}}},
      {"TokenRecord",
       "the master",
       {{"token", "name 64", Bend::kNone, "64 bytes of UTF-8", kRefused},
        {"revoked", "flag", Bend::kNone, "0 or 1", kRefused},
        {"key", "raw 32", Bend::kNone, "any", "–"},
        {"shard", "u32", Bend::kNone, "any", "–"}}},
  };
  return all;
}

const std::vector<FieldsOf>& fields_of_texts() {
  static const std::vector<FieldsOf> all = {
      {"control frame",
       "either side of a control connection",
       {{"payload bytes", "u32", Bend::kNone,
         "to the master 1,024 before Welcome, 65,536 after it; to a peer 2,097,152",
         "closed before a byte of it is kept"},
        {"payload CRC32C", "u32", Bend::kNone, "of the payload", "closed"},
        {"payload", "one message", Bend::kNone, "exactly one, to its last byte", kClosed}}},
      {"status",
       "the master, to whoever asks: JSON, read by `jccl status` and tools",
       {{"site, tag and other names", "text", Bend::kNone, "any UTF-8 of 64 bytes",
         "escaped as JSON says; a program that prints one escapes control characters"},
        {"lists of peers, tags, links", "list", Bend::kNone, "61,440 bytes in all",
         "shortened, and says so"}}},
      {"etcd's answer",
       "the process that answers at the address of the store",
       {{"HTTP body", "bytes", Bend::kNone, "33,554,432", "the store fails, the master stops"},
        {"JSON", "object", Bend::kNone, "of the form that was asked for",
         "refused whole; the store fails, the master stops"},
        {"keys and values", "base64", Bend::kNone, "base64; a row's key is its number in hex",
         "refused whole"},
        {"revisions, leases", "decimal text", Bend::kNone, "64-bit numbers", "refused whole"},
        {"rows", "list", Bend::kNone, "1,048,576 of 67,108,864 bytes in all, without a gap",
         "refused, with the number of the row"}}},
  };
  return all;
}

}  // namespace jccl::fuzz
