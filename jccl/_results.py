"""What rounds give: outside programs `Result`, in a program `Reduced`, a pytree, with
the same names.

Plain data; any thread. `jccl` is where users find them.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple, Protocol

import jax
import numpy as np

from jccl.errors import Code, Status


class HasRegistryId(Protocol):
    """An open communicator: the native one or `jccl.Communicator`."""

    @property
    def registry_id(self) -> int: ...


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Reduced:
    """A round's outcome in a program, as `Result` outside. A pytree of arrays.

    What does not apply to a verb is None. So are the facts about a round that a program
    cannot hold: of these, `comm.timeline()` and `comm.last_fault()` have some.

    Attributes:
        value: the result. If the round did not commit, what went in; of an all_gather
            zeros.
        status: i32[4]: code, world (sites whose values are in it), epoch, attempts.
        token: u32[]; pass it to the call that must come after this one.
        mask: of all_gather and all_to_all: bool[slots], which slots are filled. The
            others hold zeros.
        slot: of all_to_all: i32[], this peer's slot; -1: it is in none, and its value
            is zeros.
        first: of reduce_scatter: i32[], the place of this peer's share in the flat
            result. In a program `value` has the shape of the whole, with zeros outside
            of the share.
        count: of reduce_scatter: i32[], how many elements the share has. 0 if the round
            did not commit.
    """

    value: Any
    status: jax.Array
    token: jax.Array
    mask: jax.Array | None = None
    slot: jax.Array | None = None
    first: jax.Array | None = None
    count: jax.Array | None = None

    text: ClassVar[None] = None
    n: ClassVar[None] = None
    contributors: ClassVar[None] = None
    weights: ClassVar[None] = None
    sent_bytes: ClassVar[None] = None
    received_bytes: ClassVar[None] = None
    elapsed: ClassVar[None] = None

    @property
    def code(self) -> jax.Array:
        return self.status[0]

    @property
    def world(self) -> jax.Array:
        return self.status[1]

    @property
    def epoch(self) -> jax.Array:
        return self.status[2]

    @property
    def attempts(self) -> jax.Array:
        return self.status[3]

    @property
    def ok(self) -> jax.Array:
        """bool[]: whether nothing went wrong: the code is OK or SKIPPED."""
        return (self.code == Code.OK) | (self.code == Code.SKIPPED)

    @property
    def committed(self) -> jax.Array:
        """bool[]: whether `value` is the result, also if this peer was left out."""
        code = self.code
        return (code == Code.OK) | (code == Code.GUARD) | (code == Code.SKIPPED)


class Started(NamedTuple):
    """A round that was started in a program, as `Handle` outside.

    `handle` is u32[2] and may live in optimizer state; use `passed` from here on."""

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

    @property
    def code(self) -> jax.Array:
        return self.status[0]

    @property
    def replaced(self) -> jax.Array:
        return self.status[1] != 0

    @property
    def revision(self) -> jax.Array:
        return self.status[2]

    @property
    def edited(self) -> jax.Array:
        return (self.status[3] & EDITED) != 0

    @property
    def went_back(self) -> jax.Array:
        return (self.status[3] & WENT_BACK) != 0


class Stepped(NamedTuple):
    """Anchor parameters and outer momentum after an outer step."""

    anchor: Any
    momentum: Any


@dataclasses.dataclass(frozen=True)
class Result:
    """What a round outside programs gives, as `Reduced` in one: the value, and how it
    came about. What does not apply to a verb is None.

    Attributes:
        value: the result; of a reduce_scatter this peer's share of it, flat.
        status: code, world (sites whose values are in it), epoch, attempts.
        token: None; Python's own order is kept outside programs.
        mask: of all_gather and all_to_all: bool[slots], which slots are filled.
        slot: of all_to_all: this peer's slot; None: it is in none.
        first: of reduce_scatter: where this peer's share begins in the flat result.
        count: of reduce_scatter: how many elements the share has.
        text: what happened, in words; "" if nothing did.
        n: number of the round in its tag.
        contributors: ids of the peers whose values are in the result.
        weights: theirs, in the same order.
        sent_bytes, received_bytes: of this peer in the round.
        elapsed: seconds of the whole call.
    """

    value: Any
    status: Status
    token: None = None
    mask: np.ndarray[Any, Any] | None = None
    slot: int | None = None
    first: int | None = None
    count: int | None = None
    text: str = ""
    n: int = 0
    contributors: tuple[int, ...] = ()
    weights: tuple[float, ...] = ()
    sent_bytes: int = 0
    received_bytes: int = 0
    elapsed: float = 0.0

    @property
    def code(self) -> int:
        return self.status.code

    @property
    def world(self) -> int:
        return self.status.world

    @property
    def epoch(self) -> int:
        return self.status.epoch

    @property
    def attempts(self) -> int:
        return self.status.attempts

    @property
    def ok(self) -> bool:
        """Whether nothing went wrong: the code is OK or SKIPPED."""
        return self.status.ok

    @property
    def committed(self) -> bool:
        """Whether `value` is the result, also if this peer was left out."""
        return self.code in (Code.OK, Code.GUARD, Code.SKIPPED)


@dataclasses.dataclass(frozen=True)
class Synced:
    """What `Communicator.sync_state` gives."""

    value: Any
    revision: int
    digest: str
    replaced: bool  # the value differs from what was passed in
    edited: bool = False  # publish: that was not what this peer had shared
    went_back: bool = False  # replaced since the run went back to an earlier state
    received_bytes: int = 0  # of the state, from the peers that hold it
