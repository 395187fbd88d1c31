"""SHA-256 of a pytree's arrays, the same in a program and outside of one.

A program hands the arrays to the host for it, by a callback: nothing that XLA computes
commits to values as fast, and sums such as marks can be forged. Dtypes and shapes are
part of it, names are not. Any thread.
"""

from __future__ import annotations

import hashlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

BYTES = 32


def digest_of(tree: Any) -> Any:
    """uint8[32]: numpy outside of programs, traced inside."""
    leaves = [_plain(leaf) for leaf in jax.tree.leaves(tree)]
    if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        out = jax.ShapeDtypeStruct((BYTES,), jnp.uint8)
        return jax.pure_callback(_hashed, out, *leaves)
    return _hashed(*leaves)


def as_bytes(tree: Any) -> list[np.ndarray]:
    """Each leaf's bytes, uint8[n]: so every dtype travels. On the host."""
    return [_bytes(_plain(leaf)) for leaf in jax.tree.leaves(tree)]


def from_bytes(parts: list[np.ndarray], like: Any) -> Any:
    """The tree again, shaped as `like`; ValueError if it can't be."""
    leaves, treedef = jax.tree.flatten(like)
    out = []
    for part, leaf in zip(parts, leaves, strict=True):
        plain = np.asarray(_plain(leaf))
        array = np.asarray(part).view(plain.dtype).reshape(plain.shape)
        out.append(
            jax.random.wrap_key_data(jnp.asarray(array)) if _is_key(leaf) else array
        )
    return jax.tree.unflatten(treedef, out)


def _is_key(leaf: Any) -> bool:
    dtype = getattr(leaf, "dtype", None)
    return dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)


def _plain(leaf: Any) -> Any:
    if _is_key(leaf):
        return jax.random.key_data(leaf)
    return leaf if isinstance(leaf, jax.Array | np.ndarray) else jnp.asarray(leaf)


def _bytes(leaf: Any) -> np.ndarray:
    return np.ascontiguousarray(np.asarray(leaf)).reshape(-1).view(np.uint8)


def _hashed(*leaves: Any) -> np.ndarray:
    out = hashlib.sha256()
    for leaf in leaves:
        array = np.asarray(leaf)
        out.update(f"{array.dtype.name}{list(array.shape)};".encode())
        out.update(_bytes(array).data)
    return np.frombuffer(out.digest(), np.uint8)


def copied(leaf: Any) -> Any:
    """On the host: the step may take the array's memory."""
    if jnp.issubdtype(getattr(leaf, "dtype", np.float32), jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jnp.array(jax.random.key_data(leaf)))
    return np.array(leaf)


def is_finite(tree: Any) -> bool:
    return all(
        bool(np.isfinite(np.asarray(leaf, np.float64)).all())
        for leaf in jax.tree.leaves(tree)
        if jnp.issubdtype(getattr(leaf, "dtype", np.float32), jnp.floating)
    )


def is_near(anchor: Any, param: Any) -> bool:
    """A step ends on the anchor up to the rounding of `params + update`."""
    eps = float(jnp.finfo(jnp.asarray(param).dtype).eps)
    a, p = np.asarray(anchor, np.float64), np.asarray(param).astype(np.float64)
    room = eps * np.abs(a) + 2.0**-20 * np.abs(a).max(initial=0)
    return a.shape == p.shape and bool((np.abs(p - a) <= room).all())
