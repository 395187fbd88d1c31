"""Refuses two blocking ops of one communicator that a program leaves without an order.

XLA runs independent calls in any order, differently on every run: two peers could each
wait in the op the other has not reached. The state hangs weakly on JAX's traces, so a
dropped trace takes it along. Limits: ops in two sibling branches or loop bodies of a
program are not compared, a jitted function's ops are seen only while it is traced, and
whether a token was truly carried from the earlier op is not followed through other ops.
"""

from __future__ import annotations

import collections
import dataclasses
import threading
import weakref
from typing import Any

import jax
import jax.numpy as jnp

from jccl import _native


@dataclasses.dataclass
class _Seen:
    """What one trace holds so far, by communicator."""

    ops: set[int] = dataclasses.field(default_factory=set)
    inner: set[int] = dataclasses.field(default_factory=set)  # in a nested trace
    count: collections.Counter[int] = dataclasses.field(
        default_factory=collections.Counter
    )
    used: list[weakref.ref[Any]] = dataclasses.field(default_factory=list)
    ended: dict[int, weakref.ref[Any]] = dataclasses.field(default_factory=dict)


_seen: weakref.WeakKeyDictionary[Any, _Seen] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def _programs() -> list[Any]:
    return [t for t in _native.current_traces() if _native.is_program_trace(t)]


def claim(comm: int, token: Any) -> None:
    """Notes a blocking op in the current trace; ValueError if it has no order."""
    programs = _programs()
    if not programs:
        return  # eager: Python's own order
    with _lock:
        here, *around = [_seen.setdefault(trace, _Seen()) for trace in programs]
        if token is None:
            unordered = comm in here.ops or comm in here.inner
            unordered = unordered or any(comm in outer.ops for outer in around)
        else:
            unordered = any(ref() is token for ref in here.used)
        if unordered:
            raise ValueError(
                "jccl: a second blocking op of this communicator in one program has no "
                "order with the first, so peers could wait for each other: pass the "
                "first one's .token as token= (each token to one op only)"
            )
        here.ops.add(comm)
        here.count[comm] += 1
        for outer in around:
            outer.inner.add(comm)
            outer.count[comm] += 1
        if token is not None:
            try:
                here.used.append(weakref.ref(token))
            except TypeError:  # a Python number: a constant, not an op's token
                raise TypeError(
                    "jccl: token= must be the .token of another op"
                ) from None


def follow(comm: int, which: jax.Array) -> jax.Array:
    """Which branch an optimizer takes, i32[], known only when the rounds of the one
    updated before it in this program have ended: branches are not compared by `claim`,
    and so have their order. By data, the one thing that XLA keeps to: no code of a
    status is below 0."""
    for trace in _programs()[:1]:
        with _lock:
            ended = _seen.setdefault(trace, _Seen()).ended.get(comm)
        status = ended() if ended else None
        if status is not None:
            return jnp.where(status[0] < 0, -1, which)
    return which


def lead(comm: int, status: jax.Array) -> None:
    """Says what the next `follow` has to wait for: a status that its state holds."""
    for trace in _programs()[:1]:
        with _lock:
            _seen.setdefault(trace, _Seen()).ended[comm] = weakref.ref(status)


class Mark:
    """How many blocking ops of a communicator a program had when a round ended whose
    gradient is a round too. Held weakly by trace, as all of this."""

    def __init__(self, comm: int) -> None:
        self.comm = comm
        self._then: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def forward(self) -> None:
        for trace in _programs()[:1]:
            self._then[trace] = _count(trace, self.comm)

    def backward(self) -> None:
        """ValueError if there have been others in this program since."""
        for trace in _programs()[:1]:
            if _count(trace, self.comm) != self._then.get(trace, 0):
                raise ValueError(
                    "jccl: between an all_reduce and its gradient this program has "
                    "another blocking op of the communicator, which has no order with "
                    "the gradient's round: reduce both trees in one call, or make the "
                    "other op before it or after jax.grad"
                )


def _count(trace: Any, comm: int) -> int:
    with _lock:
        return _seen.setdefault(trace, _Seen()).count[comm]
