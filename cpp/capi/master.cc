// A master in the caller's process, for C.
#include "master/master.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/limits.h"
#include "base/planted.h"
#include "capi/errors.h"
#include "master/ask.h"

struct jccl_master {
  std::unique_ptr<jccl::master::Master> held;
};

namespace jccl::capi {
namespace {

Status read_config(const jccl_master_options* given, master::MasterConfig* config) {
  jccl_master_options options = JCCL_MASTER_OPTIONS_INIT;
  Status status = read_struct(given, "jccl_master_options", &options);
  if (!status.ok()) return status;
  if ((options.silence_ns < 0 && !JCCL_PLANTED("negative-silence-taken")) ||
      options.restart_grace_ns < 0 || options.straggler_after_ns < 0 ||
      options.restore_after_ns < 0) {
    return invalid("a duration is negative");
  }
  if (std::isnan(options.weight_max)) return invalid("weight_max is not a number");
  config->bind = text_or(options.bind, config->bind);
  config->store = text_or(options.store, config->store);
  config->token = text_or(options.token, "");
  config->run = text_or(options.run, "");
  config->history = text_or(options.history, "");
  config->insecure = options.insecure != 0;
  if (options.start_peers > 0) config->start_peers = options.start_peers;
  if (options.min_peers > 0 && !JCCL_PLANTED("min-peers-ignored"))
    config->min_peers = options.min_peers;
  config->profile = text_or(options.profile, config->profile);
  config->straggler = text_or(options.straggler, config->straggler);
  config->admission = text_or(options.admission, config->admission);
  config->source = text_or(options.source, "");
  config->audit = options.audit;
  config->max_rate = options.max_rate;
  if (options.weight_max != 0) config->weight_max = std::max(0.0, options.weight_max);
  if (options.straggler_after_ns > 0) config->straggler_after = options.straggler_after_ns;
  if (options.silence_ns > 0) config->silence = options.silence_ns;
  if (options.restart_grace_ns > 0) config->restart_grace = options.restart_grace_ns;
  if (options.restore_after_ns > 0) config->restore_after = options.restore_after_ns;
  config->record = text_or(options.record, "");
  if (options.record_bytes < -1) return invalid("record_bytes must be -1, 0 or more");
  if (options.record_bytes > static_cast<int64_t>(base::kRecordBytesMax)) {
    return invalid("record_bytes is above 128 MiB: keep fewer of the last events");
  }
  if (options.record_bytes != 0) {
    config->record_bytes = static_cast<std::size_t>(std::max<int64_t>(options.record_bytes, 0));
  }
  return {};
}

}  // namespace
}  // namespace jccl::capi

using jccl::base::Status;
namespace capi = jccl::capi;

extern "C" {

int32_t jccl_master_start(const jccl_master_options* options, jccl_master** out) {
  return capi::guarded("jccl_master_start", [&]() -> Status {
    if (out == nullptr) return capi::invalid("master is NULL");
    *out = nullptr;
    jccl::master::MasterConfig config;
    const Status read = capi::read_config(options, &config);
    if (!read.ok()) return read;
    auto started = jccl::master::Master::start(config);
    if (!started.ok()) return started.status();
    *out = new jccl_master{std::move(started.value())};
    return {};
  });
}

void jccl_master_stop(jccl_master* master) { delete master; }

const char* jccl_master_address(const jccl_master* master) {
  return master == nullptr ? "" : master->held->address().c_str();
}

const char* jccl_master_run(const jccl_master* master) {
  return master == nullptr ? "" : master->held->run_id().c_str();
}

int32_t jccl_master_status(const jccl_master* master, char* text, size_t* size) {
  return capi::guarded("jccl_master_status", [&]() -> Status {
    if (master == nullptr) return capi::invalid("master is NULL");
    return capi::write_text(master->held->status_json(), text, size);
  });
}

int32_t jccl_master_evict(jccl_master* master, const char* site) {
  return capi::guarded("jccl_master_evict", [&]() -> Status {
    if (master == nullptr || site == nullptr) return capi::invalid("master or site is NULL");
    master->held->evict_site(site);
    return {};
  });
}

int32_t jccl_master_record(jccl_master* master, const char* why, char* text, size_t* size) {
  return capi::guarded("jccl_master_record", [&]() -> Status {
    if (master == nullptr) return capi::invalid("master is NULL");
    const auto path = master->held->record(capi::text_or(why, "the program asked"));
    return path.ok() ? capi::write_text(path.value(), text, size) : path.status();
  });
}

int32_t jccl_new_token(char* text, size_t* size) {
  return capi::guarded("jccl_new_token", [&]() -> Status {
    const auto token = jccl::master::new_token_text();
    if (!token.ok()) return token.status();
    return capi::write_text(token.value(), text, size);
  });
}

int32_t jccl_make_token(const char* run_secret, const char* role, int64_t expires_unix_s,
                        const char* site, uint32_t uses, char* text, size_t* size) {
  return capi::guarded("jccl_make_token", [&]() -> Status {
    if (run_secret == nullptr) return capi::invalid("run_secret is NULL");
    if (expires_unix_s < 0) return capi::invalid("expires_unix_s is negative");
    const auto token = jccl::master::make_token_text({run_secret, capi::text_or(role, "peer"), uses,
                                                      static_cast<std::uint64_t>(expires_unix_s),
                                                      capi::text_or(site, "")});
    if (!token.ok()) return token.status();
    return capi::write_text(token.value(), text, size);
  });
}

}  // extern "C"
