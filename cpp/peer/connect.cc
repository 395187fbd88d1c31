// See connect.h.
#include "peer/connect.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmath>

#include "base/ids.h"
#include "base/limits.h"
#include "base/planted.h"
#include "base/text.h"
#include "base/utf8.h"
#include "net/security/group_name.h"

namespace jccl::peer {
namespace {

using base::cat;
using base::Code;
using base::Status;

// The local address of the route to `target`: connecting a datagram socket sends nothing.
std::string local_address_towards(const net::Address& target) {
  const auto endpoints = net::resolve_now(target);
  if (!endpoints.ok()) return "";
  for (const net::Endpoint& endpoint : endpoints.value()) {
    const int fd = ::socket(endpoint.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    std::string text;
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&endpoint.storage), endpoint.size) == 0) {
      text = net::to_text(net::local_endpoint(fd));
    }
    ::close(fd);
    const auto parsed = net::parse_address(text);
    if (parsed.ok()) return parsed.value().host;
  }
  return "";
}

Status check_names(const ConnectOptions& o) {
  if (const Status group = net::check_group_name(o.group); !group.ok()) return group;
  if (o.site.size() > base::kSiteNameBytesMax || !base::is_utf8(o.site)) {
    return {Code::kInvalid,
            cat("a site name has at most ", base::kSiteNameBytesMax, " bytes of UTF-8")};
  }
  if (o.shards == 0 || o.shard >= o.shards + (JCCL_PLANTED("shard-equal-to-shards") ? 1 : 0)) {
    return {Code::kInvalid,
            cat("shard ", o.shard, " of ", o.shards, " does not exist; shards count from 0")};
  }
  if (o.shards > 1 && o.site.empty()) {
    return {Code::kInvalid, "a site of several shards needs a site name, equal on all of them"};
  }
  if (o.advertise.size() > base::kAddressesMax) {
    return {Code::kLimit,
            cat(o.advertise.size(), " advertised addresses; give at most ", base::kAddressesMax)};
  }
  for (const std::string& address : o.advertise) {
    const auto parsed = net::parse_address(address);
    if (!parsed.ok()) return parsed.status();
    if (!base::is_utf8(address)) return {Code::kInvalid, "an advertised address is not UTF-8"};
  }
  if (o.chunk_bytes < 4096 ||
      o.chunk_bytes > base::kChunkBytesMax * (JCCL_PLANTED("chunk-beyond-bound") ? 2 : 1)) {
    return {Code::kInvalid, cat("chunk_bytes must be 4096 to ", base::kChunkBytesMax)};
  }
  const bool is_rate = o.max_rate >= base::kRateMin && std::isfinite(o.max_rate);
  if (o.max_rate != 0 && !is_rate && !JCCL_PLANTED("any-rate-taken")) {
    return {Code::kInvalid, cat("max_rate must be bytes per second, at least ", base::kRateMin,
                                ", or 0 for no bound")};
  }
  const bool is_day = o.day_bytes >= base::kDayBytesMin && std::isfinite(o.day_bytes);
  if (o.day_bytes != 0 && !is_day && !JCCL_PLANTED("any-day-taken")) {
    return {Code::kInvalid, cat("day_bytes must be bytes per day, at least ", base::kDayBytesMin,
                                ", or 0 for no bound")};
  }
  return {};
}

// What a site may be called in the name of a file.
std::string file_name_of(const std::string& site) {
  std::string name = site;
  for (char& c : name) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (!plain && c != '-') c = '_';
  }
  return cat("peer-", name);
}

}  // namespace

base::Result<Setup> make_setup(const ConnectOptions& o) {
  Setup setup;
  const Status names = check_names(o);
  if (!names.ok()) return names;
  if (o.master.empty()) {
    return Status(Code::kInvalid, "no master address: pass master= or set JCCL_MASTER=host:port");
  }
  auto master = net::parse_addresses(o.master);
  if (!master.ok()) return master.status();
  setup.master = std::move(master.value());
  setup.credentials = net::Credentials::plain({});
  if (!o.token.empty()) {
    const auto token = net::parse_token(o.token);
    if (!token.ok()) return token.status();
    setup.credentials = net::Credentials::from(token.value());
    setup.machine.run = token.value().run;
  }
  if (o.identity != nullptr) {
    setup.credentials.identity = o.identity;
  } else if (!o.key_file.empty()) {
    auto identity = net::Identity::open(o.key_file);
    if (!identity.ok()) return identity.status();
    setup.credentials.identity = std::make_shared<const net::Identity>(std::move(identity.value()));
  }
  for (const net::Address& address : setup.master) {
    const Status exposed = net::check_exposure(address, !o.token.empty(), o.insecure);
    if (!exposed.ok()) return exposed;
    if (JCCL_PLANTED("second-master-not-guarded")) break;
  }
  if (o.bind != "none") {
    std::string bind = o.bind;
    if (bind.empty()) {
      const net::Address& first = setup.master.front();
      bind = !net::is_loopback(first) ? ":0" : first.host == "::1" ? "[::1]:0" : "127.0.0.1:0";
    }
    const auto address = net::parse_address(bind);
    if (!address.ok()) return address.status();
    const Status exposed = net::check_exposure(address.value(), !o.token.empty(), o.insecure);
    if (!exposed.ok()) return exposed;
    setup.bind = address.value();
  }
  const auto incarnation = net::random_u64();
  if (!incarnation.ok()) return incarnation.status();
  setup.incarnation = base::first_life(incarnation.value());
  setup.machine.site = o.site.empty() ? cat("peer-", base::to_hex(setup.incarnation)) : o.site;
  setup.machine.shard = o.shard;
  setup.machine.shards = o.shards;
  setup.machine.start_peers = o.start_peers;
  setup.machine.max_rate = static_cast<std::uint64_t>(std::min(o.max_rate, base::kRateMax));
  setup.machine.day_bytes = static_cast<std::uint64_t>(std::min(o.day_bytes, base::kDayBytesMax));
  setup.machine.master_grace = o.master_grace;
  const std::string in_group = o.group.empty() ? "" : cat("-", o.group);
  auto recordings =
      net::Recordings::open(o.record, cat(file_name_of(setup.machine.site), in_group));
  if (!recordings.ok()) return recordings.status();
  setup.recordings = std::move(recordings.value());
  return setup;
}

std::vector<std::string> advertised(const ConnectOptions& o, const net::Address& bound,
                                    const std::vector<net::Address>& master) {
  std::vector<std::string> addresses;
  for (const std::string& text : o.advertise) {
    auto parsed = net::parse_address(text);
    if (!parsed.ok()) continue;
    if (parsed.value().port == 0) parsed.value().port = bound.port;
    addresses.push_back(net::to_text(parsed.value()));
  }
  if (!addresses.empty()) return addresses;
  net::Address told = bound;
  const bool wildcard = told.host.empty() || told.host == "0.0.0.0" || told.host == "::";
  for (std::size_t i = 0; wildcard && i < master.size(); ++i) {
    told.host = local_address_towards(master[i]);
    if (!told.host.empty()) break;
  }
  if (!told.host.empty()) addresses.push_back(net::to_text(told));
  return addresses;
}

}  // namespace jccl::peer
