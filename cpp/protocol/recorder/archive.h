// A machine's state, its events and its effects as bytes, whole. A flight recorder keeps them, and
// a replay begins with them. Each struct names its fields once (JCCL_ARCHIVED); a field that it
// does not name does not compile. Three archives walk over them: Saver, Loader, and Layout, a
// number that differs if the fields differ. Parts of messages have the form of wire/fields.h,
// without its bounds, because a machine's values are kept as they are. No archive has a link's
// secret in it. A Loader takes any bytes. It may fail, and allocates in proportion to its input.
// From bytes that no Saver wrote it may make a state that no machine can reach. Pure; any one
// thread.
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/hash64.h"
#include "base/planted.h"
#include "base/status.h"
#include "wire/fields.h"

namespace jccl::protocol {

// Each names all fields of a struct, in their order.
#define JCCL_ARCHIVED(Type, ...)                  \
  template <typename Io>                          \
  void fields(Io& io, wire::In<Io, Type> whole) { \
    auto& [__VA_ARGS__] = whole;                  \
    all(io __VA_OPT__(, ) __VA_ARGS__);           \
  }
// … and of one without any.
#define JCCL_ARCHIVED_EMPTY(Type)         \
  template <typename Io>                  \
  void fields(Io&, wire::In<Io, Type>) {  \
    static_assert(std::is_empty_v<Type>); \
  }

// How many values an enumeration has, from 0 on: a state is full of switches and tables.
template <typename E>
inline constexpr std::uint64_t kValuesOf = 0;
template <>
inline constexpr std::uint64_t kValuesOf<base::Code> = base::kCodes;
template <>
inline constexpr std::uint64_t kValuesOf<base::Wish> = 4;

// What a Loader fills. A class without such a value has a form of its own.
template <typename T>
struct Blank {
  static T make() { return T{}; }
};

template <typename Io, typename T>
void value(Io& io, T& v);

template <typename Io, typename... T>
void all(Io& io, T&... v) {
  (value(io, v), ...);
}

template <typename T>
inline constexpr bool kIsMapLike = requires { typename T::key_type; };
template <typename T>
inline constexpr bool kIsMap = requires { typename T::mapped_type; };
template <typename T>
inline constexpr bool kIsPlain =
    std::integral<T> || std::floating_point<T> || std::is_same_v<T, base::Digest> ||
    std::is_same_v<T, base::Attempt> || std::is_same_v<T, base::RunId> ||
    std::is_same_v<T, base::PublicKey>;
template <typename T>
inline constexpr bool kIsArray = false;
template <typename T, std::size_t N>
inline constexpr bool kIsArray<std::array<T, N>> = true;
template <typename T>
inline constexpr bool kIsPair = false;
template <typename A, typename B>
inline constexpr bool kIsPair<std::pair<A, B>> = true;
template <typename T>
inline constexpr bool kIsOptional = false;
template <typename T>
inline constexpr bool kIsOptional<std::optional<T>> = true;
template <typename T>
inline constexpr bool kIsVariant = false;
template <typename... T>
inline constexpr bool kIsVariant<std::variant<T...>> = true;
template <typename T>
inline constexpr bool kIsList = requires(T& v) { v.emplace_back(); };

// Which of an archive's words a value takes.
template <typename Io, typename T>
void value(Io& io, T& v) {
  using Type = std::remove_const_t<T>;
  if constexpr (std::is_same_v<Type, bool>) {
    io.flag(v);
  } else if constexpr (std::is_enum_v<Type>) {
    static_assert(kValuesOf<Type> > 0, "say how many values it has");
    io.choice(v);
  } else if constexpr (kIsPlain<Type>) {
    io.plain(v);
  } else if constexpr (std::is_same_v<Type, std::string> || std::is_same_v<Type, base::Bytes>) {
    io.string(v);
  } else if constexpr (kIsArray<Type>) {
    for (auto& one : v) value(io, one);
  } else if constexpr (kIsPair<Type>) {
    all(io, v.first, v.second);
  } else if constexpr (kIsOptional<Type>) {
    io.optional(v);
  } else if constexpr (kIsVariant<Type>) {
    io.variant(v);
  } else if constexpr (kIsMapLike<Type>) {
    io.map(v);
  } else if constexpr (std::is_same_v<Type, std::vector<wire::Contributor>>) {
    io.contributors(v);
  } else if constexpr (kIsList<Type>) {
    io.items(v, [&io](auto& one) { value(io, one); });
  } else {
    fields(io, v);
  }
}

// The words of wire/fields.h, in those of an archive.
template <typename Self>
class WireWords {
 public:
  static constexpr bool kDecodes = false;  // a Hello of another version is kept whole
  void u8(auto& v) { self().plain(v); }
  void u16(auto& v) { self().plain(v); }
  void u32(auto& v) { self().plain(v); }
  void u64(auto& v) { self().plain(v); }
  void i64(auto& v) { self().plain(v); }
  void weight(auto& v) { self().plain(v); }
  void attempt(auto& v) { self().plain(v); }
  void digest(auto& v) { self().plain(v); }
  void run(auto& v) { self().plain(v); }
  // Keys are public. The other bytes of a message are a link's secret, which is for nobody's eyes:
  // machines only hand it on, and decide nothing by it.
  template <typename Array>
  void raw(Array& v) {
    constexpr bool kKey = std::is_same_v<std::remove_const_t<Array>, base::PublicKey>;
    static_assert(kKey ||
                  std::is_same_v<std::remove_const_t<Array>, decltype(wire::LinkSecret::secret)>);
    if (kKey || JCCL_PLANTED("secrets-in-recordings")) self().plain(v);
  }
  void tag(auto& v) { self().string(v); }
  void name(auto& v, std::size_t, std::string_view) { self().string(v); }
  void text(auto& v, std::size_t) { self().string(v); }
  void blob(auto& v, std::size_t, std::string_view) { self().string(v); }
  // Values are the users': a recording holds how many bytes there were.
  void payload(auto& v, std::size_t, std::string_view) { self().hidden(v); }
  void list(auto& v, std::size_t, std::string_view, auto each) { self().items(v, each); }
  void require(bool, std::string_view) {}

