"""What rounds give: on the host dataclasses, in jit named tuples of arrays, pytrees.

Plain data; any thread. `jccl` is where users find them.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, Protocol

import jax

from jccl.errors import Status


class HasRegistryId(Protocol):
    """An open communicator: the native one or `jccl.Communicator`."""

    @property
    def registry_id(self) -> int: ...


class Reduced(NamedTuple):
    """A round's outcome in a program, as `Result` outside.

    Attributes:
        value: the result, or the input if the round did not commit.
        status: i32[4]: code, world (sites whose values are in it), epoch, attempts.
        token: u32[]; pass it to the op that must come after this one.
    """

    value: Any
    status: jax.Array
    token: jax.Array

    @property
    def world(self) -> jax.Array:
        return self.status[1]

    @property
    def epoch(self) -> jax.Array:
        return self.status[2]

    @property
    def attempts(self) -> jax.Array:
        return self.status[3]


class Gathered(NamedTuple):
    """`value` has a leading axis of slots, by peer id; `mask` says which hold data."""

    value: Any
    mask: jax.Array
    status: jax.Array
    token: jax.Array

    @property
    def world(self) -> jax.Array:
        return self.status[1]

    @property
    def epoch(self) -> jax.Array:
        return self.status[2]

    @property
    def attempts(self) -> jax.Array:
        return self.status[3]


class Scattered(NamedTuple):
    """`value` holds elements [first, first + count) of the flat result, else zeros.

    `extent` is i32[2]: first, count. Not committed: value is what went in, count is 0.
    """

    value: jax.Array
    extent: jax.Array
    status: jax.Array
    token: jax.Array

    @property
    def world(self) -> jax.Array:
        return self.status[1]

    @property
    def epoch(self) -> jax.Array:
        return self.status[2]

    @property
    def attempts(self) -> jax.Array:
        return self.status[3]


class Transposed(NamedTuple):
    """`value[i]` is the block that the peer in slot i had for `slot`, this peer's own.

    `mask` is bool[slots]: which slots are filled; the others are zeros. Not committed:
    value is what went in, no slot is filled, and `slot` is -1. A peer that was left out
    of the round is in no slot either, and its value is zeros.
    """

    value: Any
    mask: jax.Array
    slot: jax.Array
    status: jax.Array
    token: jax.Array

    @property
    def world(self) -> jax.Array:
        return self.status[1]

    @property
    def epoch(self) -> jax.Array:
        return self.status[2]

    @property
    def attempts(self) -> jax.Array:
        return self.status[3]


class Started(NamedTuple):
    """`handle` is u32[2] and may live in optimizer state; use `passed` from here on."""

    handle: jax.Array
    passed: Any
    token: jax.Array


# The last status word of a publish: why the newest state took the own one's place.
EDITED, WENT_BACK = 1, 2


class Published(NamedTuple):
    """`status` is i32[4]: code, 1 if `value` is the newest instead, revision, and then
    1 if the state before it had been edited, plus 2 if the run went back."""

    value: Any
    status: jax.Array
    token: jax.Array


class Stepped(NamedTuple):
    """Anchor parameters and outer momentum after an outer step."""

    anchor: Any
    momentum: Any


@dataclasses.dataclass(frozen=True)
class Result:
    """What a round on the host gives: the value, and how it came about."""

    value: Any
    status: Status
    text: str = ""
    n: int = 0  # number of the round in its tag
    contributors: tuple[int, ...] = ()  # peers whose values are in the result
    weights: tuple[float, ...] = ()
    sent_bytes: int = 0
    received_bytes: int = 0
    elapsed: float = 0.0
    first: int = 0  # reduce_scatter: where this peer's share begins
    slot: int | None = None  # all_to_all: this peer's; None: it is in none

    @property
    def world(self) -> int:
        return self.status.world

    @property
    def epoch(self) -> int:
        return self.status.epoch

    @property
    def attempts(self) -> int:
        return self.status.attempts


@dataclasses.dataclass(frozen=True)
class Synced:
    """What `Communicator.sync_state` gives."""

    value: Any
    revision: int
    digest: str
    replaced: bool  # the value differs from what was passed in
    edited: bool = False  # publish: that was not what this peer had shared
    went_back: bool = False  # replaced since the run went back to an earlier state
