#include "emulator.h"

#include <arpa/inet.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ctime>
#include <sstream>
#include <utility>

namespace wan {
namespace {

constexpr Nanoseconds kQuantum = 250'000;  // longest super-packet, in time
constexpr double kQueueBytesMin = 48'000;  // a queue holds at least 32 packets
constexpr std::size_t kFlowsMax = 10'000;  // before idle ones are forgotten
constexpr std::uint8_t kGsoNone = 0;

std::uint32_t sum16(const void* from, std::size_t bytes, std::uint32_t sum) {
  const auto* b = static_cast<const std::uint8_t*>(from);
  for (std::size_t i = 0; i + 1 < bytes; i += 2) sum += b[i] << 8 | b[i + 1];
  return sum;
}

std::uint16_t fold(std::uint32_t sum) {
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  return htons(std::uint16_t(sum));
}

// Rewrites all length-dependent header fields after the payload has changed.
void refresh(Packet* p) {
  iphdr* ip = p->ip();
  ip->tot_len = htons(std::uint16_t(p->header_bytes + p->bytes));
  ip->check = 0;
  ip->check = std::uint16_t(~fold(sum16(ip, ip->ihl * 4, 0)));
  const std::uint32_t l4_bytes = p->header_bytes - ip->ihl * 4 + p->bytes;
  p->tcp()->check = fold(sum16(&ip->saddr, 8, IPPROTO_TCP + l4_bytes));
  p->vnet.gso_type = p->segments > 1 ? p->gso_type : kGsoNone;
  p->vnet.gso_size = p->segments > 1 ? std::uint16_t(p->segment_bytes) : 0;
}

// Cuts the first k (0 < k < segments) segments off p; returns them.
Packet* split(Packet* p, unsigned k) {
  auto* head = new Packet(*p);
  const std::uint32_t bytes = k * p->segment_bytes;
  head->segments = k;
  head->bytes = bytes;
  head->tcp()->fin = head->tcp()->psh = 0;
  p->segments -= k;
  p->bytes -= bytes;
  p->data += bytes;
  p->ip()->id = htons(std::uint16_t(ntohs(p->ip()->id) + k));
  p->tcp()->seq = htonl(ntohl(p->tcp()->seq) + bytes);
  p->tcp()->res2 &= ~2;  // CWR belongs to the first segment (res2 = CWR, ECE)
  refresh(head);
  refresh(p);
  return head;
}

// Sends p, arriving at `at`, through a link that is busy until `next`. On return `at` is the
// departure. What the queue can't hold is dropped from the end of p; returns false (p is gone) when
// that is all of it.
bool admit(const Link& link, Nanoseconds& next, Packet*& p, Nanoseconds& at, std::uint64_t& drops) {
  if (link.bps <= 0) return true;
  const double ns_per_byte = 8e9 / link.bps;
  const Nanoseconds start = std::max(next, at - p->span);
  if (start > at) {
    const double limit = std::max(double(link.queue), kQueueBytesMin * ns_per_byte);
    const double room = (limit - double(start - at)) / ns_per_byte;
    if (room < p->wire_bytes()) {
      unsigned k = 0;
      if (p->segments > 1 && room > 0) k = unsigned(room / (p->segment_bytes + p->header_bytes));
      k = std::min(k, p->segments - 1);
      drops += p->segments - k;
      Packet* head = k ? split(p, k) : nullptr;
      delete p;
      if (!(p = head)) return false;
    }
  }
  const auto span = Nanoseconds(p->wire_bytes() * ns_per_byte);
  next = start + span;
  if (!link.police) {
    at = std::max(at, next);
    p->span = span;
  }
  return true;
}

}  // namespace

Nanoseconds now_ns() {
  timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return ts.tv_sec * 1'000'000'000LL + ts.tv_nsec;
}

Emulator::Emulator(std::vector<Host> hosts, std::uint64_t seed)
    : hosts_(std::move(hosts)), paths_(hosts_.size() * hosts_.size()), random_(seed) {}

std::unique_ptr<Packet> Emulator::packet_of(std::size_t host,
                                            const std::shared_ptr<std::uint8_t[]>& buffer,
                                            std::size_t bytes) {
  VnetHeader vnet;
  if (bytes < sizeof vnet + sizeof(iphdr)) return nullptr;
  std::memcpy(&vnet, buffer.get(), sizeof vnet);
  const std::uint8_t* raw = buffer.get() + sizeof vnet;
  const auto* ip = reinterpret_cast<const iphdr*>(raw);
  if (ip->version != 4) return nullptr;

  const std::uint32_t to = ntohl(ip->daddr), from = ntohl(ip->saddr);
  const std::size_t target = (to & 255) - 1;  // host i has an address that ends in i + 1
  if (target >= hosts_.size() || to >> 8 != from >> 8) {
    ++hosts_[host].count.other;
    return nullptr;
  }
  auto p = std::make_unique<Packet>();
  p->vnet = vnet;
  p->source = std::uint8_t(host);
  p->target = std::uint8_t(target);
  p->buffer = buffer;
  p->data = raw;
  p->bytes = std::uint32_t(bytes - sizeof vnet);
  p->flow =
      std::uint64_t(host) << 48 | std::uint64_t(target) << 40 | std::uint64_t(ip->protocol) << 32;
  const bool has_ports = ip->protocol == IPPROTO_TCP || ip->protocol == IPPROTO_UDP;
  if (has_ports && !(ntohs(ip->frag_off) & 0x3fff)) {
    std::uint32_t ports;
    std::memcpy(&ports, raw + ip->ihl * 4, 4);
    p->flow |= ports;
  }
  if (vnet.gso_type != kGsoNone) {  // only TCPv4 is on offer
    const auto* tcp = reinterpret_cast<const tcphdr*>(raw + ip->ihl * 4);
    p->gso_type = vnet.gso_type;
    p->header_bytes = std::uint8_t(ip->ihl * 4 + tcp->doff * 4);
    p->vnet.hdr_len = p->header_bytes;
    std::memcpy(p->header, raw, p->header_bytes);
    p->data += p->header_bytes;
    p->bytes -= p->header_bytes;
    p->segment_bytes = vnet.gso_size;
    p->segments = (p->bytes + p->segment_bytes - 1) / p->segment_bytes;
  }
  return p;
}

void Emulator::ingest(std::size_t host, const std::shared_ptr<std::uint8_t[]>& buffer,
                      std::size_t bytes) {
  std::unique_ptr<Packet> p = packet_of(host, buffer, bytes);
  if (!p) return;
  Host& h = hosts_[host];
  h.count.in += p->segments;
  h.count.bytes_in += p->wire_bytes();
  if (h.cut || hosts_[p->target].cut || path(host, p->target).cut) {
    h.count.cut += p->segments;
    return;
  }
  const Nanoseconds now = now_ns();
  cut_to_quantum(p.get(), now);
  advance(p.release(), now);
}

// Sends off the first parts of a super-packet that is too long for the slowest link it meets.
void Emulator::cut_to_quantum(Packet* p, Nanoseconds now) {
  if (p->segments <= 1) return;
  const Host &from = hosts_[p->source], &to = hosts_[p->target];
  double bps = 1e12;
  for (const double rate :
       {from.flow.bps, from.up.bps, path(p->source, p->target).link.bps, to.down.bps})
    if (rate > 0) bps = std::min(bps, rate);
  const double fits = bps / 8e9 * double(kQuantum) / (p->segment_bytes + p->header_bytes);
  const unsigned k = std::max(1U, unsigned(fits));
  while (p->segments > k) advance(split(p, k), now);
}

void Emulator::run_until(Nanoseconds due) {
  while (!events_.empty() && events_.top().at <= due) {
    const Event event = events_.top();
    events_.pop();
    advance(event.packet, event.at);
  }
}

bool Emulator::through_flow_cap(Packet*& p, Nanoseconds& at) {
  Host& h = hosts_[p->source];
  if (h.flow.bps <= 0) return true;
  if (flows_.size() > kFlowsMax)
    for (auto i = flows_.begin(); i != flows_.end();)
      i = i->second < at ? flows_.erase(i) : std::next(i);
  return admit(h.flow, flows_[p->flow], p, at, h.count.drop_flow);
}

// Moves p on from its stage at time `at` until it has to wait or is gone.
void Emulator::advance(Packet* p, Nanoseconds at) {
  Host &from = hosts_[p->source], &to = hosts_[p->target];
  const Nanoseconds begun = at;
  switch (p->stage) {
    case kFlow:
      if (!through_flow_cap(p, at)) return;
      p->stage = kUp;
      if (at > begun) return schedule(at, p);
      [[fallthrough]];
    case kUp:
      if (!admit(from.up, from.up_next, p, at, from.count.drop_up)) return;
      p->stage = kPath;
      if (at > begun) return schedule(at, p);
      [[fallthrough]];
    case kPath: {
      Path& way = path(p->source, p->target);
      if (!admit(way.link, way.next, p, at, from.count.drop_path)) return;
      p->stage = kWire;
      if (at > begun) return schedule(at, p);
      [[fallthrough]];
    }
    case kWire:
      return cross_wire(p, at);
    case kDown:
      if (!admit(to.down, to.down_next, p, at, to.count.drop_down)) return;
      p->stage = kDeliver;
      if (at > begun) return schedule(at, p);
      [[fallthrough]];
    case kDeliver:
      return deliver(p, at);
  }
}

std::uint64_t Emulator::geometric(double probability) {  // failures before the first success
  if (probability >= 1) return 0;
  const double u = std::uniform_real_distribution<>(1e-18, 1)(random_);
  return std::uint64_t(std::min(std::log(u) / std::log1p(-probability), 1e15));
}

// Next run of delivered, then lost segments: independent losses for burst = 1, else a Gilbert model
// with that mean burst length; the mean rate is way.loss.
void Emulator::draw_loss(Path& way) {
  way.drawn = true;
  if (way.burst > 1) {
    way.good = 1 + geometric(std::min(1.0, way.loss / (way.burst * (1 - way.loss))));
    way.bad = 1 + geometric(1 / way.burst);
  } else {
    way.good = geometric(way.loss);
    way.bad = 1;
  }
}

// Applies losses and the propagation delay.
void Emulator::cross_wire(Packet* p, Nanoseconds t) {
  Path& way = path(p->source, p->target);
  Nanoseconds at = t + way.delay;
  if (way.jitter)
    at += Nanoseconds(double(way.jitter) * std::uniform_real_distribution<>()(random_));
  way.last = at = std::max(at, way.last);  // no reordering
  p->stage = kDown;
  while (way.loss > 0) {
    if (!way.drawn) draw_loss(way);
    if (way.good >= p->segments) {
      way.good -= p->segments;
      break;
    }
    if (way.good > 0) {
      schedule(at, split(p, unsigned(way.good)));
      way.good = 0;
    }
    const auto k = unsigned(std::min<std::uint64_t>(way.bad, p->segments));
    way.bad -= k;
    if (!way.bad) way.drawn = false;
    hosts_[p->source].count.lost += k;
    if (k == p->segments) {
      delete p;
      return;
    }
    delete split(p, k);
  }
  schedule(at, p);
}

void Emulator::deliver(Packet* p, Nanoseconds at) {
  Host& h = hosts_[p->target];
  if (h.cut || hosts_[p->source].cut || path(p->source, p->target).cut) {
    h.count.cut += p->segments;
  } else {
    iovec parts[3] = {{&p->vnet, sizeof p->vnet},
                      {p->header, p->header_bytes},
                      {const_cast<std::uint8_t*>(p->data), p->bytes}};
    if (writev(h.fd, parts, 3) > 0) {
      h.count.out += p->segments;
      h.count.bytes_out += p->wire_bytes();
    } else {
      h.count.other += p->segments;
    }
    const Nanoseconds late = now_ns() - at;
    late_max_ = std::max(late_max_, late);
    late_sum_ += double(late);
    late_1ms_ += late > 1'000'000;
    ++delivered_;
  }
  delete p;
}

std::string Emulator::stats() {
  std::ostringstream o;
  o << "{\"delivered\":" << delivered_ << ",\"late_max_us\":" << late_max_ / 1000
    << ",\"late_mean_us\":" << (delivered_ ? late_sum_ / double(delivered_) / 1e3 : 0)
    << ",\"late_over_1ms\":" << late_1ms_ << ",\"in_flight\":" << events_.size() << ",\"hosts\":[";
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    const Counters& n = hosts_[i].count;
    o << (i ? "," : "") << "{\"in\":" << n.in << ",\"out\":" << n.out
      << ",\"bytes_in\":" << n.bytes_in << ",\"bytes_out\":" << n.bytes_out
      << ",\"drop_flow\":" << n.drop_flow << ",\"drop_up\":" << n.drop_up
      << ",\"drop_path\":" << n.drop_path << ",\"drop_down\":" << n.drop_down
      << ",\"lost\":" << n.lost << ",\"cut\":" << n.cut << ",\"other\":" << n.other << "}";
  }
  o << "]}";
  late_max_ = 0;
  late_sum_ = 0;
  delivered_ = late_1ms_ = 0;
  return o.str();
}

