"""What TOPLOC proofs cost, and what they tell apart.

The envelope. Of a chunk of 32 x 4096 values `select` reads 256 kB twice, counts the
magnitudes and collects the largest; `polynomial` makes 8,128 divisions in GF(65497) by
a table of inverses. `build` is both, `compare` is the same without the polynomial and
with 128 evaluations; `program` is XLA's form, here on the CPU, and `top-k` its largest
part by itself. Forms alternate; the best of all turns counts.

`--honesty` trains the small language model of benchmarks/learning, then proves the
last hidden states of held-out text. Half of the samples calibrate the limits, the other
half is judged: honest provers with other batch sizes, padding and compiler options, on
a GPU where there is one (JAX_PLATFORMS=cpu,cuda), and provers with other weights or
another prompt. A sample is four chunks of 32 tokens.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import click
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxlib import version as jaxlib_version

from benchmarks.common import Cells, Column, Row, Table, options
from benchmarks.learning import model
from jccl import proofs

K = 128
COLUMNS = (
    Column("form", "form", 10),
    Column("rows", "rows", 5),
    Column("width", "width", 6),
    Column("best_s", "best", 8, ".1f", "(us)", 1e6),
    Column("load", "load", 6, ".1f"),
)
HONESTY = (
    Column("dtype", "dtype", 9),
    Column("prover", "prover", 22),
    Column("honest", "honest", 6),
    Column("samples", "samples", 7),
    Column("exponents", "exp", 6, ".2f", "(mean)"),
    Column("exponents_max", "exp", 6, ".2f", "(max)"),
    Column("mean", "mant", 6, ".2f", "(mean)"),
    Column("accepted", "taken", 7, ".1f", "(%)", 100),
)
SIZE = "233k"
BATCH = 52  # of the verifier
COMPILER = {
    "fast math": {"xla_cpu_enable_fast_math": True},
    "AVX2": {"xla_cpu_max_isa": "AVX2"},
    "not optimized": {"xla_backend_optimization_level": 0},
    "other fusions": {"xla_cpu_use_fusion_emitters": False},
    "one thread": {"xla_cpu_multi_thread_eigen": False},
}
if jaxlib_version.__version_info__ >= (0, 11):
    del COMPILER["other fusions"]  # it has one kind, and no flag


@click.command()
@options
@click.option("--turns", default=15, show_default=True, help="Of each form.")
@click.option("--honesty", is_flag=True, help="What proofs tell apart, in place of it.")
@click.option("--samples", default=104, show_default=True, help="Judged of a prover.")
@click.option("--steps", default=240, show_default=True, help="That train the model.")
def main(
    out: str | None,
    as_json: bool,
    full: bool,
    turns: int,
    honesty: bool,
    samples: int,
    steps: int,
) -> None:
    """Time of TOPLOC proofs, or what they tell apart."""
    cells = Cells.of("proofs", out, full)
    table = Table(HONESTY if honesty else COLUMNS, as_json)
    if honesty:
        trained = _train(steps)
        for dtype in ("float32", "bfloat16"):
            measured = functools.partial(_judge, dtype, trained, samples)
            table.show(cells.rows({"dtype": dtype}, measured))
        return
    for width in (1024, 4096):
        measured = functools.partial(_cost, width, turns)
        table.show(cells.rows({"rows": proofs.ROWS, "width": width}, measured))


def _cost(width: int, turns: int) -> Iterator[Row]:
    values = np.random.default_rng(0).standard_normal((proofs.ROWS, width))
    chunk = np.asarray(values.astype(jnp.bfloat16))
    made = proofs.build(chunk)
    halves = chunk.view(np.uint16).ravel()
    at = np.argpartition(halves & 0x7FFF, -K)[-K:].astype(np.uint32)
    on_device = jnp.asarray(chunk)
    program = jax.jit(proofs.build)
    largest = jax.jit(lambda x: jax.lax.top_k(jnp.abs(x.astype(jnp.float32)), K))
    flat = on_device.ravel()
    calls: dict[str, Callable[[], Any]] = {
        "build": lambda: proofs.build(chunk),
        "polynomial": lambda: proofs.of_points(at, halves[at]),
        "compare": lambda: proofs.compare(made, chunk),
        "program": lambda: program(on_device).block_until_ready(),
        "top-k": lambda: jax.block_until_ready(largest(flat)),
    }
    assert proofs.compare(program(on_device), chunk).valid.all()
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(turns):
        for form, call in calls.items():
            begun = time.perf_counter()
            call()
            best[form] = min(best[form], time.perf_counter() - begun)
    for form, seconds in best.items():
        columns = {"best_s": seconds, "load": os.getloadavg()[0]}
        yield {"cell": {"form": form}, "columns": columns}


# ---- honest and other provers --------------------------------------------------------


def _train(steps: int) -> tuple[Any, Any]:
    """Parameters after all steps, and one step before."""
    params = before = model.initial(SIZE, 0)
    optimizer = model.inner(steps)
    state = optimizer.init(params)
    rng = np.random.default_rng(0)
    for _ in range(steps):
        before = params
        _, grads = model.value_and_grad(SIZE, params, model.batch(0, 1, 32, rng))
        updates, state = optimizer.update(grads, state, params)
        params = optax.apply_updates(params, updates)
    return params, before


def _hidden(params: Any, tokens: jax.Array) -> jax.Array:
    """After the last norm: (windows, tokens, width)."""
    net = model.LanguageModel(model.WIDTHS[SIZE])
    _, kept = net.apply(
        params,
        tokens,
        capture_intermediates=lambda m, _: m.name == "LayerNorm_0",
        mutable=["intermediates"],
    )
    return kept["intermediates"]["LayerNorm_0"]["__call__"][0]


def _in_batches(
    size: int, *, padded: bool = False, **how: Any
) -> Callable[[Any, np.ndarray], np.ndarray]:
    run = jax.jit(_hidden, **how)

    def hidden(params: Any, tokens: np.ndarray) -> np.ndarray:
        out = []
        for i in range(0, len(tokens), size):
            part = tokens[i : i + size]
            given = np.concatenate([part, tokens[:11]]) if padded else part
            out.append(np.asarray(run(params, given))[: len(part)])
        return np.concatenate(out)

    return hidden


def _on(device: jax.Device) -> Callable[[Any, np.ndarray], np.ndarray]:
    run = _in_batches(BATCH)

    def hidden(params: Any, tokens: np.ndarray) -> np.ndarray:
        with jax.default_device(device):
            return run(jax.device_put(params, device), tokens)

    return hidden


def _on_a_gpu() -> dict[str, Callable[[Any, np.ndarray], np.ndarray]]:
    """XLA multiplies float32 there with tf32's 10 bits of mantissa, unless told."""
    try:
        gpu = jax.devices("cuda")[0]
    except RuntimeError:
        return {}
    with_tf32 = _on(gpu)

    def exactly(params: Any, tokens: np.ndarray) -> np.ndarray:
        with jax.default_matmul_precision("highest"):
            return _on(gpu)(params, tokens)

    return {"a GPU": with_tf32, "a GPU, no tf32": exactly}


