#include "net/recordings.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "base/planted.h"
#include "base/text.h"

namespace jccl::net {

using base::cat;
using base::Code;
using base::Status;

namespace {

constexpr ::mode_t kFolderMode = 0700;
constexpr std::string_view kBegin = "jccl-", kEnd = ".rec", kDraft = ".recording-";
constexpr auto kDraftAge = std::chrono::hours(1);  // nobody writes one for as long

Status failed(const std::string& what, const std::string& path) {
  return {Code::kIo, cat("recordings: ", what, " ", path, ": ", std::strerror(errno))};
}

bool write_all(int fd, base::ByteView bytes) {
  while (!bytes.empty()) {
    const ::ssize_t wrote = ::write(fd, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(wrote));
  }
  return true;
}

struct Contents {
  std::size_t files = 0;
  std::uint64_t bytes = 0;
};

Contents contents_of(const std::string& folder) {
  Contents all;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kBegin) || !name.ends_with(kEnd)) continue;
    ++all.files;
    const std::uintmax_t size = entry.file_size(ignored);
    if (!ignored) all.bytes += size;
  }
  return all;
}

void remove_drafts(const std::string& folder) {
  const auto now = std::filesystem::file_time_type::clock::now();
  std::vector<std::filesystem::path> old;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const bool draft = entry.path().filename().string().starts_with(kDraft);
    if (!draft || !entry.is_regular_file(ignored)) continue;
    const auto age = now - entry.last_write_time(ignored);
    if (!ignored && age > kDraftAge) old.push_back(entry.path());
  }
  if (JCCL_PLANTED("drafts-stay")) return;
  for (const auto& path : old) std::filesystem::remove(path, ignored);
}

std::int64_t unix_seconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

}  // namespace

base::Result<Recordings> Recordings::open(const std::string& folder, const std::string& name,
                                          const RecordingLimits& limits) {
  Recordings made;
  made.folder_ = folder, made.name_ = name, made.limits_ = limits;
  if (folder.empty()) return made;
  if (folder.find('\0') != std::string::npos) {
    return Status(Code::kInvalid, "recordings: the name of the folder has a zero byte in it");
  }
  std::error_code unknown;  // whoever is told of a file may stand elsewhere
  if (const auto whole = std::filesystem::absolute(folder, unknown); !unknown) {
    made.folder_ = whole.string();
  }
  if (::mkdir(folder.c_str(), kFolderMode) != 0 && errno != EEXIST) {
    return failed("can't make the folder", folder);
  }
  struct ::stat facts{};
  if (::stat(folder.c_str(), &facts) != 0) return failed("can't look into", folder);
  if (!S_ISDIR(facts.st_mode)) {
    return Status(Code::kIo, cat("recordings: ", folder, " is no folder; name one"));
  }
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    return failed("can't write to the folder", folder);
  remove_drafts(folder);
  return made;
}

// How many files of faults count against the limit: each `one_more` gives one back.
std::int64_t Recordings::used(base::Time now) const {
  if (faults_ == 0 || JCCL_PLANTED("faults-used-up-for-ever")) return faults_;
  return std::max<std::int64_t>(0, faults_ - (now - earned_at_) / limits_.one_more);
}

void Recordings::earn(base::Time now) {
  const std::int64_t left = used(now);
  if (left < faults_) said_ = false;
  earned_at_ = left == 0 ? now : earned_at_ + (faults_ - left) * limits_.one_more;
  faults_ = left;
}

bool Recordings::ends_here() {
  return faults_ >= limits_.faults_max && !std::exchange(said_, true);
}

Status Recordings::due(RecordingCause cause, base::Time now) const {
  if (folder_.empty()) {
    return {Code::kInvalid, "no folder was named for recordings when this process began"};
  }
  const bool fault = cause == RecordingCause::kFault;
  const bool used_up = used(now) >= limits_.faults_max;
  if (fault && used_up && !JCCL_PLANTED("recordings-of-every-fault")) {
    return {Code::kLimit, cat("this process has written ", faults_,
                              " recordings of faults, and writes one more in an hour")};
  }
  const base::Time last = fault ? fault_at_ : order_at_;
  const base::Duration pause = fault ? limits_.fault_pause : limits_.order_pause;
  if (last > -base::kNever && now - last < pause) {
    return {Code::kLimit,
            cat("the last recording is less than ", pause / base::kMillisecond, " ms old")};
  }
  return {};
}

Status Recordings::may_write(RecordingCause cause, base::Time now) const {
  if (const Status is = due(cause, now); !is.ok()) return is;
  const Contents all = contents_of(folder_);
  const bool full = all.files >= limits_.files_max || all.bytes >= limits_.bytes_max;
  if (full && !JCCL_PLANTED("recordings-fill-the-disk")) {
    return {Code::kLimit, cat("the folder ", folder_, " has ", all.files, " recordings of ",
                              base::bytes_text(all.bytes), ": take some away")};
  }
  return {};
}

// A reader sees the whole file or none, after this process was killed too. Not after a power cut:
// who writes may be a master's loop, which must not wait for a disk that is slow.
base::Result<std::string> Recordings::write(base::ByteView bytes, RecordingCause cause,
                                            base::Time now) {
  earn(now);
  if (const Status may = may_write(cause, now); !may.ok()) return may;
  (cause == RecordingCause::kFault ? fault_at_ : order_at_) = now;
  const std::string path =
      cat(folder_, "/", kBegin, name_, "-", unix_seconds(), "-", ::getpid(), "-", ++files_, kEnd);
  std::string draft = cat(folder_, "/", kDraft, "XXXXXX");
  const int fd = ::mkostemp(draft.data(), O_CLOEXEC);  // 0600
  if (fd < 0) return failed("can't make a file in", folder_);
  if (JCCL_PLANTED("recordings-for-all")) (void)::fchmod(fd, 0644);
  const bool written = write_all(fd, bytes);
  const Status why = written ? Status() : failed("can't write", draft);
  ::close(fd);
  if (!written || ::rename(draft.c_str(), path.c_str()) != 0) {
    const Status end = written ? failed("can't rename", draft) : why;
    ::unlink(draft.c_str());
    return end;
  }
  if (cause == RecordingCause::kFault) ++faults_;
  return path;
}

}  // namespace jccl::net