 private:
  Self& self() { return static_cast<Self&>(*this); }
};

class Saver : public WireWords<Saver> {
 public:
  template <typename T>
  using Ref = const T&;

  void plain(const auto& v) { raw_bytes(&v, sizeof(v)); }
  void flag(bool v) { plain(static_cast<std::uint8_t>(v)); }
  void choice(const auto& v) { plain(v); }
  void one_of(const auto& v, bool (*)(std::uint8_t)) { plain(static_cast<std::uint8_t>(v)); }
  void string(const auto& v) {  // of characters, or of bytes
    count(v.size());
    raw_bytes(v.data(), v.size());
  }
  void hidden(const base::Bytes& v) {
    if (JCCL_PLANTED("values-in-recordings")) return string(v);
    count(v.size());
  }
  void items(const auto& v, auto each) {
    count(v.size());
    for (const auto& one : v) each(one);
  }
  void map(const auto& v) {
    count(v.size());
    for (const auto& one : v) value(*this, one);
  }
  void optional(const auto& v) {
    flag(v.has_value());
    if (v.has_value()) value(*this, *v);
  }
  void variant(const auto& v) {
    plain(static_cast<std::uint8_t>(v.index()));
    std::visit([this](const auto& held) { value(*this, held); }, v);
  }
  // A thousand of one weight are a few bytes: a master tells each of a thousand of all the others.
  void contributors(const std::vector<wire::Contributor>& v) {
    count(v.size());
    for (std::size_t at = 0; at < v.size();) {
      std::size_t end = at + 1;
      while (end < v.size() && v[end].id == v[end - 1].id + 1 && v[end].weight == v[at].weight) {
        ++end;
      }
      plain(v[at].id), plain(v[at].weight);
      count(end - at);
      at = end;
    }
  }
  void bytes(base::ByteView v) {  // what another Saver made
    count(v.size());
    raw_bytes(v.data(), v.size());
  }