def _honest() -> dict[str, Callable[[Any, np.ndarray], np.ndarray]]:
    compiled = {
        name: _in_batches(BATCH, compiler_options=flags)
        for name, flags in COMPILER.items()
    }

    def eager(params: Any, tokens: np.ndarray) -> np.ndarray:
        with jax.disable_jit():
            parts = np.split(tokens, range(BATCH, len(tokens), BATCH))
            return np.concatenate(
                [np.asarray(_hidden(params, jnp.asarray(p))) for p in parts]
            )

    return {
        "batch of 1": _in_batches(1),
        "batch of 6": _in_batches(6),
        "the verifier's batch": _in_batches(BATCH),
        "padded": _in_batches(BATCH, padded=True),
        "not compiled": eager,
        **compiled,
        **_on_a_gpu(),
    }


def _rounded(params: Any, levels: int, group: int = 0) -> Any:
    """Weights as integers of -levels to levels; a scale a matrix, or a group."""

    def one(leaf: jax.Array) -> jax.Array:
        if leaf.ndim < 2:
            return leaf
        parts = leaf.reshape(-1, group) if group else leaf.reshape(1, -1)
        scale = jnp.abs(parts).max(-1, keepdims=True) / levels
        return (jnp.round(parts / scale) * scale).reshape(leaf.shape)

    return jax.tree.map(one, params)


