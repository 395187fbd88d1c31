// The fields of what messages and records are made of (parts.h), each named once in the order of
// its bytes. See fields.h.
#pragma once

#include "wire/field_io.h"

namespace jccl::wire {

template <typename Io, typename T>
using In = typename Io::template Ref<T>;

template <typename Io>
void fields(Io& io, In<Io, RoundName> m) {
  io.tag(m.tag);
  io.u64(m.n);
}

template <typename Io>
void fields(Io& io, In<Io, TagInfo> m) {
  io.tag(m.tag);
  io.u64(m.committed);
  io.flag(m.is_state);
}

template <typename Io>
void fields(Io& io, In<Io, Held> m) {
  io.tag(m.tag);
  io.u64(m.revision);
  io.digest(m.digest);
}

template <typename Io>
void fields(Io& io, In<Io, Unresolved> m) {
  io.attempt(m.attempt);
  fields(io, m.round);
}

template <typename Io>
void addresses(Io& io, In<Io, std::vector<std::string>> v) {
  io.list(v, base::kAddressesMax, "addresses",
          [&](auto& one) { io.name(one, base::kAddressBytesMax, "address"); });
}

template <typename Io>
void fields(Io& io, In<Io, Member> m) {
  io.u32(m.id);
  io.u64(m.incarnation);
  io.name(m.site, base::kSiteNameBytesMax, "site");
  io.u32(m.shard);
  io.u32(m.shards);
  addresses(io, m.addresses);
  io.raw(m.key);
}

template <typename Io>
void fields(Io& io, In<Io, LinkSecret> m) {
  io.u64(m.generation);
  io.raw(m.secret);
}

template <typename T, typename Key>
bool ascending(const std::vector<T>& v, Key key) {
  for (std::size_t i = 1; i < v.size(); ++i) {
    if (!(key(v[i - 1]) < key(v[i]))) return false;
  }
  return true;
}

template <typename Io>
void contributors(Io& io, In<Io, std::vector<Contributor>> v) {
  io.require(ascending(v, [](const Contributor& c) { return c.id; }),
             "contributors are not in ascending order of id");
  io.contributors(v);
}

template <typename Io>
void held(Io& io, In<Io, std::vector<Held>> v) {
  io.list(v, base::kTagsMax, "held snapshots", [&](auto& one) { fields(io, one); });
}

inline bool ids_ascend(const std::vector<Member>& v) {
  return ascending(v, [](const Member& m) { return m.id; });
}

}  // namespace jccl::wire
