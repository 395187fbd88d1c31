"""Single leaves as the outer step sees them: anchors, updates, pseudo-gradients.

Anchors have at least f32. Refuses parameters that aren't real floating-point. Traced.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


def anchor_leaf(path: Any, leaf: Any) -> jax.Array:
    # A copy, since parameters and state may both be donated; at least f32, since outer
    # steps are smaller than a bf16 parameter's last place.
    leaf = jnp.asarray(leaf)
    if not jnp.issubdtype(leaf.dtype, jnp.floating):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        raise TypeError(
            f"parameter '{name}' is {leaf.dtype}: jccl.diloco averages real "
            "floating-point parameters; leave others out with optax.masked"
        )
    return jnp.array(leaf, dtype=_wide(leaf.dtype), copy=True)


def _wide(dtype: Any) -> Any:
    return dtype if jnp.dtype(dtype).itemsize >= 4 else jnp.dtype(jnp.float32)


def widen(updates: Any, anchor: Any) -> Any:
    return jax.tree.map(lambda u, a: u.astype(a.dtype), updates, anchor)


def pseudo_gradient(
    anchor: jax.Array, param: jax.Array, update: jax.Array
) -> jax.Array:
    """Anchor minus the parameter that apply_updates will make, in its own dtype."""
    local = (param + update).astype(param.dtype)
    return anchor - local.astype(anchor.dtype)


def apart(anchor: Any, params: Any) -> Any:
    """The pseudo-gradient of parameters that were updated already."""
    return jax.tree.map(
        lambda a, p: jnp.asarray(a) - jnp.asarray(p).astype(a.dtype), anchor, params
    )


def learnt(cut: Any, i: int, step: Any, state: Any) -> Any:
    """The pseudo-gradient of a fragment."""
    trees = (state.anchor, step.params, step.updates)
    return jax.tree.map(pseudo_gradient, *(cut.part(tree, i) for tree in trees))


def towards(anchor: Any, params: Any, updates: Any, keep: Any = None) -> Any:
    """Updates that bring parameters to the anchor, but for the part `keep` of them."""

    def one(a: jax.Array, p: jax.Array, u: jax.Array) -> jax.Array:
        away = a - p.astype(a.dtype)
        if keep is None:
            return away
        kept = keep.astype(a.dtype)
        return kept * u + (1 - kept) * away

    return jax.tree.map(one, anchor, params, updates)


def zero() -> jax.Array:
    return jnp.zeros((), jnp.int32)  # a buffer each: states are donated
