// Recordings of a flight recorder, which people get from strangers: any bytes, as they are and with
// a head and a checksum that fit, so that what is behind those is reached. What is read holds
// entries that are written the same again, and states and events that are taken or refused. Nothing
// is replayed: a state that nobody recorded may bring a machine where no events do.
#include <algorithm>

#include "base/crc32c.h"
#include "fuzz/input.h"
#include "fuzz/target.h"
#include "protocol/recorder/recorder.h"

namespace jccl::fuzz {
namespace {

using protocol::Entry;
using protocol::EntryKind;

constexpr std::size_t kCheckBytes = 4;
constexpr std::size_t kBegin = 10;  // magic and format

template <typename Side>
void check_entry(const Entry& entry) {
  if (entry.kind == EntryKind::kState) {
    (void)Side::machine_of(entry.body, {});
  } else if (const auto event = Side::event_of(entry.body); event.has_value()) {
    JCCL_CHECK(!Side::words(*event).empty());
  }
  for (const protocol::EffectNote& note : entry.effects) {
    JCCL_CHECK(!Side::kind_name(note.kind).empty());
  }
}

void check_recording(ByteView bytes) {
  const auto read = protocol::read_recording(bytes);
  if (!read.ok()) {
    JCCL_CHECK(!read.status().text.empty());
    return;
  }
  protocol::Saver again;
  for (const Entry& entry : read.value().entries) {
    protocol::put_entry(entry, again);
    if (read.value().about.role == protocol::Role::kMaster) {
      check_entry<protocol::MasterSide>(entry);
    } else {
      check_entry<protocol::PeerSide>(entry);
    }
  }
  const Bytes whole = protocol::recording_of(read.value().about, {again.made()});
  const auto same = protocol::read_recording(whole);
  JCCL_CHECK(same.ok() && same.value().about == read.value().about);
  JCCL_CHECK(same.value().entries.size() == read.value().entries.size());
}

Bytes with_check(Bytes bytes) {
  const std::uint32_t check = base::crc32c(bytes);
  for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<std::uint8_t>(check >> 8 * i));
  return bytes;
}

template <typename Side, typename Machine, typename... Events>
Bytes recorded(Machine machine, const Events&... events) {
  protocol::Recorder<Side> recorder;
  recorder.start(machine, 1);
  (recorder.on(machine, events, 2), ...);
  Bytes file = recorder.file({});
  file.resize(file.size() - kCheckBytes);
  return {file.begin() + kBegin, file.end()};
}

}  // namespace

void run_recording(ByteView bytes) {
  check_recording(bytes);
  Bytes framed = {'J', 'C', 'C', 'L', 'R', 'E', 'C', '\n', protocol::kRecordingFormat, 0};
  framed.insert(framed.end(), bytes.begin(), bytes.end());
  check_recording(with_check(std::move(framed)));
}

std::vector<Bytes> recording_seeds() {
  const auto plan = [](const protocol::PlanRequest& request) -> base::Result<Bytes> {
    return request.hint;
  };
  wire::Hello hello;
  hello.incarnation = 5, hello.site = "a";
  wire::Ready ready;
  ready.round = {"grads", 1};
  return {recorded<protocol::MasterSide>(protocol::MasterMachine({}, plan, {}, 1),
                                         protocol::ConnMessage{1, hello},
                                         protocol::ConnMessage{1, wire::Resume{}},
                                         protocol::ConnMessage{1, ready}, protocol::Tick{}),
          recorded<protocol::PeerSide>(protocol::PeerMachine({}, 5, 1), protocol::Connected{},
                                       protocol::FromMaster{wire::Welcome{}},
                                       protocol::FromMaster{wire::Roster{}}, protocol::Depart{})};
}

}  // namespace jccl::fuzz
