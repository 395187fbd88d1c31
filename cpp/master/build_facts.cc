#include "master/build_facts.h"

#include <openssl/crypto.h>
#include <openssl/opensslv.h>
#include <sqlite3.h>

#include <boost/version.hpp>

#include "base/build.h"
#include "base/text.h"
#include "wire/messages.h"

namespace jccl::master {

namespace {

std::string c_library() {
#ifdef __GLIBC__
  return base::cat(__GLIBC__, ".", __GLIBC_MINOR__);
#else
  return "";
#endif
}

}  // namespace

std::vector<std::pair<std::string_view, std::string>> build_facts() {
  const base::Build build = base::build();
  return {
      {"version", build.version},
      {"commit", build.commit},
      {"compiler", build.compiler},
      {"glibc", c_library()},
      {"wire", base::cat(wire::kVersion)},
      {"oldest_wire", base::cat(wire::kVersionOldest)},
      {"journals", "SQLite, etcd"},
      {"encryption", "TLS 1.3"},
      {"openssl",
       base::cat(OPENSSL_VERSION_STR, ", runs ", OpenSSL_version(OPENSSL_VERSION_STRING))},
      {"sqlite", base::cat(SQLITE_VERSION, ", runs ", sqlite3_libversion())},
      {"boost", base::cat(BOOST_VERSION / 100000, ".", BOOST_VERSION / 100 % 1000)},
  };
}

}  // namespace jccl::master
