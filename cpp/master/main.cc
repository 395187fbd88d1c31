// jccl-master: one run's master as a program. Prints JCCL_MASTER=host:port once it serves, stops
// cleanly on SIGTERM and SIGINT, and exits with a code that tells why it could not start.
#include <getopt.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include "base/number.h"
#include "base/planted.h"
#include "base/text.h"
#include "master/master.h"
#include "net/security/credentials.h"

namespace jccl::master {
namespace {

using base::cat;
using base::Code;
using base::Status;

constexpr char kHelp[] =
    R"(usage: jccl-master [options]

Orders one run's membership and decides its rounds; never on the data path.

  --bind HOST:PORT       where to listen (default 127.0.0.1:29400; port 0: a free one)
  --store STORE          sqlite:PATH, etcd://HOST:PORT,HOST:PORT/PREFIX (two masters: one is
                         active, the other its standby), or memory: (default; a restart then is
                         a new run)
  --token-file PATH      the run's secret; or in the environment: JCCL_TOKEN
  --new-token            print the secret of a new run and exit
  --insecure             allow plain connections off loopback without a token
  --run ID               32 hex digits; default: the secret's, the journal's, or a new one
  --start-peers N        sites awaited once, before the first round (default 1)
  --min-peers N          sites every commit needs (default 1)
  --profile NAME         lan, default or wan: a peer silent for 0.6, 3 or 5 s is evicted
  --silence-ms N         … for so long instead
  --straggler HOW        sites that the others wait for: wait (default), skip or evict
  --straggler-after S    … for so many seconds (default 10)
  --weight-max X         refuse a weight above X times the median of its round (default 1e6;
                         0: none)
  --max-rate B           bytes per second that each peer may send to all others together, at
                         least 10000 (default 0: no bound)
  --audit SHARE          the share of each round's cells that the master adds up anew before the
                         commit, from 0 (default: none) to 1
  --restore-after S      where nobody has the newest state any more, go back to the newest that
                         somebody has after so many seconds (default 30)
  --peer-networks LIST   networks like 10.0.0.0/8,fd00::/8 in which lost peers are asked whether
                         they still listen; default: global addresses, and loopback or private
                         ones if the peer came from such
  --admission HOW        auto (default): whoever has a token; list:FILE: the keys in that file;
                         manual: keys that `jccl admit` lets in
  --source SITE          the run begins with this site's state, and no other may be named the
                         source; default: the one that peers name, else what most have
  --record FOLDER        leave recordings of the master's machine there, for jccl-sim --replay:
                         after faults, on SIGUSR1 and on `jccl dump`
  --record-mib N         how much of the last events is kept for that, in memory (default 4; 0:
                         nothing)
  --history PATH         append every decision to this file as JSON lines; at 64 MiB it becomes
                         PATH.1, up to PATH.3
  --http HOST:PORT       serve a page about the run there, with /metrics for Prometheus,
                         /api/v1/status, /events and /healthz; read-only. Off loopback it needs
                         the run's secret, and who looks a token of role observer
  --max-groups N         groups of the run that may be open at once (default 64; 0: none)
  --print-address-file PATH   write HOST:PORT there once serving
  --help

exit codes: 0 stopped, 1 failed, 2 usage, 3 port or store unusable, 4 journal damaged,
            5 another run, 6 token missing or wrong, 7 fenced: another master may be active
)";

constexpr int kExitUsage = 2;

struct Arguments {
  MasterConfig config;
  std::string token_file, address_file;
  bool new_token = false, help = false;
};

int exit_code(Code code) {
  switch (code) {
    case Code::kInvalid:
      return kExitUsage;
    case Code::kIo:
      return 3;
    case Code::kDamaged:
      return 4;
    case Code::kWrongRun:
      return 5;
    case Code::kAuth:
      return 6;
    case Code::kEvicted:
      return 7;
    default:
      return 1;
  }
}

int report(const Status& status) {
  std::fprintf(stderr, "jccl-master: %s\n", base::printable(status.text).c_str());
  return exit_code(status.code);
}

