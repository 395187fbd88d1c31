"""Between users' pytrees and the operands of a custom call.

Leaves are checked by dtype and size, named by path, and passed through a fence that
refuses vmap and differentiation in our words. Scalars that may change from call to call
become operands, never attributes: an attribute's change would recompile.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jccl import _native
from jccl._host import GRAD_TEXT, VMAP_TEXT, check_encoded, path_text
from jccl._options import check_seconds, check_weight
from jccl.codecs import Codec, resolve
from jccl.encoding import Encoded
from jccl.errors import InvalidError

_core = _native.core()

SPREAD_TEXT = (
    "jccl: these arrays lie on several devices, and outside shard_map XLA would gather "
    "all of them on each device for the call. An optimizer of jccl has to know how "
    "they lie: call its init outside jit, when they lie there, or make it with "
    "place=jccl.Place(specs=jax.tree.map(lambda x: x.sharding, params)); or keep the "
    "rounds out of the program, by jccl.between_steps. For other calls map the "
    "program with "
    "jax.shard_map(..., check_vma=False) and use jccl.all_reduce there, call "
    "comm.all_reduce outside jit, or put the arrays on one device."
)
fence = _native.fence({"vmap": VMAP_TEXT, "grad": GRAD_TEXT, "spread": SPREAD_TEXT})


class Leaves:
    """A flattened pytree, checked against what the transport carries."""

    def __init__(self, tree: Any, codec: Codec | None = None):
        """`codec`: of the round, which Encoded leaves must have been encoded for; None:
        there may be none."""
        flat, self.treedef = jax.tree_util.tree_flatten_with_path(
            tree, is_leaf=lambda node: isinstance(node, Encoded)
        )
        # Before any is looked at: to make an array of each takes seconds.
        if len(flat) > _core.limits["leaves_max"]:
            raise ValueError(
                f"jccl: {len(flat)} leaves, but a round takes at most "
                f"{_core.limits['leaves_max']}; stack small leaves into larger arrays"
            )
        self.paths = [path_text(path) for path, _ in flat]
        self.encoded: dict[int, Encoded] = {}
        for i, (path, (_, leaf)) in enumerate(zip(self.paths, flat, strict=True)):
            _check_leaf(path, leaf)
            if isinstance(leaf, Encoded):
                check_encoded(leaf, path, codec)
                self.encoded[i] = leaf
        # What a call takes: values, or the bytes of encoded ones.
        self.arrays = [
            jnp.asarray(leaf.data if isinstance(leaf, Encoded) else leaf)
            for _, leaf in flat
        ]
        size = sum(math.prod(x.shape) * x.dtype.itemsize for x in self.specs())
        if size > _core.limits["round_bytes_max"]:
            raise ValueError(
                f"jccl: {size} bytes, but a round takes at most "
                f"{_core.limits['round_bytes_max']}; split it over several tags"
            )

    def fenced(self) -> list[jax.Array]:
        return [fence.bind(x) for x in self.arrays]

    def specs(
        self, shape: Callable[[tuple[int, ...]], tuple[int, ...]] = tuple
    ) -> list[Any]:
        """Of the leaves' values."""
        values = [self.encoded.get(i, x) for i, x in enumerate(self.arrays)]
        return [
            spec_like(shape(value.shape), x, value.dtype)
            for value, x in zip(values, self.arrays, strict=True)
        ]

    @property
    def encoded_words(self) -> dict[str, np.ndarray]:
        """The attribute that says which operands are bytes, and of what: for each the
        leaf, the dtype's number, how many extents, and these."""
        words: list[int] = []
        for i, leaf in self.encoded.items():
            dtype = _core.dtypes.index(jnp.dtype(leaf.dtype).name) + 1
            words += [i, dtype, len(leaf.shape), *leaf.shape]
        return {"encoded": np.asarray(words, np.int64)} if words else {}

    def unflatten(self, arrays: Sequence[Any]) -> Any:
        return jax.tree_util.tree_unflatten(self.treedef, arrays)

    @property
    def path_text(self) -> str:
        return "\n".join(path.replace("\n", " ") for path in self.paths)


