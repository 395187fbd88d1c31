// Many simulated peers in one thread: the control protocol alone (Hello, Resume, Ready, Done,
// heartbeats) over loopback, one epoll set, no data plane. It keeps every promise a peer gives the
// master, so the master can't tell it from real ones. For benchmarks.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/time.h"
#include "wire/serialize.h"

namespace jccl::bench {

struct Traffic {  // as the crowd sees it
  std::uint64_t sent = 0, sent_bytes = 0, received = 0, received_bytes = 0;
  Traffic operator-(const Traffic& from) const {
    return {sent - from.sent, sent_bytes - from.sent_bytes, received - from.received,
            received_bytes - from.received_bytes};
  }
};

struct CrowdOptions {
  std::string address;  // of the master, HOST:PORT with a numeric host
  std::size_t peers = 1;
  bool unequal_weights = false;  // each its own, as when weights are token counts
};

class Crowd {
 public:
  explicit Crowd(CrowdOptions options);
  ~Crowd();
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

  // Every peer connected, welcomed, resumed, and in possession of a roster.
  base::Status connect();
  // `rounds` rounds of each tag, all tags at once; a tag's next round begins `pace` after the
  // previous began, or at once when that is over. Times of the rounds in nanoseconds, per tag.
  base::Status run(std::size_t tags, std::size_t rounds, base::Duration pace,
                   std::map<wire::Tag, std::vector<base::Duration>>* times);
  // Heartbeats alone.
  base::Status idle(base::Duration span);
  // One peer leaves, a new one connects; ends when it is resumed.
  base::Status replace_one();

  const Traffic& traffic() const { return traffic_; }
  std::uint64_t wrong() const { return wrong_; }  // outcomes that are not what they must be

 private:
  struct Peer {
    int fd = -1;
    wire::Incarnation incarnation = 0;
    std::string site;
    bool resumed = false;  // has a roster
    bool fresh = true;     // no READY yet: the first makes it a member
    bool writing = false;  // the socket was full; epoll tells when it is not
    base::Bytes in, out;
    std::size_t in_at = 0;
  };
  struct TagRun {
    std::uint64_t n = 0;
    std::size_t started = 0, ended = 0, left = 0;
    base::Attempt attempt;
    base::Time began = 0, next = base::kNever;  // kNever: a round is under way
    std::vector<base::Duration> times;
  };

  base::Status open_one(std::size_t index);
  base::Status poll(base::Time until);
  base::Status read(std::size_t index);
  base::Status parse(std::size_t index);
  base::Status hear(std::size_t index, const wire::Message& message);
  base::Status flush(std::size_t index);
  base::Status say(std::size_t index, const wire::Message& message);
  base::Status beat(base::Time now);
  base::Status begin_round(const wire::Tag& tag, TagRun* run, base::Time now);
  base::Status say_ready(const wire::Ready& ready, const std::vector<std::size_t>& peers);
  void hear_outcome(const wire::Outcome& outcome);
  base::Status lost(std::size_t index, const std::string& why) const;

  const CrowdOptions options_;
  int epoll_ = -1;
  std::vector<Peer> peers_;
  std::size_t resumed_ = 0;
  wire::Incarnation last_incarnation_ = 0;
  std::map<wire::Tag, TagRun> runs_;
  base::Duration pace_ = 0;
  base::Duration heartbeat_ = 500 * base::kMillisecond;
  base::Time next_beat_ = base::kNever;
  std::size_t beat_index_ = 0;
  std::uint64_t beats_ = 0, calls_ = 0;
  Traffic traffic_;
  std::uint64_t wrong_ = 0;
};

base::Time steady_now();

}  // namespace jccl::bench
