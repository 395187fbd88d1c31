// The C library's calls that change files, defined once more in this program: the dynamic linker
// gives them to SQLite's library too. Each does what it did, and is written down.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <mutex>

#include "base/check.h"
#include "master/power_cut/disk.h"

namespace jccl::master::power_cut {
namespace {

struct Recorder {
  std::mutex guard;
  std::atomic<bool> on = false;
  Lies lies;
  std::atomic<std::uint32_t> slow_us = 0;
  std::string folder;
  std::uint64_t last_file = 0;
  std::map<std::string, std::uint64_t> names;  // within the folder
  std::map<int, std::uint64_t> files;          // by descriptor; 0: the folder itself
  std::vector<Op> ops;
};

Recorder& recorder() {
  static auto* const it = new Recorder;  // calls come until the last library has ended
  return *it;
}

template <typename F>
F real(const char* name) {
  return reinterpret_cast<F>(::dlsym(RTLD_NEXT, name));
}

// The name within the watched folder; empty: elsewhere.
std::string own_name(const Recorder& r, const std::string& path) {
  if (!path.starts_with(r.folder + "/")) return {};
  return path.substr(r.folder.size() + 1);
}

void opened(const char* path, int fd, int flags) {
  Recorder& r = recorder();
  if (!r.on || fd < 0) return;
  const std::lock_guard lock(r.guard);
  r.files.erase(fd);
  if (r.folder == path) r.files[fd] = 0;
  const std::string name = own_name(r, path);
  if (name.empty()) return;
  std::uint64_t& file = r.names[name];
  if (file == 0) {
    file = ++r.last_file;
    r.ops.push_back({Op::Kind::kCreate, file, name, 0, {}});
  }
  r.files[fd] = file;
  if ((flags & O_TRUNC) != 0) r.ops.push_back({Op::Kind::kTruncate, file, {}, 0, {}});
}

void closed(int fd) {
  Recorder& r = recorder();
  if (!r.on) return;
  const std::lock_guard lock(r.guard);
  r.files.erase(fd);
}

void note(int fd, Op op) {
  Recorder& r = recorder();
  if (!r.on) return;
  const std::lock_guard lock(r.guard);
  const auto file = r.files.find(fd);
  if (file == r.files.end()) return;
  op.file = file->second;
  if (op.file == 0) {
    if (op.kind != Op::Kind::kSync || r.lies.folder_syncs) return;
    op.kind = Op::Kind::kSyncFolder;
  }
  r.ops.push_back(std::move(op));
}

::ssize_t written(int fd, const void* bytes, ::ssize_t put, std::uint64_t offset) {
  if (put > 0) {
    note(fd, {Op::Kind::kWrite,
              0,
              {},
              offset,
              std::string(static_cast<const char*>(bytes), static_cast<std::size_t>(put))});
  }
  return put;
}

int synced(int fd, int status) {
  if (recorder().slow_us > 0) ::usleep(recorder().slow_us);
  if (status == 0) note(fd, {Op::Kind::kSync, 0, {}, 0, {}});
  return status;
}

}  // namespace

void record(const std::filesystem::path& folder, const Image& before, Lies lies) {
  Recorder& r = recorder();
  const std::lock_guard lock(r.guard);
  r.folder = folder.string(), r.lies = lies;
  r.names.clear(), r.files.clear(), r.ops.clear();
  r.last_file = 0;
  for (const auto& [name, bytes] : before) r.names[name] = ++r.last_file;  // as Disk counts them
  r.on = true;
}

std::size_t recorded() {
  const std::lock_guard lock(recorder().guard);
  return recorder().ops.size();
}

std::vector<Op> stop_recording() {
  const std::lock_guard lock(recorder().guard);
  recorder().on = false;
  recorder().files.clear();
  return std::move(recorder().ops);
}

void slow_syncs(std::uint32_t microseconds) { recorder().slow_us = microseconds; }

using Open = int (*)(const char*, int, ...);

int open_by(Open call, const char* path, int flags, va_list more) {
  const int fd = call(path, flags, (flags & O_CREAT) != 0 ? va_arg(more, int) : 0);
  opened(path, fd, flags);
  return fd;
}

}  // namespace jccl::master::power_cut

#define JCCL_CALL extern "C" __attribute__((visibility("default")))

namespace cut = jccl::master::power_cut;

JCCL_CALL int open(const char* path, int flags, ...) {
  static const auto call = cut::real<cut::Open>("open");
  va_list more;
  va_start(more, flags);
  const int fd = cut::open_by(call, path, flags, more);
  va_end(more);
  return fd;
}

JCCL_CALL int open64(const char* path, int flags, ...) {
  static const auto call = cut::real<cut::Open>("open64");
  va_list more;
  va_start(more, flags);
  const int fd = cut::open_by(call, path, flags, more);
  va_end(more);
  return fd;
}

JCCL_CALL ::ssize_t pwrite(int fd, const void* bytes, std::size_t size, ::off_t offset) {
  static const auto call =
      cut::real<::ssize_t (*)(int, const void*, std::size_t, ::off_t)>("pwrite");
  return cut::written(fd, bytes, call(fd, bytes, size, offset), static_cast<std::uint64_t>(offset));
}

JCCL_CALL ::ssize_t pwrite64(int fd, const void* bytes, std::size_t size, ::off64_t offset) {
  static const auto call =
      cut::real<::ssize_t (*)(int, const void*, std::size_t, ::off64_t)>("pwrite64");
  return cut::written(fd, bytes, call(fd, bytes, size, offset), static_cast<std::uint64_t>(offset));
}

JCCL_CALL ::ssize_t write(int fd, const void* bytes, std::size_t size) {
  static const auto call = cut::real<::ssize_t (*)(int, const void*, std::size_t)>("write");
  const ::off_t offset = ::lseek(fd, 0, SEEK_CUR);
  return cut::written(fd, bytes, call(fd, bytes, size), static_cast<std::uint64_t>(offset));
}

JCCL_CALL int ftruncate64(int fd, ::off64_t size) {
  static const auto call = cut::real<int (*)(int, ::off64_t)>("ftruncate64");
  const int status = call(fd, size);
  if (status == 0) {
    cut::note(fd, {cut::Op::Kind::kTruncate, 0, {}, static_cast<std::uint64_t>(size), {}});
  }
  return status;
}

JCCL_CALL int fsync(int fd) {
  static const auto call = cut::real<int (*)(int)>("fsync");
  return cut::synced(fd, call(fd));
}

JCCL_CALL int fdatasync(int fd) {
  static const auto call = cut::real<int (*)(int)>("fdatasync");
  return cut::synced(fd, call(fd));
}

JCCL_CALL int close(int fd) {
  static const auto call = cut::real<int (*)(int)>("close");
  cut::closed(fd);
  return call(fd);
}

JCCL_CALL int unlink(const char* path) {
  static const auto call = cut::real<int (*)(const char*)>("unlink");
  const int status = call(path);
  cut::Recorder& r = cut::recorder();
  if (status != 0 || !r.on) return status;
  const std::lock_guard lock(r.guard);
  const std::string name = cut::own_name(r, path);
  if (!name.empty() && r.names.erase(name) > 0) {
    r.ops.push_back({cut::Op::Kind::kUnlink, 0, name, 0, {}});
  }
  return status;
}
