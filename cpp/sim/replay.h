// jccl-sim --replay: the story of a recording (protocol/recorder/recording.h), and where this build
// does something else.
#pragma once

#include <string>

namespace jccl::sim {

// Prints it. `all`: with what happens all the time, such as heartbeats. 0: this build does the
// same; 1: it does not; 2: the file can't be read, or is of a build whose machines have other
// fields.
int replay_recording(const std::string& path, bool all, const char* commit);

}  // namespace jccl::sim
