// Sealed streams: their bytes, what a network in the middle makes of them, and how they end.
#include "net/security/sealed_stream.h"

#include <algorithm>
#include <cstring>
#include <fstream>

#include "base/rng.h"
#include "net/link/link.h"
#include "net/security/sealed_support.h"

namespace jccl::net::test {
namespace {

constexpr std::size_t kHeaderBytes = 40;  // of a data frame

SealSecret secret_of_byte(std::uint8_t byte) {
  SealSecret out;
  out.fill(byte);
  return out;
}

Bytes noise_of(std::size_t size, std::uint64_t seed) {
  base::Rng rng(seed);
  Bytes out(size);
  for (std::uint8_t& byte : out) byte = static_cast<std::uint8_t>(rng.next());
  return out;
}

// The network under one end, as the test wishes it.
struct Network {
  Bytes to_read;  // by this end
  std::size_t read_at_once = SIZE_MAX;
  Bytes written;  // by this end
  std::size_t room = SIZE_MAX;
  Status failure;
  bool shut = false;
  std::size_t reads = 0;
};

class NetworkStream final : public ByteStream {
 public:
  explicit NetworkStream(Network* network) : network_(network) {}
  void when_readable(std::function<void()>) override {}
  void when_writable(std::function<void()> fn) override { writable_ = std::move(fn); }
  void shut_write() override { network_->shut = true; }
  const Status& failure() const override {
    return network_->to_read.empty() ? network_->failure : alive_;
  }
  StreamStats stats() const override { return {}; }
  void pace(std::uint64_t) override {}
  Time last_received() const override { return 0; }
  std::string remote_text() const override { return "10.0.0.7:4711"; }
  bool remote_is_loopback() const override { return false; }
  bool is_tls() const override { return false; }
  void has_room() {
    if (const auto fn = std::exchange(writable_, nullptr)) fn();
  }

 protected:
  std::size_t read_some(std::span<const MutableView> parts) override {
    ++network_->reads;
    std::size_t total = 0;
    for (const MutableView& part : parts) {
      const std::size_t n =
          std::min({part.size(), network_->to_read.size(), network_->read_at_once - total});
      if (n > 0) std::memcpy(part.data(), network_->to_read.data(), n);
      network_->to_read.erase(network_->to_read.begin(),
                              network_->to_read.begin() + static_cast<std::ptrdiff_t>(n));
      total += n;
    }
    return total;
  }
  std::size_t write_some(std::span<const ByteView> parts) override {
    std::size_t total = 0;
    for (const ByteView& part : parts) {
      const std::size_t n = std::min(part.size(), network_->room);
      network_->written.insert(network_->written.end(), part.begin(),
                               part.begin() + static_cast<std::ptrdiff_t>(n));
      network_->room -= n;
      total += n;
    }
    return total;
  }

