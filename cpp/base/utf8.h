// What text is: tags, names and messages travel as UTF-8, whatever a caller hands in.
#pragma once

#include <string>
#include <string_view>

namespace jccl::base {

// Bytes of the character that `text` begins with; 0 if it begins with none.
std::size_t utf8_character(std::string_view text);
bool is_utf8(std::string_view text);
// Has no control character, no line or paragraph separator and none that changes the direction of
// what follows: it can be shown in a line of a log or a table as it is.
bool is_one_line(std::string_view utf8);
std::string to_utf8(std::string_view text);  // every byte that belongs to no character becomes '?'

}  // namespace jccl::base
