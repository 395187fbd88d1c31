// Scripts as text.
#include "sim/script.h"

#include <sstream>

#include "base/text.h"

namespace jccl::sim {

using base::cat;

namespace {

std::string number(double value) {
  std::ostringstream text;
  text.precision(17);
  text << value;
  return text.str();
}
template <typename T>
std::string number(T value) {
  return std::to_string(value);
}

bool read_fault(std::istringstream& words, Injected& fault) {
  std::string name;
  words >> fault.at >> name >> fault.a >> fault.b >> fault.length >> fault.bits;
  for (std::size_t kind = 0; kind < kFaults; ++kind) {
    fault.fault = static_cast<Fault>(kind);
    if (name_of(fault.fault) == name) return !words.fail();
  }
  return false;
}

bool read_mix(std::istringstream& words, Mix& mix) {
  std::string name;
  words >> name;
  if (name == "states") {
    std::string marks;
    words >> marks;
    mix.is_state.clear();
    for (const char mark : marks) mix.is_state.push_back(mark == '1');
    return !marks.empty();
  }
  bool known = false;
  each_field(mix, [&](const char* field, auto& value) {
    if (name != field) return;
    known = true;
    words >> value;
  });
  return known && !words.fail();
}

}  // namespace

std::string to_text(const Script& script) {
  std::string text = cat("seed ", script.seed, "\n");
  if (!script.promise.empty()) text += cat("promise ", script.promise, "\n");
  if (!script.mutant.empty()) text += cat("mutant ", script.mutant, "\n");
  std::vector<std::string> usual;
  const Mix fresh;
  each_field(fresh, [&](const char*, const auto& value) { usual.push_back(number(value)); });
  std::size_t at = 0;
  each_field(script.mix, [&](const char* name, const auto& value) {
    const std::string shown = number(value);
    if (shown != usual[at++]) text += cat("mix ", name, " ", shown, "\n");
  });
  std::string states;
  for (const bool state : script.mix.is_state) states += state ? '1' : '0';
  text += cat("mix states ", states, "\n");
  for (const Injected& fault : script.faults) {
    text += cat("fault ", fault.at, " ", name_of(fault.fault), " ", fault.a, " ", fault.b, " ",
                fault.length, " ", fault.bits, "\n");
  }
  return text;
}

base::Result<Script> read_script(const std::string& text) {
  Script script;
  std::istringstream lines(text);
  std::string line;
  for (int count = 1; std::getline(lines, line); ++count) {
    line = line.substr(0, line.find('#'));
    std::istringstream words(line);
    std::string what;
    if (!(words >> what)) continue;
    bool good = true;
    if (what == "seed") {
      good = !(words >> script.seed).fail();
    } else if (what == "promise") {
      good = !(words >> script.promise).fail();
    } else if (what == "mutant") {
      good = !(words >> script.mutant).fail();
    } else if (what == "mix") {
      good = read_mix(words, script.mix);
    } else if (what == "fault") {
      good = read_fault(words, script.faults.emplace_back());
    } else {
      good = false;
    }
    if (!good) return base::Status{base::Code::kInvalid, cat("line ", count, ": ", line)};
  }
  if (script.mix.is_state.size() != script.mix.tags || script.mix.slots == 0) {
    return base::Status{base::Code::kInvalid, "tags and states, or slots, do not fit"};
  }
  return script;
}

}  // namespace jccl::sim