bool Emulator::set_host(Host& h, const std::string& key, double value) {
  if (key == "up")
    h.up.bps = value;
  else if (key == "down")
    h.down.bps = value;
  else if (key == "queue")
    h.up.queue = h.down.queue = Nanoseconds(value);
  else if (key == "flow_rate")
    h.flow.bps = value;
  else if (key == "flow_queue")
    h.flow.queue = Nanoseconds(value);
  else if (key == "flow_police")
    h.flow.police = value != 0;
  else if (key == "cut")
    h.cut = value != 0;
  else
    return false;
  return true;
}

bool Emulator::set_path(Path& way, const std::string& key, double value) {
  if (key == "delay")
    way.delay = Nanoseconds(value);
  else if (key == "jitter")
    way.jitter = Nanoseconds(value);
  else if (key == "loss")
    way.loss = value, way.drawn = false;
  else if (key == "burst")
    way.burst = value, way.drawn = false;
  else if (key == "rate")
    way.link.bps = value;
  else if (key == "queue")
    way.link.queue = Nanoseconds(value);
  else if (key == "cut")
    way.cut = value != 0;
  else
    return false;
  return true;
}

std::string Emulator::control(const std::string& line) {
  std::istringstream in(line);
  std::string what, key;
  std::size_t a, b;
  double value;
  in >> what;
  if (what == "stats") return stats();
  if (what == "host" && in >> a >> key >> value && a < hosts_.size())
    return set_host(hosts_[a], key, value) ? "ok" : "error: host key " + key;
  if (what == "path" && in >> a >> b >> key >> value && std::max(a, b) < hosts_.size())
    return set_path(path(a, b), key, value) ? "ok" : "error: path key " + key;
  return "error: " + line;
}

}  // namespace wan
