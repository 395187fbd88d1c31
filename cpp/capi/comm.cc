// Joining, leaving, and questions, for C.
#include "capi/comm.h"

#include <cstdio>

#include "base/limits.h"
#include "base/planted.h"
#include "capi/errors.h"

namespace jccl::capi {
namespace {

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    if (JCCL_PLANTED("advertise-last-left-out") && end == text.size() && at > 0) break;
    if (end > at) parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

Status read_options(const jccl_options* given, peer::ConnectOptions* out) {
  jccl_options options = JCCL_OPTIONS_INIT;
  const Status status = read_struct(given, "jccl_options", &options);
  if (!status.ok()) return status;
  if (options.master == nullptr || *options.master == '\0') {
    return invalid("jccl_options.master is not set");
  }
  if ((options.deadline_ns < 0 && !JCCL_PLANTED("negative-duration-taken")) ||
      options.connect_timeout_ns < 0 || options.master_grace_ns < 0) {
    return invalid("a duration is negative");
  }
  out->master = options.master;
  out->token = text_or(options.token, "");
  out->key_file = text_or(options.key_file, "");
  out->insecure = options.insecure != 0;
  out->site = text_or(options.site, "");
  out->group = text_or(options.group, "");
  out->shard = options.shard;
  out->shards = std::max<std::uint32_t>(options.shards, 1);
  out->bind = text_or(options.bind, "");
  out->advertise = split(text_or(options.advertise, ""));
  out->start_peers = options.start_peers;
  out->stripes = options.stripes;
  out->max_rate = options.max_rate, out->day_bytes = options.day_bytes;
  if (options.io_threads > 2) return invalid("io_threads must be 0, 1 or 2");
  if (options.io_threads > 0) out->io_threads = options.io_threads == 1;
  if (options.chunk_bytes > 0) out->chunk_bytes = options.chunk_bytes;
  if (options.deadline_ns > 0) out->deadline = options.deadline_ns;
  if (options.connect_timeout_ns > 0 && !JCCL_PLANTED("connect-timeout-is-deadline"))
    out->connect_timeout = options.connect_timeout_ns;
  if (options.master_grace_ns > 0) out->master_grace = options.master_grace_ns;
  out->record = text_or(options.record, "");
  out->record_on_signal = options.record_on_signal != 0;
  if (options.record_bytes < -1) return invalid("record_bytes must be -1, 0 or more");
  if (options.record_bytes > static_cast<int64_t>(base::kRecordBytesMax)) {
    return invalid("record_bytes is above 128 MiB: keep fewer of the last events");
  }
  if (options.record_bytes != 0) {
    out->record_bytes = static_cast<std::size_t>(std::max<int64_t>(options.record_bytes, 0));
  }
  return {};
}

Status null_comm() { return invalid("comm is NULL"); }

jccl_attribute_values values_of(const peer::Attributes& from) {
  jccl_attribute_values out = JCCL_ATTRIBUTES_INIT;
  out.id = from.id;
  out.incarnation = from.incarnation;
  out.epoch = from.epoch;
  out.world = from.world;
  out.sent_bytes = from.sent_bytes;
  out.received_bytes = from.received_bytes;
  out.rounds_committed = from.rounds_committed;
  out.rounds_retried =
      JCCL_PLANTED("retried-not-handed-out") ? from.rounds_committed : from.rounds_retried;
  std::snprintf(out.run, sizeof out.run, "%s", base::to_hex(from.run).c_str());
  std::snprintf(out.listen, sizeof out.listen, "%s", from.listen.c_str());
  return out;
}

}  // namespace
}  // namespace jccl::capi

using jccl::base::Status;
namespace capi = jccl::capi;

extern "C" {

int32_t jccl_connect(const jccl_options* options, jccl_comm** out) {
  return capi::guarded("jccl_connect", [&]() -> Status {
    if (out == nullptr) return capi::null_comm();
    *out = nullptr;
    jccl::peer::ConnectOptions wish;
    const Status read = capi::read_options(options, &wish);
    if (!read.ok()) return read;
    auto comm = jccl::peer::Communicator::connect(wish);
    if (!comm.ok()) return comm.status();
    *out = new jccl_comm{std::move(comm.value())};
    return {};
  });
}

int32_t jccl_close(jccl_comm* comm) {
  return capi::guarded("jccl_close", [&]() -> Status {
    if (comm == nullptr) return capi::null_comm();
    comm->held->close();
    return {};
  });
}

void jccl_free(jccl_comm* comm) {
  if (comm == nullptr) return;
  jccl_close(comm);
  delete comm;
}

int32_t jccl_abort(jccl_comm* comm) {
  return capi::guarded("jccl_abort", [&]() -> Status {
    if (comm == nullptr) return capi::null_comm();
    comm->held->abort();
    return {};
  });
}

int32_t jccl_record(jccl_comm* comm, const char* why, char* text, size_t* size) {
  return capi::guarded("jccl_record", [&]() -> Status {
    if (comm == nullptr) return capi::null_comm();
    const auto path = comm->held->record(capi::text_or(why, "the program asked"));
    return path.ok() ? capi::write_text(path.value(), text, size) : path.status();
  });
}

int32_t jccl_attributes(const jccl_comm* comm, jccl_attribute_values* values) {
  return capi::guarded("jccl_attributes", [&]() -> Status {
    if (comm == nullptr) return capi::null_comm();
    if (values == nullptr) return capi::invalid("values is NULL");
    const Status read = capi::check_result(values, "jccl_attribute_values");
    if (!read.ok()) return read;
    capi::write_struct(capi::values_of(comm->held->attributes()), values);
    return {};
  });
}

int32_t jccl_sites(const jccl_comm* comm, char* text, size_t* size) {
  return capi::guarded("jccl_sites", [&]() -> Status {
    if (comm == nullptr) return capi::null_comm();
    std::string all;
    for (const std::string& site : comm->held->attributes().sites) {
      all += all.empty() ? site : "," + site;
    }
    return capi::write_text(all, text, size);
  });
}

int32_t jccl_site_of(const jccl_comm* comm, uint32_t id, char* text, size_t* size) {
  return capi::guarded("jccl_site_of", [&]() -> Status {
    if (comm == nullptr) return capi::null_comm();
    const std::string site = comm->held->site_of(id);
    if (site.empty()) {
      return capi::invalid(
          jccl::base::cat("no member of the run had the id ", id, " since this peer joined"));
    }
    return capi::write_text(site, text, size);
  });
}

int32_t jccl_waiting_for(const jccl_comm* comm, char* text, size_t* size) {
  return capi::guarded("jccl_waiting_for", [&]() -> Status {
    if (comm == nullptr) return capi::null_comm();
    return capi::write_text(comm->held->waiting_for(), text, size);
  });
}

int32_t jccl_state(const jccl_comm* comm, const char* tag, uint64_t* revision, uint64_t digest[2]) {
  return capi::guarded("jccl_state", [&]() -> Status {
    if (comm == nullptr) return capi::null_comm();
    const std::string name = capi::text_or(tag, "default");
    const jccl::base::Digest held = comm->held->digest(name);
    if (revision != nullptr) *revision = comm->held->revision(name);
    if (digest != nullptr)
      digest[0] = JCCL_PLANTED("digest-halves-swapped") ? held.high : held.low,
      digest[1] = JCCL_PLANTED("digest-halves-swapped") ? held.low : held.high;
    return {};
  });
}

}  // extern "C"
