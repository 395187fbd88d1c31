#include "master/private_file.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "base/planted.h"
#include "base/text.h"

namespace jccl::master {

namespace {

constexpr ::mode_t kOwners = 0600;
constexpr ::mode_t kOthers = 0077;
constexpr ::mode_t kBits = 0777;

std::string octal(::mode_t mode) {
  const ::mode_t bits = mode & kBits;
  return base::cat("0", bits >> 6, bits >> 3 & 7, bits & 7);
}

}  // namespace

// By its path: to close a second descriptor of a journal would give up SQLite's locks on it.
base::Status make_private(const std::string& what, const std::string& path,
                          const std::function<void(const std::string&)>& log) {
  struct ::stat file{};
  if (::stat(path.c_str(), &file) != 0 || !S_ISREG(file.st_mode)) return {};
  if ((file.st_mode & kOthers) == 0 || JCCL_PLANTED("old-files-stay-open")) return {};
  struct ::stat after = file;
  errno = 0;
  const bool set = ::chmod(path.c_str(), kOwners) == 0 && ::stat(path.c_str(), &after) == 0;
  if (!set || (after.st_mode & kOthers) != 0) {
    return {base::Code::kIo,
            base::cat(what, " ", path, " is open to other users (mode ", octal(file.st_mode),
                      "), and this process can't change that: ",
                      errno == 0 ? "its file system keeps the mode" : std::strerror(errno),
                      "; run chmod 600 on it as its owner, or give another path")};
  }
  if (log) {
    log(base::cat(what, " ", path, " was open to other users (mode ", octal(file.st_mode),
                  "); it is its owner's alone now (0600)"));
  }
  return {};
}

}  // namespace jccl::master