def _check_leaf(path: str, leaf: Any) -> None:
    name = f"leaf '{path}'" if path else "the array"
    dtype = getattr(leaf, "dtype", None)
    if dtype is None:
        if isinstance(leaf, bool) or not isinstance(leaf, int | float):
            raise TypeError(
                f"jccl: {name} is a {type(leaf).__name__}, not an array or number"
            )
        return
    if str(dtype) not in _core.dtypes:
        raise TypeError(
            f"jccl: {name} has dtype {dtype}, which jccl cannot send; use one of "
            + ", ".join(_core.dtypes)
        )


def spec_like(shape: tuple[int, ...], like: jax.Array, dtype: Any = None) -> Any:
    varying = getattr(jax.typeof(like), "vma", None)
    dtype = like.dtype if dtype is None else dtype
    if varying:  # inside shard_map: keep what the result varies over
        return jax.ShapeDtypeStruct(
            shape,
            dtype,
            vma=varying,  # type: ignore[call-arg]
        )
    return jax.ShapeDtypeStruct(shape, dtype)


def scalar(value: Any, dtype: Any) -> jax.Array:
    array = jnp.asarray(value, dtype)
    if array.shape != ():
        raise ValueError(f"jccl: expected a scalar, got shape {array.shape}")
    return fence.bind(array)


def deadline_ms(deadline: Any) -> jax.Array:
    """0 stands for the communicator's default; a traced one is rounded up to 1 ms."""
    if deadline is None:
        return scalar(0, jnp.int32)
    check_seconds(deadline)
    if not isinstance(deadline, jax.core.Tracer):
        return scalar(math.ceil(float(deadline) * 1000), jnp.int32)
    milliseconds = jnp.ceil(jnp.asarray(deadline, jnp.float32) * 1000)
    return scalar(jnp.maximum(milliseconds, 1), jnp.int32)


def weight_of(weight: Any) -> jax.Array:
    check_weight(weight)
    return scalar(weight, jnp.float32)


def codec_name(codec: Any) -> str:
    return resolve(codec).spec


def check_slots(slots: int) -> None:
    most = _core.limits["peers_max"]
    if not 1 <= slots <= most:
        raise ValueError(f"jccl: slots={slots} must be from 1 to {most}")


def slots_of(arrays: Sequence[Any], paths: Sequence[str]) -> int:
    """The length of the leading axis that all arrays of an all_to_all have."""
    axes = [int(x.shape[0]) if x.shape else None for x in arrays]
    slots = axes[0] if axes else None
    if slots is None or axes.count(slots) < len(axes):
        named = ", ".join(
            f"'{path}' has {'none' if axis is None else axis}"
            for path, axis in list(zip(paths, axes, strict=True))[:8]
        )
        raise ValueError(
            "jccl: all_to_all takes arrays whose first axes are of one length, with a "
            f"block for each slot; of these leaves {named or 'there is none'}"
        )
    check_slots(slots)
    return slots


OPS = ("sum", "mean", "min", "max", "prod")
PLANS = ("", "auto", "fastest", "direct", "exchange", "ring")


_MEANT = {"avg": "mean", "average": "mean", "add": "sum", "maximum": "max"}
_MEANT |= {"minimum": "min", "product": "prod"}


def known(what: str, value: str, values: Sequence[str]) -> str:
    """A misspelt word is refused before anything is sent or traced, not answered by a
    status every step."""
    if value not in values:
        meant = _MEANT.get(value, "")
        hint = f": write {what}={meant!r}" if meant in values else ""
        words = ", ".join(filter(None, values))
        raise InvalidError(f"unknown {what} {value!r}{hint}; known: {words}")
    return value


def fingerprint_digest(fingerprint: str | None) -> str:
    if not fingerprint:
        return ""
    return hashlib.blake2b(fingerprint.encode(), digest_size=16).hexdigest()


def check_outer(one: Leaves, anchor: Leaves) -> None:
    if [x.shape for x in one.arrays] != [x.shape for x in anchor.arrays]:
        raise ValueError("jccl: anchor, momentum and delta must have the same shapes")
    for path, x in zip(one.paths, one.arrays, strict=True):
        if x.dtype != jnp.float32:
            raise TypeError(
                f"jccl: outer step: leaf '{path}' is {x.dtype}, not float32"
            )
