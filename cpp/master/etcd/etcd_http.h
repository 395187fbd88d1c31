// HTTP POSTs of JSON to whichever of several endpoints answers, plain or over TLS, one at a time
// over one kept connection. Blocks, but never beyond its deadline. A request whose answer was lost
// is sent again, to the next endpoint: callers send only what may arrive twice. Confined to one
// thread at a time.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "base/time.h"
#include "master/etcd/etcd_where.h"

namespace jccl::master {

// Goes on while the machine sleeps, unlike the steady clock: a lease does, too.
base::Time boot_now();

class EtcdHttp {
 public:
  // Codes: kInvalid (a PEM file can't be used).
  static base::Result<std::unique_ptr<EtcdHttp>> open(const EtcdWhere& where);
  virtual ~EtcdHttp() = default;
  using Accept = std::function<base::Status(const std::string&)>;
  // The body of an answer with 200 that `accept` takes for etcd's. Tries until `deadline` (of
  // boot_now), each try for at most a fifth of the lease. Codes: kLinkLost (nobody answered
  // usefully; whether the request was carried out is not known), kInvalid (etcd refused it, for
  // good), kAuth (TLS or etcd's own rights), kLimit (the answer is larger than kAnswerBytesMax).
  virtual base::Result<std::string> post(const std::string& path, const std::string& body,
                                         base::Time deadline, const Accept& accept) = 0;

  static constexpr std::size_t kAnswerBytesMax = 32 * 1024 * 1024;
};

}  // namespace jccl::master
