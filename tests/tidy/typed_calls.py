"""What type checkers know of calls: `make types` reads this file, and nobody runs it.

`warn_unused_ignores` makes an error of a line that mypy was to refuse and does not.
"""

import dataclasses
from typing import Any, assert_type

import jax
import numpy as np

import jccl

HostArray = np.ndarray[Any, np.dtype[np.float32]]


@dataclasses.dataclass
class TrainState:
    params: dict[str, jax.Array]


def outside_programs(x: HostArray, loss: float, comm: jccl.Communicator) -> None:
    assert_type(jccl.all_reduce(x, comm, op="sum", codec="int8"), jccl.Result)
    assert_type(jccl.all_reduce(loss, comm), jccl.Result)
    assert_type(jccl.all_reduce({"w": x, "more": (x, 1.0)}, comm), jccl.Result)
    assert_type(jccl.reduce_scatter(x, comm), jccl.Result)
    assert_type(jccl.all_gather(x, comm, slots=4), jccl.Result)
    assert_type(jccl.all_to_all(x, comm), jccl.Result)
    assert_type(jccl.broadcast(x, comm, root=True), jccl.Result)
    handle = jccl.start(x, comm, place=jccl.Place(copy=True))
    assert_type(handle, jccl.Handle)
    assert_type(jccl.done(handle), jccl.Result)
    assert_type(jccl.done(jccl.start_barrier(comm)), jccl.Result)
    assert_type(jccl.start_broadcast(x, comm, root=False), jccl.Handle)


def the_methods_are_the_functions(x: HostArray, comm: jccl.Communicator) -> None:
    assert_type(comm.all_reduce(x), jccl.Result)
    assert_type(comm.all_gather(x, slots=4), jccl.Result)
    assert_type(comm.done(comm.start(x)), jccl.Result)
    assert_type(comm.all_reduce(x, op="min").sent_bytes, int)


def arrays_of_jax(x: jax.Array, state: TrainState, comm: jccl.Communicator) -> None:
    """They may be traced or not. Both outcomes have the same names."""
    out = jccl.all_reduce(x, comm)
    assert_type(out, jccl.Result | jccl.Reduced)
    assert_type(comm.all_reduce({"w": x}), jccl.Result | jccl.Reduced)
    assert_type(jccl.all_reduce(state, comm), jccl.Result | jccl.Reduced)
    assert_type(jccl.broadcast((x, x), comm, root=True), jccl.Result | jccl.Reduced)
    assert_type(jccl.barrier(comm), jccl.Result | jccl.Reduced)
    assert_type(out.ok, bool | jax.Array)
    assert_type(out.world, int | jax.Array)
    assert_type(out.sent_bytes, int | None)
    shares = jccl.reduce_scatter(x, comm)
    assert_type(shares.first, int | jax.Array | None)
    begun = jccl.start(x, comm)
    assert_type(begun, jccl.Handle | jccl.Started)
    assert_type(jccl.done(begun, x, comm), jccl.Result | jccl.Reduced)
    assert_type(begun.token, jax.Array | None)


def in_a_program(handle: jax.Array, x: jax.Array, comm: jccl.Communicator) -> None:
    ended = jccl.done(handle, x, comm, after=x)
    assert_type(ended, jccl.Reduced)
    assert_type(ended.committed, jax.Array)
    assert_type(comm.done(handle, x), jccl.Reduced)
    published = jccl.publish(x, comm, before=x, status=ended.status)
    assert_type(published, jccl.Published)
    assert_type(published.revision, jax.Array)


def what_is_refused(x: HostArray, h: jax.Array, comm: jccl.Communicator) -> None:
    jccl.all_reduce(x, comm, op="median")  # type: ignore[call-overload]
    jccl.all_gather(x, comm)  # type: ignore[call-overload]
    jccl.all_reduce(object(), comm)  # type: ignore[call-overload]
    jccl.done(h)  # type: ignore[call-overload]
    _ = jccl.all_reduce(x, comm).extent  # type: ignore[attr-defined]
