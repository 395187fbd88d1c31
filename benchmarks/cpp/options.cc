#include "options.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/text.h"

namespace jccl::bench {
namespace {

using base::cat;
using base::Code;
using base::Status;

Status invalid(const std::string& name, const std::string& value) {
  return {Code::kInvalid, cat("--", name, " does not take '", value, "'; see --help")};
}

Status read_number(const std::string& name, const std::string& value, std::uint64_t* out) {
  char* end = nullptr;
  *out = std::strtoull(value.c_str(), &end, 10);
  if (value.empty() || value[0] < '0' || value[0] > '9' || *end != '\0') {
    return invalid(name, value);
  }
  return {};
}

Status read_number(const std::string& name, const std::string& value, std::uint32_t* out) {
  std::uint64_t number = 0;
  const Status status = read_number(name, value, &number);
  if (!status.ok() || number > 0xFFFFFFFFU) return invalid(name, value);
  *out = static_cast<std::uint32_t>(number);
  return {};
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

// Of a batch: the same names on the command line and in a line of --stepped.
bool read_batch_field(const std::string& name, const std::string& value, Batch* b, Status* status) {
  *status = {};
  if (name == "size") {
    *status = read_number(name, value, &b->bytes);
  } else if (name == "codec") {
    const auto codec = codec::codec_from_name(value);
    if (codec) b->codec = *codec;
    if (!codec) *status = invalid(name, value);
  } else if (name == "op") {
    const auto op = collective::op_from_name(value);
    if (op) b->op = *op;
    if (!op) *status = invalid(name, value);
  } else if (name == "leaves") {
    *status = read_number(name, value, &b->leaves);
  } else if (name == "concurrent") {
    *status = read_number(name, value, &b->concurrent);
  } else if (name == "warmup") {
    *status = read_number(name, value, &b->warmup);
  } else if (name == "iterations") {
    *status = read_number(name, value, &b->iterations);
  } else if (name == "plan") {
    b->plan = value == "auto" ? "" : value;
  } else if (name == "in-place" || name == "shared-out" || name == "barrier-only") {
    if (value != "0" && value != "1") *status = invalid(name, value);
    if (name == "in-place") b->in_place = value == "1";
    if (name == "shared-out") b->out_private = value != "1";
    if (name == "barrier-only") b->barrier_only = value == "1";
  } else {
    return false;
  }
  return true;
}

Status read_token(const std::string& path, std::string* out) {
  std::ifstream file(path);
  if (!(file >> *out)) return {Code::kAuth, cat("no token can be read from ", path)};
  return {};
}

Status read_sizes(const std::string& value, std::vector<std::uint64_t>* out) {
  out->clear();
  for (const std::string& part : split(value)) {
    std::uint64_t size = 0;
    const Status status = read_number("sizes", part, &size);
    if (!status.ok()) return status;
    out->push_back(size);
  }
  return out->empty() ? invalid("sizes", value) : Status{};
}

Status read_option(const std::string& name, const std::string& value, Options* o) {
  Status status;
  std::uint64_t seconds = 0;
  if (name == "master") {
    o->connect.master = value;
  } else if (name == "with-master") {
    o->with_master = value;
  } else if (name == "peers") {
    return read_number(name, value, &o->peers);
  } else if (name == "sizes") {
    return read_sizes(value, &o->sizes);
  } else if (name == "stripes") {
    return read_number(name, value, &o->connect.stripes);
  } else if (name == "io-threads") {
    if (value != "on" && value != "off") return invalid(name, value);
    o->connect.io_threads = value == "on";
  } else if (name == "chunk-bytes") {
    status = read_number(name, value, &seconds);
    o->connect.chunk_bytes = seconds;
  } else if (name == "bind") {
    o->connect.bind = value;
  } else if (name == "advertise") {
    o->connect.advertise = split(value);
  } else if (name == "token-file") {
    return read_token(value, &o->connect.token);
  } else if (name == "deadline") {
    status = read_number(name, value, &seconds);
    o->deadline = static_cast<base::Duration>(seconds) * base::kSecond;
  } else if (!read_batch_field(name, value, &o->batch, &status)) {
    return {Code::kInvalid, cat("unknown option --", name, "; see --help")};
  }
  return status;
}

// Options without a value.
bool read_switch(const std::string& name, Options* o) {
  if (name == "insecure") {
    o->connect.insecure = true;
  } else if (name == "in-place") {
    o->batch.in_place = true;
  } else if (name == "shared-out") {
    o->batch.out_private = false;
  } else if (name == "barrier-only") {
    o->batch.barrier_only = true;
  } else if (name == "stepped") {
    o->stepped = true;
  } else if (name == "help") {
    o->help = true;
  } else {
    return false;
  }
  return true;
}

}  // namespace

const char* const kHelp = R"(usage: bench-peer --master HOST:PORT --peers N [options]

One peer of a benchmark: all-reduces f32 arrays, checks every element of the last iteration, and
prints one JSON object per size. Start it N times.

