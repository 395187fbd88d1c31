// Codes, remedies and the last error of each thread.
#include "capi/errors.h"

#include "base/planted.h"
#include "peer/communicator.h"

namespace jccl::capi {
namespace {

std::string& last_error() {
  thread_local std::string text;
  return text;
}

#define JCCL_SAME(c_name, name) \
  static_assert(c_name == static_cast<int32_t>(Code::name), "jccl.h and base/codes.h differ")
JCCL_SAME(JCCL_OK, kOk);
JCCL_SAME(JCCL_EMPTY, kEmpty);
JCCL_SAME(JCCL_TOO_FEW, kTooFew);
JCCL_SAME(JCCL_DEADLINE, kDeadline);
JCCL_SAME(JCCL_IN_DOUBT, kInDoubt);
JCCL_SAME(JCCL_MISMATCH, kMismatch);
JCCL_SAME(JCCL_GUARD, kGuard);
JCCL_SAME(JCCL_CORRUPT, kCorrupt);
JCCL_SAME(JCCL_EVICTED, kEvicted);
JCCL_SAME(JCCL_RESYNC, kResync);
JCCL_SAME(JCCL_RESYNCED, kResynced);
JCCL_SAME(JCCL_MASTER_LOST, kMasterLost);
JCCL_SAME(JCCL_VERSION, kVersion);
JCCL_SAME(JCCL_WRONG_RUN, kWrongRun);
JCCL_SAME(JCCL_AUTH, kAuth);
JCCL_SAME(JCCL_CLOSED, kClosed);
JCCL_SAME(JCCL_ABORTED, kAborted);
JCCL_SAME(JCCL_INVALID, kInvalid);
JCCL_SAME(JCCL_UNKNOWN_TAG, kUnknownTag);
JCCL_SAME(JCCL_BUSY_TAG, kBusyTag);
JCCL_SAME(JCCL_LIMIT, kLimit);
JCCL_SAME(JCCL_LOCAL_SKEW, kLocalSkew);
JCCL_SAME(JCCL_STATE_LOST, kStateLost);
JCCL_SAME(JCCL_IO, kIo);
JCCL_SAME(JCCL_DAMAGED, kDamaged);
JCCL_SAME(JCCL_PEER_LOST, kPeerLost);
JCCL_SAME(JCCL_LINK_LOST, kLinkLost);
JCCL_SAME(JCCL_INTERNAL, kInternal);
JCCL_SAME(JCCL_SKIPPED, kSkipped);
JCCL_SAME(JCCL_DISPUTED, kDisputed);
JCCL_SAME(JCCL_BANNED, kBanned);
#undef JCCL_SAME

#define X(name, number, remedy) +1
static_assert(JCCL_CODE_COUNT == 0 JCCL_CODES(X), "a code of base/codes.h is not in jccl.h");
#undef X

}  // namespace

void remember(const Status& status) {
  if (!status.ok() || JCCL_PLANTED("success-remembered")) last_error() = peer::describe(status);
}

Status write_text(std::string_view value, char* text, size_t* size) {
  if (size == nullptr) return invalid("size is NULL");
  if (text == nullptr && *size > 0 && !JCCL_PLANTED("null-text-written"))
    return invalid("text is NULL");
  const std::size_t room = *size;
  *size = value.size() + 1;
  if (room + (JCCL_PLANTED("text-room-one-short") ? 1 : 0) < *size) {
    return {Code::kLimit, base::cat("the text needs ", *size, " bytes, and size gives ", room)};
  }
  std::memcpy(text, value.data(), value.size());
  text[value.size()] = '\0';
  return {};
}

}  // namespace jccl::capi

extern "C" {

const char* jccl_code_name(int32_t code) {
  // Every name is a literal that ends with 0.
  return jccl::base::name_of(static_cast<jccl::base::Code>(code)).data();
}

const char* jccl_code_remedy(int32_t code) {
  return jccl::base::name_of(jccl::base::remedy_of(static_cast<jccl::base::Code>(code))).data();
}

const char* jccl_last_error(void) { return jccl::capi::last_error().c_str(); }

#define JCCL_TEXT_OF(x) #x
#define JCCL_DOTTED(a, b, c) JCCL_TEXT_OF(a) "." JCCL_TEXT_OF(b) "." JCCL_TEXT_OF(c)
const char* jccl_version(void) {
  return JCCL_DOTTED(JCCL_VERSION_MAJOR, JCCL_VERSION_MINOR, JCCL_VERSION_PATCH);
}

}  // extern "C"
