#include "net/link/io_thread.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "net/link/link_support.h"
#include "net/security/sealed_stream.h"

namespace jccl::net::test {
namespace {

// Takes `room` bytes, and holds its writer in a call for as long as `shut`.
class Slow final : public ByteStream {
 public:
  ~Slow() override { ::close(fd); }
  void when_readable(std::function<void()>) override {}
  void when_writable(std::function<void()>) override {}
  void shut_write() override {}
  const Status& failure() const override { return failure_; }
  StreamStats stats() const override { return {}; }
  void pace(std::uint64_t) override {}
  Time last_received() const override { return 0; }
  std::string remote_text() const override { return "slow"; }
  bool remote_is_loopback() const override { return true; }
  bool is_tls() const override { return false; }
  int descriptor() const override { return fd; }
  bool write_apart_failed() const override { return failed; }
  std::size_t write_apart(std::span<const ByteView> parts) override {
    inside = true;
    by = std::this_thread::get_id();
    while (shut) std::this_thread::yield();
    const std::size_t n = std::min(room, parts.front().size());
    room -= n;
    failed = n == 0;
    inside = false;
    return n;
  }

  std::atomic<bool> shut{false};
  std::atomic<bool> inside{false};
  std::atomic<std::thread::id> by{};
  std::size_t room = 1000;
  std::atomic<bool> failed{false};
  int fd = ::eventfd(0, EFD_CLOEXEC);

 protected:
  std::size_t read_some(std::span<const MutableView>) override { return 0; }
  std::size_t write_some(std::span<const ByteView>) override { return 0; }

 private:
  Status failure_;
};

class IoThreadTest : public NetTest {
 protected:
  ~IoThreadTest() override {
    loop.call([&] { thread.reset(); });
  }
  IoThread::JobPtr write(Slow* stream, const std::vector<ByteView>& parts) {
    IoThread::JobPtr job;
    on([&] { job = thread->write(stream, parts, [&] { ++done; }); });
    return job;
  }

  std::unique_ptr<IoThread> thread = std::make_unique<IoThread>(loop);
  Bytes bytes = Bytes(300);
  int done = 0;  // confined
};

TEST_F(IoThreadTest, all_parts_are_written_by_another_thread_and_the_loop_hears_of_it) {
  Slow stream;
  const auto job = write(&stream, {bytes, {}, bytes});
  ASSERT_TRUE(eventually([&] { return done == 1; }));
  EXPECT_EQ(job->bytes(), 600u);
  std::thread::id loops;
  on([&] { loops = std::this_thread::get_id(); });
  EXPECT_NE(stream.by.load(), loops);
}

TEST_F(IoThreadTest, a_stream_that_fails_ends_its_job) {
  Slow stream;
  stream.room = 450;
  const auto job = write(&stream, {bytes, bytes});
  ASSERT_TRUE(eventually([&] { return done == 1; }));
  EXPECT_EQ(job->bytes(), 450u);
}

TEST_F(IoThreadTest, a_recall_waits_for_the_write_under_way_and_is_the_last) {
  Slow stream;
  stream.shut = true;
  const auto job = write(&stream, {bytes, bytes});
  ASSERT_TRUE(eventually([&] { return stream.inside.load(); }));
  std::atomic<bool> asked{false};
  std::thread opener([&] {
    while (!asked) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // recall() waits by now
    stream.shut = false;
  });
  on([&] {
    asked = true;
    thread->recall(job);
    EXPECT_FALSE(stream.inside.load());
    EXPECT_EQ(job->bytes(), 300u);  // the second part was not begun
    thread->recall(job);            // over is over
  });
  opener.join();
  EXPECT_TRUE(eventually([&] { return done == 1; }));
}

TEST_F(IoThreadTest, what_waits_behind_another_is_recalled_at_once) {
  Slow stream, behind;
  stream.shut = true;
  const auto first = write(&stream, {bytes});
  ASSERT_TRUE(eventually([&] { return stream.inside.load(); }));
  const auto second = write(&behind, {bytes});
  on([&] {
    thread->recall(second);
    EXPECT_EQ(second->bytes(), 0u);
    EXPECT_EQ(done, 0);  // not inside the call
  });
  stream.shut = false;
  EXPECT_TRUE(eventually([&] { return done == 2; }));
  EXPECT_EQ(behind.room, 1000u);
}

// Below a sealed stream: takes `room` bytes, and keeps who waits for more.
class Narrow : public ByteStream {
 public:
  explicit Narrow(std::function<void()>* waiting) : waiting_(waiting) {}
  void when_readable(std::function<void()>) override {}
  void when_writable(std::function<void()> fn) override { *waiting_ = std::move(fn); }
  void shut_write() override {}
  const Status& failure() const override { return failure_; }
  StreamStats stats() const override { return {}; }
  void pace(std::uint64_t) override {}
  Time last_received() const override { return 0; }
  std::string remote_text() const override { return "narrow"; }
  bool remote_is_loopback() const override { return true; }
  bool is_tls() const override { return false; }
  std::size_t room = 100;
  std::size_t sent = 0;

