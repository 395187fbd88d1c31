"""A peer whose inner updates stop being finite stands still, is left out of a round,
and begins anew from the run's anchor.

A parameter that is NaN stays NaN under any update, so a bad step must not reach the
parameters: the peer keeps what it had. The next contribution is NaN on purpose. The
transport leaves it out (GUARD), and that round's anchor replaces the parameters.
After k such rounds in a row the inner optimizer's state begins anew too. Traced code.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jccl.errors import Code
from jccl.optim.state import DilocoState, select


def checked(rounds: int | None) -> int:
    """0: never."""
    if rounds is not None and rounds < 1:
        raise ValueError(f"nan_rounds={rounds} must be at least 1, or None")
    return rounds or 0


def begin(rounds: int) -> Any:
    """i32[2]: bad steps since the last round, and rounds in a row that had some; () if
    nobody looks."""
    return jnp.zeros((2,), jnp.int32) if rounds else ()


def held(updates: Any, inner: Any, state: DilocoState) -> tuple[Any, Any, DilocoState]:
    """What a step gives, or no updates and the inner state before it if it is bad."""
    bad = [jnp.any(~jnp.isfinite(x)) for x in jax.tree.leaves(updates)]
    fine = ~jnp.any(jnp.stack(bad)) if bad else jnp.ones((), bool)
    updates = jax.tree.map(lambda x: jnp.where(fine, x, jnp.zeros_like(x)), updates)
    inner = select(fine, inner, state.inner)
    now = state.health.at[0].add(1 - fine.astype(jnp.int32))
    return updates, inner, state._replace(health=now)


def is_fine(health: Any) -> jax.Array:
    """bool[]: no bad step since the last look."""
    return jnp.ones((), bool) if isinstance(health, tuple) else health[0] == 0


def looked_at(health: Any) -> Any:
    """For a peer that makes its next steps before its rounds end."""
    return health if isinstance(health, tuple) else health.at[0].set(0)


def marked(delta: Any, health: Any) -> Any:
    """The contribution of a peer with bad steps: NaN, so that nobody counts it."""
    if isinstance(health, tuple):
        return delta
    return jax.tree.map(lambda x: jnp.where(is_fine(health), x, jnp.nan), delta)


def begun(inner: Any, anchor: Any, params: Any) -> Any:
    """The inner optimizer's state of a peer that begins at the anchor."""
    return inner.init(jax.tree.map(lambda a, p: a.astype(p.dtype), anchor, params))


def after(state: DilocoState, fresh: Any, code: Any, rounds: int) -> DilocoState:
    """After a round that ended with `code`, whose anchor the parameters are if it
    committed; `fresh` is the inner state of a peer that begins anew."""
    left_out = code == Code.GUARD
    row = jnp.where(left_out, state.health[1] + 1, 0)
    anew = row >= rounds
    now = jnp.stack([jnp.zeros_like(row), jnp.where(anew, 0, row)])
    # A round that failed leaves the marked contribution for the next one.
    settled = left_out | (code == Code.OK) | (code == Code.RESYNC)
    now = jnp.where(settled, now, state.health)
    return state._replace(health=now, inner=select(anew, fresh, state.inner))
