// The hostile member: a script, read from a fuzz input, of what it does besides being a peer like
// the others. It bends the fields of what it says by the table of fields (fields_table.h), speaks
// out of turn and on connections of its own, and sends frames that say what is not so. Test only.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <vector>

#include "fuzz/fields/bend_values.h"
#include "fuzz/hostile/hostile_world.h"

namespace jccl::fuzz {

class HostileMember : public HostileHook {
 public:
  explicit HostileMember(ByteView bytes);
  void run();

 private:
  struct Armed {  // what becomes of the next messages of a type
    std::uint32_t times = 0;
    std::uint8_t fields = 0;
    bool drop = false, twice = false;
    bool unasked = false;  // of a lying master: it says one that is due to nobody
  };
  enum class FrameTrick : std::uint8_t { kNone, kDrop, kTwice, kHeader, kPayload, kSize, kKeep };

  void outgoing(const wire::Message& message, std::vector<Bytes>* out) override;
  void outgoing_frame(const FrameBytes& frame, std::vector<FrameBytes>* out) override;
  void heard(const wire::Message& message) override;
  void from_master(const wire::Message& message, std::vector<Bytes>* out) override;

  void act();
  void act_rarely();
  void arm();
  void arm_lie();
  void lie_unasked(std::vector<Bytes>* out);
  void inject();
  void inject_bare();
  void crowd();
  void many_tags();
  void inject_frame();
  void ask_snapshots();
  void touch_honest();
  wire::Message drawn(std::size_t type);  // the last one said, or one made up
  void bend(wire::Message* message, std::size_t fields);
  static std::optional<Bytes> bytes_of(const wire::Message& message);
  std::optional<Bytes> drawn_bytes(const wire::Message& message);
  ConnId bare();
  wire::Hello bare_hello();
  void bend_header(wire::FrameHeader* header);
  FrameBytes frame_of(wire::FrameHeader header, Bytes payload);
  void end();

  Input in_;
  Seen seen_;
  BendValues values_;
  std::map<std::size_t, wire::Message> said_;  // by place in wire::Message
  std::map<std::size_t, Armed> armed_, lies_;
  bool lying_ = false;
  std::vector<ConnId> bare_;
  std::uint64_t lives_made_ = 0;
  wire::RoundName round_{kGrads, 1};  // of the last START
  FrameTrick trick_ = FrameTrick::kNone;
  std::uint32_t trick_times_ = 0;
  std::optional<FrameBytes> last_frame_;
  std::optional<HostileWorld> world_;
};

}  // namespace jccl::fuzz
