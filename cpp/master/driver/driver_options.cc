// What a master is started with: read, or refused in words.
#include <algorithm>
#include <cctype>
#include <fstream>
#include <sstream>

#include "base/planted.h"
#include "base/text.h"
#include "master/driver/driver.h"

namespace jccl::master {

using base::cat;
using base::Code;
using base::Status;

Status Master::Driver::read_config() {
  if (config_.min_peers < 1 || config_.start_peers < 1) {
    return {Code::kInvalid, "start_peers and min_peers are at least 1"};
  }
  if (config_.max_groups > base::kGroupsMax) {
    return {Code::kInvalid, cat("max_groups is 0 to ", base::kGroupsMax)};
  }
  Status named = read_profile();
  if (named.ok()) named = read_straggler();
  if (named.ok()) named = read_weight_max();
  if (named.ok()) named = read_max_rate();
  if (named.ok()) named = read_audit();
  if (named.ok()) named = read_admission();
  if (!named.ok()) return named;
  if (config_.silence < 10 * base::kMillisecond || config_.heartbeat < 0 ||
      config_.heartbeat * (JCCL_PLANTED("silence-of-one-heartbeat") ? 1 : 2) > config_.silence) {
    return {Code::kInvalid, "silence is at least 10 ms and at least two heartbeats"};
  }
  auto networks = net::parse_networks(config_.peer_networks);
  if (!networks.ok()) return networks.status();
  peer_networks_ = std::move(networks.value());
  const auto bind = net::parse_address(config_.bind);
  if (!bind.ok()) return bind.status();
  bind_ = bind.value();
  if (!config_.run.empty()) {
    if (!base::from_hex(config_.run, &run_)) {
      return {Code::kInvalid, cat("run id '", config_.run, "' is not 32 hex digits")};
    }
    run_known_ = true;
  }
  if (!config_.token.empty()) {
    const auto secret = net::parse_run_secret(config_.token);
    if (!secret.ok()) return secret.status();
    if (run_known_ && !JCCL_PLANTED("run-of-token-not-compared") && run_ != secret.value().run) {
      return {Code::kWrongRun, cat("the options name run ", config_.run,
                                   ", but the token is of run ", base::to_hex(secret.value().run))};
    }
    run_ = secret.value().run;
    run_known_ = true;
    credentials_ = net::Credentials::of_master(secret.value());
  }
  return net::check_exposure(bind_, !config_.token.empty(), config_.insecure);
}

Status Master::Driver::read_profile() {
  struct Profile {
    const char* name;
    base::Duration silence, reset_grace;
  };
  constexpr Profile kProfiles[] = {
      {"lan", 600 * base::kMillisecond, 200 * base::kMillisecond},
      {"default", 3 * base::kSecond, 200 * base::kMillisecond},
      {"wan", 5 * base::kSecond, base::kSecond},
  };
  for (const Profile& profile : kProfiles) {
    if (config_.profile != profile.name) continue;
    if (config_.silence == 0 || JCCL_PLANTED("profile-overrides-silence"))
      config_.silence = profile.silence;
    if (config_.reset_grace == 0) config_.reset_grace = profile.reset_grace;
    return {};
  }
  return {Code::kInvalid, cat("unknown profile '", config_.profile, "'; use lan, default or wan")};
}

Status Master::Driver::read_straggler() {
  using protocol::Straggler;
  constexpr std::pair<const char*, Straggler> kWays[] = {
      {"wait", Straggler::kWait}, {"skip", Straggler::kSkip}, {"evict", Straggler::kEvict}};
  for (const auto& [name, way] : kWays) {
    if (config_.straggler != name) continue;
    straggler_ = way;
    if (config_.straggler_after > 0) return {};
    return {Code::kInvalid, "straggler_after must be above 0"};
  }
  return {Code::kInvalid,
          cat("unknown straggler '", config_.straggler, "'; use wait, skip or evict")};
}

Status Master::Driver::read_max_rate() const {
  const double rate = config_.max_rate;
  const bool is_rate = rate >= base::kRateMin && rate <= base::kRateMax;
  if (rate == 0 || (is_rate && !JCCL_PLANTED("any-rate-of-a-run-taken"))) return {};
  return {Code::kInvalid, cat("max_rate is bytes per second that each peer may send to others, at "
                              "least ",
                              base::kRateMin, ", or 0 (no bound), not ", rate)};
}

Status Master::Driver::read_audit() const {
  if (config_.audit >= 0 && config_.audit <= 1) return {};
  return {Code::kInvalid, cat("audit is the share of a round's cells that the master adds up anew, "
                              "between 0 and 1, not ",
                              config_.audit)};
}

Status Master::Driver::read_weight_max() const {
  const double times = config_.weight_max;
  if (times == 0 || (times >= 1 && times <= base::kWeightMax / base::kWeightMin)) return {};
  return {Code::kInvalid,
          cat("weight_max is 0 (no bound), or how many times the median weight of a "
              "round a weight may be, between 1 and 1e24, not ",
              times)};
}

// "auto", "manual", or "list:FILE" with a key in each line.
Status Master::Driver::read_admission() {
  constexpr std::string_view kList = "list:";
  const std::string& how = config_.admission;
  if (how == "auto") return {};
  admission_ = protocol::Admission::kListed;
  if (how == "manual") return {};
  if (!how.starts_with(kList)) {
    return {Code::kInvalid, cat("unknown admission '", how, "'; use auto, manual or list:FILE")};
  }
  const std::string path = how.substr(kList.size());
  std::ifstream file(path);
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string word;
    if (!(words >> word)) continue;
    std::transform(word.begin(), word.end(), word.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    wire::PublicKey key{};
    if (!base::from_hex(word, key)) {
      return {Code::kInvalid,
              cat("line ", number, " of ", path, " does not begin with a key of 64 hex digits")};
    }
    listed_.insert(key);
  }
  if (!file.eof()) return {Code::kIo, cat("the list of keys ", path, " can't be read")};
  if (listed_.empty()) {
    return {Code::kInvalid, cat("the list of keys ", path, " is empty, so no peer could join; ",
                                "use --admission manual to begin without keys")};
  }
  return {};
}

}  // namespace jccl::master
