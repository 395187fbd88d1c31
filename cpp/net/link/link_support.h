// What the tests of links share: two sides that send each other an array in chunks.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/crc32c.h"
#include "base/rng.h"
#include "net/link/link.h"
#include "net/test_support.h"

namespace jccl::net::test {

inline constexpr std::size_t kHeader = 16;  // u64 key, u32 bytes, u32 crc

inline Acks acks() {
  constexpr std::uint64_t kAck = UINT64_MAX;
  return {.make =
              [](const Ack& ack) {
                base::Writer writer;
                writer.u64(kAck);
                writer.u64(ack.frames << 1 | (ack.last ? 1 : 0));
                return writer.take();
              },
          .read = [](ByteView header) -> std::optional<Ack> {
            base::Reader reader(header);
            if (reader.u64() != kAck) return std::nullopt;
            const std::uint64_t ack = reader.u64();
            return Ack{ack >> 1, (ack & 1) == 1};
          }};
}

// One side: an array to send in chunks, an array to receive into.
struct Side final : DataSink {
  Side(std::size_t bytes, std::size_t chunk, std::uint64_t seed)
      : chunk_bytes(chunk), out(bytes), in(bytes) {
    base::Rng rng(seed);
    for (std::size_t i = 0; i + 8 <= bytes; i += 8) {
      const std::uint64_t value = rng.next();
      std::memcpy(out.data() + i, &value, 8);
    }
  }

  OutFrame frame_of(std::uint64_t key, bool urgent = false) const {
    const std::size_t at = key * chunk_bytes;
    const ByteView all = ByteView(out).subspan(at, std::min(chunk_bytes, out.size() - at));
    base::Writer writer;
    writer.u64(key);
    writer.u32(static_cast<std::uint32_t>(all.size()));
    writer.u32(base::crc32c(all));
    OutFrame frame;
    frame.header = writer.take();
    frame.payload = {all.first(all.size() / 3), ByteView{}, all.subspan(all.size() / 3)};
    frame.key = key;
    frame.urgent = urgent;
    return frame;
  }
  std::size_t chunks() const { return (out.size() + chunk_bytes - 1) / chunk_bytes; }
  void send_all() {
    for (std::uint64_t key = 0; key < chunks(); ++key) link->send(frame_of(key));
  }

  Placement place(ByteView header) override {
    if (hold) return Placement::pause();
    base::Reader reader(header);
    const std::uint64_t key = reader.u64();
    const std::uint32_t size = reader.u32();
    if (got.contains(key) || drain) return Placement::drain(size);
    if (const auto once = std::exchange(on_place, nullptr)) once();
    return Placement::into(MutableView(in).subspan(key * chunk_bytes, size));
  }
  Status arrived(ByteView header, std::uint64_t) override {
    base::Reader reader(header);
    const std::uint64_t key = reader.u64();
    const std::uint32_t size = reader.u32();
    const ByteView place = ByteView(in).subspan(key * chunk_bytes, size);
    if (base::crc32c(place) != reader.u32()) return Status{Code::kCorrupt, "crc"};
    got.insert(key);
    order.push_back(key);
    return {};
  }
  void lost(ByteView, std::uint64_t) override { ++losses; }

  LinkEvents events() {
    return {.on_sent = [this](std::uint64_t key) { sent.push_back(key); },
            .on_late =
                [this](const std::vector<std::uint64_t>& keys) {
                  late += keys.size();
                  for (const std::uint64_t key : keys) link->send(frame_of(key));
                },
            .on_stripe_lost =
                [this](const StripeLoss& loss) {
                  lost_stripes.push_back(loss);
                  if (!resend) return;
                  for (const std::uint64_t key : loss.keys) link->send(frame_of(key));
                },
            .on_dead =
                [this](Status status) {
                  ++dead;
                  dead_status = status;
                }};
  }

  std::size_t chunk_bytes;
  Bytes out;
  Bytes in;
  std::unique_ptr<Link> link;
  std::set<std::uint64_t> got;
  std::vector<std::uint64_t> order;
  std::vector<std::uint64_t> sent;
  std::vector<StripeLoss> lost_stripes;
  bool hold = false;
  bool drain = false;
  std::function<void()> on_place;  // of the next frame that is not drained
  bool resend = false;
  int losses = 0;
  std::size_t late = 0;
  int dead = 0;
  Status dead_status;
};

class LinkTest : public NetTest {
 protected:
  // ctest runs these tests once more like this.
  LinkTest() { io.used = std::getenv("JCCL_TEST_IO_THREADS") != nullptr; }
  ~LinkTest() override { drop(); }
  // Links live on the loop, and what their options name outlives them.
  void drop() {
    loop.call([&] { a.reset(), b.reset(); });
  }
  void open(std::size_t bytes, std::size_t chunk, std::size_t stripes,
            const Credentials& credentials = plain(), LinkOptions options = {}) {
    options.header_bytes = kHeader;
    if (io.used) options.io = &io;
    LinkOptions of_a = options;
    if (!a_hands_over) of_a.io = nullptr;
    drop();
    a = std::make_unique<Side>(bytes, chunk, 1);
    b = std::make_unique<Side>(bytes, chunk, 2);
    auto pairs = connect_link(credentials, stripes);
    ASSERT_EQ(pairs.size(), stripes);
    on([&] {
      a->link = std::make_unique<Link>(loop, of_a, a.get(), a->events());
      b->link = std::make_unique<Link>(loop, options, b.get(), b->events());
      for (Pair& pair : pairs) {
        a->link->add_stripe(std::move(pair.first));
        b->link->add_stripe(std::move(pair.second));
      }
    });
  }
  void add_stripe() {
    auto pairs = connect_link(plain());
    ASSERT_EQ(pairs.size(), 1u);
    on([&] {
      a->link->add_stripe(std::move(pairs[0].first));
      b->link->add_stripe(std::move(pairs[0].second));
    });
  }
  bool all_arrived() const { return a->got.size() == b->chunks() && b->got.size() == a->chunks(); }

  IoThreads io{loop};
  bool a_hands_over = true;  // false: its bytes are moved on the loop, whatever b does
  std::unique_ptr<Side> a;
  std::unique_ptr<Side> b;
};

}  // namespace jccl::net::test