  const base::Bytes& made() const { return out_; }
  base::Bytes take() { return std::exchange(out_, {}); }
  void clear() { out_.clear(); }

 private:
  void count(std::size_t n) {
    const auto small = static_cast<std::uint32_t>(n);
    JCCL_CHECK(small == n);
    plain(small);
  }
  void raw_bytes(const void* from, std::size_t size) {
    const auto* bytes = static_cast<const std::uint8_t*>(from);
    out_.insert(out_.end(), bytes, bytes + size);
  }

  base::Bytes out_;
};

class Loader : public WireWords<Loader> {
 public:
  template <typename T>
  using Ref = T&;

  explicit Loader(base::ByteView bytes) : in_(bytes) {}

  template <typename T>
  void plain(T& v) {
    std::array<std::uint8_t, sizeof(T)> bytes{};
    in_.raw(&bytes);
    v = std::bit_cast<T>(bytes);
  }
  void flag(bool& v) { v = in_.flag(); }
  template <typename E>
  void choice(E& v) {
    std::underlying_type_t<E> number{};
    plain(number);
    if (static_cast<std::uint64_t>(number) >= kValuesOf<E>) return in_.fail();
    v = static_cast<E>(number);
  }
  template <typename E>
  void one_of(E& v, bool (*valid)(std::uint8_t)) {
    const std::uint8_t number = in_.u8();
    if (!valid(number)) return in_.fail();
    v = static_cast<E>(number);
  }
  void string(auto& v) {
    const base::ByteView bytes = in_.view(in_.u32());
    v.assign(bytes.begin(), bytes.end());
  }
  void hidden(base::Bytes& v) {
    const std::size_t size = in_.u32();
    if (size > unfolded_max_) return in_.fail();
    unfolded_max_ -= size;
    v.assign(size, 0);
  }
  base::ByteView bytes() { return in_.view(in_.u32()); }
  template <typename List>
  void items(List& v, auto each) {
    v.clear();
    for (std::size_t n = in_.count(kCountMax, 1); n > 0 && !in_.failed(); --n) {
      v.push_back(Blank<typename List::value_type>::make());
      each(v.back());
    }
  }
  // One value, one form: keys ascend.
  template <typename Map>
  void map(Map& v) {
    using Key = typename Map::key_type;
    v.clear();
    for (std::size_t n = in_.count(kCountMax, 1); n > 0 && !in_.failed(); --n) {
      Key key = Blank<Key>::make();
      value(*this, key);
      if (!v.empty() && !v.key_comp()(key_of(v, *v.rbegin()), key)) return in_.fail();
      if constexpr (kIsMap<Map>) {
        const auto at =
            v.emplace_hint(v.end(), std::move(key), Blank<typename Map::mapped_type>::make());
        value(*this, at->second);
      } else {
        v.emplace_hint(v.end(), std::move(key));
      }
    }
  }
  template <typename T>
  void optional(std::optional<T>& v) {
    v.reset();
    if (!in_.flag()) return;
    v.emplace(Blank<T>::make());
    value(*this, *v);
  }
  template <typename... T>
  void variant(std::variant<T...>& v) {
    const std::uint8_t index = in_.u8();
    if (index >= sizeof...(T)) return in_.fail();
    std::size_t at = 0;
    ((at++ == index ? (v = Blank<T>::make(), 0) : 0), ...);
    std::visit([this](auto& held) { value(*this, held); }, v);
  }
  void contributors(std::vector<wire::Contributor>& v) {
    v.clear();
    const std::size_t all = in_.u32();
    if (all > unfolded_max_) return in_.fail();
    unfolded_max_ -= all;
    while (v.size() < all && !in_.failed()) {
      wire::Contributor one;
      plain(one.id), plain(one.weight);
      const std::size_t run = in_.u32();
      if (run == 0 || run > all - v.size()) return in_.fail();
      for (std::size_t i = 0; i < run; ++i, ++one.id) v.push_back(one);
    }
  }

