#include "master/status_json.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "base/limits.h"

namespace jccl::master {
namespace {

namespace json = boost::json;

// A run of that many members, each with measured links to the next five.
struct Members {
  protocol::MasterView view;
  PlanCache planner;

  explicit Members(wire::PeerId size) {
    for (wire::PeerId id = 1; id <= size; ++id) {
      protocol::PeerView peer;
      peer.member.id = id;
      peer.member.site = "site-" + std::to_string(id);
      peer.admitted = true;
      view.peers.push_back(peer);
      wire::Measured measured{1'000'000, {}};
      for (wire::PeerId to = id + 1; to <= std::min(size, id + 5); ++to) {
        measured.links.push_back({to, 80'000, 1'000'000});
        ++links;
      }
      planner.note(id, measured);
    }
  }
  json::object status() const {
    const std::string text = status_object(view, {}, planner);
    EXPECT_LE(text.size(), base::kStatusBytesMax);
    return json::parse(text).as_object();
  }
  std::size_t links = 0;
};

std::size_t shown(const json::object& status, const std::string& list) {
  return status.at(list).as_array().size();
}
std::size_t left_out(const json::object& status, const std::string& list) {
  return status.at(list + "_left_out").to_number<std::size_t>();
}

TEST(StatusJsonTest, a_small_run_is_shown_whole) {
  const Members run(20);
  const json::object status = run.status();
  EXPECT_EQ(shown(status, "peers"), 20u);
  EXPECT_EQ(shown(status, "links"), run.links);
  EXPECT_EQ(shown(status, "uplinks"), 20u);
  for (const char* list : {"peers", "links", "uplinks", "tags", "plans"}) {
    EXPECT_EQ(left_out(status, list), 0u) << list;
  }
}

TEST(StatusJsonTest, of_a_large_run_links_go_before_peers_and_what_is_left_out_is_counted) {
  const Members run(1000);
  const json::object status = run.status();
  EXPECT_EQ(shown(status, "links"), 0u);
  EXPECT_EQ(left_out(status, "links"), run.links);
  EXPECT_EQ(shown(status, "uplinks") + left_out(status, "uplinks"), 1000u);
  EXPECT_GT(shown(status, "peers"), 50u);
  EXPECT_EQ(shown(status, "peers") + left_out(status, "peers"), 1000u);
}

TEST(StatusJsonTest, who_is_no_member_has_no_links) {
  Members run(20);
  run.view.peers.erase(run.view.peers.begin() + 4, run.view.peers.end());
  const json::object status = run.status();
  EXPECT_EQ(shown(status, "links"), 3u + 2 + 1);
  EXPECT_EQ(shown(status, "uplinks"), 4u);
  run.view.peers.erase(run.view.peers.begin());
  EXPECT_EQ(shown(run.status(), "links"), 2u + 1);
}

}  // namespace
}  // namespace jccl::master