  --master HOST:PORT     the run's master
  --with-master BIND     run the master in this process, listening on BIND (HOST:PORT)
  --peers N              peers of the run, in all (default 2)
  --sizes A,B,…          bytes of one call (default 1048576)
  --codec NAME           none, bf16, fp16, int8, … (default none)
  --op sum|mean          (default sum)
  --leaves N             arrays of a call (default 1)
  --concurrent N         calls in flight, each with a tag of its own (default 1)
  --warmup N             iterations before the clock (default 2)
  --iterations N         iterations measured, with a barrier before each (default 10)
  --plan NAME            auto, direct, ring, … (default auto)
  --stripes N            connections per link (default 0: automatic)
  --io-threads on|off    two more threads read and write (default: where there are cores)
  --chunk-bytes N        (default: the library's)
  --bind HOST[:PORT]     where to listen; none: dial out only
  --advertise A,B,…      addresses told to the others
  --token-file FILE      the run's token
  --insecure             allow plain connections off loopback
  --in-place             results replace the inputs
  --shared-out           out may be looked at during the call (as in-place, but two arrays)
  --barrier-only         measure the barrier itself
  --deadline S           of every call (default 300)
  --stepped              read batches from standard input, one a line, until it ends:
                         "size=4096 codec=int8 iterations=3"; all peers need the same lines

At most 1 GiB in flight: size times concurrent.
)";

base::Status read_options(int argc, char** argv, Options* out) {
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    if (text.rfind("--", 0) != 0) {
      return {Code::kInvalid, cat("unexpected argument '", text, "'; see --help")};
    }
    const std::string name = text.substr(2);
    if (read_switch(name, out)) continue;
    if (i + 1 == argc) return {Code::kInvalid, cat("--", name, " needs a value; see --help")};
    const Status status = read_option(name, argv[++i], out);
    if (!status.ok()) return status;
  }
  if (out->help) return {};
  if (out->connect.master.empty() && out->with_master.empty()) {
    return {Code::kInvalid, "--master or --with-master is needed; see --help"};
  }
  if (out->connect.bind.find(':') == std::string::npos && !out->connect.bind.empty() &&
      out->connect.bind != "none") {
    out->connect.bind += ":0";
  }
  out->connect.start_peers = out->peers;
  out->connect.deadline = out->deadline;
  return {};
}

base::Result<Batch> read_batch(const std::string& line, const Batch& defaults) {
  Batch batch = defaults;
  std::istringstream stream(line);
  for (std::string part; stream >> part;) {
    const std::size_t equals = part.find('=');
    const std::string name = part.substr(0, equals);
    Status status;
    if (equals == std::string::npos ||
        !read_batch_field(name, part.substr(equals + 1), &batch, &status)) {
      return Status{Code::kInvalid, cat("'", part, "' is no NAME=VALUE of a batch")};
    }
    if (!status.ok()) return status;
  }
  const Status status = check(batch);
  if (!status.ok()) return status;
  return batch;
}

base::Status check(const Batch& batch) {
  if (batch.bytes < 4 || batch.bytes % 4 != 0) {
    return {Code::kInvalid, cat("size ", batch.bytes, " is no positive multiple of 4")};
  }
  if (batch.concurrent < 1 || batch.leaves < 1 || batch.iterations < 1) {
    return {Code::kInvalid, "concurrent, leaves and iterations are at least 1"};
  }
  if (batch.leaves > batch.bytes / 4) {
    return {Code::kInvalid, cat(batch.bytes, " bytes hold no ", batch.leaves, " leaves")};
  }
  if (batch.bytes > kInFlightBytesMax / batch.concurrent) {
    return {Code::kInvalid, cat(batch.concurrent, " calls of ", batch.bytes,
                                " bytes are more than 1 GiB in flight")};
  }
  if (batch.op != collective::Op::kSum && batch.op != collective::Op::kMean) {
    return {Code::kInvalid, "op is sum or mean"};
  }
  return {};
}

}  // namespace jccl::bench