 protected:
  std::size_t read_some(std::span<const MutableView>) override { return 0; }
  std::size_t write_some(std::span<const ByteView> parts) override {
    const std::size_t n = std::min(room, parts.front().size());
    room -= n;
    sent += n;
    return n;
  }

 private:
  std::function<void()>* waiting_;
  Status failure_;
};

// And gives what was put into it.
class Given final : public Narrow {
 public:
  explicit Given(Bytes bytes) : Narrow(nullptr), bytes_(std::move(bytes)) {}

 protected:
  std::size_t read_some(std::span<const MutableView> parts) override {
    const std::size_t n = std::min(parts.front().size(), bytes_.size());
    std::copy_n(bytes_.begin(), n, parts.front().begin());
    bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(n));
    return n;
  }

 private:
  Bytes bytes_;
};

// By the time that a payload is abandoned, another thread may have read it to its end and beyond.
TEST(ApartTest, the_header_behind_an_abandoned_payload_is_the_next_frames) {
  constexpr std::size_t kChunk = 100'000;
  Side from(2 * kChunk, kChunk, 1), to(2 * kChunk, kChunk, 2);
  Given stream(from.frame_of(0).header);
  DataReader reader(kHeader, &to);
  const auto fill = [&](std::uint64_t key, const Bytes& behind) {
    EXPECT_EQ(reader.pump(stream, 1 << 20, 1000), DataReader::Outcome::kLarge);
    Bytes bytes(from.out.begin() + key * kChunk, from.out.begin() + (key + 1) * kChunk);
    bytes.insert(bytes.end(), behind.begin(), behind.end());
    std::size_t at = 0;
    for (const MutableView& part : reader.missing()) {
      const std::size_t n = std::min(part.size(), bytes.size() - at);
      std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), n, part.begin());
      at += n;
    }
    EXPECT_EQ(at, bytes.size());
    reader.took(at, true);
  };
  fill(0, from.frame_of(1).header);
  reader.abandon([](ByteView) { return true; });
  fill(1, {});
  reader.took(0);
  EXPECT_EQ(to.got, (std::set<std::uint64_t>{1}));
  EXPECT_EQ(reader.frames_drained(), 1u);
}

TEST(ApartTest, sealed_bytes_have_one_writer) {
  std::function<void()> waiting;
  auto below = std::make_unique<Narrow>(&waiting);
  Narrow* const narrow = below.get();
  const auto sealed = sealed_stream(std::move(below), {});
  const Bytes bytes(200);
  const ByteView view(bytes);
  EXPECT_EQ(sealed->write_now({&view, 1}), 200u);  // of which half waits
  ASSERT_TRUE(waiting);
  ASSERT_EQ(narrow->sent, 100u);
  narrow->room = 1000;
  ASSERT_TRUE(sealed->begin_apart());
  std::exchange(waiting, nullptr)();
  EXPECT_EQ(narrow->sent, 100u);  // that is the other thread's
  sealed->end_apart();
  ASSERT_TRUE(waiting);
  std::exchange(waiting, nullptr)();
  EXPECT_GT(narrow->sent, 200u);
}

class HandedLinkTest : public LinkTest {
 protected:
  void open_handed(const Credentials& credentials) {
    io.used = true;
    open(16 << 20, 256 << 10, 2, credentials);
  }
};

TEST_F(HandedLinkTest, large_frames_are_moved_by_the_other_threads) {
  for (const Credentials& credentials : {plain(), tls()}) {
    open_handed(credentials);
    const std::uint64_t before = io.writing.jobs(), read = io.reading.jobs();
    on([&] { a->send_all(), b->send_all(); });
    ASSERT_TRUE(eventually([&] { return all_arrived(); }));
    EXPECT_TRUE(a->in == b->out && b->in == a->out);
    EXPECT_EQ(a->sent.size(), a->chunks());
    EXPECT_GE(io.writing.jobs(), before + 2 * 16);  // a MiB at a time at most
    EXPECT_GE(io.reading.jobs(), read + 64);
  }
}

