"""A byte-level transformer trained by several peers, which may come, go and be killed.

jccl run -n 3 -- python examples/train_lm.py

An ordinary Flax and optax script: connect, wrap the optimizer, sync the state, train.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import functools
import hashlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import corpus
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.train_state import TrainState

import jccl

SIZES = {
    "mini": (64, 2),
    "tiny": (64, 4),
    "small": (96, 6),
    "base": (256, 8),
}  # width, layers
LENGTH = 64
BATCH = 8


class Block(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        qkv = nn.Dense(3 * self.width, use_bias=False)(nn.LayerNorm()(x))
        heads = qkv.reshape(*qkv.shape[:-1], 3, self.width // 32, 32)
        q, k, v = (heads[..., i, :, :] for i in range(3))
        mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        x = x + nn.Dense(self.width, use_bias=False)(mixed.reshape(x.shape))
        hidden = nn.gelu(nn.Dense(4 * self.width)(nn.LayerNorm()(x)))
        return x + nn.Dense(self.width)(hidden)


class LanguageModel(nn.Module):
    width: int
    layers: int

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        places = nn.Embed(LENGTH, self.width)(jnp.arange(tokens.shape[-1]))
        x = nn.Embed(256, self.width)(tokens) + places
        for _ in range(self.layers):
            x = Block(self.width)(x)
        return nn.Dense(256)(nn.LayerNorm()(x))


def loss_of(params: Any, apply: Any, text: jax.Array) -> jax.Array:
    logits = apply(params, text[:, :-1])
    return optax.softmax_cross_entropy_with_integer_labels(logits, text[:, 1:]).mean()


def train_step(state: TrainState, text: jax.Array) -> tuple[TrainState, jax.Array]:
    loss, grads = jax.value_and_grad(loss_of)(state.params, state.apply_fn, text)
    return state.apply_gradients(grads=grads), loss


@functools.partial(jax.jit, donate_argnums=0)
def train_round(state: TrainState, texts: jax.Array) -> tuple[TrainState, jax.Array]:
    """The steps between two rounds; the last of them takes part in the round."""
    return jax.lax.scan(train_step, state, texts)


def inner_optimizer() -> optax.GradientTransformation:
    return optax.adamw(optax.warmup_constant_schedule(0.0, 4e-3, 50), b2=0.99)


def main() -> None:
    args = parse()
    index = int(os.environ.get("JCCL_PEER_INDEX", "0"))
    peers = int(os.environ.get("JCCL_PEERS", "3"))
    rng = np.random.default_rng([args.seed, index])
    text, held_out = corpus.load(index, peers), corpus.load_held_out()

    comm = None if args.solo else jccl.connect()
    tx = inner_optimizer()
    if comm is not None:
        tx = jccl.diloco(
            comm,
            inner=tx,
            outer=optax.sgd(0.7, momentum=0.5, nesterov=True),
            sync_every=args.sync_every,
            codec="int8",
        )
    model = LanguageModel(*SIZES[args.size])

    def draw() -> np.ndarray:
        return corpus.windows(text, (args.sync_every, BATCH), LENGTH, rng)

    # Compiled before it joins, so that nobody waits for a newcomer's compiler.
    with one_compiles():
        init = jax.jit(model.init)  # one program instead of a hundred small ones
        params = init(jax.random.key(0), jnp.zeros((1, LENGTH), jnp.int32))
        state = TrainState.create(apply_fn=model.apply, params=params, tx=tx)
        train = train_round.lower(state, draw()).compile()
        before = evaluate(state, held_out)
    log = Log(args, comm, state)
    log.start(before)
    if comm is not None:
        state = jccl.sync_state(state)
    while rounds_of(state, args) < wanted(args):
        state, losses = train(state, draw())
        log.round(state, float(losses.mean()))
    log.end(state, evaluate(state, held_out))
    if comm is not None:
        # Nobody leaves before everybody has the last round.
        with contextlib.suppress(jccl.Error):
            comm.barrier(tag="end", round=jccl.Round(deadline=30.0))
        comm.close()


@contextlib.contextmanager
def one_compiles() -> Iterator[None]:
    """Where peers of one machine share a compilation cache, the first of them compiles,
    and the others wait for it and read."""
    folder = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    if not folder:
        yield
        return
    with Path(f"{folder}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def rounds_of(state: TrainState, args: argparse.Namespace) -> int:
    """Committed rounds of the run; for a peer on its own, as many steps."""
    if args.solo:
        return int(state.step) // args.sync_every
    return int(state.opt_state.rounds)


def wanted(args: argparse.Namespace) -> int:
    if args.rounds_file:
        return int(Path(args.rounds_file).read_text())
    return int(args.rounds)


def evaluate(state: TrainState, held_out: np.ndarray) -> float:
    """Nats per byte of the shared anchor, on files nobody trained on."""
    anchor = getattr(state.opt_state, "anchor", state.params)
    texts = corpus.windows(held_out, (16, 32), LENGTH, np.random.default_rng(1))
    score = jax.jit(lambda params, text: loss_of(params, state.apply_fn, text))
    return float(np.mean([float(score(anchor, part)) for part in texts]))


class Log:
    """One JSON line per event, and a line of text for people."""

    def __init__(self, args: argparse.Namespace, comm: Any, state: TrainState) -> None:
        self.args, self.comm, self.steps = args, comm, 0
        self.parameters = sum(x.size for x in jax.tree.leaves(state.params))
        self.file = open(args.log, "a") if args.log else None  # noqa: SIM115

    def start(self, validation: float) -> None:
        self.write("start", val_loss=validation, parameters=self.parameters)

    def round(self, state: TrainState, loss: float) -> None:
        self.steps += self.args.sync_every
        self.write("round", loss=loss, **self.shared(state))

    def end(self, state: TrainState, validation: float) -> None:
        digests = {}
        if self.comm is not None:
            digests = {
                "anchor_sha256": sha256(state.opt_state.anchor),
                "outer_sha256": sha256(state.opt_state.outer),
                "skipped": int(state.opt_state.skipped),
            }
        self.write("end", val_loss=validation, **digests, **self.shared(state))

    def shared(self, state: TrainState) -> dict[str, Any]:
        if self.comm is None:
            return {"round": self.steps // self.args.sync_every}
        about = self.comm.attributes()
        code = jccl.Code(int(state.opt_state.status[0]))
        return {
            "round": int(state.opt_state.rounds),
            "status": code.name,
            "world": int(state.opt_state.status[1]),
            "attempts": int(state.opt_state.status[3]),
            "peer": about.id,
            "epoch": about.epoch,
            "retried": about.rounds_retried,
            "sent_bytes": about.sent_bytes,
            "received_bytes": about.received_bytes,
            "digest": self.comm.digest("diloco"),
            "revision": self.comm.revision("diloco"),
            **({"fault": self.comm.last_fault("diloco")} if code else {}),
        }

    def write(self, kind: str, **fields: Any) -> None:
        line = {"t": time.time(), "kind": kind, "step": self.steps, **fields}
        if self.file is not None:
            self.file.write(json.dumps(line) + "\n")
            self.file.flush()
        known = ("round", "loss", "val_loss", "status", "world")
        shown = [f"{name} {fields[name]}" for name in known if name in fields]
        print(f"{kind}: step {self.steps}, {', '.join(shown)}", flush=True)


def sha256(tree: Any) -> str:
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(tree):
        digest.update(np.asarray(leaf).tobytes())
    return digest.hexdigest()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40, help="rounds to commit")
    parser.add_argument("--rounds-file", help="holds their number; looked at each time")
    parser.add_argument("--sync-every", type=int, default=20, help="steps per round")
    parser.add_argument("--size", choices=SIZES, default="tiny")
    parser.add_argument("--seed", type=int, default=0, help="of the data's order")
    parser.add_argument("--solo", action="store_true", help="train alone, without jccl")
    parser.add_argument("--log", help="append JSON lines to this file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
