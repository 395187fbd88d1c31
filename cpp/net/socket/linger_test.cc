#include "net/socket/linger.h"

#include "net/link/fake_stream.h"
#include "net/test_support.h"

namespace jccl::net::test {
namespace {

class LingerTest : public NetTest {};

TEST_F(LingerTest, who_was_refused_is_not_read_without_end) {
  struct Stranger final : FakeStream {
    ~Stranger() override { *unread = pieces.size(); }
    std::shared_ptr<std::size_t> unread = std::make_shared<std::size_t>(0);
  };
  std::shared_ptr<std::size_t> unread;
  on([&] {
    auto stranger = std::make_unique<Stranger>();
    unread = stranger->unread;
    stranger->pieces.assign(1000, Bytes(4096, 'x'));
    linger(loop, std::move(stranger));
  });
  for (int i = 0; i < 3; ++i) on([] {});
  // Whoever goes on reading holds it until its time is over.
  EXPECT_TRUE(*unread > 900 && *unread < 1000) << *unread;
}

TEST_F(LingerTest, of_many_sixty_four_are_kept_open_and_no_more) {
  struct Stranger final : FakeStream {
    explicit Stranger(std::shared_ptr<int> count) : open(std::move(count)) { ++*open; }
    ~Stranger() override { --*open; }
    std::shared_ptr<int> open;  // it lives for as long as the loop
  };
  const auto open = std::make_shared<int>(0);
  on([&] {
    for (int i = 0; i < 200; ++i) linger(loop, std::make_unique<Stranger>(open));
    EXPECT_EQ(*open, 64);
  });
}

}  // namespace
}  // namespace jccl::net::test
