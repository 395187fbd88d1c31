// Questions to a master elsewhere, for tools: what does everything wait for? Also fresh tokens.
// Blocks the calling thread within a time bound; brings its own loop and leaves nothing behind.
#pragma once

#include <string>

#include "base/status.h"
#include "base/time.h"
#include "wire/messages.h"
#include "wire/order_verbs.h"  // IWYU pragma: export

namespace jccl::master {

using wire::kOrderVerbs;
using wire::Order;

struct AskOptions {
  std::string master;      // "host:port[,host:port…]"
  std::string group = {};  // of the run; empty: the run itself
  std::string token;       // empty: plain, loopback only
  bool insecure = false;   // plain connections off loopback, by explicit wish
  base::Duration time_max = 5 * base::kSecond;
};

// The status JSON. Codes: kInvalid (address, token), kAuth, kIo, kMasterLost (nobody answers; the
// text lists what was tried), kDeadline.
base::Result<std::string> ask_status(const AskOptions& options);

// An order of an operator, in effect when this returns; its answer in words. `token` is the run's
// secret or a token with the role admin. Codes: as above; kAuth (no operator), kUnknownTag (nobody
// of that name), kInvalid.
base::Result<std::string> give_order(const AskOptions& options, const Order& order);

// The secret of a run that does not exist yet.
base::Result<std::string> new_token_text();

struct TokenOptions {
  std::string run_secret;
  std::string role = "peer";         // or "observer", "admin"
  std::uint32_t uses = 0;            // keys of one shard that may join by it; 0: any number
  std::uint64_t expires_unix_s = 0;  // 0: never
  std::string site;                  // empty: any
};
// A token made of a run's secret. Codes: kInvalid, kAuth (no secret of a run), kIo.
base::Result<std::string> make_token_text(const TokenOptions& options);

}  // namespace jccl::master