def _others(trained: tuple[Any, Any]) -> dict[str, tuple[Any, int]]:
    """By name what a prover runs: its parameters, and the windows it is off by."""
    params, before = trained
    keys = iter(jax.random.split(jax.random.key(1), 1000))
    noisy = jax.tree.map(
        lambda x: x * (1 + 0.01 * jax.random.normal(next(keys), x.shape)), params
    )
    narrow = jax.tree.map(
        lambda x: x.astype(jnp.float8_e4m3fn).astype(x.dtype) if x.ndim > 1 else x,
        params,
    )
    skipped = jax.tree.map(lambda x: x, params)
    block = skipped["params"]["Block_2"]
    for name in ("Dense_1", "Dense_3"):  # what it adds to the stream
        block[name] = jax.tree.map(jnp.zeros_like, block[name])
    return {
        "fp8 weights": (narrow, 0),
        "int8 weights": (_rounded(params, 127), 0),
        "int4 weights": (_rounded(params, 7, 32), 0),
        "1 % noise on weights": (noisy, 0),
        "one step stale": (before, 0),
        "a layer skipped": (skipped, 0),
        "another prompt": (params, 1),
    }


def _judge(dtype: str, trained: tuple[Any, Any], samples: int) -> Iterator[Row]:
    def cast(tree: Any) -> Any:
        return jax.tree.map(lambda x: x.astype(dtype), tree)

    windows = 2 * 4 * samples  # half of them calibrate
    rng = np.random.default_rng(5)
    text = model.corpus.windows(
        model.corpus.load_held_out(), (windows,), model.LENGTH, rng
    )[:, : model.LENGTH]
    params = cast(trained[0])
    verified = _in_batches(BATCH)(params, text)

    def compared(hidden: np.ndarray, seen: np.ndarray) -> list[proofs.Comparison]:
        out = []
        for i in range(0, len(hidden), 4):
            flat = hidden[i : i + 4].reshape(-1, hidden.shape[-1])
            again = seen[i : i + 4].reshape(-1, hidden.shape[-1])
            out.append(proofs.compare(proofs.build(flat), again))
        return out

    honest = {
        name: compared(hidden(params, text), verified)
        for name, hidden in _honest().items()
    }
    limits = proofs.calibrate(
        (s for all_of in honest.values() for s in all_of[:samples]), margin=1.25
    )
    judged = {name: (True, all_of[samples:]) for name, all_of in honest.items()}
    half = slice(4 * samples, None)
    for name, (weights, off) in _others(trained).items():
        given = np.roll(text[half], off, 0)
        hidden = _in_batches(BATCH)(cast(weights), given)
        judged[name] = (False, compared(hidden, verified[half]))
    for name, (is_honest, all_of) in judged.items():
        exponents = [float(s.exponents.mean()) for s in all_of]
        means = [float(s.mean.mean()) for s in all_of]
        columns = {
            "honest": is_honest,
            "samples": len(all_of),
            "exponents": float(np.mean(exponents)),
            "exponents_max": max(exponents),
            "mean": float(np.mean(means)),
            "accepted": sum(limits.judge(s).accepted for s in all_of) / len(all_of),
        }
        yield {"cell": {"prover": name}, "columns": columns}


if __name__ == "__main__":
    main()
