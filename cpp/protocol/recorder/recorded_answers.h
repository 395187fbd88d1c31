// The advisors' answers, in the order of the questions. A recorder keeps them, and a replay gives
// them again. If a replay asks a question that the recording does not have, it gets an empty
// answer, and counts that. Pure; any one thread.
#pragma once

#include <algorithm>
#include <deque>
#include <string>
#include <utility>

#include "base/planted.h"
#include "protocol/master/master_machine.h"
#include "protocol/recorder/recording.h"

namespace jccl::protocol {

inline base::Bytes answer_of(const Sum& sum) {
  base::Writer out;
  out.flag(sum.right);
  out.flag(sum.wrong.has_value());
  out.u64(sum.wrong.value_or(0));
  out.raw(sum.why.data(), sum.why.size());
  return out.take();
}
inline Sum sum_of(base::ByteView answer) {
  base::Reader in(answer);
  Sum sum;
  sum.right = in.flag();
  const bool wrong = in.flag();
  const std::uint64_t whose = in.u64();
  if (wrong) sum.wrong = whose;
  const base::ByteView why = in.view(in.left());
  sum.why.assign(why.begin(), why.end());
  return in.failed() ? Sum{} : sum;
}

// Advisors whose answers go through `keep`, as bytes.
template <typename Keep>
Advisors heard_by(Keep keep, Advisors inner) {
  Advisors heard;
  heard.planner = [keep, ask = std::move(inner.planner)](const PlanRequest& request) {
    base::Result<base::Bytes> answer = ask(request);
    if (!JCCL_PLANTED("plans-not-recorded")) keep(answer);
    return answer;
  };
  heard.auditor.refusal = [keep, ask = std::move(inner.auditor.refusal)](base::ByteView hint,
                                                                         base::ByteView plan) {
    const std::string answer = ask(hint, plan);
    keep(base::Bytes(answer.begin(), answer.end()));
    return answer;
  };
  heard.auditor.add_up = [keep, ask = std::move(inner.auditor.add_up)](const ShownCell& cell) {
    Sum answer = ask(cell);
    if (!JCCL_PLANTED("sums-not-recorded")) keep(answer_of(answer));
    return answer;
  };
  heard.auditor.leaf = [keep, ask = std::move(inner.auditor.leaf)](base::ByteView head,
                                                                   base::ByteView bytes) {
    const wire::Sha256 answer = ask(head, bytes);
    keep(base::Bytes(answer.begin(), answer.end()));
    return answer;
  };
  heard.auditor.random = [keep, ask = std::move(inner.auditor.random)] {
    const std::uint64_t answer = ask();
    base::Writer out;
    out.u64(answer);
    keep(out.take());
    return answer;
  };
  heard.auditor.senders = [keep, ask = std::move(inner.auditor.senders)](
                              base::ByteView plan, wire::PeerId whom,
                              const std::vector<wire::PeerId>& owners) {
    std::vector<wire::PeerId> answer = ask(plan, whom, owners);
    base::Writer out;
    for (const wire::PeerId id : answer) out.u32(id);
    keep(out.take());
    return answer;
  };
  return heard;
}

class RecordedAnswers {
 public:
  void begin(const std::vector<Answer>& answers) {
    answers_.assign(answers.begin(), answers.end());
    unasked_ = 0;
  }
  std::uint64_t unasked() const { return unasked_; }  // then, and now
  bool any_left() const { return !answers_.empty(); }

  // They point to this.
  Advisors advisors() {
    Advisors given;
    given.planner = [this](const PlanRequest&) { return next(); };
    given.auditor.refusal = [this](base::ByteView, base::ByteView) {
      const base::Bytes answer = bytes();
      return std::string(answer.begin(), answer.end());
    };
    given.auditor.add_up = [this](const ShownCell&) { return sum_of(bytes()); };
    given.auditor.leaf = [this](base::ByteView, base::ByteView) {
      const base::Bytes answer = bytes();
      wire::Sha256 leaf{};
      std::copy_n(answer.begin(), std::min(answer.size(), leaf.size()), leaf.begin());
      return leaf;
    };
    given.auditor.senders = [this](base::ByteView, wire::PeerId,
                                   const std::vector<wire::PeerId>& owners) {
      const base::Bytes answer = bytes();
      base::Reader in(answer);
      std::vector<wire::PeerId> senders(owners.size());
      for (wire::PeerId& id : senders) id = in.u32();
      return senders;
    };
    given.auditor.random = [this] {
      const base::Bytes answer = bytes();
      base::Reader in(answer);
      return in.u64();
    };
    return given;
  }

 private:
  Answer next() {
    if (answers_.empty()) {
      ++unasked_;
      return base::Status(base::Code::kInternal, "this was not asked for when it was recorded");
    }
    Answer answer = std::move(answers_.front());
    answers_.pop_front();
    return answer;
  }
  base::Bytes bytes() {
    Answer answer = next();
    return answer.ok() ? std::move(answer.value()) : base::Bytes{};
  }

  std::deque<Answer> answers_;
  std::uint64_t unasked_ = 0;
};

}  // namespace jccl::protocol
