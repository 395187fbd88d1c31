#include "protocol/members/roster.h"

#include <algorithm>
#include <map>

#include "base/limits.h"

namespace jccl::protocol {

namespace {

constexpr auto kIdOf = [](const wire::Member& member) { return member.id; };
constexpr auto kTagOf = [](const wire::TagInfo& info) { return info.tag; };

// What is in `to` and not, or not equally, in `from`; ascending keys in both and in the result.
template <typename T, typename Key>
std::vector<T> news_of(const std::vector<T>& from, const std::vector<T>& to, Key key) {
  std::vector<T> news;
  auto old = from.begin();
  for (const T& one : to) {
    while (old != from.end() && key(*old) < key(one)) ++old;
    if (old == from.end() || !(*old == one)) news.push_back(one);
  }
  return news;
}

template <typename T, typename Key>
std::vector<T> merged(const std::vector<T>& old, const std::vector<T>& news, Key key) {
  std::map<decltype(key(news.front())), T> all;
  for (const T& one : old) all.insert_or_assign(key(one), one);
  for (const T& one : news) all.insert_or_assign(key(one), one);
  std::vector<T> out;
  for (auto& [id, one] : all) out.push_back(std::move(one));
  return out;
}

}  // namespace

wire::Roster change_of(const wire::Roster& from, const wire::Roster& to) {
  wire::Roster change;
  change.epoch = to.epoch;
  change.base = from.epoch;
  change.links = to.links;
  change.members = news_of(from.members, to.members, kIdOf);
  change.tags = news_of(from.tags, to.tags, kTagOf);
  auto left = to.members.begin();
  for (const wire::Member& member : from.members) {
    while (left != to.members.end() && left->id < member.id) ++left;
    if (left == to.members.end() || left->id != member.id) change.left.push_back(member.id);
  }
  return change;
}

bool apply(const wire::Roster& news, wire::Roster* at) {
  if (news.base == 0) {
    *at = news;
    at->why.clear();
    return true;
  }
  if (at->epoch != news.base) return false;
  at->epoch = news.epoch;
  at->links = news.links;
  std::erase_if(at->members, [&](const wire::Member& member) {
    return std::binary_search(news.left.begin(), news.left.end(), member.id);
  });
  at->members = merged(at->members, news.members, kIdOf);
  at->tags = merged(at->tags, news.tags, kTagOf);
  return at->members.size() <= base::kPeersMax && at->tags.size() <= base::kTagsMax;
}

}  // namespace jccl::protocol
