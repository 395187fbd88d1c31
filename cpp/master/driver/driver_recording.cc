// The driver's flight recorder: what of the machine's recording becomes a file, when, and where.
#include "base/build.h"
#include "base/planted.h"
#include "base/text.h"
#include "master/driver/driver.h"
#include "master/outward.h"
#include "wire/serialize.h"

namespace jccl::master {

using base::cat;
using base::Code;
using base::Status;

namespace {

constexpr std::size_t kRunDigits = 8;  // of a run, in a file's name

}  // namespace

Status Master::Driver::open_recordings() {
  auto folder = net::Recordings::open(
      config_.record,
      cat("master-", run_text_.substr(0, kRunDigits), group_.empty() ? "" : "-", group_));
  if (!folder.ok()) return folder.status();
  recordings_ = std::move(folder.value());
  return {};
}

base::Result<std::string> Master::Driver::leave_recording(net::RecordingCause cause,
                                                          const std::string& why) {
  if (!recordings_.any()) {
    return Status(Code::kInvalid,
                  "this master has no folder for recordings: start it with --record FOLDER");
  }
  if (recorder_.off()) {
    return Status(Code::kInvalid,
                  "this master has no flight recorder: it was started with "
                  "--record-mib 0");
  }
  if (!recorder_.any()) return Status(Code::kInvalid, "nothing has happened yet");
  const base::Time now = loop_.now();
  if (const Status may = recordings_.may_write(cause, now); !may.ok()) return may;
  protocol::About about;
  about.run = run_, about.build = base::build_text(), about.why = why;
  about.at = last_time_, about.unix_ms = unix_milliseconds();
  return recordings_.write(recorder_.file(about), cause, now);
}

// Without a folder nobody asked for files. Who has one reads in the log where they are; that there
// are no more of them is no news each time.
void Master::Driver::record_fault(const std::string& what) {
  if (!recordings_.any() || recorder_.off()) return;
  const auto path = leave_recording(net::RecordingCause::kFault, what);
  if (path.ok()) {
    log(cat("recording ", path.value(), ": ", what));
    if (recordings_.ends_here()) {
      log("faults have used up the recordings that this master writes by itself: one more in an "
          "hour; `jccl dump` writes one at any time");
    }
    return;
  }
  if (path.status().code == Code::kLimit) return;
  if (const auto line = faults_.pass(path.status().text, loop_.now())) log(*line);
}

void Master::Driver::answer_dump(ConnId id, const std::string& why) {
  const auto found = conns_.find(id);
  if (found == conns_.end()) return;
  const auto path =
      leave_recording(net::RecordingCause::kOrder,
                      why.empty() ? "an operator asked" : cat("an operator asked: ", why));
  const wire::OrderReply reply{
      path.ok() ? Code::kOk : path.status().code,
      path.ok() ? cat("the master has left a recording in ", path.value()) : path.status().text};
  (void)found->second.stream->send(wire::encode(reply));
}

base::Result<std::string> Master::Driver::record(const std::string& why) {
  base::Result<std::string> path = Status(Code::kClosed, "the master has stopped");
  loop_.call([&] { path = leave_recording(net::RecordingCause::kOrder, why); });
  return path;
}

}  // namespace jccl::master
