// The emulated network: packets, links as virtual clocks, paths with delay and loss, counters. It
// opens nothing and reads no socket; packets come by ingest() and leave by a write to the device of
// their destination. One thread.
//
// A packet walks through the stages
//
//   flow cap -> uplink -> path (rate, loss, delay) -> downlink -> deliver
//
// A rate stage is a virtual clock: `next` is the moment the link runs idle, so the queue is
// (next - now) and nothing is stored but the packets themselves, in one heap ordered by time.
//
// Packets are read with the kernel's TSO offload on, i.e. as super-packets of up to 64 KiB, which
// makes multi-Gbit/s rates cheap. They are no atoms, however: queues and losses act on the
// MTU-sized segments inside, and super-packets longer than 0.25 ms on the slowest link they meet
// are cut, so that bursts stay short compared to RTTs. Checksums stay "partial" all along (the
// kernel trusts them), hence a cut costs a header copy and nothing more.
#pragma once

#include <netinet/ip.h>
#include <netinet/tcp.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <queue>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

namespace wan {

using Nanoseconds = std::int64_t;

Nanoseconds now_ns();

enum Stage : std::uint8_t { kFlow, kUp, kPath, kWire, kDown, kDeliver };

// struct virtio_net_hdr; its own header (linux/virtio_net.h) isn't valid C++.
struct VnetHeader {
  std::uint8_t flags, gso_type;
  std::uint16_t hdr_len, gso_size, csum_start, csum_offset;
};
static_assert(sizeof(VnetHeader) == 10);

struct Packet {
  VnetHeader vnet{};
  std::uint8_t header[120];       // IPv4 and TCP header, kept apart for super-packets only
  std::uint8_t header_bytes = 0;  // 0: the headers are part of data
  std::uint8_t gso_type = 0;      // of the super-packet this one came from
  std::uint8_t source = 0, target = 0;
  Stage stage = kFlow;
  unsigned segments = 1, segment_bytes = 0;
  std::uint32_t bytes = 0;  // at data
  const std::uint8_t* data = nullptr;
  std::shared_ptr<std::uint8_t[]> buffer;  // owns data
  std::uint64_t flow = 0;
  Nanoseconds span = 0;  // the time its bytes took to arrive at the current stage

  std::uint32_t wire_bytes() const { return bytes + segments * header_bytes; }
  iphdr* ip() { return reinterpret_cast<iphdr*>(header); }
  tcphdr* tcp() { return reinterpret_cast<tcphdr*>(header + ip()->ihl * 4); }
};

struct Link {             // the settings of a rate stage
  double bps = 0;         // 0: unlimited
  Nanoseconds queue = 0;  // longest time a packet may wait; a policer's burst
  bool police = false;    // drop what exceeds the rate, delay nothing
};

struct Counters {  // segments, IP bytes
  std::uint64_t in = 0, out = 0, bytes_in = 0, bytes_out = 0;
  std::uint64_t drop_flow = 0, drop_up = 0, drop_path = 0, drop_down = 0;
  std::uint64_t lost = 0, cut = 0, other = 0;
};

struct Host {
  int fd = -1;  // its device, opened by the caller
  Link up, down, flow;
  Nanoseconds up_next = 0, down_next = 0;
  bool cut = false;
  Counters count;
};

struct Path {
  Link link;
  Nanoseconds next = 0, delay = 0, jitter = 0, last = 0;
  double loss = 0, burst = 1;
  std::uint64_t good = 0, bad = 0;  // segments until the next loss; losses to come
  bool drawn = false, cut = false;
};

class Emulator {
 public:
  Emulator(std::vector<Host> hosts, std::uint64_t seed);

  int device(std::size_t host) const { return hosts_[host].fd; }
  std::size_t host_count() const { return hosts_.size(); }

  // Takes over the `bytes` at `buffer`, read from the host's device.
  void ingest(std::size_t host, const std::shared_ptr<std::uint8_t[]>& buffer, std::size_t bytes);
  // Moves on everything that is due until then.
  void run_until(Nanoseconds due);
  // When the next packet is due; -1: there is none.
  Nanoseconds next_due() const { return events_.empty() ? -1 : events_.top().at; }

  // `host I KEY VALUE`, `path I J KEY VALUE` (rates in bit/s, times in ns, loss a fraction) or
  // `stats`; answers "ok", JSON, or "error: ...".
  std::string control(const std::string& line);

 private:
  struct Event {
    Nanoseconds at;
    std::uint64_t sequence;  // first in, first out among equals
    Packet* packet;
    bool operator<(const Event& other) const {
      return at != other.at ? at > other.at : sequence > other.sequence;
    }
  };

  Path& path(std::size_t source, std::size_t target) {
    return paths_[source * hosts_.size() + target];
  }
  void schedule(Nanoseconds at, Packet* packet) { events_.push({at, sequence_++, packet}); }
  std::unique_ptr<Packet> packet_of(std::size_t host, const std::shared_ptr<std::uint8_t[]>& buffer,
                                    std::size_t bytes);
  void cut_to_quantum(Packet* packet, Nanoseconds now);
  void advance(Packet* packet, Nanoseconds at);
  bool through_flow_cap(Packet*& packet, Nanoseconds& at);
  void cross_wire(Packet* packet, Nanoseconds at);
  void deliver(Packet* packet, Nanoseconds at);
  std::uint64_t geometric(double probability);
  void draw_loss(Path& path);
  bool set_host(Host& host, const std::string& key, double value);
  bool set_path(Path& path, const std::string& key, double value);
  std::string stats();

  std::vector<Host> hosts_;
  std::vector<Path> paths_;  // [source * hosts + target]
  std::priority_queue<Event> events_;
  std::unordered_map<std::uint64_t, Nanoseconds> flows_;  // 5-tuple -> its clock
  std::mt19937_64 random_;
  std::uint64_t sequence_ = 0, delivered_ = 0, late_1ms_ = 0;
  Nanoseconds late_max_ = 0;
  double late_sum_ = 0;
};

}  // namespace wan
