// Heads of answers, with what browsers need to be told so that a page stays harmless.
#include "page/reply.h"

#include "base/planted.h"
#include "base/text.h"

namespace jccl::page {
namespace {

using base::cat;

std::string_view phrase_of(unsigned code) {
  switch (code) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 413:
      return "Content Too Large";
    case 421:
      return "Misdirected Request";
    case 431:
      return "Request Header Fields Too Large";
    default:
      return "Service Unavailable";
  }
}

}  // namespace

std::string reply_head(unsigned code, std::string_view type, std::optional<std::size_t> length) {
  std::string out = cat("HTTP/1.1 ", code, " ", phrase_of(code), "\r\nContent-Type: ", type);
  if (length) out += cat("\r\nContent-Length: ", *length);
  if (code == 405) out += "\r\nAllow: GET, HEAD";
  if (code == 401) out += "\r\nWWW-Authenticate: Bearer";
  // Nothing but what this server itself gives is loaded or run, and no other page shows this one.
  if (!JCCL_PLANTED("page-without-a-policy")) {
    out +=
        "\r\nContent-Security-Policy: default-src 'self'; frame-ancestors 'none'; "
        "base-uri 'none'; form-action 'none'";
  }
  out +=
      "\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer"
      "\r\nCross-Origin-Resource-Policy: same-origin\r\nCache-Control: no-store"
      "\r\nConnection: close\r\n\r\n";
  return out;
}

std::string_view type_of(Route route) {
  switch (route) {
    case Route::kIndex:
      return "text/html; charset=utf-8";
    case Route::kStyle:
      return "text/css; charset=utf-8";
    case Route::kScript:
      return "text/javascript; charset=utf-8";
    case Route::kIcon:
      return "image/svg+xml";
    case Route::kStatus:
      return "application/json";
    case Route::kMetrics:
      return "text/plain; version=0.0.4; charset=utf-8";
    case Route::kEvents:
      return "text/event-stream";
    default:
      return "text/plain; charset=utf-8";
  }
}

std::string event_text(const Story::Numbered& event) {
  return cat("id: ", event.id, "\ndata: ", event.text, "\n\n");
}

}  // namespace jccl::page
