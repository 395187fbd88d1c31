"""A byte-level language model that a core trains in seconds, on Python's own sources.

Decoder with normalised queries and keys (as arXiv:2501.18512 trains), context 32. Text
and held-out files are those of the examples: alike on every machine with one Python.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

sys.path.append(str(Path(__file__).parents[2] / "examples"))
import corpus as corpus

LENGTH = 32
HELD_OUT_WINDOWS = 512
WIDTHS = {"67k": 32, "233k": 64}
LAYERS = 4
WARM_UP = 0.05  # of the steps
RATE = 4e-3
# Muon's usual five steps, one by one: then they are a loop, which compiles in a fifth
# of the time of optax's default, and computes the same.
NEWTON_SCHULZ = ((3.4445, -4.775, 2.0315),) * 5


class Block(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        qkv = nn.Dense(3 * self.width, use_bias=False)(nn.LayerNorm()(x))
        heads = qkv.reshape(*qkv.shape[:-1], 3, self.width // 16, 16)
        q, k, v = (heads[..., i, :, :] for i in range(3))
        q, k = nn.LayerNorm(name="q_norm")(q), nn.LayerNorm(name="k_norm")(k)
        mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        x = x + nn.Dense(self.width, use_bias=False)(mixed.reshape(x.shape))
        hidden = nn.gelu(nn.Dense(4 * self.width)(nn.LayerNorm()(x)))
        return x + nn.Dense(self.width)(hidden)


class LanguageModel(nn.Module):
    width: int

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        places = nn.Embed(LENGTH, self.width)(jnp.arange(tokens.shape[-1]))
        x = nn.Embed(256, self.width)(tokens) + places
        for _ in range(LAYERS):
            x = Block(self.width)(x)
        return nn.Dense(256)(nn.LayerNorm()(x))


@functools.cache
def initial(size: str, seed: int) -> Any:
    """Parameters before the first step, one tree per (size, seed)."""
    tokens = jnp.zeros((1, LENGTH), jnp.int32)
    return jax.jit(LanguageModel(WIDTHS[size]).init)(jax.random.key(seed), tokens)


def _loss(size: str, params: Any, text: jax.Array) -> jax.Array:
    logits = LanguageModel(WIDTHS[size]).apply(params, text[:, :-1])
    return optax.softmax_cross_entropy_with_integer_labels(logits, text[:, 1:]).mean()


# One program each for all peers and runs of a size, and none of them communicates.
value_and_grad = jax.jit(
    lambda size, params, text: jax.value_and_grad(functools.partial(_loss, size))(
        params, text
    ),
    static_argnums=0,
)
loss = jax.jit(_loss, static_argnums=0)


def warm(size: str, windows: int, seed: int) -> None:
    """Compiles what all peers share, once, before they run side by side."""
    params = initial(size, seed)
    text = np.zeros((windows, LENGTH + 1), np.int32)
    jax.block_until_ready(value_and_grad(size, params, text))
    held_out_loss(size, params)


def inner(steps: int, name: str = "adamw") -> optax.GradientTransformation:
    """AdamW or Muon, with warm-up and a cosine to a tenth."""
    rate = optax.warmup_cosine_decay_schedule(
        0.0, RATE, max(1, int(WARM_UP * steps)), steps, RATE / 10
    )
    if name == "adamw":
        return optax.adamw(rate, b2=0.99)
    if name != "muon":
        raise ValueError(f"inner={name!r}: there are adamw and muon")
    # At this RMS an update is as long as AdamW's, and the rate is the same one.
    return optax.contrib.muon(
        rate,
        ns_coeffs=NEWTON_SCHULZ,
        adam_b2=0.99,
        weight_decay=1e-4,  # as of optax.adamw
        adam_weight_decay=1e-4,
        consistent_rms=0.2,
        muon_weight_dimension_numbers=_of_blocks,
    )


def _of_blocks(params: Any) -> Any:
    """Muon takes the matrices of the blocks; AdamW embeddings, head and vectors."""

    def spec(path: Any, leaf: jax.Array) -> Any:
        inside = any("Block" in jax.tree_util.keystr((key,)) for key in path)
        if inside and leaf.ndim == 2:
            return optax.contrib.MuonDimensionNumbers()
        return None

    return jax.tree_util.tree_map_with_path(spec, params)


@functools.cache
def text_of(peer: int, peers: int) -> np.ndarray:
    return corpus.load(peer, peers)


def batch(peer: int, peers: int, windows: int, rng: np.random.Generator) -> np.ndarray:
    return corpus.windows(text_of(peer, peers), (windows,), LENGTH, rng)


@functools.cache
def _held_out() -> np.ndarray:
    text = corpus.load_held_out()
    rng = np.random.default_rng(1)
    return corpus.windows(text, (HELD_OUT_WINDOWS,), LENGTH, rng)


def held_out_loss(size: str, params: Any) -> float:
    """Nats per byte on files that nobody trains on."""
    return float(loss(size, params, _held_out()))