  void fail() { in_.fail(); }
  bool failed() const { return in_.failed(); }
  bool finished() const { return in_.finished(); }

 private:
  static constexpr std::size_t kCountMax = 1 << 26;
  template <typename Map>
  static const auto& key_of(const Map&, const auto& one) {
    if constexpr (kIsMap<Map>) {
      return one.first;
    } else {
      return one;
    }
  }

  base::Reader in_;
  // Contributors, of whom a few bytes name thousands, and hidden bytes.
  std::size_t unfolded_max_ = std::size_t{1} << 22;
};

// What a Saver writes of a value, but for the value: two builds with the same number read each
// other's.
class Layout : public WireWords<Layout> {
 public:
  template <typename T>
  using Ref = const T&;

  void plain(const auto& v) { note(sizeof(v)); }
  void flag(bool) { note('b'); }
  template <typename E>
  void choice(const E&) {
    note('e'), note(kValuesOf<E>);
  }
  void one_of(const auto&, bool (*valid)(std::uint8_t)) {
    note('E');
    for (int v = 0; v < 256; ++v) note(valid(static_cast<std::uint8_t>(v)) ? 1 : 0);
  }
  void string(const auto&) { note('s'); }
  void hidden(const base::Bytes&) { note('h'); }
  template <typename List>
  void items(const List&, auto each) {
    note('l');
    const auto one = Blank<typename List::value_type>::make();
    each(one);
  }
  template <typename Map>
  void map(const Map&) {
    note('m');
    const auto key = Blank<typename Map::key_type>::make();
    value(*this, key);
    if constexpr (kIsMap<Map>) {
      const auto held = Blank<typename Map::mapped_type>::make();
      value(*this, held);
    }
  }
  template <typename T>
  void optional(const std::optional<T>&) {
    note('o');
    const T held = Blank<T>::make();
    value(*this, held);
  }
  template <typename... T>
  void variant(const std::variant<T...>&) {
    note('v');
    const auto one = [this](const auto& held) { note('|'), value(*this, held); };
    (one(Blank<T>::make()), ...);
  }
  void contributors(const std::vector<wire::Contributor>&) { note('c'); }

  std::uint64_t number() const { return base::hash64(notes_); }

 private:
  void note(std::size_t v) {
    for (int i = 0; i < 4; ++i) notes_.push_back(static_cast<std::uint8_t>(v >> 8 * i));
  }
  base::Bytes notes_;
};

// ---- a whole value in one go -------------------------------------------------------------------

template <typename T>
base::Bytes saved(const T& v) {
  Saver to;
  value(to, v);
  return to.take();
}

// False: the bytes are not, or not only, such a value; what `v` is then says nothing.
template <typename T>
bool load(base::ByteView bytes, T& v) {
  Loader from(bytes);
  value(from, v);
  return from.finished();
}

// For comparing. What `scratch` held is gone.
template <typename T>
std::uint32_t short_digest(const T& v, Saver& scratch) {
  scratch.clear();
  value(scratch, v);
  return static_cast<std::uint32_t>(base::hash64(scratch.made()));
}

}  // namespace jccl::protocol

namespace jccl::base {
template <typename Io>
void fields(Io& io, wire::In<Io, Status> status) {
  protocol::all(io, status.code, status.text);
}
template <typename Io>
void fields(Io& io, wire::In<Io, Quorum> quorum) {
  protocol::all(io, quorum.share, quorum.grace);
}
}  // namespace jccl::base
