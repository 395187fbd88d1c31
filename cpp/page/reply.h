// Answers as bytes. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "page/request.h"
#include "page/story.h"

namespace jccl::page {

// The head of an answer that closes its connection; without a length it goes on until then.
std::string reply_head(unsigned code, std::string_view type, std::optional<std::size_t> length);
std::string_view type_of(Route route);
// "id: 7\ndata: {…}\n\n"
std::string event_text(const Story::Numbered& event);

}  // namespace jccl::page
