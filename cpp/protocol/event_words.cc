// See event_words.h.
#include "protocol/event_words.h"

#include <string_view>

#include "base/text.h"
#include "wire/order_verbs.h"
#include "wire/serialize.h"

namespace jccl::protocol {

using base::cat;

namespace {

std::string in_brackets(const std::string& text) {
  return text.empty() ? "" : cat(" (", text, ")");
}

template <typename Ids>
std::string ids_text(const Ids& ids) {
  std::string text;
  for (const auto& id : ids) text += cat(text.empty() ? "" : " ", id);
  return cat("[", text, "]");
}

std::string contributors_text(const std::vector<wire::Contributor>& all) {
  constexpr std::size_t kShown = 8;
  std::vector<wire::PeerId> ids;
  for (const wire::Contributor& one : all) ids.push_back(one.id);
  if (ids.size() <= kShown) return ids_text(ids);
  const std::size_t more = ids.size() - kShown;
  ids.resize(kShown);
  return cat(ids_text(ids), " and ", more, " more");
}

std::string member_text(const wire::Member& member) {
  return member.shards > 1 ? cat(member.site, ":", member.shard) : member.site;
}

// What a message says beside its name. Whoever adds a message may say nothing here.
struct MessageWords {
  std::string operator()(const wire::Hello& m) const {
    return cat(m.site, m.shards > 1 ? cat(":", m.shard, "/", m.shards) : "", ", life ",
               base::to_hex(m.incarnation));
  }
  std::string operator()(const wire::Resume& m) const {
    std::string text = cat(m.unresolved.size(), " in doubt");
    for (const wire::Held& held : m.held) text += cat(", holds ", words_of(held));
    return text;
  }
  std::string operator()(const wire::Ready& m) const {
    return cat(words_of(m.round), ", call ", m.call, ", weight ", m.weight,
               m.has_state ? cat(", stands at ", m.revision, " ", brief_digest(m.state)) : "", ", ",
               m.deadline / base::kMillisecond, " ms left");
  }
  std::string operator()(const wire::Done& m) const {
    return cat(base::to_text(m.attempt), ", result ", brief_digest(m.result));
  }
  std::string operator()(const wire::Fail& m) const {
    return cat(base::to_text(m.attempt), ", ", base::name_of(m.cause),
               m.peer == 0 ? "" : cat(" names ", m.peer), in_brackets(m.text));
  }
  std::string operator()(const wire::Withdraw& m) const { return words_of(m.round); }
  std::string operator()(const wire::Query& m) const {
    return cat(base::to_text(m.about.attempt), " of ", words_of(m.about.round));
  }
  std::string operator()(const wire::Heartbeat& m) const {
    std::string text = cat(m.sequence, ", ", m.progress, " bytes");
    for (const wire::Moving& one : m.moving) {
      text += cat(", ", base::to_text(one.attempt), " lacks ", one.left, " of ", one.all,
                  one.waits_on == 0 ? "" : cat(" from ", one.waits_on),
                  one.lacking == 0 ? "" : cat(", the contributions of ", one.lacking));
    }
    return text;
  }
  std::string operator()(const wire::Sync& m) const {
    return cat(m.tag, ", has ", m.revision, " ", brief_digest(m.digest),
               m.source ? ", as the source" : "", m.fetching ? ", fetches" : "",
               m.changed ? ", changed" : "",
               m.restore == wire::Wish::kNone ? "" : ", wishes it back");
  }
  std::string operator()(const wire::Published& m) const { return words_of(m.held); }
  std::string operator()(const wire::Outvoted& m) const {
    return cat(words_of(m.held), ", part ", m.part, " of life ", base::to_hex(m.holder));
  }
  std::string operator()(const wire::Violation& m) const {
    return cat(base::to_text(m.attempt), " by ", m.peer, ", kind ",
               static_cast<std::uint32_t>(m.kind));
  }
  std::string operator()(const wire::Finding& m) const {
    return cat(m.tag, " round ", m.round, " of ", m.peer, m.differs ? " differs" : " is the same");
  }
  std::string operator()(const wire::Welcome& m) const { return cat("epoch ", m.epoch); }
  std::string operator()(const wire::Refuse& m) const {
    return cat(base::name_of(m.code), in_brackets(m.text));
  }
  std::string operator()(const wire::Roster& m) const {
    std::string text = cat("epoch ", m.epoch, m.base == 0 ? "" : cat(" after ", m.base), ", ",
                           m.base == 0 ? "" : "and ", m.members.size(), " members");
    if (!m.left.empty()) text += cat(", without ", ids_text(m.left));
    return text + in_brackets(m.why);
  }
  std::string operator()(const wire::Start& m) const {
    return cat(words_of(m.round), ", attempt ", base::to_text(m.attempt), ", contributors ",
               contributors_text(m.contributors),
               m.receivers.empty() ? "" : cat(", receivers ", ids_text(m.receivers)), ", call ",
               m.call);
  }
  std::string operator()(const wire::Outcome& m) const {
    const std::string what = cat(words_of(m.round), ", attempt ", base::to_text(m.attempt));
    if (m.verdict == wire::Verdict::kCommitted) {
      return cat(what, " committed, world ", m.world, ", result ", brief_digest(m.result));
    }
    return cat(what, m.verdict == wire::Verdict::kExpired ? " expired" : " aborted, ",
               m.verdict == wire::Verdict::kExpired ? "" : base::name_of(m.code),
               m.retry ? ", again" : "", in_brackets(m.text));
  }
  std::string operator()(const wire::Reject& m) const {
    return cat(words_of(m.round), ", call ", m.call, ", ", base::name_of(m.code),
               in_brackets(m.text));
  }
  std::string operator()(const wire::Moved& m) const {
    return cat(words_of(m.round), ", committed ", m.committed);
  }
  std::string operator()(const wire::Waiting& m) const {
    return cat(words_of(m.round), in_brackets(m.text));
  }
  std::string operator()(const wire::Evicted& m) const { return m.text; }
  std::string operator()(const wire::Drain& m) const { return m.text; }
  std::string operator()(const wire::Notice& m) const { return m.text; }
  std::string operator()(const wire::HeartbeatAck& m) const { return cat(m.sequence); }
  std::string operator()(const wire::SyncReply& m) const {
    constexpr std::string_view kVerdicts[] = {"?", "current", "fetch", "wait", "refused"};
    std::string text = cat(m.tag, ", ", kVerdicts[static_cast<std::size_t>(m.verdict)], " ",
                           m.revision, " ", brief_digest(m.digest));
    if (!m.holders.empty()) text += " from";
    for (const wire::Member& holder : m.holders) text += cat(" ", member_text(holder));
    return text + in_brackets(m.text);
  }
  std::string operator()(const wire::Measured& m) const {
    return cat(m.links.size(), " links, up ", m.up_bytes_per_s, " bytes/s, core ", m.core / 10,
               " %");
  }
  std::string operator()(const wire::Order& m) const {
    for (const auto& [name, verb] : wire::kOrderVerbs) {
      if (verb == m.verb) return cat(name, " ", m.subject, in_brackets(m.reason));
    }
    return m.subject;
  }
  std::string operator()(const wire::OrderReply& m) const {
    return cat(base::name_of(m.code), in_brackets(m.text));
  }
  template <typename T>
  std::string operator()(const T&) const {
    return {};
  }
};

struct RecordWords {
  std::string operator()(const wire::EpochRecord& r) const {
    return cat(r.epoch, ", ", r.members.size(), " members", in_brackets(r.reason));
  }
  std::string operator()(const wire::BirthRecord& r) const { return cat(r.tag, " of ", r.site); }
  std::string operator()(const wire::CommitRecord& r) const {
    return cat(words_of(r.round), ", attempt ", base::to_text(r.attempt), ", contributors ",
               contributors_text(r.contributors), ", result ", brief_digest(r.result));
  }
  std::string operator()(const wire::StateRecord& r) const {
    return cat(r.tag, " ", r.revision, r.digests.empty() ? "" : " ",
               r.digests.empty() ? "" : brief_digest(r.digests.front()), r.weak ? ", weak" : "");
  }
  std::string operator()(const wire::RestoreRecord& r) const {
    return cat(r.tag, " ", r.revision, ", as ", r.of, " was, of ", r.site);
  }
  std::string operator()(const wire::BanRecord& r) const {
    return cat(base::to_hex(r.key).substr(0, 16), " of ", r.site, in_brackets(r.reason));
  }
  std::string operator()(const wire::AdmitRecord& r) const {
    return base::to_hex(r.key).substr(0, 16);
  }
  std::string operator()(const wire::TokenRecord& r) const {
    return cat(r.token, r.revoked ? " revoked" : "");
  }
  template <typename T>
  std::string operator()(const T&) const {
    return {};
  }
};

std::string joined(std::string_view name, const std::string& rest) {
  return rest.empty() ? std::string(name) : cat(name, " ", rest);
}

}  // namespace

std::string brief_digest(const base::Digest& digest) {
  constexpr std::size_t kShown = 8;
  return digest == base::Digest{} ? "-" : base::to_hex(digest).substr(0, kShown);
}

std::string words_of(const wire::RoundName& round) { return cat(round.tag, " ", round.n); }

std::string words_of(const wire::Held& held) {
  return cat(held.tag, " ", held.revision, " ", brief_digest(held.digest));
}

std::string words_of(const base::Status& status) {
  return cat(base::name_of(status.code), in_brackets(status.text));
}

std::string words_of(const wire::Message& message) {
  return joined(wire::name_of(message), std::visit(MessageWords{}, message));
}

std::string words_of(const wire::Record& record) {
  return joined(wire::name_of(record), std::visit(RecordWords{}, record));
}

std::string words_of(const HistoryLine& line) {
  std::string text = line.kind;
  for (const auto& [key, value] : line.fields) {
    if (value.empty()) continue;
    text += cat(" ", key, "=", value.find(' ') == std::string::npos ? value : cat("[", value, "]"));
  }
  return text;
}

}  // namespace jccl::protocol
