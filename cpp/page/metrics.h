// The run as Prometheus reads it (text format 0.0.4), from the same status object that `jccl
// status` shows. The names are documented in docs/monitoring.md: add, never rename. Pure.
#pragma once

#include <boost/json/fwd.hpp>
#include <cstdint>
#include <string>
#include <string_view>

#include "page/story.h"

namespace jccl::page {

struct Served {  // by this server, since it started
  std::uint64_t requests = 0, refused = 0, dropped = 0;
  std::uint64_t events_left_out = 0;
  std::size_t connections = 0, streams = 0;
};

// One that Prometheus takes for what it is, whoever chose it: \ " and line ends escaped, control
// characters as \u001b.
std::string label(std::string_view value);
std::string metrics_text(const boost::json::object& status, double age_s, const Story& story,
                         const Served& served);

}  // namespace jccl::page
