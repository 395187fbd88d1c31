// The two directions of one description: FieldEncoder and FieldDecoder offer the same calls, and
// fields.h names each field once, so that writer and reader can't drift apart. Both hold the same
// bounds. The encoder notes the first broken bound; the decoder stays failed after one.
// Human texts longer than their bound are cut by the encoder, and what is not UTF-8 in them becomes
// '?'; everything else is refused: a name of stray bytes would end whoever shows it as text.
#pragma once

#include <cmath>
#include <string>
#include <type_traits>
#include <vector>

#include "base/bytes.h"
#include "base/limits.h"
#include "base/status.h"
#include "base/text.h"
#include "base/utf8.h"
#include "wire/messages.h"

namespace jccl::wire {

// Longest prefix of at most `bytes_max` bytes that doesn't end inside a UTF-8 character.
inline std::string_view cut_text(std::string_view text, std::size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  std::size_t end = bytes_max;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

inline bool is_weight(double v) { return std::isfinite(v) && !std::signbit(v); }

class FieldEncoder {
 public:
  template <typename T>
  using Ref = const T&;
  static constexpr bool kDecodes = false;

  void reserve(std::size_t size) { out_.reserve(size); }
  void u8(std::uint8_t v) { out_.u8(v); }
  void u16(std::uint16_t v) { out_.u16(v); }
  void u32(std::uint32_t v) { out_.u32(v); }
  void u64(std::uint64_t v) { out_.u64(v); }
  void i64(std::int64_t v) { out_.i64(v); }
  void flag(bool v) { out_.flag(v); }
  void attempt(const Attempt& v) { out_.attempt(v); }
  void digest(const Digest& v) { out_.digest(v); }
  void run(const RunId& v) { out_.run(v); }
  template <std::size_t N>
  void raw(const std::array<std::uint8_t, N>& v) {
    out_.raw(v);
  }
  void weight(double v) {
    v += 0.0;  // -0 becomes 0: one value, one form
    if (!is_weight(v)) return refuse("a weight is not a finite number >= 0");
    out_.f64(v);
  }
  void tag(const Tag& v) {
    if (v.empty()) return refuse("a tag is empty");
    name(v, base::kTagBytesMax, "tag");
  }
  void name(const std::string& v, std::size_t bytes_max, std::string_view what) {
    if (v.size() > bytes_max) {
      return refuse(base::cat(what, " '", v.substr(0, 32), "…' has ", v.size(),
                              " bytes; the limit is ", bytes_max));
    }
    if (!base::is_utf8(v)) return refuse(base::cat(what, " '", base::to_utf8(v), "' is not UTF-8"));
    out_.text(v, bytes_max);
  }
  void text(const std::string& v, std::size_t bytes_max) {
    if (!base::is_utf8(v)) return text(base::to_utf8(v), bytes_max);
    out_.text(cut_text(v, bytes_max), bytes_max);
  }
  void blob(const Bytes& v, std::size_t bytes_max, std::string_view what) {
    if (v.size() > bytes_max) {
      return refuse(base::cat(what, " has ", v.size(), " bytes; the limit is ", bytes_max));
    }
    out_.blob(v, bytes_max);
  }
  // Of a user's tensors: on the wire as a blob, and for the eyes of who may see values alone.
  void payload(const Bytes& v, std::size_t bytes_max, std::string_view what) {
    blob(v, bytes_max, what);
  }
  template <typename E>
  void one_of(E v, bool (*valid)(std::uint8_t)) {
    const auto number = static_cast<std::uint8_t>(v);
    if (static_cast<E>(number) != v || !valid(number))
      return refuse("an enumeration has a value out of its range");
    out_.u8(number);
  }
  template <typename T, typename Each>
  void list(const std::vector<T>& v, std::size_t count_max, std::string_view what, Each each) {
    if (v.size() > count_max) {
      return refuse(base::cat(v.size(), " ", what, "; the limit is ", count_max));
    }
    out_.u32(static_cast<std::uint32_t>(v.size()));
    for (const T& item : v) each(item);
  }
  void require(bool holds, std::string_view otherwise) {
    if (!holds) refuse(std::string(otherwise));
  }
  // Runs of neighbouring ids, then runs of equal weights: a thousand peers of one weight are 28
  // bytes, and every START and Outcome has them for every one of the thousand.
  void contributors(const std::vector<Contributor>& v) {
    if (v.size() > base::kPeersMax) {
      return refuse(base::cat(v.size(), " contributors; the limit is ", base::kPeersMax));
    }
    const auto runs = [&](auto joins, auto head) {
      base::Writer written;
      std::uint32_t count = 0;
      for (std::size_t at = 0; at < v.size(); ++count) {
        std::size_t end = at + 1;
        while (end < v.size() && joins(v[end - 1], v[end])) ++end;
        head(written, v[at]);
        written.u32(static_cast<std::uint32_t>(end - at));
        at = end;
      }
      out_.u32(count);
      out_.raw(written.bytes().data(), written.size());
    };
    for (const Contributor& one : v) {
      if (!is_weight(one.weight + 0.0)) return refuse("a weight is not a finite number >= 0");
    }
    runs([](const Contributor& a, const Contributor& b) { return b.id == a.id + 1; },
         [](base::Writer& w, const Contributor& one) { w.u32(one.id); });
    runs([](const Contributor& a, const Contributor& b) { return a.weight == b.weight; },
         [](base::Writer& w, const Contributor& one) { w.f64(one.weight + 0.0); });
  }

  std::size_t size() const { return out_.size(); }
  const std::string& problem() const { return problem_; }
  Bytes take() { return out_.take(); }

 private:
  void refuse(std::string text) {
    if (problem_.empty()) problem_ = std::move(text);
  }

  base::Writer out_;
  std::string problem_;
};

class FieldDecoder {
 public:
  template <typename T>
  using Ref = T&;
  static constexpr bool kDecodes = true;

  explicit FieldDecoder(base::ByteView bytes) : in_(bytes) {}

  void u8(std::uint8_t& v) { v = in_.u8(); }
  void u16(std::uint16_t& v) { v = in_.u16(); }
  void u32(std::uint32_t& v) { v = in_.u32(); }
  void u64(std::uint64_t& v) { v = in_.u64(); }
  void i64(std::int64_t& v) { v = in_.i64(); }
  void flag(bool& v) { v = in_.flag(); }
  void attempt(Attempt& v) { v = in_.attempt(); }
  void digest(Digest& v) { v = in_.digest(); }
  void run(RunId& v) { v = in_.run(); }
  template <std::size_t N>
  void raw(std::array<std::uint8_t, N>& v) {
    in_.raw(&v);
  }
  void weight(double& v) {
    v = in_.f64();
    if (!is_weight(v)) {
      v = 0;
      in_.fail();
    }
  }
  void tag(Tag& v) {
    text(v, base::kTagBytesMax);
    if (v.empty()) in_.fail();
  }
  void name(std::string& v, std::size_t bytes_max, std::string_view) { text(v, bytes_max); }
  void text(std::string& v, std::size_t bytes_max) {
    v = in_.text(bytes_max);
    if (base::is_utf8(v)) return;
    v.clear();
    in_.fail();
  }
  void blob(Bytes& v, std::size_t bytes_max, std::string_view) { v = in_.blob(bytes_max); }
  void payload(Bytes& v, std::size_t bytes_max, std::string_view what) { blob(v, bytes_max, what); }
  template <typename E>
  void one_of(E& v, bool (*valid)(std::uint8_t)) {
    const std::uint8_t number = in_.u8();
    if (!valid(number)) return in_.fail();
    v = static_cast<E>(number);
  }
  // Grows as items arrive, so memory stays in proportion to the bytes that were really sent.
  template <typename T, typename Each>
  void list(std::vector<T>& v, std::size_t count_max, std::string_view, Each each) {
    const std::size_t count = in_.count(count_max, 1);
    for (std::size_t i = 0; i < count && !in_.failed(); ++i) each(v.emplace_back());
  }
  void require(bool holds, std::string_view) {
    if (!holds) in_.fail();
  }
  // One value, one form: a run that could be part of the one before it is refused.
  void contributors(std::vector<Contributor>& v) {
    std::uint64_t next = 0;  // the lowest id that the next run may begin with
    for (std::size_t runs = in_.count(base::kPeersMax, 8); runs > 0 && !in_.failed(); --runs) {
      const std::uint64_t first = in_.u32(), count = in_.u32();
      const bool fits = count > 0 && count <= base::kPeersMax - v.size() && first >= next &&
                        first + count <= std::uint64_t{1} << 32;
      if (!fits) return in_.fail();
      for (std::uint64_t i = 0; i < count; ++i) {
        v.push_back({static_cast<PeerId>(first + i), 0});
      }
      next = first + count + 1;
    }
    std::size_t at = 0;
    for (std::size_t runs = in_.count(base::kPeersMax, 12); runs > 0 && !in_.failed(); --runs) {
      double value = 0;
      weight(value);
      const std::size_t count = in_.u32();
      const bool fits =
          count > 0 && count <= v.size() - at && (at == 0 || v[at - 1].weight != value);
      if (!fits) return in_.fail();
      for (std::size_t end = at + count; at < end; ++at) v[at].weight = value;
    }
    if (at != v.size()) in_.fail();
  }

  bool failed() const { return in_.failed(); }
  bool finished() const { return in_.finished(); }

 private:
  base::Reader in_;
};

inline bool valid_code(std::uint8_t v) { return base::is_code(v); }
inline bool valid_violation(std::uint8_t v) { return v >= 1 && v <= 7; }
inline bool valid_finding_policy(std::uint8_t v) { return v <= 2; }
inline bool valid_order_verb(std::uint8_t v) { return v >= 1 && v <= 7; }
inline bool valid_verdict(std::uint8_t v) { return v >= 1 && v <= 3; }
inline bool valid_sync_verdict(std::uint8_t v) { return v >= 1 && v <= 4; }
inline bool valid_wish(std::uint8_t v) { return v <= 3; }

}  // namespace jccl::wire