Status read_number(const char* name, const char* text, std::uint32_t* out) {
  char* end = nullptr;
  errno = 0;
  const unsigned long long value = std::strtoull(text, &end, 10);
  if (errno != 0 || *text < '0' || *text > '9' || *end != '\0' || value == 0 ||
      value > std::numeric_limits<std::uint32_t>::max()) {
    return {Code::kInvalid, cat("--", name, " takes a number of at least 1, not '", text, "'")};
  }
  *out = static_cast<std::uint32_t>(value);
  return {};
}

Status read_seconds(const char* name, const char* text, base::Duration* out) {
  char* end = nullptr;
  const double seconds = std::strtod(text, &end);
  if (*text == '\0' || *end != '\0' || !(seconds > 0) || seconds > 1e6) {
    return {Code::kInvalid, cat("--", name, " takes seconds above 0, not '", text, "'")};
  }
  *out = static_cast<base::Duration>(seconds * 1e9);
  return {};
}

Status read_record_mib(const std::string& text, std::size_t* out) {
  constexpr std::uint32_t kMost = base::kRecordBytesMax >> 20;
  std::uint32_t mib = 0;
  if (text != "0") {
    const Status status = read_number("record-mib", text.c_str(), &mib);
    if (!status.ok() || mib > kMost) {
      return {Code::kInvalid, cat("--record-mib takes 0 to ", kMost, ", not '", text, "'")};
    }
  }
  *out = std::size_t{mib} << 20;
  return {};
}

Status read_decimal(const char* name, const char* text, double* out) {
  const auto value = base::decimal(text);
  if (!value) {
    return {Code::kInvalid, cat("--", name, " takes a decimal number, not '", text, "'")};
  }
  *out = *value;
  return {};
}

enum Flag {
  kBind = 256,
  kStore,
  kTokenFile,
  kNewToken,
  kInsecure,
  kRun,
  kStartPeers,
  kMinPeers,
  kProfile,
  kSilence,
  kStraggler,
  kStragglerAfter,
  kWeightMax,
  kMaxRate,
  kAudit,
  kRestoreAfter,
  kAdmission,
  kSource,
  kPeerNetworks,
  kHistory,
  kRecord,
  kRecordMib,
  kAddressFile,
  kHttp,
  kMaxGroups,
  kHelpFlag
};

constexpr option kFlags[] = {{"bind", required_argument, nullptr, kBind},
                             {"store", required_argument, nullptr, kStore},
                             {"token-file", required_argument, nullptr, kTokenFile},
                             {"new-token", no_argument, nullptr, kNewToken},
                             {"insecure", no_argument, nullptr, kInsecure},
                             {"run", required_argument, nullptr, kRun},
                             {"start-peers", required_argument, nullptr, kStartPeers},
                             {"min-peers", required_argument, nullptr, kMinPeers},
                             {"profile", required_argument, nullptr, kProfile},
                             {"silence-ms", required_argument, nullptr, kSilence},
                             {"straggler", required_argument, nullptr, kStraggler},
                             {"straggler-after", required_argument, nullptr, kStragglerAfter},
                             {"weight-max", required_argument, nullptr, kWeightMax},
                             {"max-rate", required_argument, nullptr, kMaxRate},
                             {"audit", required_argument, nullptr, kAudit},
                             {"restore-after", required_argument, nullptr, kRestoreAfter},
                             {"admission", required_argument, nullptr, kAdmission},
                             {"source", required_argument, nullptr, kSource},
                             {"peer-networks", required_argument, nullptr, kPeerNetworks},
                             {"history", required_argument, nullptr, kHistory},
                             {"record", required_argument, nullptr, kRecord},
                             {"record-mib", required_argument, nullptr, kRecordMib},
                             {"print-address-file", required_argument, nullptr, kAddressFile},
                             {"http", required_argument, nullptr, kHttp},
                             {"max-groups", required_argument, nullptr, kMaxGroups},
                             {"help", no_argument, nullptr, kHelpFlag},
                             {nullptr, 0, nullptr, 0}};