// Whoever sends takes its memory back as soon as the call returns.
TEST_F(HandedLinkTest, memory_is_free_when_a_call_that_abandons_it_returns) {
  for (const Credentials& credentials : {plain(), tls()}) {
    open_handed(credentials);
    on([&] { a->send_all(); });
    ASSERT_TRUE(eventually([&] { return b->got.size() > 3; }));
    const Bytes was = a->out;
    on([&] {
      a->link->abandon_sending([](std::uint64_t) { return true; });
      std::fill(a->out.begin(), a->out.end(), std::uint8_t{0xEE});
    });
    on([&] { a->link->send(a->frame_of(0)); });  // the stripes go on
    ASSERT_TRUE(eventually([&] { return !a->link->sending(); }));
    on([&] {
      for (const std::uint64_t key : b->got) {
        const std::size_t at = key * b->chunk_bytes;
        EXPECT_TRUE(
            std::equal(b->in.begin() + at, b->in.begin() + at + b->chunk_bytes, was.begin() + at));
      }
      EXPECT_TRUE(b->lost_stripes.empty());
    });
  }
}

TEST_F(HandedLinkTest, no_place_is_touched_when_a_call_that_abandons_it_returns) {
  for (const Credentials& credentials : {plain(), tls()}) {
    open_handed(credentials);
    on([&] { a->send_all(); });
    ASSERT_TRUE(eventually([&] { return b->got.size() > 3; }));
    Bytes was;
    on([&] {
      b->link->abandon_receiving([](ByteView) { return true; });
      b->drain = true;  // and what comes later
      was = b->in;
    });
    ASSERT_TRUE(eventually([&] {
      std::uint64_t frames = 0;
      for (const StripeStats& stripe : a->link->stats().stripes) frames += stripe.frames_sent;
      return !a->link->sending() && frames == a->chunks();
    }));
    on([&] { a->link->send(a->frame_of(0)); });  // is drained: all before it came whole
    ASSERT_TRUE(eventually([&] { return !a->link->sending(); }));
    on([&] {
      EXPECT_TRUE(b->in == was);
      EXPECT_TRUE(b->lost_stripes.empty() && a->lost_stripes.empty());
      EXPECT_LT(b->got.size(), b->chunks());
    });
  }
}

// The frame is larger than what the system holds of a connection, and the loop, which sends it,
// does nothing else between its header's arrival and the call: so most of it is still to come.
TEST_F(HandedLinkTest, a_frame_of_which_most_is_to_come_is_read_no_further_when_it_is_abandoned) {
  constexpr std::size_t kFrame = 32 << 20;
  a_hands_over = false;
  for (const Credentials& credentials : {plain(), tls()}) {
    io.used = true;
    open(kFrame + 4096, kFrame, 1, credentials);  // and a small one
    Bytes was;
    on([&] {
      b->on_place = [&] {
        loop.post([&] {
          b->link->abandon_receiving([](ByteView) { return true; });
          was.assign(b->in.begin(), b->in.begin() + kFrame);
        });
      };
      a->send_all();
    });
    const auto is_filled = [&] { return !was.empty() && b->in[kFrame - 1] != was[kFrame - 1]; };
    ASSERT_TRUE(eventually([&] { return b->got.contains(1) || is_filled(); }));
    on([&] {
      EXPECT_EQ(b->got, (std::set<std::uint64_t>{1}));
      EXPECT_TRUE(std::equal(was.begin(), was.end(), b->in.begin()));
      EXPECT_TRUE(b->lost_stripes.empty());
    });
  }
}

TEST_F(HandedLinkTest, the_last_frame_is_told_of_though_none_follows) {
  open_handed(plain());
  on([&] { a->link->send(a->frame_of(7)); });
  ASSERT_TRUE(eventually([&] { return b->got.contains(7); }));
  EXPECT_EQ(io.reading.jobs(), 1u);
}

TEST_F(HandedLinkTest, a_link_may_close_in_the_midst_of_it) {
  for (const Credentials& credentials : {plain(), tls()}) {
    open_handed(credentials);
    on([&] { a->send_all(), b->send_all(); });
    ASSERT_TRUE(eventually([&] { return b->got.size() > 3; }));
    on([&] {
      a->link->close();
      std::fill(a->out.begin(), a->out.end(), std::uint8_t{0});
    });
    EXPECT_TRUE(eventually([&] { return b->dead == 1; }));
  }
}

}  // namespace
}  // namespace jccl::net::test
