"""Between users' pytrees and the flat numpy arrays that a round on the host works on.

Arrays are used where they lie. Refuses traced values and dtypes that cannot travel,
naming the leaf by its path. Any thread.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from jccl import _native
from jccl.codecs import Codec
from jccl.encoding import Encoded

VMAP_TEXT = (
    "jccl: a collective cannot be vmapped: every lane would be a round of its own, and "
    "under lax.cond it would run for lanes that did not take the branch. Call it "
    "outside vmap on the batched array."
)
GRAD_TEXT = (
    "jccl: a collective cannot be differentiated. Take gradients first and reduce "
    "them, wrap the operand in jax.lax.stop_gradient, or use "
    "jccl.gradients.all_reduce, whose gradient is a round too."
)


@dataclasses.dataclass(frozen=True)
class HostLeaves:
    """A pytree as the native module wants it: flat C-contiguous arrays with paths."""

    arrays: list[np.ndarray]
    paths: list[str]
    treedef: Any
    like: list[Callable[[np.ndarray], Any] | None]  # where jax leaves' results go
    # Of contributions that come encoded, what is sent; `arrays` then holds the results'
    # place, not yet written. Empty: there are none.
    encoded: list[np.ndarray | None] = dataclasses.field(default_factory=list)

    @staticmethod
    def of(tree: Any, codec: Codec | None = None) -> HostLeaves:
        """`codec`: of the round, which Encoded leaves must have been encoded for; None:
        there may be none."""
        entries, treedef = jax.tree_util.tree_flatten_with_path(
            tree, is_leaf=lambda node: isinstance(node, Encoded)
        )
        paths = [path_text(path) for path, _ in entries]
        leaves = [leaf for _, leaf in entries]
        encoded = [
            _encoded_bytes(leaf, path, codec) if isinstance(leaf, Encoded) else None
            for leaf, path in zip(leaves, paths, strict=True)
        ]
        arrays = [
            np.empty(leaf.shape, leaf.dtype)
            if isinstance(leaf, Encoded)
            else host_array(leaf, path)
            for leaf, path in zip(leaves, paths, strict=True)
        ]
        like = [
            _place(leaf.data if isinstance(leaf, Encoded) else leaf) for leaf in leaves
        ]
        some = any(data is not None for data in encoded)
        return HostLeaves(arrays, paths, treedef, like, encoded if some else [])

    @property
    def inputs(self) -> list[np.ndarray]:
        """What the native module reads: values, or the bytes of encoded ones."""
        if not self.encoded:
            return self.arrays
        return [
            array if data is None else data
            for array, data in zip(self.arrays, self.encoded, strict=True)
        ]

    @property
    def marks(self) -> list[bool]:
        return [data is not None for data in self.encoded]

    def tree(self, outs: Sequence[np.ndarray]) -> Any:
        leaves = [
            put(out) if put else out for out, put in zip(outs, self.like, strict=True)
        ]
        return jax.tree_util.tree_unflatten(self.treedef, leaves)


def _encoded_bytes(leaf: Encoded, path: str, codec: Codec | None) -> np.ndarray:
    check_encoded(leaf, path, codec)
    return host_array(leaf.data, path)


def check_encoded(leaf: Encoded, path: str, codec: Codec | None) -> None:
    """`codec`: of the round; None: this one takes no encoded leaves."""
    if codec is None:
        raise ValueError(
            f"leaf '{path}' is encoded, but this collective takes no encoded leaves"
        )
    if codec != leaf.codec:
        raise ValueError(
            f"leaf '{path}' is encoded as {leaf.codec.spec}, but the round has codec "
            f"{codec.spec}; use one codec for both"
        )


def _place(leaf: Any) -> Callable[[np.ndarray], jax.Array] | None:
    if not isinstance(leaf, jax.Array):
        return None
    if len(leaf.sharding.device_set) == 1:
        return jax.numpy.asarray
    return functools.partial(_put_like, leaf.sharding)


def _put_like(sharding: Any, array: np.ndarray) -> jax.Array:
    # all_gather's results have an axis more than the operand had.
    try:
        return jax.device_put(array, sharding)
    except ValueError:
        return jax.numpy.asarray(array)


def path_text(path: Any) -> str:
    """`params/dense/kernel` of a jax key path.

    Without the box that nnx puts every array into: a compiled step may see the arrays
    alone, and a state has one name whoever looks at it.
    """
    if path and getattr(path[-1], "name", None) in ("value", "raw_value"):
        path = path[:-1]
    return jax.tree_util.keystr(path, simple=True, separator="/")


def host_array(leaf: Any, path: str) -> np.ndarray:
    """The numpy view of a leaf. Refuses dtypes the transport does not have."""
    if isinstance(leaf, jax.core.Tracer):
        raise _traced(leaf, path)
    dtype = getattr(leaf, "dtype", None)
    if dtype is not None and jax.dtypes.issubdtype(dtype, jax.dtypes.extended):
        raise TypeError(unsupported(path, dtype))
    array = np.asarray(leaf)
    if array.dtype.name not in _native.core().dtypes:
        raise TypeError(unsupported(path, array.dtype))
    return np.ascontiguousarray(array).reshape(array.shape)


def _traced(leaf: Any, path: str) -> Exception:
    """Why a method of the communicator cannot take it."""
    kind = type(leaf).__name__
    if kind == "BatchTracer":
        return NotImplementedError(VMAP_TEXT)
    if kind in ("JVPTracer", "LinearizeTracer"):
        return NotImplementedError(GRAD_TEXT)
    which = f"leaf '{path}' is" if path else "the array is"
    return TypeError(
        f"{which} traced, and a method of the communicator works outside jit alone: "
        "inside, call the function of the same name, as jccl.all_reduce(x, comm)"
    )


def unsupported(path: str, dtype: Any) -> str:
    known = ", ".join(_native.core().dtypes)
    return f"leaf '{path}' has dtype {dtype}, which cannot travel; known: {known}"


def outputs(
    leaves: HostLeaves, out: Any, lead: tuple[int, ...] = ()
) -> list[np.ndarray]:
    if out is None:
        return [np.empty(lead + a.shape, a.dtype) for a in leaves.arrays]
    targets = jax.tree_util.tree_leaves(out)
    if len(targets) != len(leaves.arrays):
        raise ValueError(
            f"out has {len(targets)} leaves, the input {len(leaves.arrays)}"
        )
    for target, array, path in zip(targets, leaves.arrays, leaves.paths, strict=True):
        good = (
            isinstance(target, np.ndarray)
            and target.flags.c_contiguous
            and target.flags.writeable
            and target.shape == lead + array.shape
            and target.dtype == array.dtype
        )
        if not good:
            raise ValueError(
                f"out of leaf '{path}' must be a writable C-contiguous numpy array of "
                f"shape {lead + array.shape} and dtype {array.dtype}"
            )
    return targets
