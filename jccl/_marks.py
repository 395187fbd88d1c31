"""Marks: by what a peer recognises its own shared state before a call sends anything.

Two words of 32 bits for each leaf, sums over its elements' bits mixed with their places
(`cpp/snapshot/mark.h` defines them): made where the arrays lie, by XLA on devices and
by the native module in host memory, with the same bits. They notice a mistake, such as
an older checkpoint or an edited parameter; they are no cryptographic hash. Refuses
leaves that do not travel. Traced code, and host code for numpy arrays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jccl import _native, callback
from jccl._host import HostLeaves
from jccl._results import HasRegistryId
from jccl._trees import Leaves

_PLACE, _OFFSET = np.uint32(0x9E3779B9), np.uint32(0x7F4A7C15)


class Marks(NamedTuple):
    """Of a state's leaves, in place of the state itself: u32[k, 2], on a mesh whose
    site cuts its leaves into parts u32[parts, k, 2]."""

    words: Any


def of_state(state: Any, route: str) -> jax.Array | None:
    """The operand of a call that hands in `state`: a pytree, Marks, or None."""
    if state is None:
        return None
    if isinstance(state, Marks):
        return jnp.asarray(state.words, jnp.uint32)
    return of_arrays(Leaves(state).fenced(), route)


def marks_operand(
    state: Any, comm: HasRegistryId
) -> tuple[list[jax.Array], dict[str, Any]]:
    """What a call that hands in a state has more: an operand and an attribute."""
    words = of_state(state, callback.route_of(comm))
    return ([], {}) if words is None else ([words], {"marks": np.int32(1)})


def state_operands(
    state: Any, comm: HasRegistryId
) -> tuple[list[jax.Array], dict[str, Any]]:
    """What a round that hands in a state has more. Where the handlers read the memory
    that XLA keeps arrays in, they compare the leaves while the round's data move."""
    here = callback.route_of(comm) == callback.FFI and jax.default_backend() == "cpu"
    if not here or state is None or isinstance(state, Marks):
        return marks_operand(state, comm)
    arrays = Leaves(state).fenced()
    if not arrays:
        return marks_operand(state, comm)
    return arrays, {"state": np.int32(len(arrays))}


def of_arrays(arrays: Sequence[jax.Array], route: str) -> jax.Array:
    """u32[k, 2] of arrays that one device holds whole."""
    if not arrays:
        return jnp.zeros((0, 2), jnp.uint32)
    if route == callback.FFI and _native.default_platform() == "cpu":
        out = jax.ShapeDtypeStruct((len(arrays), 2), jnp.uint32)
        return callback.pure_call(route, "jccl_mark", [out])(*arrays)[0]
    return jnp.stack([summed(x, places(x.shape)) for x in arrays])


def of_host(state: Any) -> np.ndarray:
    """Of arrays outside a program; those on a device are read there."""
    if isinstance(state, Marks):
        return np.asarray(state.words, np.uint32)
    leaves = jax.tree.leaves(state)
    if any(isinstance(leaf, jax.Array) and _is_away(leaf) for leaf in leaves):
        return np.asarray(_on_device([jnp.asarray(x) for x in Leaves(state).arrays]))
    return np.asarray(_native.core().marks(HostLeaves.of(state).arrays))


def host_state(state: Any) -> dict[str, Any]:
    """How a call outside a program hands in a state. Leaves in host memory are compared
    while the round's data move."""
    leaves = jax.tree.leaves(state)
    away = any(isinstance(leaf, jax.Array) and _is_away(leaf) for leaf in leaves)
    if away or isinstance(state, Marks):
        return {"state": of_host(state)}
    return {"state_leaves": HostLeaves.of(state).arrays}


def _is_away(array: jax.Array) -> bool:
    return any(device.platform != "cpu" for device in array.devices())


@jax.jit
def _on_device(arrays: Sequence[jax.Array]) -> jax.Array:
    return of_arrays(arrays, callback.IO)


def places(shape: Sequence[int]) -> jax.Array:
    """u32 of that shape: each element's place in the flat array, modulo 2^32."""
    place = jnp.zeros(shape, jnp.uint32)
    for dimension, extent in enumerate(shape):
        index = lax.broadcasted_iota(jnp.uint32, shape, dimension)
        place = place * np.uint32(extent & 0xFFFFFFFF) + index
    return place


def summed(array: jax.Array, place: jax.Array, where: Any = None) -> jax.Array:
    """u32[2]: the mark of an array whose elements have these places in their leaf; only
    of those `where` the mask is set."""
    if not math.prod(array.shape):
        return jnp.zeros((2,), jnp.uint32)
    size = array.dtype.itemsize
    if size == 8:  # the lower half first
        halves = lax.bitcast_convert_type(array, jnp.uint32)
        pairs = [(halves[..., i], place * np.uint32(2) + np.uint32(i)) for i in (0, 1)]
    else:
        bits = lax.bitcast_convert_type(array, np.dtype(f"uint{8 * size}"))
        pairs = [(bits.astype(jnp.uint32), place)]
    sums = [_both(_mixed(bits, at), where) for bits, at in pairs]
    return sum(sums[1:], start=sums[0])


def _mixed(bits: jax.Array, place: jax.Array) -> jax.Array:
    x = bits ^ (place * _PLACE + _OFFSET)
    x = (x ^ (x >> 16)) * np.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * np.uint32(0xC2B2AE35)
    return x ^ (x >> 16)


def _both(x: jax.Array, where: Any) -> jax.Array:
    """Both sums in one pass: XLA would make two of two reductions on the CPU."""
    zero = np.uint32(0)
    y = x ^ (x << 11) ^ (x >> 15)
    if where is not None:
        x, y = jnp.where(where, x, zero), jnp.where(where, y, zero)
    axes = tuple(range(x.ndim))

    def add(one: Any, other: Any) -> Any:
        return one[0] + other[0], one[1] + other[1]

    return jnp.stack(lax.reduce((x, y), (zero, zero), add, axes))
