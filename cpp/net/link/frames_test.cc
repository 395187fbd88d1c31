#include "net/link/frames.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>

#include "base/crc32c.h"
#include "base/rng.h"
#include "net/link/fake_stream.h"
#include "net/test_support.h"

namespace jccl::net::test {
namespace {

Bytes control_frame(const Bytes& payload) {
  base::Writer writer;
  writer.u32(static_cast<std::uint32_t>(payload.size()));
  writer.u32(base::crc32c(payload));
  writer.raw(payload.data(), payload.size());
  return writer.take();
}

Bytes joined(const std::vector<Bytes>& parts) {
  Bytes out;
  for (const Bytes& part : parts) out.insert(out.end(), part.begin(), part.end());
  return out;
}

// A framed stream over a fake, on a loop that runs only while asked.
class FramesTest : public NetTest {
 protected:
  ~FramesTest() override {
    loop.call([&] { framed.reset(); });
  }
  void open(FramedOptions options = {}) {
    on([&] {
      auto stream = std::make_unique<FakeStream>();
      fake = stream.get();
      framed = std::make_unique<FramedStream>(loop, std::move(stream), options);
      framed->start(
          [this](ByteView frame) {
            got.push_back(text_of(frame));
            if (on_frame) on_frame();
          },
          [this](Status s) {
            ++closed;
            status = s;
          });
    });
    turn();
  }
  void give(Bytes bytes) {
    on([&] { fake->give(std::move(bytes)); });
    turn();
  }
  void turn() {
    for (int i = 0; i < 3; ++i) on([] {});
  }

