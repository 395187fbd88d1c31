// The status object over whatever a run may hold: always JSON, always UTF-8, never longer than a
// StatusReply may be. Strings come from peers, so they are any bytes.
#include <boost/json.hpp>

#include "base/limits.h"
#include "collective/hint.h"
#include "fuzz/input.h"
#include "fuzz/target.h"
#include "master/status_json.h"

namespace jccl::fuzz {
namespace {

protocol::PeerView any_peer(Input& in, wire::PeerId id) {
  protocol::PeerView peer;
  peer.member = {id, in.u64(), in.text(64), in.u8(), in.u8(), {}, 0};
  for (std::size_t count = in.below(3); count > 0; --count) {
    peer.member.addresses.push_back(in.text(128));
  }
  peer.connected = in.flag();
  peer.admitted = in.flag();
  peer.silent = static_cast<base::Duration>(in.u64() >> 1);
  peer.progress = in.u64();
  peer.waiting_for = in.text(200);
  return peer;
}

protocol::TagView any_tag(Input& in) {
  protocol::TagView tag;
  tag.info = {in.text(64), in.u64(), in.flag()};
  tag.phase = "forming";
  tag.attempt = {in.u64(), in.u64()};
  tag.waiting_for = in.text(200);
  tag.commits = in.u64();
  return tag;
}

void note_links(Input& in, master::PlanCache* planner) {
  for (std::size_t count = in.below(4); count > 0; --count) {
    wire::Measured measured{in.u64(), {}};
    for (wire::PeerId peer = 1; peer < in.below(5); ++peer) {
      measured.links.push_back({peer, in.u32(), in.u64()});
    }
    measured.core = in.u16();
    planner->note(static_cast<wire::PeerId>(1 + in.below(4)), measured);
  }
}

// Whatever was measured and hinted, a plan of members that are there comes out, or a reason.
void ask_plan(Input& in, master::PlanCache* planner) {
  protocol::PlanRequest request;
  request.hint = in.flag()
                     ? collective::encode_hint({static_cast<collective::HintKind>(in.below(9)),
                                                in.u64(), in.u64(), in.u64()})
                     : in.bytes(40);
  for (wire::PeerId id = 1; id <= 6; ++id) {
    const std::size_t role = in.below(4);
    if (role < 2) request.contributors.push_back(id);
    if (role == 2) request.receivers.push_back(id);
    if (role < 3 && in.below(5) == 0) request.dial_only.push_back(id);
  }
  if (request.contributors.empty()) return;
  const auto member = [&] { return static_cast<wire::PeerId>(1 + in.below(6)); };
  for (std::size_t count = in.below(4); count > 0; --count) {
    request.bad_links.emplace_back(member(), member());
  }
  const auto plan = planner->plan(request);
  if (!plan.ok()) {
    JCCL_CHECK(!plan.status().text.empty());
    return;
  }
  const auto decoded = collective::decode(plan.value());
  JCCL_CHECK(decoded.ok());
  JCCL_CHECK(decoded.value().order.size() == request.contributors.size());
}

}  // namespace

void run_status(ByteView bytes) {
  Input in(bytes);
  protocol::MasterView view;
  view.epoch = in.u64();
  // A large run in a few bytes.
  const std::size_t copies = in.below(8) == 0 ? 60 : 1;
  for (std::size_t count = in.below(6); count > 0; --count) {
    const protocol::PeerView peer = any_peer(in, static_cast<wire::PeerId>(count));
    view.peers.insert(view.peers.end(), copies, peer);
  }
  for (std::size_t count = in.below(4); count > 0; --count) {
    view.tags.insert(view.tags.end(), copies, any_tag(in));
  }
  master::PlanCache planner;
  note_links(in, &planner);
  for (std::size_t count = in.below(3); count > 0; --count) ask_plan(in, &planner);
  master::DriverFacts facts;
  facts.run = "00";
  facts.store = in.text(40);
  facts.failure = in.text(100);
  const std::string text = master::status_object(view, facts, planner);
  JCCL_CHECK(text.size() <= base::kStatusBytesMax);
  boost::system::error_code error;
  const auto parsed = boost::json::parse(text, error);
  JCCL_CHECK(!error && parsed.is_object());
}

}  // namespace jccl::fuzz
