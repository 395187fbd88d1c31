// The scripts say every type of message that there is: one that is new has to be drawn, too.
#include "fuzz/script_messages.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "base/rng.h"
#include "fuzz/fields/fields_table.h"

namespace jccl::fuzz {
namespace {

using Draw = wire::Message (ScriptMessages::*)();

// Of many inputs; never of bytes that happen to decode.
std::set<std::string> drawn(Draw draw) {
  std::set<std::string> names;
  base::Rng rng(1);
  for (int i = 0; i < 4000; ++i) {
    Bytes bytes(64);
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(rng.next());
    Input in(bytes);
    ScriptMessages messages(&in);
    messages.any_bytes = false;
    names.insert(std::string(wire::name_of((messages.*draw)())));
  }
  return names;
}

void expect_all(const std::vector<FieldsOf>& table, const std::set<std::string>& names) {
  for (const FieldsOf& of : table) {
    EXPECT_EQ(names.count(std::string(of.owner)), 1U)
        << of.owner << " is never drawn in cpp/fuzz/script_messages.cc";
  }
}

TEST(ScriptMessagesTest, every_message_is_drawn_by_who_may_say_it) {
  const std::set<std::string> up = drawn(&ScriptMessages::from_peer);
  const std::set<std::string> down = drawn(&ScriptMessages::from_master);
  expect_all(fields_to_master(), up);
  expect_all(fields_to_peer(), down);
  std::set<std::string> both = up;
  both.insert(down.begin(), down.end());
#define X(name, number) EXPECT_EQ(both.count(#name), 1U) << #name << " is never drawn";
  JCCL_MESSAGES(X)
#undef X
}

}  // namespace
}  // namespace jccl::fuzz
