// "etcd://user:password@host:port,host:port/prefix?lease=5": which etcd, under which prefix, and
// how to reach it. etcds:// is TLS: ca=, cert= and key= name PEM files. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/time.h"
#include "net/socket/address.h"

namespace jccl::master {

struct EtcdWhere {
  std::vector<net::Address>
      endpoints;                 // in the order they are tried; port 2379 where none is given
  std::string prefix = "/jccl";  // of all keys; one run has one prefix
  base::Duration lease = 5 * base::kSecond;  // whole seconds: etcd's unit
  bool tls = false;
  std::string user, password;  // no user: etcd is not asked for a token
  std::string ca, cert, key;   // PEM files; no ca: the system's; cert and key: ours, or none
};

bool is_etcd(std::string_view where);
std::string without_password(std::string_view where);  // for people
// Code: kInvalid.
base::Result<EtcdWhere> parse_etcd(std::string_view where);

}  // namespace jccl::master
