"""How contributions become one: the mean, or lengths and directions averaged apart.

RDA, by leaf, over peers m with weights w: (Σ w|Δ|/Σw) · φ(Σ w φ(Δ)/Σw), φ(x) = x/|x|.
Pseudo-gradients of peers are nearly at right angles, so their mean is shorter than each
of them by √M. RDA keeps the length. Both means travel in one round. XLA computes the
norms, whose last bits depend on processor and version, so the round's fingerprint names
these.

Source: Decoupled DiLoCo, arXiv:2604.21428.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jccl.codecs import Codec

RULES = ("mean", "rda")


def apart(delta: Any, codec: Codec) -> Any:
    """Directions, and for each leaf a row that its length fills: a codec scales rows by
    their largest, so the length passes as precisely as a scale."""
    row = int(getattr(codec, "block", 1))
    lengths = [jnp.full((row,), _norm(x), x.dtype) for x in jax.tree.leaves(delta)]
    return {"direction": jax.tree.map(_unit, delta), "length": lengths}


def together(mean: Any) -> Any:
    """The pseudo-gradient of the committed means of `apart`."""
    leaves, treedef = jax.tree.flatten(mean["direction"])
    grown = [_unit(x) * row[0] for x, row in zip(leaves, mean["length"], strict=True)]
    return jax.tree.unflatten(treedef, grown)


def _norm(x: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.sum(x * x))


def _unit(x: jax.Array) -> jax.Array:
    norm = _norm(x)
    return jnp.where(norm > 0, x / jnp.where(norm > 0, norm, 1), x)
