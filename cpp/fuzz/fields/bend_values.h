// The values that a bent field may take: edges, what is somebody else's, and what was true before.
// Which ones is the fuzz input's choice. Test only.
#pragma once

#include <string>
#include <vector>

#include "fuzz/fields/fields_table.h"
#include "fuzz/input.h"
#include "wire/messages.h"

namespace jccl::fuzz {

// What the hostile member has seen of the run; bounded.
struct Seen {
  std::vector<wire::PeerId> peers;
  std::vector<wire::Incarnation> lives;
  std::vector<std::uint64_t> numbers;  // rounds and revisions
  std::vector<wire::Tag> tags;
  std::vector<wire::Attempt> attempts;
  std::vector<wire::Digest> digests;
  std::vector<std::string> sites;

  void note(const wire::Message& message);
  template <typename T>
  static void add(std::vector<T>* to, const T& one) {
    constexpr std::size_t kKept = 16;
    for (const T& known : *to) {
      if (known == one) return;
    }
    if (to->size() >= kKept) to->erase(to->begin());
    to->push_back(one);
  }
};

class BendValues {
 public:
  BendValues(Input* in, const Seen* seen) : in_(*in), seen_(*seen) {}

  std::uint64_t number(Bend bend, std::uint64_t now);
  std::int64_t time(std::int64_t now);
  double weight(double now);
  wire::Attempt attempt(const wire::Attempt& now);
  wire::Digest digest(const wire::Digest& now);
  std::string text(Bend bend, const std::string& now, std::size_t bytes_max);
  Bytes blob(const Bytes& now, std::size_t bytes_max);
  std::size_t below(std::size_t bound) { return in_.below(bound); }
  std::uint8_t u8() { return in_.u8(); }

 private:
  template <typename T>
  T any_of(const std::vector<T>& all, const T& otherwise) {
    return all.empty() ? otherwise : all[in_.below(all.size())];
  }

  Input& in_;
  const Seen& seen_;
};

}  // namespace jccl::fuzz
