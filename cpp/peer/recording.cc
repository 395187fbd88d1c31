// See recording.h; and what of a peer's machine goes into a file, and when.
#include "peer/recording.h"

#include <chrono>
#include <utility>

#include "base/build.h"
#include "base/planted.h"
#include "base/text.h"
#include "peer/control.h"
#include "protocol/recorder/recorded_faults.h"

namespace jccl::peer {

using base::cat;
using base::Code;
using base::Status;
using Cause = net::RecordingCause;

namespace {

std::string path_text(const base::Result<std::string>& path, const std::string& why) {
  if (!path.ok()) return cat("no recording of this peer: ", path.status().text);
  return cat("a recording of this peer is in ", path.value(), ", after: ", why);
}

}  // namespace

RecordingWriter::~RecordingWriter() {
  if (thread_.joinable()) thread_.join();
}

bool RecordingWriter::is_due(base::Time now) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return lock.owns_lock() && !writes_ && folder_.due(Cause::kFault, now).ok();
}

void RecordingWriter::write_behind(Bytes bytes, base::Time now, Told told) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(writes_, true)) return;
  }
  if (thread_.joinable()) thread_.join();  // it has ended, or is about to
  thread_ = std::thread([this, bytes = std::move(bytes), now, told = std::move(told)] {
    base::Result<std::string> path = std::string();
    {
      const std::lock_guard lock(mutex_);
      path = folder_.write(bytes, Cause::kFault, now);
      writes_ = false;
    }
    told(path);
  });
}

base::Result<std::string> RecordingWriter::write(const std::function<Bytes()>& bytes,
                                                 base::Time now) {
  {
    const std::lock_guard lock(mutex_);
    if (const Status may = folder_.may_write(Cause::kOrder, now); !may.ok()) return may;
  }
  const Bytes made = bytes();  // asks the control thread, which may be about to take the mutex
  if (made.empty()) return Status(Code::kClosed, "the communicator is closed");
  const std::lock_guard lock(mutex_);
  return folder_.write(made, Cause::kOrder, now);
}

void Control::on(protocol::PeerEvent event) {
  was_member_ = was_member_ || machine_.member();
  protocol::PeerEffects effects = recorder_.on(machine_, event, loop_.now());
  const std::string fault = protocol::fault_in(effects);
  apply(std::move(effects));
  if (!fault.empty()) record_fault(fault);
}

protocol::About Control::about(const std::string& why) const {
  protocol::About about;
  about.run = machine_.run(), about.incarnation = machine_.incarnation();
  about.site = config_.machine.site, about.build = base::build_text(), about.why = why;
  about.at = loop_.now();
  const auto unix = std::chrono::system_clock::now().time_since_epoch();
  about.unix_ms = std::chrono::duration_cast<std::chrono::milliseconds>(unix).count();
  return about;
}

// Who has a folder hears of each file as of other news, and of one that could not be written.
// Of one that never was in a run there is nothing to tell: it would fill the folder by its
// restarts.
void Control::record_fault(const std::string& what) {
  if (!was_member_ && !JCCL_PLANTED("refused-peers-leave-recordings")) return;
  if (recorder_.off() || !writer_.is_due(loop_.now())) return;
  writer_.write_behind(recorder_.file(about(what)), loop_.now(),
                       [this, what](const base::Result<std::string>& path) {
                         if (!path.ok() && path.status().code == Code::kLimit) return;
                         const std::lock_guard lock(mutex_);
                         view_.note(path_text(path, what));
                       });
}

void Control::record_and_note(const std::string& why) {
  const auto path = record(why);
  const std::lock_guard lock(mutex_);
  view_.note(path_text(path, why));
}

base::Result<std::string> Control::record(const std::string& why) {
  if (config_.record_bytes == 0) {
    return Status(Code::kInvalid,
                  "this communicator has no flight recorder: it was connected "
                  "with record_mib=0");
  }
  const auto bytes = [&] {
    base::Bytes made;
    loop_.call([&] { made = recorder_.any() ? recorder_.file(about(why)) : base::Bytes(); });
    return made;
  };
  return writer_.write(bytes, loop_.now());
}

}  // namespace jccl::peer