  FakeStream* fake = nullptr;
  std::unique_ptr<FramedStream> framed;
  std::vector<std::string> got;
  std::function<void()> on_frame;
  int closed = 0;
  Status status;
};

TEST_F(FramesTest, frames_survive_being_split_at_every_byte) {
  const Bytes all = joined({control_frame(bytes_of("first")), control_frame({}),
                            control_frame(Bytes(300, 'x')), control_frame(bytes_of("last"))});
  const std::vector<std::string> wanted = {"first", "", std::string(300, 'x'), "last"};
  for (std::size_t cut = 0; cut <= all.size(); ++cut) {
    got.clear();
    open();
    const auto middle = all.begin() + static_cast<std::ptrdiff_t>(cut);
    on([&] {
      fake->give({all.begin(), middle});
      fake->give({middle, all.end()});
    });
    turn();
    ASSERT_EQ(got, wanted) << "cut at " << cut;
    ASSERT_EQ(closed, 0);
  }
}

TEST_F(FramesTest, frames_survive_coming_byte_by_byte) {
  open();
  for (const std::uint8_t byte : joined({control_frame(bytes_of("slow")), control_frame({})})) {
    on([&] { fake->give({byte}); });
  }
  turn();
  EXPECT_EQ(got, (std::vector<std::string>{"slow", ""}));
}

TEST_F(FramesTest, before_authentication_a_frame_over_the_hello_size_closes) {
  open();
  give(control_frame(Bytes(base::kHelloBytesMax, 'a')));
  EXPECT_EQ(got.size(), 1u);
  give(control_frame(Bytes(base::kHelloBytesMax + 1, 'a')));
  EXPECT_EQ(got.size(), 1u);
  EXPECT_EQ(closed, 1);
  EXPECT_EQ(status.code, Code::kLimit);
}

TEST_F(FramesTest, after_authentication_frames_may_be_larger_up_to_the_hard_limit) {
  open();
  on([&] { framed->authenticated(); });
  give(control_frame(Bytes(base::kControlBytesMax, 'a')));
  EXPECT_EQ(got.size(), 1u);
  give({1, 0, 1, 0});  // the size alone is enough to refuse
  EXPECT_EQ(status.code, Code::kLimit);
}

TEST_F(FramesTest, while_paused_no_frame_comes_and_afterwards_all_do) {
  on_frame = [&] { framed->pause(); };
  open();
  give(joined({control_frame(bytes_of("one")), control_frame(bytes_of("two"))}));
  give(control_frame(bytes_of("three")));
  EXPECT_EQ(got, (std::vector<std::string>{"one"}));
  for (const std::size_t more : {2u, 3u}) {
    on([&] { framed->resume(); });
    turn();
    EXPECT_EQ(got.size(), more);
  }
  EXPECT_EQ(got, (std::vector<std::string>{"one", "two", "three"}));
}

TEST_F(FramesTest, an_announced_frame_takes_memory_only_as_it_arrives) {
  open({.frame_bytes_max = base::kRosterBytesMax});
  on([&] { framed->authenticated(); });
  const Bytes frame = control_frame(Bytes(base::kRosterBytesMax, 'a'));
  std::size_t given = 0;
  for (const std::size_t bytes : {8u, 100u, 10'000u, 300'000u}) {
    give({frame.begin() + static_cast<std::ptrdiff_t>(given),
          frame.begin() + static_cast<std::ptrdiff_t>(given + bytes)});
    given += bytes;
    on([&] { EXPECT_LE(framed->held_bytes(), 4 * given + 8192) << bytes; });
  }
  give({frame.begin() + static_cast<std::ptrdiff_t>(given), frame.end()});
  EXPECT_EQ(got.size(), 1u);
}

TEST_F(FramesTest, a_changed_bit_closes_the_stream) {
  const Bytes good = control_frame(bytes_of("payload"));
  for (std::size_t bit = 32; bit < good.size() * 8; ++bit) {
    Bytes bad = good;
    bad[bit / 8] ^= static_cast<std::uint8_t>(1 << bit % 8);
    closed = 0;
    open();
    give(bad);
    ASSERT_EQ(closed, 1) << bit;
    ASSERT_EQ(status.code, Code::kCorrupt);
  }
  EXPECT_TRUE(got.empty());
}

TEST_F(FramesTest, the_end_of_the_stream_is_reported_once) {
  open();
  on([&] { fake->end(); });
  turn();
  EXPECT_EQ(closed, 1);
  EXPECT_EQ(status.code, Code::kLinkLost);
  on([&] {
    EXPECT_EQ(framed->send(bytes_of("late")).code, Code::kClosed);
    EXPECT_EQ(framed->stream(), nullptr);
  });
}

TEST_F(FramesTest, frames_queued_in_one_turn_leave_in_one_write) {
  open();
  on([&] {
    for (const char* text : {"a", "b", "c"}) EXPECT_TRUE(framed->send(bytes_of(text)).ok());
    EXPECT_EQ(fake->writes, 0u);
  });
  turn();
  EXPECT_EQ(fake->writes, 1u);
  EXPECT_EQ(fake->written, joined({control_frame(bytes_of("a")), control_frame(bytes_of("b")),
                                   control_frame(bytes_of("c"))}));
}

TEST_F(FramesTest, the_queue_is_bounded_and_goes_on_when_there_is_room) {
  open({.queue_bytes_max = 100});
  on([&] {
    fake->room = 5;
    EXPECT_TRUE(framed->send(Bytes(80, 'a')).ok());
    EXPECT_EQ(framed->send(Bytes(80, 'b')).code, Code::kLimit);
  });
  turn();
  on([&] {
    EXPECT_EQ(framed->queued_bytes(), 83u);
    fake->room = SIZE_MAX;
    FakeStream::wake(fake->on_writable);
    EXPECT_EQ(framed->queued_bytes(), 0u);
    EXPECT_TRUE(framed->send(Bytes(80, 'b')).ok());
    EXPECT_EQ(framed->send(Bytes(base::kControlBytesMax + 1, 'b')).code, Code::kLimit);
  });
  turn();
  EXPECT_EQ(fake->written, joined({control_frame(Bytes(80, 'a')), control_frame(Bytes(80, 'b'))}));
}

TEST_F(FramesTest, a_queue_that_was_long_gives_its_memory_back) {
  open();
  on([&] {
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(framed->send(Bytes(60'000, 'a')).ok());
    EXPECT_GT(framed->held_bytes(), 240'000u);
  });
  turn();
  on([&] {
    EXPECT_EQ(framed->queued_bytes(), 0u);
    EXPECT_LT(framed->held_bytes(), 60'000u);
  });
}

TEST_F(FramesTest, a_frame_that_was_long_gives_its_memory_back) {
  open({.frame_bytes_max = 400'000});
  on([&] { framed->authenticated(); });
  give(control_frame(Bytes(300'000, 'a')));
  give(control_frame({'b'}));
  ASSERT_EQ(got.size(), 2u);
  on([&] { EXPECT_LT(framed->held_bytes(), 100'000u); });
}

TEST_F(FramesTest, the_stream_may_be_closed_and_freed_in_its_own_callback) {
  on_frame = [&] { framed.reset(); };
  open();
  give(joined({control_frame(bytes_of("one")), control_frame(bytes_of("two"))}));
  EXPECT_EQ(got, (std::vector<std::string>{"one"}));
  EXPECT_EQ(closed, 0);
}

TEST_F(FramesTest, taking_the_stream_hands_on_what_was_read_too_far_and_what_is_unsent) {
  std::unique_ptr<ByteStream> taken;
  on_frame = [&] {
    fake->room = 3;
    EXPECT_TRUE(framed->send(bytes_of("reply")).ok());
    taken = framed->take();
  };
  open();
  give(joined({control_frame(bytes_of("hello")), bytes_of("data behind it")}));
  on([&] {
    ASSERT_NE(taken, nullptr);
    Bytes rest(100);
    rest.resize(taken->read_now(rest));
    EXPECT_EQ(text_of(rest), "data behind it");
    EXPECT_FALSE(taken->flush_ahead());
    fake->room = SIZE_MAX;
    EXPECT_TRUE(taken->flush_ahead());
    EXPECT_EQ(fake->written, control_frame(bytes_of("reply")));
    taken.reset();
  });
  EXPECT_EQ(got.size(), 1u);
  EXPECT_EQ(closed, 0);
}

TEST_F(FramesTest, a_last_word_arrives_although_the_sender_has_closed) {
  auto pairs = connect(plain());
  ASSERT_EQ(pairs.size(), 1u);
  std::unique_ptr<FramedStream> near, far;
  std::string word;
  bool ended = false;
  on([&] {
    near = std::make_unique<FramedStream>(loop, std::move(pairs[0].first));
    far = std::make_unique<FramedStream>(loop, std::move(pairs[0].second));
    EXPECT_TRUE(far->send(Bytes(500, 'u')).ok());  // unread by the side that leaves
    far->start([&](ByteView frame) { word = text_of(frame); }, [&](Status) { ended = true; });
    EXPECT_TRUE(near->send(bytes_of("refused: another version")).ok());
    near->finish();
    near.reset();
  });
  EXPECT_TRUE(eventually([&] { return ended; }));
  EXPECT_EQ(word, "refused: another version");
  on([&] { far.reset(); });
}

// ---- data frames ----

constexpr std::size_t kHeaderBytes = 8;  // u32 payload bytes, u32 what to do

struct Sink final : DataSink {
  enum Do : std::uint32_t { kTake, kPauseOnce, kDrainIt, kRefuseIt, kScatter, kBad };
  Placement place(ByteView header) override {
    base::Reader reader(header);
    const std::uint32_t size = reader.u32();
    const std::uint32_t what = reader.u32();
    ++asked;
    if (what == kDrainIt) return Placement::drain(size);
    if (what == kRefuseIt) return Placement::refuse(Status{Code::kInvalid, "nonsense"});
    if (what == kPauseOnce && hold) return Placement::pause();
    buffer.assign(size, 0);
    if (what != kScatter) return Placement::into(MutableView(buffer));
    std::vector<MutableView> spans;
    for (std::size_t at = 0; at < size; at += 3) {
      spans.push_back(MutableView(buffer).subspan(at, std::min<std::size_t>(3, size - at)));
      spans.push_back({});
    }
    return Placement::into(spans);
  }
  Status arrived(ByteView header, std::uint64_t) override {
    got.push_back(text_of(buffer));
    base::Reader reader(header);
    (void)reader.u32();
    return reader.u32() == kBad ? Status{Code::kCorrupt, "crc"} : Status{};
  }
  void lost(ByteView, std::uint64_t) override { ++losses; }

  bool hold = true;
  int asked = 0;
  int losses = 0;
  Bytes buffer;
  std::vector<std::string> got;
};

Bytes data_frame(std::string_view payload, std::uint32_t what) {
  base::Writer writer;
  writer.u32(static_cast<std::uint32_t>(payload.size()));
  writer.u32(what);
  writer.raw(payload.data(), payload.size());
  return writer.take();
}

using Outcome = DataReader::Outcome;

TEST(DataReaderTest, frames_survive_being_split_at_every_byte) {
  const Bytes all = joined({data_frame("alpha", Sink::kTake), data_frame("skip me", Sink::kDrainIt),
                            data_frame("", Sink::kTake), data_frame("scattered", Sink::kScatter),
                            data_frame("", Sink::kDrainIt), data_frame("omega", Sink::kTake)});
  for (std::size_t cut = 0; cut <= all.size(); ++cut) {
    for (std::size_t second = cut; second <= all.size(); ++second) {
      Sink sink;
      DataReader reader(kHeaderBytes, &sink);
      FakeStream stream;
      const auto at = [&](std::size_t i) { return all.begin() + static_cast<std::ptrdiff_t>(i); };
      stream.give({at(0), at(cut)});
      stream.give({at(cut), at(second)});
      stream.give({at(second), all.end()});
      ASSERT_EQ(reader.pump(stream, 1 << 20), Outcome::kBlocked);
      ASSERT_EQ(sink.got, (std::vector<std::string>{"alpha", "", "scattered", "omega"}));
    }
  }
}

TEST(DataReaderTest, a_paused_stripe_reads_nothing_more_until_it_is_asked_again) {
  Sink sink;
  DataReader reader(kHeaderBytes, &sink);
  FakeStream stream;
  stream.give(data_frame("later", Sink::kPauseOnce));
  stream.give(data_frame("after", Sink::kTake));
  EXPECT_EQ(reader.pump(stream, 1 << 20), Outcome::kPaused);
  EXPECT_TRUE(reader.paused());
  EXPECT_EQ(reader.pump(stream, 1 << 20), Outcome::kPaused);
  EXPECT_EQ(sink.asked, 2);
  EXPECT_TRUE(sink.got.empty());
  sink.hold = false;
  EXPECT_EQ(reader.pump(stream, 1 << 20), Outcome::kBlocked);
  EXPECT_EQ(sink.got, (std::vector<std::string>{"later", "after"}));
}

TEST(DataReaderTest, a_refused_header_and_a_bad_checksum_fail_the_stripe) {
  for (const auto what : {Sink::kRefuseIt, Sink::kBad}) {
    Sink sink;
    DataReader reader(kHeaderBytes, &sink);
    FakeStream stream;
    stream.give(joined({data_frame("bad", what), data_frame("next", Sink::kTake)}));
    EXPECT_EQ(reader.pump(stream, 1 << 20), Outcome::kFailed);
    EXPECT_EQ(reader.status().code, what == Sink::kBad ? Code::kCorrupt : Code::kInvalid);
    EXPECT_EQ(sink.losses, 0);
    EXPECT_EQ(reader.frames_received(), 0U) << "the other side would not send it again";
  }
}

TEST(DataReaderTest, the_place_of_a_frame_cut_off_is_given_back) {
  Sink sink;
  FakeStream stream;
  {
    DataReader reader(kHeaderBytes, &sink);
    Bytes frame = data_frame("cut off", Sink::kTake);
    frame.pop_back();
    stream.give(frame);
    stream.end();
    EXPECT_EQ(reader.pump(stream, 1 << 20), Outcome::kFailed);
    EXPECT_EQ(reader.status().code, Code::kLinkLost);
  }
  EXPECT_EQ(sink.losses, 1);
  EXPECT_TRUE(sink.got.empty());
}

TEST(DataReaderTest, an_abandoned_frame_is_drained_and_its_place_left_alone) {
  Sink sink;
  DataReader reader(kHeaderBytes, &sink);
  FakeStream stream;
  const Bytes frame = data_frame("abcdefghij", Sink::kScatter);
  stream.give({frame.begin(), frame.begin() + kHeaderBytes + 4});
  EXPECT_EQ(reader.pump(stream, 1 << 20), Outcome::kBlocked);
  reader.abandon([](ByteView) { return false; });
  reader.abandon([](ByteView) { return true; });
  stream.give({frame.begin() + kHeaderBytes + 4, frame.end()});
  stream.give(data_frame("next", Sink::kDrainIt));
  EXPECT_EQ(reader.pump(stream, 1 << 20), Outcome::kBlocked);
  EXPECT_EQ(text_of(sink.buffer), std::string("abcd") + std::string(6, '\0'));
  EXPECT_TRUE(sink.got.empty());
  EXPECT_EQ(sink.losses, 0);
  EXPECT_EQ(sink.asked, 2);
}

TEST(DataReaderTest, a_turn_is_bounded_by_its_budget) {
  Sink sink;
  DataReader reader(kHeaderBytes, &sink);
  FakeStream stream;
  for (int i = 0; i < 10; ++i) stream.give(data_frame(std::string(100, 'x'), Sink::kTake));
  EXPECT_EQ(reader.pump(stream, 300), Outcome::kMore);
  EXPECT_LT(sink.got.size(), 5u);
  EXPECT_GE(sink.got.size(), 2u);
}

}  // namespace
}  // namespace jccl::net::test
