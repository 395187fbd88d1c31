// The XLA custom calls by target name, for each platform. No per-call state, no future: a handler
// of the CPU platform blocks on XLA's thread under a deadline and always succeeds; what went wrong
// is in the status words. Operand and result orders are written at each handler.
#pragma once

#include "xla/ffi/api/ffi.h"

namespace jccl::xla_ext {

struct Target {
  const char* name;
  XLA_FFI_Handler* handler;
};

inline constexpr int kTargets = 12;
extern const Target kTargetTable[kTargets];
extern const Target kCudaTargetTable[kTargets];

}  // namespace jccl::xla_ext

extern "C" {
XLA_FFI_Error* JcclRound(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* JcclStart(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* JcclDone(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* JcclPublish(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* JcclMeshRound(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* JcclMeshStart(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* JcclMeshDone(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* JcclMeshPublish(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* JcclMark(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* JcclCounted(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* JcclOuter(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* JcclRoundtrip(XLA_FFI_CallFrame* frame);
}