Status read_flag(int flag, const char* value, Arguments* out) {
  std::uint32_t milliseconds = 0;
  switch (flag) {
    case kBind:
      out->config.bind = value;
      return {};
    case kStore:
      out->config.store = value;
      return {};
    case kTokenFile:
      out->token_file = value;
      return {};
    case kNewToken:
      out->new_token = true;
      return {};
    case kInsecure:
      out->config.insecure = true;
      return {};
    case kRun:
      out->config.run = value;
      return {};
    case kStartPeers:
      return read_number("start-peers", value, &out->config.start_peers);
    case kMinPeers:
      return read_number("min-peers", value, &out->config.min_peers);
    case kAdmission:
      out->config.admission = value;
      return {};
    case kSource:
      out->config.source = value;
      return {};
    case kPeerNetworks:
      out->config.peer_networks = value;
      return {};
    case kHistory:
      out->config.history = value;
      return {};
    case kRecord:
      out->config.record = value;
      return {};
    case kRecordMib:
      return read_record_mib(value, &out->config.record_bytes);
    case kAddressFile:
      out->address_file = value;
      return {};
    case kHttp:
      out->config.http = value;
      return {};
    case kMaxGroups:
      if (std::string_view(value) != "0") {
        return read_number("max-groups", value, &out->config.max_groups);
      }
      out->config.max_groups = 0;
      return {};
    case kHelpFlag:
      out->help = true;
      return {};
    case kProfile:
      out->config.profile = value;
      return {};
    case kStraggler:
      out->config.straggler = value;
      return {};
    case kStragglerAfter:
      return read_seconds("straggler-after", value, &out->config.straggler_after);
    case kMaxRate:
      return read_decimal("max-rate", value, &out->config.max_rate);
    case kWeightMax:
      return read_decimal("weight-max", value, &out->config.weight_max);
    case kAudit:
      return read_decimal("audit", value, &out->config.audit);
    case kRestoreAfter:
      return read_seconds("restore-after", value, &out->config.restore_after);
    case kSilence: {
      const Status status = read_number("silence-ms", value, &milliseconds);
      out->config.silence = milliseconds * base::kMillisecond;
      return status;
    }
    default:
      return {Code::kInvalid, "unknown or incomplete option; see --help"};
  }
}

Status read_arguments(int argc, char** argv, Arguments* out) {
  out->config.bind = "127.0.0.1:29400";
  for (;;) {
    const int flag = ::getopt_long(argc, argv, "", kFlags, nullptr);
    if (flag == -1) break;
    const Status status = read_flag(flag, ::optarg, out);
    if (!status.ok()) return status;
  }
  if (::optind < argc) return {Code::kInvalid, cat("unexpected argument '", argv[::optind], "'")};
  return {};
}

Status read_token(Arguments* arguments) {
  if (arguments->token_file.empty()) {
    const char* token = std::getenv("JCCL_TOKEN");
    const char* file = std::getenv("JCCL_TOKEN_FILE");
    if (token != nullptr && *token != '\0') {
      std::istringstream(token) >> arguments->config.token;
      if (!arguments->config.token.empty()) return {};
      return {Code::kAuth,
              "JCCL_TOKEN is set, but holds no secret; unset it, or set it to the run's"};
    }
    if (file == nullptr || *file == '\0') return {};
    arguments->token_file = file;
  }
  std::ifstream file(arguments->token_file);
  if (!(file >> arguments->config.token)) {
    return {Code::kAuth, cat("cannot read a token from ", arguments->token_file)};
  }
  struct stat facts{};
  const bool known = ::stat(arguments->token_file.c_str(), &facts) == 0;
  if (known && S_ISREG(facts.st_mode) && (facts.st_mode & 077) != 0 &&
      !JCCL_PLANTED("token-file-for-all")) {
    return {Code::kAuth, cat("token file ", arguments->token_file,
                             " can be read by other users of this machine; take their rights away "
                             "(chmod 600), or make a new secret if they may have read it")};
  }
  return {};
}

Status write_address(const std::string& path, const std::string& address) {
  if (path.empty()) return {};
  const std::string draft = path + ".draft";  // readers see all of it or nothing
  std::ofstream file(draft);
  file << address << "\n";
  file.close();
  if (!file || std::rename(draft.c_str(), path.c_str()) != 0) {
    return {Code::kIo, cat("address file ", path, " can't be written")};
  }
  return {};
}

