// Messages, and what happens to a machine, in a line for people: the words of the scenarios where
// they have some. Pure; any one thread.
#pragma once

#include <string>

#include "protocol/master/master_machine.h"
#include "wire/messages.h"

namespace jccl::protocol {

std::string words_of(const wire::Message& message);
std::string words_of(const wire::Record& record);
std::string words_of(const HistoryLine& line);
std::string words_of(const base::Status& status);  // "Deadline (deadline passed)"
std::string words_of(const wire::Held& held);
std::string words_of(const wire::RoundName& round);
std::string brief_digest(const base::Digest& digest);

}  // namespace jccl::protocol