 private:
  Network* network_;
  Status alive_;
  std::function<void()> writable_;
};

struct SealedEnd {
  explicit SealedEnd(std::uint8_t writing = 1, std::uint8_t reading = 2,
                     std::uint64_t records_per_key = kRecordsPerKey) {
    SealSecrets secrets{secret_of_byte(writing), secret_of_byte(reading)};
    auto under = std::make_unique<NetworkStream>(&network);
    lower = under.get();
    stream = sealed_stream(std::move(under), secrets, records_per_key);
  }
  std::size_t write(ByteView bytes) { return stream->write_now({&bytes, 1}); }
  // What can be read, in one piece.
  Bytes read(std::size_t most = 1 << 20) {
    Bytes out(most);
    std::size_t at = 0;
    while (at < most) {
      const std::size_t n = stream->read_now(MutableView(out).subspan(at));
      if (n == 0) break;
      at += n;
    }
    out.resize(at);
    return out;
  }
  Network network;
  NetworkStream* lower;
  std::unique_ptr<ByteStream> stream;
};

Bytes one_after_another(const std::vector<Bytes>& records) {
  Bytes out;
  for (const Bytes& record : records) out.insert(out.end(), record.begin(), record.end());
  return out;
}

// What one end sealed of three texts, and one that reads something made of it.
struct Tampered {
  Tampered() {
    SealedEnd sender;
    for (const char* text : {"first", "second", "third"}) sender.write(bytes_of(text));
    records = records_of(sender.network.written);
  }
  // What was read, and that reading has ended by it.
  std::string read(const Bytes& sealed) {
    SealedEnd reader(2, 1);
    reader.network.to_read = sealed;
    const Bytes got = reader.read();
    status = reader.stream->failure();
    EXPECT_EQ(reader.read(), Bytes()) << "it reads on";
    return text_of(got);
  }
  std::vector<Bytes> records;
  Status status;
};

TEST(SealedStreamTest, what_is_sent_has_these_bytes) {
  // By a key for two records: so the third is of the next. Computed with Python, see the file.
  std::ifstream file(std::string(JCCL_TEST_DATA) + "/sealed_v1.hex");
  std::string expected;
  SealedEnd end(1, 2, 2);
  for (const Bytes& bytes : {bytes_of("one"), Bytes(40), bytes_of("three")}) {
    EXPECT_EQ(end.write(bytes), bytes.size());
  }
  end.stream->shut_write();
  for (const Bytes& record : records_of(end.network.written)) {
    ASSERT_TRUE(file >> expected);
    EXPECT_EQ(base::to_hex(ByteView(record)), expected);
  }
  EXPECT_FALSE(file >> expected);
  EXPECT_TRUE(end.network.shut);
}

TEST(SealedStreamTest, bytes_come_out_as_they_went_in_whatever_the_pieces) {
  for (const std::size_t at_once : {std::size_t{1}, std::size_t{77}, std::size_t{70'001}}) {
    SealedEnd sender(1, 2, 5), reader(2, 1, 5);
    base::Rng rng(at_once);
    const Bytes data = noise_of(at_once == 1 ? 20'000 : 1'500'000, at_once);
    Bytes got;
    for (std::size_t sent = 0; sent < data.size() || !reader.network.to_read.empty();) {
      const ByteView rest = ByteView(data).subspan(sent);
      const ByteView parts[] = {rest.first(std::min<std::size_t>(rest.size(), rng.next() % 60)),
                                rest.subspan(0, 0), rest};
      const ByteView given[] = {parts[0], parts[1], rest.subspan(parts[0].size())};
      if (sent < data.size()) sent += sender.stream->write_now(given);
      reader.network.to_read.insert(reader.network.to_read.end(), sender.network.written.begin(),
                                    sender.network.written.end());
      sender.network.written.clear();
      reader.network.read_at_once = at_once;
      for (;;) {
        Bytes small(rng.next() % 50), large(1 + rng.next() % 300'000);
        const MutableView into[] = {small, large};
        const std::size_t n = reader.stream->read_now(into);
        got.insert(got.end(), small.begin(),
                   small.begin() + static_cast<std::ptrdiff_t>(std::min(n, small.size())));
        if (n > small.size()) {
          got.insert(got.end(), large.begin(),
                     large.begin() + static_cast<std::ptrdiff_t>(n - small.size()));
        }
        if (n == 0) break;
      }
    }
    EXPECT_TRUE(reader.stream->failure().ok()) << reader.stream->failure().text;
    EXPECT_TRUE(got == data);
  }
}

// So that a payload is decrypted where it belongs, and not before its header said where that is.
TEST(SealedStreamTest, a_payload_has_records_of_its_own_and_the_next_header_ends_the_last) {
  SealedEnd sender, reader(2, 1);
  const Bytes header = noise_of(kHeaderBytes, 1), payload = noise_of(kSealedBytesMax + 9000, 2);
  const ByteView parts[] = {header, payload, header, payload};
  EXPECT_EQ(sender.stream->write_now(parts), 2 * (header.size() + payload.size()));
  EXPECT_EQ(sizes_of(sender.network.written),
            (std::vector<std::size_t>{kHeaderBytes, kSealedBytesMax, 9000 + kHeaderBytes,
                                      kSealedBytesMax, 9000}));
}

TEST(SealedStreamTest, nothing_has_come_before_all_of_its_record_has) {
  SealedEnd sender, reader(2, 1);
  const Bytes data = noise_of(5000, 3);
  sender.write(data);
  const Bytes sealed = sender.network.written;
  reader.network.to_read.assign(sealed.begin(), sealed.end() - 1);
  EXPECT_EQ(reader.read(), Bytes());
  EXPECT_TRUE(reader.stream->failure().ok());
  reader.network.to_read = {sealed.back()};
  EXPECT_EQ(reader.read(), data);
}

TEST(SealedStreamTest, a_bit_that_flips_anywhere_ends_it_before_the_record) {
  Tampered wire;
  for (std::size_t bit = 0; bit < 8 * wire.records[1].size(); ++bit) {
    std::vector<Bytes> records = wire.records;
    records[1][bit / 8] ^= static_cast<std::uint8_t>(1 << bit % 8);
    // A longer length alone would wait for bytes that never come.
    records.push_back(Bytes(kSealedBytesMax + kSealOverhead));
    EXPECT_EQ(wire.read(one_after_another(records)), "first") << "bit " << bit;
    EXPECT_EQ(wire.status.code, Code::kLinkLost) << "bit " << bit;
  }
}

TEST(SealedStreamTest, records_that_are_repeated_left_out_or_exchanged_end_it) {
  Tampered wire;
  const std::vector<Bytes>& r = wire.records;
  EXPECT_EQ(wire.read(one_after_another(r)), "firstsecondthird");
  EXPECT_TRUE(wire.status.ok());
  for (const auto& records : {std::vector{r[0], r[0]}, std::vector{r[0], r[2]},
                              std::vector{r[0], r[2], r[1]}, std::vector{r[0], r[0], r[1]}}) {
    EXPECT_EQ(wire.read(one_after_another(records)), "first");
    EXPECT_EQ(wire.status.code, Code::kLinkLost);
  }
  EXPECT_EQ(wire.read(one_after_another({r[1]})), "");
  EXPECT_EQ(wire.read(one_after_another({r[0], r[1], r[2], r[0]})), "firstsecondthird");
  EXPECT_EQ(wire.status.code, Code::kLinkLost);
}

TEST(SealedStreamTest, a_record_of_another_direction_or_connection_is_none) {
  Tampered wire;
  for (const std::uint8_t sealed_by : {2, 3}) {
    SealedEnd sender(sealed_by, 9);
    sender.write(bytes_of("other"));
    EXPECT_EQ(wire.read(sender.network.written), "");
    EXPECT_EQ(wire.status.code, Code::kLinkLost);
  }
}

TEST(SealedStreamTest, the_same_bytes_are_never_sealed_the_same_way) {
  SealedEnd sender(1, 2, 3);
  std::vector<Bytes> seen;
  for (int i = 0; i < 12; ++i) sender.write(bytes_of("the same bytes"));
  std::vector<Bytes> records = records_of(sender.network.written);
  ASSERT_EQ(records.size(), 12u);
  std::sort(records.begin(), records.end());
  EXPECT_EQ(std::adjacent_find(records.begin(), records.end()), records.end());
}

TEST(SealedStreamTest, keys_change_and_both_ends_go_on) {
  SealedEnd a(1, 2, 3), b(2, 1, 3);
  for (int i = 0; i < 200; ++i) {
    const Bytes there = noise_of(100, static_cast<std::uint64_t>(i)), back = noise_of(7, 9);
    a.write(there);
    b.network.to_read = std::exchange(a.network.written, {});
    ASSERT_EQ(b.read(), there) << "record " << i;
    b.write(back);
    a.network.to_read = std::exchange(b.network.written, {});
    ASSERT_EQ(a.read(), back) << "record " << i;
  }
  // Of an end that changes its keys later nothing is taken from then on.
  SealedEnd late(1, 2, 4), reader(2, 1, 3);
  for (const char* text : {"a", "b", "c", "d"}) late.write(bytes_of(text));
  reader.network.to_read = late.network.written;
  EXPECT_EQ(text_of(reader.read()), "abc");
  EXPECT_FALSE(reader.stream->failure().ok());
}

TEST(SealedStreamTest, an_end_is_sealed_too) {
  SealedEnd sender;
  sender.write(bytes_of("all"));
  const Bytes said = sender.network.written;
  sender.stream->shut_write();
  EXPECT_TRUE(sender.network.shut);
  EXPECT_EQ(sender.write(bytes_of("more")), 0u);

  SealedEnd told(2, 1);
  told.network.to_read = sender.network.written;
  EXPECT_EQ(text_of(told.read()), "all");
  EXPECT_EQ(told.stream->failure().text, "10.0.0.7:4711 closed the connection");

  SealedEnd cut(2, 1);
  cut.network.to_read = said;
  cut.network.failure = {Code::kLinkLost, "10.0.0.7:4711 closed the connection"};
  EXPECT_EQ(text_of(cut.read()), "all");
  EXPECT_EQ(cut.stream->failure().text, "10.0.0.7:4711 closed the connection, without a last word");

  SealedEnd forged(2, 1);
  forged.network.to_read = said;
  forged.network.to_read.resize(said.size() + kSealOverhead);  // a length of 0, a tag of zeros
  EXPECT_EQ(text_of(forged.read()), "all");
  EXPECT_EQ(forged.stream->failure().text, "10.0.0.7:4711 sent a record whose seal is broken");
}

TEST(SealedStreamTest, a_record_longer_than_any_is_refused_by_its_head) {
  SealedEnd reader(2, 1);
  reader.network.to_read.resize(kSealHeadBytes);
  Seal::put_size(kSealedBytesMax + 1, reader.network.to_read.data());
  EXPECT_EQ(reader.read(), Bytes());
  EXPECT_EQ(reader.stream->failure().text, "10.0.0.7:4711 sent a record that is too long");
}

// Else a turn of the loop, which is so many bytes or reads, lasts as long as the sender likes.
TEST(SealedStreamTest, a_read_opens_no_more_records_than_a_few_however_short_they_are) {
  SealedEnd sender, reader(2, 1);
  const Bytes data = noise_of(1000, 7);
  for (std::size_t i = 0; i < data.size(); ++i) sender.write(ByteView(data).subspan(i, 1));
  reader.network.to_read = sender.network.written;
  Bytes got(data.size());
  std::size_t at = 0;
  for (std::size_t reads = 0; at < got.size(); ++reads) {
    const std::size_t n = reader.stream->read_now(MutableView(got).subspan(at));
    ASSERT_GT(n, 0u);
    EXPECT_LE(n, 4u);
    at += n;
  }
  EXPECT_TRUE(got == data);
}

TEST(SealedStreamTest, what_the_network_does_not_take_at_once_leaves_later) {
  SealedEnd sender, reader(2, 1);
  sender.network.room = 1000;
  const Bytes data = noise_of(400'000, 5);
  std::size_t sent = sender.write(data);
  EXPECT_EQ(sent, kSealedBytesMax);  // one record, of which most waits
  EXPECT_EQ(sender.write(ByteView(data).subspan(sent)), 0u);
  bool told = false;
  sender.stream->when_writable([&] { told = true; });
  sender.network.room = 1000;
  sender.lower->has_room();
  EXPECT_FALSE(told);  // still full
  sender.network.room = SIZE_MAX;
  sender.lower->has_room();
  EXPECT_TRUE(told);
  while (sent < data.size()) sent += sender.write(ByteView(data).subspan(sent));
  reader.network.to_read = sender.network.written;
  EXPECT_TRUE(reader.read() == data);
}

TEST(SealedStreamTest, what_came_before_a_write_failed_can_be_read) {
  SealedEnd sender(2, 1), end;
  sender.write(bytes_of("last words"));
  end.network.to_read = sender.network.written;
  end.network.room = 0;
  end.network.failure = {Code::kLinkLost, "reset"};
  end.write(bytes_of("unheard"));
  EXPECT_EQ(text_of(end.read()), "last words");
  EXPECT_FALSE(end.stream->failure().ok());
}

TEST(SealedStreamTest, of_what_an_earlier_owner_left_nothing_is_lost) {
  Network network;
  auto lower = std::make_unique<NetworkStream>(&network);
  SealedEnd sender(2, 1), reader(2, 1);
  sender.write(bytes_of("early"));
  lower->unread(sender.network.written);
  lower->write_ahead(bytes_of("under TLS"));
  NetworkStream* under = lower.get();
  network.room = 4;
  auto stream = sealed_stream(std::move(lower), {secret_of_byte(1), secret_of_byte(2)});
  network.room = SIZE_MAX;
  under->has_room();
  EXPECT_EQ(text_of(network.written), "under TLS");
  Bytes got(20);
  got.resize(stream->read_now(got));
  EXPECT_EQ(text_of(got), "early");
}

// Frames have no check of their own on sealed links: what is sealed after its owner let it go must
// be what it was.
TEST(SealedStreamTest, a_frame_half_sealed_when_its_owner_lets_go_is_sent_as_it_was) {
  struct Nobody final : DataSink {
    Placement place(ByteView) override { return Placement::ack(); }
    Status arrived(ByteView, std::uint64_t) override { return {}; }
    void lost(ByteView, std::uint64_t) override {}
  } nobody;
  for (const bool keeps : {false, true}) {
    Loop loop;
    loop.start();
    SealedEnd sender, reader(2, 1);
    Bytes memory = noise_of(1 << 20, 9);
    const Bytes original = memory;
    sender.network.room = 300'000;
    std::unique_ptr<Link> link;
    loop.call([&] {
      LinkOptions options;
      options.header_bytes = kHeaderBytes;
      link = std::make_unique<Link>(loop, options, &nobody, LinkEvents{});
      link->add_stripe(std::move(sender.stream));
      OutFrame frame;
      frame.header = Bytes(kHeaderBytes, 3);
      frame.payload = {ByteView(memory).first(5000), ByteView(memory).subspan(5000)};
      link->send(std::move(frame));
    });
    for (std::size_t left = 1; left > 0;) loop.call([&] { left = sender.network.room; });
    loop.call([&] {
      EXPECT_TRUE(link->sending());
      const auto all = [](std::uint64_t) { return true; };
      keeps ? link->own(all) : link->abandon_sending(all);
      std::fill(memory.begin(), memory.end(), 0);
      sender.network.room = SIZE_MAX;
      sender.lower->has_room();
    });
    for (int i = 0; i < 100; ++i) loop.call([] {});
    loop.call([&] {
      EXPECT_FALSE(link->sending());
      reader.network.to_read = sender.network.written;
    });
    const Bytes got = reader.read(2 << 20);
    ASSERT_EQ(got.size(), kHeaderBytes + original.size());
    EXPECT_TRUE(std::equal(original.begin(), original.end(), got.begin() + kHeaderBytes));
    loop.call([&] { link.reset(); });
    loop.stop();
  }
}

}  // namespace
}  // namespace jccl::net::test
