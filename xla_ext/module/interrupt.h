// Ctrl-C while a handler or a host call waits. Python's own handler cannot run then (a small
// program computes on the main thread itself), but the C part of it writes the signal's number to a
// wakeup descriptor at once. A thread here reads that descriptor, passes the byte on to whoever had
// the descriptor before, and on SIGINT aborts the waits of every communicator; on SIGTERM those
// that leave on it leave.
#pragma once

namespace jccl::xla_ext {

// Starts the thread on first use; the non-blocking descriptor for signal.set_wakeup_fd, or -1.
int wakeup_descriptor();

// Whether SIGTERM is for us to act on, asked each time, on that thread.
void ask_before_leaving(bool (*is_ours)());

// Bytes are passed on to this descriptor from now on; -1: to nobody.
void chain_wakeup(int descriptor);
int chained_wakeup();

}  // namespace jccl::xla_ext