int print_new_token() {
  const auto token = net::new_run_secret();
  if (!token.ok()) return report(token.status());
  std::printf("%s\n", net::to_text(token.value()).c_str());
  return 0;
}

bool is_readable(int fd) {
  pollfd wait{fd, POLLIN, 0};
  return ::poll(&wait, 1, 0) > 0;
}

// SIGUSR1: somebody on this machine asks for a recording.
void record_on_signal(int asked, Master& master) {
  signalfd_siginfo signal{};
  if (::read(asked, &signal, sizeof(signal)) != sizeof(signal)) return;
  const auto path = master.record(cat("SIGUSR1 of process ", signal.ssi_pid));
  std::fprintf(stderr, "jccl-master: %s\n",
               base::printable(path.ok() ? cat("recording ", path.value())
                                         : cat("no recording: ", path.status().text))
                   .c_str());
}

// Blocks until a signal asks for a stop or the master stopped by itself.
int wait_for_end(int signals, int failed, int asked, Master& master) {
  for (;;) {
    pollfd waits[] = {{signals, POLLIN, 0}, {failed, POLLIN, 0}, {asked, POLLIN, 0}};
    if (::poll(waits, 3, -1) < 0) continue;  // EINTR
    if ((waits[1].revents & POLLIN) != 0) {
      return exit_code(master.failure().code);  // already logged where it happened
    }
    if ((waits[0].revents & POLLIN) != 0) return 0;
    if ((waits[2].revents & POLLIN) != 0) record_on_signal(asked, master);
  }
}

int serve(Arguments arguments) {
  sigset_t stops;
  sigemptyset(&stops);
  sigaddset(&stops, SIGTERM);
  sigaddset(&stops, SIGINT);
  sigset_t asks;
  sigemptyset(&asks);
  sigaddset(&asks, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &stops, nullptr);  // before any thread starts
  if (!JCCL_PLANTED("sigusr1-ends-the-master")) pthread_sigmask(SIG_BLOCK, &asks, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  const int signals = ::signalfd(-1, &stops, SFD_CLOEXEC);
  const int failed = ::eventfd(0, EFD_CLOEXEC);
  const int asked = ::signalfd(-1, &asks, SFD_CLOEXEC);
  if (signals < 0 || failed < 0 || asked < 0)
    return report({Code::kIo, "no file descriptor is left; raise the limit (ulimit -n)"});

  arguments.config.on_failure = [failed](const Status&) { ::eventfd_write(failed, 1); };
  arguments.config.keep_waiting = [signals] { return !is_readable(signals); };
  auto master = Master::start(arguments.config);
  if (!master.ok() && master.status().code == Code::kAborted) return 0;
  if (!master.ok()) return report(master.status());
  const Status written = write_address(arguments.address_file, master.value()->address());
  if (!written.ok()) return report(written);
  std::printf("JCCL_MASTER=%s\n", master.value()->address().c_str());
  const std::string& http = master.value()->http_address();
  if (!http.empty()) std::printf("page http://%s/\n", http.c_str());
  std::fflush(stdout);
  const int code = wait_for_end(signals, failed, asked, *master.value());
  master.value()->stop();
  return code;
}

int run(int argc, char** argv) {
  Arguments arguments;
  const Status parsed = read_arguments(argc, argv, &arguments);
  if (!parsed.ok()) return report(parsed);
  if (arguments.help) {
    std::fputs(kHelp, stdout);
    return 0;
  }
  if (arguments.new_token) return print_new_token();
  const Status token = read_token(&arguments);
  if (!token.ok()) return report(token);
  // The run's secret is all over its memory, in that of OpenSSL as well: so none of it goes into a
  // core, and no other process of this user looks into it.
  if (!arguments.config.token.empty() && !JCCL_PLANTED("cores-with-the-secret")) {
    (void)::prctl(PR_SET_DUMPABLE, 0);
  }
  return serve(std::move(arguments));
}

}  // namespace
}  // namespace jccl::master

int main(int argc, char** argv) { return jccl::master::run(argc, argv); }
