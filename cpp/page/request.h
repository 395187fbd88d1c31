// What a browser, a Prometheus or a stranger asks for, and whether it is answered. Nothing here
// changes a run: GET and HEAD alone. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "net/socket/address.h"

namespace jccl::page {

// As the parser read it; header fields that were not there are empty.
struct Request {
  std::string_view method, target, host, authorization, last_event_id, fetch_site;
  unsigned hosts = 1;     // fields called Host
  bool has_body = false;  // announces one
};

enum class Route : std::uint8_t {
  kIndex,
  kStyle,
  kScript,
  kIcon,
  kHealth,
  kStatus,
  kMetrics,
  kEvents
};

// Who may see the run. Without `token_of` whoever reaches the address.
struct Gate {
  net::Address bind;  // where it listens
  // The name of the observer's token that this text is; else why it is none. On the server's
  // thread.
  std::function<base::Result<std::string>(std::string_view text)> token_of = nullptr;
};

struct Decision {
  unsigned code = 200;  // of HTTP
  Route route = Route::kIndex;
  bool head = false;        // without the body
  std::string token;        // its name; whether it was revoked the master knows
  std::uint64_t after = 0;  // of kEvents: those with higher numbers
  bool resumes = false;     // `after` was named
  std::string text;         // unless 200: what is wrong, and what to do
};

Decision decide(const Request& request, const Gate& gate);

// A page of elsewhere whose name was made to lead to this machine sends its own name as Host. An
// address, this machine's loopback name and the host it was told to listen at are never such.
bool is_own_host(std::string_view host, const net::Address& bind);

}  // namespace jccl::page
