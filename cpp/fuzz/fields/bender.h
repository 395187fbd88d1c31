// A direction of wire/fields.h that bends one field of a message, by its row of the table of
// fields: the k-th in the order of the bytes. Test only.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "fuzz/fields/bend_values.h"
#include "fuzz/fields/fields_table.h"
#include "wire/fields.h"

namespace jccl::fuzz {

class FieldBender {
 public:
  template <typename T>
  using Ref = T&;
  static constexpr bool kDecodes = false;

  // Without values: only counts.
  explicit FieldBender(BendValues* values = nullptr, const std::vector<Bend>* bends = nullptr,
                       std::size_t which = 0)
      : values_(values), bends_(bends), which_(which), off_(values == nullptr ? 1 : 0) {}

  std::size_t count() const { return at_; }

  void u8(std::uint8_t& v) { number(v); }
  void u16(std::uint16_t& v) { number(v); }
  void u32(std::uint32_t& v) { number(v); }
  void u64(std::uint64_t& v) { number(v); }
  void i64(std::int64_t& v) {
    if (here()) v = values_->time(v);
  }
  void flag(bool& v) {
    if (here()) v = !v;
  }
  void attempt(wire::Attempt& v) {
    if (here()) v = values_->attempt(v);
  }
  void digest(wire::Digest& v) {
    if (here()) v = values_->digest(v);
  }
  void run(wire::RunId& v) {
    if (here()) v[0] ^= 1;
  }
  template <std::size_t N>
  void raw(std::array<std::uint8_t, N>& v) {
    if (here()) v[values_->below(N)] ^= values_->u8();
  }
  void weight(double& v) {
    if (here()) v = values_->weight(v);
  }
  void tag(wire::Tag& v) {
    if (here()) v = values_->text(bend(), v, base::kTagBytesMax);
  }
  void name(std::string& v, std::size_t max, std::string_view) { text(v, max); }
  void text(std::string& v, std::size_t max) {
    if (here()) v = values_->text(bend(), v, max);
  }
  void blob(Bytes& v, std::size_t max, std::string_view) {
    if (here()) v = values_->blob(v, max);
  }
  void payload(Bytes& v, std::size_t max, std::string_view what) { blob(v, max, what); }
  template <typename E>
  void one_of(E& v, bool (*valid)(std::uint8_t)) {
    if (!here()) return;
    const auto number = static_cast<std::uint8_t>(values_->u8() % 32);
    if (valid(number)) v = static_cast<E>(number);
  }
  template <typename T, typename Each>
  void list(std::vector<T>& v, std::size_t max, std::string_view, Each each) {
    if (here()) bend_list(v, max);
    const std::size_t first = at_;
    const std::size_t chosen = off_ > 0 || v.empty() ? 0 : values_->below(v.size());
    T none{};
    ++off_;
    each(none);  // counts the fields of an item
    --off_;
    const std::size_t end = at_;
    if (!v.empty() && off_ == 0 && which_ >= first && which_ < end) {
      at_ = first;
      each(v[chosen]);
    }
    at_ = end;
  }
  void require(bool, std::string_view) {}
  void contributors(std::vector<wire::Contributor>& v) {
    if (here()) bend_list(v, base::kPeersMax);
  }

 private:
  bool here() { return at_++ == which_ && off_ == 0; }
  Bend bend() const { return (*bends_)[which_]; }
  template <typename T>
  void number(T& v) {
    if (here()) v = static_cast<T>(values_->number(bend(), v));
  }
  template <typename T>
  void bend_list(std::vector<T>& v, std::size_t max) {
    switch (values_->below(5)) {
      case 0:
        return v.clear();
      case 1:
        if (!v.empty() && v.size() < max) v.push_back(T(v.front()));
        return;
      case 2:
        std::ranges::reverse(v);
        return;
      default:
        while (v.size() < max) v.push_back(v.empty() ? T{} : T(v.back()));
        for (std::size_t i = 0; i < v.size(); ++i) set_key(v[i], i + 1);
    }
  }
  // Lists that must ascend are full of different ids, else of one thing.
  template <typename T>
  static void set_key(T& item, std::size_t key) {
    if constexpr (requires { item.id; }) item.id = static_cast<wire::PeerId>(key);
    if constexpr (requires { item.peer; }) item.peer = static_cast<wire::PeerId>(key);
    if constexpr (requires { item.held; } || requires { item.revision; }) {
      item.tag = base::cat("t", key);
    }
  }

  BendValues* values_;
  const std::vector<Bend>* bends_;
  std::size_t which_, at_ = 0;
  int off_;
};

template <typename T>
std::size_t count_fields(T message) {
  FieldBender io;
  fields(io, message);
  return io.count();
}

// Bends one field of it, if it has any.
template <typename T>
void bend_one(T* message, const std::vector<Bend>& bends, std::size_t which, BendValues* values) {
  if (bends.empty() || bends[which % bends.size()] == Bend::kNone) return;
  FieldBender io(values, &bends, which % bends.size());
  fields(io, *message);
}

}  // namespace jccl::fuzz
