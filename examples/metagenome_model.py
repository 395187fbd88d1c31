"""A decoder as Llama's, in small, over packed reads: its loss, training and scores."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.train_state import TrainState

HEAD = 32  # width of a head
ROWS = 8  # in a step


@dataclasses.dataclass(frozen=True)
class Shape:
    """Of the vocabulary, the packed rows and the decoder."""

    vocabulary: int = 1024
    places: int = 129
    width: int = 128
    layers: int = 2


SHAPE, QUICK = Shape(), Shape(vocabulary=64, places=65, width=32, layers=1)


def turned(x: jax.Array) -> jax.Array:
    """Rotary places (RoPE) of queries or keys [row, place, head, width]."""
    half = x.shape[-1] // 2
    speeds = 1e4 ** (-jnp.arange(half) / half)
    angles = jnp.arange(x.shape[1])[:, None, None] * speeds
    sin, cos = jnp.sin(angles), jnp.cos(angles)
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


class Block(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x: jax.Array, same: jax.Array) -> jax.Array:
        dense = functools.partial(nn.Dense, use_bias=False)
        qkv = dense(3 * self.width)(nn.RMSNorm()(x))
        heads = qkv.reshape(*x.shape[:-1], 3, self.width // HEAD, HEAD)
        q, k, v = (heads[..., i, :, :] for i in range(3))
        mixed = jax.nn.dot_product_attention(
            turned(q), turned(k), v, mask=same, is_causal=True
        )
        x = x + dense(self.width)(mixed.reshape(x.shape))
        y = nn.RMSNorm()(x)
        hidden = 8 * self.width // 3
        return x + dense(self.width)(nn.silu(dense(hidden)(y)) * dense(hidden)(y))


class Decoder(nn.Module):
    size: int
    width: int
    layers: int

    @nn.compact
    def __call__(
        self, tokens: jax.Array, reads: jax.Array, *, hidden: bool = False
    ) -> jax.Array:
        """Logits of the next tokens; with `hidden`, what they are made from."""
        same = (reads[:, None, :, None] == reads[:, None, None, :]) > 0
        x = nn.Embed(self.size, self.width)(tokens)
        for _ in range(self.layers):
            x = Block(self.width)(x, same)
        x = nn.RMSNorm()(x)
        return x if hidden else nn.Dense(self.size, use_bias=False)(x)


def nats(params: Any, apply: Any, rows: jax.Array) -> tuple[jax.Array, jax.Array]:
    """-log p of each next token, 0 where it is another read's; and log Z of each."""
    tokens, reads = rows[:, 0], rows[:, 1]
    logits = apply(params, tokens[:, :-1], reads[:, :-1])
    inside = (reads[:, 1:] == reads[:, :-1]) & (reads[:, 1:] > 0)
    normal = jax.nn.logsumexp(logits, axis=-1)
    chosen = jnp.take_along_axis(logits, tokens[:, 1:, None], axis=-1)[..., 0]
    return jnp.where(inside, normal - chosen, 0.0), jnp.where(inside, normal, 0.0)


def loss_of(params: Any, apply: Any, rows: jax.Array) -> jax.Array:
    """Mean over tokens, and METAGENE-1's small pull of log Z to 0."""
    lost, normal = nats(params, apply, rows)
    return (lost.sum() + 1e-4 * (normal**2).sum()) / jnp.count_nonzero(lost)


def step(
    state: TrainState, given: tuple[jax.Array, jax.Array]
) -> tuple[TrainState, jax.Array]:
    """With (rows, whether to look at them at all): else the gradients are zeros."""
    rows, works = given
    loss, grads = jax.lax.cond(
        works,
        lambda p: jax.value_and_grad(loss_of)(p, state.apply_fn, rows),
        lambda p: (jnp.float32(jnp.nan), jax.tree.map(jnp.zeros_like, p)),
        state.params,
    )
    return state.apply_gradients(grads=grads), loss


@functools.partial(jax.jit, donate_argnums=0)
def train_round(
    state: TrainState, rows: jax.Array, works: jax.Array
) -> tuple[TrainState, jax.Array]:
    """The steps of a round [step, row, 2, place]; the last of them takes part in it."""
    return jax.lax.scan(step, state, (rows, works))


@functools.partial(jax.jit, static_argnums=0)
def alone(apply: Any, params: Any, inner_state: Any, rows: jax.Array) -> Any:
    """One step of the inner optimizer, as another laboratory repeats it."""
    grads = jax.grad(loss_of)(params, apply, rows)
    updates, inner_state = inner().update(grads, inner_state, params)
    return optax.apply_updates(params, updates), inner_state


def inner() -> optax.GradientTransformation:
    rate = optax.warmup_constant_schedule(0.0, 3e-3, 50)
    return optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adamw(rate, b1=0.9, b2=0.95, weight_decay=0.1),
    )


def created(tx: Any, shape: Shape, seed: int = 0) -> TrainState:
    model = Decoder(shape.vocabulary, shape.width, shape.layers)
    empty = jnp.zeros((1, shape.places - 1), jnp.int32)
    params = jax.jit(model.init)(jax.random.key(seed), empty, empty)
    return TrainState.create(apply_fn=model.apply, params=params, tx=tx)


def drawn(rows: np.ndarray, steps: int, rng: np.random.Generator) -> np.ndarray:
    return rows[rng.integers(len(rows), size=(steps, ROWS))]


scored = jax.jit(
    lambda apply, params, rows: nats(params, apply, rows)[0], static_argnums=0
)


def scores(apply: Any, params: Any, rows: np.ndarray, bases: np.ndarray) -> np.ndarray:
    """Nats per base of each read. The mark of its end does not count: it tells lengths."""
    count, part = len(rows), 32
    rows = np.pad(rows, ((0, -count % part), (0, 0), (0, 0)))
    lost = np.concatenate(
        [scored(apply, params, rows[i : i + part]) for i in range(0, len(rows), part)]
    )
    tokens, reads = rows[:, 0, 1:].ravel(), rows[:, 1, 1:].ravel()
    weights = lost.ravel() * (bases[tokens] > 0)
    sums = np.bincount(reads, weights)
    return (sums[1:] / np.bincount(reads, bases[tokens])[1:]).astype(np.float64)
