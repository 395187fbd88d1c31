"""What the in-jit ops return: named tuples of arrays, for XLA pytrees like any other.

Plain data; any thread. `jccl.ops` is where users find them.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import jax


class HasRegistryId(Protocol):
    """An open communicator: the native one or `jccl.Communicator`."""

    @property
    def registry_id(self) -> int: ...


class Reduced(NamedTuple):
    """A round's outcome.

    Attributes:
        value: the result; where the round did not commit, what went in.
        status: i32[4]: code, world (sites whose values are in it), epoch, attempts.
        token: u32[]; pass it to the op that must come after this one.
    """

    value: Any
    status: jax.Array
    token: jax.Array


class Gathered(NamedTuple):
    """`value` has a leading axis of slots, by peer id; `mask` says which hold data."""

    value: Any
    mask: jax.Array
    status: jax.Array
    token: jax.Array


class Scattered(NamedTuple):
    """`value` holds elements [first, first + count) of the flat result, else zeros.

    `extent` is i32[2]: first, count. Not committed: value is what went in, count is 0.
    """

    value: jax.Array
    extent: jax.Array
    status: jax.Array
    token: jax.Array


class Started(NamedTuple):
    """`handle` is u32[2] and may live in optimizer state; use `passed` from here on."""

    handle: jax.Array
    passed: Any
    token: jax.Array


class Published(NamedTuple):
    """`status` is i32[4]: code, 1 if `value` is the newest instead, revision, 0."""

    value: Any
    status: jax.Array
    token: jax.Array


class Stepped(NamedTuple):
    """Anchor parameters and outer momentum after an outer step."""

    anchor: Any
    momentum: Any
