// For tests of LinkTable: two ends on one loop, and what each saw.
#pragma once

#include <gtest/gtest.h>

#include "net/test_support.h"
#include "peer/links/link_table.h"

namespace jccl::peer {

using base::Incarnation;
using exchange::Placement;

inline constexpr std::size_t kFrameBytes = 100'000;
inline constexpr wire::LinkSecret kLinkSecret{3, {7, 7}};

// One end: sends frames of kFrameBytes, counts what arrives and what is lost.
struct LinkEnd final : LinkOwner {
  LinkEnd(net::Loop& loop, Incarnation self, LinkTableOptions options = {}) : incarnation(self) {
    credentials = options.credentials = net::test::plain();
    options.stripes = 1;
    table = std::make_unique<LinkTable>(loop, options, this);
    EXPECT_TRUE(table->listen({"127.0.0.1", 0}).ok());
    table->set_self(net::test::token_of(1).run, self, true);
    table->set_policy(net::DialPolicy(net::endpoint_of("127.0.0.1:1"), {}));
  }
  void set(const std::vector<wire::Member>& members) { table->set_members(members, kLinkSecret); }
  wire::Member member(base::PeerId id) const {
    wire::Member out;
    out.id = id;
    out.incarnation = incarnation;
    out.addresses = {"127.0.0.1:" + std::to_string(table->port())};
    out.key = credentials.identity->key();
    return out;
  }

  Placement place(Incarnation, base::ByteView) override {
    if (deaf) return Placement::pause();
    return Placement::into(base::MutableView(in));
  }
  base::Status arrived(Incarnation from, base::ByteView, std::uint64_t) override {
    received.push_back(from);
    return {};
  }
  void lost(Incarnation, base::ByteView, std::uint64_t) override {}
  std::optional<exchange::OutFrame> produce(Incarnation, std::uint64_t) override {
    wire::FrameHeader header;
    header.payload_bytes = kFrameBytes;
    exchange::OutFrame frame;
    frame.header.resize(wire::kFrameHeaderBytes);
    wire::encode(header, frame.header.data());
    frame.payload = {out};
    if (acknowledges > 0) {  // what the link itself says, and here is not so
      header.kind = wire::FrameKind::kArrived;
      header.attempt.counter = acknowledges, header.payload_bytes = 0;
      wire::encode(header, frame.header.data());
      frame.payload.clear();
    }
    ++made;
    return frame;
  }
  void stripe_lost(Incarnation) override { ++losses; }
  void link_failed(Incarnation, const base::Status&) override { ++failures; }
  bool wanted(Incarnation) const override { return uses; }
  void peer_left(Incarnation peer) override { left.push_back(peer); }
  void link_gone(Incarnation peer) override { gone.push_back(peer); }
  void acknowledged_too_much(Incarnation peer) override { overcounted.push_back(peer); }

  Incarnation incarnation;
  net::Credentials credentials;
  base::Bytes in = base::Bytes(kFrameBytes), out = base::Bytes(kFrameBytes, 5);
  std::vector<Incarnation> received, left, gone;
  std::vector<Incarnation> overcounted;
  std::uint64_t acknowledges = 0;
  bool uses = true, deaf = false;
  int made = 0, losses = 0, failures = 0;
  std::unique_ptr<LinkTable> table;
};

class LinkTableTest : public net::test::NetTest {
 protected:
  ~LinkTableTest() override {
    on([this] {
      first.reset();
      second.reset();
    });
  }
  // Long enough for its greeting to have come, in all but a few runs.
  void dialled_early() {
    const base::Time until = loop.now() + 20 * base::kMillisecond;
    ASSERT_TRUE(eventually([&] { return loop.now() > until; }));
  }
  void open() {
    on([this] {
      first = std::make_unique<LinkEnd>(loop, 11);
      second = std::make_unique<LinkEnd>(loop, 12);
      members = {first->member(1), second->member(2)};
    });
  }
  std::unique_ptr<LinkEnd> first, second;  // the first dials
  std::vector<wire::Member> members;
};

}  // namespace jccl::peer
