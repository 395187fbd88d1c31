"""TOPLOC proofs (arXiv 2501.16007): 258 bytes of evidence that values were computed.

A proof says which of a chunk's values are largest and what their 16 bits are. A
verifier computes the same values again and compares: `build`, `compare`, `calibrate`,
`judge`. The bytes are those of the authors' implementation. Signs are compared too, so
negated values do not pass. Values of equal magnitude count in their order, so eager,
jit, vmap and any number of devices give the same bytes.

Proofs detect a prover that did not do the work, or did other work. They do not detect
work on poisoned data. Values are taken as bfloat16 (float32 is rounded) or float16.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jccl import _native
from jccl._faults import typed_errors

PRIME = 65497
POINTS_MAX = 512
_BLOCK = 32
ROWS, POINTS = 32, 128  # of a chunk, as published: 8 bytes a token

__all__ = [
    "Comparison",
    "Limits",
    "Verdict",
    "build",
    "calibrate",
    "compare",
    "from_base64",
    "of_points",
    "to_base64",
]


def build(
    values: Any,
    *,
    rows: int = ROWS,
    k: int = POINTS,
    prefill: int = 0,
    axis_name: str | None = None,
) -> Any:
    """Proofs of an array, one for each chunk of its rows.

    Args:
        values: float array of shape (n, ...), traced or not. For example, the last
            hidden states of n tokens (of a batch, one sequence at a time, or by vmap).
            A pseudo-gradient is `delta[None]`, one chunk.
        rows: rows of a chunk; the last one may be shorter.
        k: number of values in a proof, 1 to 512.
        prefill: if not 0, this many first rows are one chunk (a prompt).
        axis_name: in shard_map, the axis that shards the last dimension.

    Returns:
        uint8[chunks, 2 + 2 k]: numpy outside of programs, traced inside. In a program a
        chunk with NaN or Inf has a proof of zeros, which is equal to nothing.

    Raises:
        ValueError: a chunk has fewer than k values. GuardError, outside of programs:
        NaN or Inf.

    Cost: for 32 x 4096 values on one core, 0.2 to 0.4 ms on the host, of which the
    polynomial takes 40 to 66 µs. In a program, a top-k of the chunk and 2 k steps on k
    numbers. A GPU is slow at those steps: an H100 took 3.3 ms (November 2026).

    Example:
        >>> proofs = jccl.proofs.build(hidden)
        >>> jccl.proofs.compare(proofs, hidden_of_the_verifier).exponents.max()
    """
    cut = 1 if axis_name is None else lax.axis_size(axis_name)
    cuts = list(_cuts(np.shape(values), rows, k, prefill, cut))
    if isinstance(values, jax.core.Tracer):
        traced, infinity = _traced_halves(values)
        prove = functools.partial(_prove, k=k, infinity=infinity, axis_name=axis_name)
        return jnp.stack([prove(traced[a:b]) for a, b in cuts])
    bits, name = _halves(values)
    with typed_errors():
        made = [_native.core().proof_build(bits[a:b].ravel(), k, name) for a, b in cuts]
    return np.frombuffer(b"".join(made), np.uint8).reshape(len(cuts), 2 + 2 * k)


def of_points(indices: Any, bits: Any) -> bytes:
    """The proof of 1 to 512 values that were chosen elsewhere. They are given by their
    places in the chunk, and the 16 bits of each as uint16. On the host.

    Raises:
        InvalidError: a place occurs twice. GuardError: bits from 65497 on, a NaN's.
    """
    places, halves = np.asarray(indices, np.uint32), np.asarray(bits, np.uint16)
    with typed_errors():
        return bytes(_native.core().proof_of_points(places, halves))


class Comparison(NamedTuple):
    """How far a verifier's values are from the proof, for each chunk.

    Attributes:
        exponents: int32[chunks]; of the k values, how many have another exponent.
            Nearly all values do that the prover did not have among its own.
        signs: int32[chunks]; of the others, how many have another sign.
        mean, median: float64[chunks]; how far the mantissas of the others differ, in
            units of their last place; 2^64 if no exponent is equal.
        valid: bool[chunks]; False if the bytes are no proof, or of another k.
    """

    exponents: np.ndarray
    signs: np.ndarray
    mean: np.ndarray
    median: np.ndarray
    valid: np.ndarray


def compare(
    proofs: Any,
    values: Any,
    *,
    rows: int = ROWS,
    k: int = POINTS,
    prefill: int = 0,
) -> Comparison:
    """Compares proofs with values that were computed again; on the host.

    Bytes from others never raise. Bytes that are no proof are not `valid`, and have the
    largest difference. Chunks without a proof, and proofs without a chunk, are not
    valid either.

    Args:
        proofs: uint8[chunks, 2 + 2 k], or a sequence of bytes.
        values, rows, k, prefill: as in `build`, from the verifier.
    """
    cuts = list(_cuts(np.shape(values), rows, k, prefill, 1))
    bits, name = _halves(values)
    given = [bytes(np.asarray(p)) if not _is_bytes(p) else bytes(p) for p in proofs]
    found = []
    for i in range(max(len(cuts), len(given))):
        known = None
        if i < len(cuts) and i < len(given):
            chunk = bits[slice(*cuts[i])].ravel()
            with typed_errors():
                known = _native.core().proof_compare(given[i], chunk, k, name)
        found.append((*known, True) if known else (k, k, 2.0**64, 2.0**64, False))
    kinds = (np.int32, np.int32, np.float64, np.float64, np.bool_)
    columns = zip(*found, strict=True) if found else [()] * len(kinds)
    return Comparison(
        *(np.array(c, kind) for c, kind in zip(columns, kinds, strict=True))
    )


class Verdict(NamedTuple):
    """Whether a sample is accepted as honest, and by which statistics it is not."""

    accepted: bool
    by: tuple[str, ...]
    statistics: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Limits:
    """The largest means over a sample's chunks that are accepted as honest.

    The mean of a sample separates honest provers from others. The largest of its chunks
    does not. The constants of the paper do not fit another model. See `calibrate`.
    """

    exponents: float
    signs: float
    mean: float
    median: float
    samples: int = 0  # honest ones that they were measured on

    def judge(self, comparison: Comparison) -> Verdict:
        """Judges one sample: all chunks of one answer, or of one contribution."""
        if not len(comparison.valid):
            raise ValueError("jccl: the comparison holds no chunk; give at least one")
        found = _statistics(comparison)
        by = [name for name, value in found.items() if not value <= getattr(self, name)]
        if not comparison.valid.all():
            by.insert(0, "form")
        return Verdict(not by, tuple(by), found)


def calibrate(
    honest: Iterable[Comparison],
    *,
    margin: float = 1.5,
    floor: tuple[float, float, float] = (0.5, 0.05, 0.05),
) -> Limits:
    """Limits from samples whose provers did the work.

    The samples have to vary in everything that may vary between honest provers and
    verifiers: batch sizes, padding, compilers, processors. Other variations are
    rejected.

    Args:
        honest: comparisons, one for each sample.
        margin: limits are this many times the largest mean of a sample.
        floor: the smallest limit of exponents, mean and median. If all samples agree to
            the last bit, a single difference in many chunks is still honest. Signs have
            no floor, because rounding does not change the sign of the largest values.

    Raises:
        ValueError: no sample, one without chunks, or one with an invalid proof.
    """
    if not margin >= 1:
        raise ValueError(f"jccl: a margin of {margin} rejects honest samples")
    samples = list(honest)
    if not samples:
        raise ValueError("jccl: calibrate needs at least one honest sample")
    if not all(len(s.valid) and s.valid.all() for s in samples):
        raise ValueError("jccl: an honest sample holds bytes that are not a proof")
    rows = [_statistics(sample) for sample in samples]
    largest = {name: margin * max(row[name] for row in rows) for name in rows[0]}
    least = dict(zip(("exponents", "mean", "median"), floor, strict=True))
    return Limits(
        **{name: max(value, least.get(name, 0.0)) for name, value in largest.items()},
        samples=len(samples),
    )


def to_base64(proofs: Any) -> list[str]:
    """As the authors' implementation writes proofs: the standard alphabet, padded."""
    return [base64.b64encode(bytes(np.asarray(p))).decode() for p in proofs]


def from_base64(texts: str | Sequence[str]) -> list[bytes]:
    """Reads base64. Anything else becomes b"", which is no proof."""
    out = []
    for text in [texts] if isinstance(texts, str) else texts:
        try:
            out.append(base64.b64decode(text, validate=True))
        except ValueError:
            out.append(b"")
    return out


# ---- parts ---------------------------------------------------------------------------


def _is_bytes(proof: Any) -> bool:
    return isinstance(proof, bytes | bytearray | memoryview)


def _statistics(comparison: Comparison) -> dict[str, float]:
    names = ("exponents", "signs", "mean", "median")
    return {name: float(getattr(comparison, name).mean()) for name in names}


def _format_of(dtype: Any) -> tuple[str, int]:
    """The 16 bits that values are proved in, and what infinity is in them."""
    if dtype == jnp.float16:
        return "float16", 0x7C00
    if dtype in (jnp.bfloat16, np.float32, np.float64):
        return "bfloat16", 0x7F80
    raise TypeError(f"jccl: a proof is of floats, not of {dtype}")


def _halves(values: Any) -> tuple[np.ndarray, str]:
    """uint16 of the values' shape."""
    array = np.asarray(values)
    name, _ = _format_of(array.dtype)
    if array.dtype.itemsize > 2:
        array = array.astype(np.float32).astype(jnp.bfloat16)
    return np.ascontiguousarray(array).view(np.uint16), name


def _traced_halves(values: jax.Array) -> tuple[jax.Array, int]:
    """The same in a program. Rounded by integers: whether a conversion keeps numbers
    below 2^-126 is up to the processor."""
    _, infinity = _format_of(values.dtype)
    if values.dtype.itemsize == 2:
        return lax.bitcast_convert_type(values, jnp.uint16), infinity
    wide = lax.bitcast_convert_type(values.astype(jnp.float32), jnp.uint32)
    rounded = (wide + 0x7FFF + ((wide >> 16) & 1)) >> 16
    finite = (wide & 0x7F800000) != 0x7F800000
    return jnp.where(finite, rounded, infinity).astype(jnp.uint16), infinity


def _cuts(
    shape: tuple[int, ...], rows: int, k: int, prefill: int, cut: int
) -> Iterator[tuple[int, int]]:
    """First row and end of each chunk; `cut`: so many devices hold parts of a row."""
    if not shape:
        raise ValueError("jccl: a proof needs rows; give the scalar a first dimension")
    if rows < 1 or not 0 <= prefill <= shape[0]:
        raise ValueError(
            f"jccl: {shape[0]} rows can't be cut by rows={rows}, prefill={prefill}"
        )
    if not shape[0]:
        raise ValueError("jccl: the array has no rows to prove")
    if not 1 <= k <= POINTS_MAX:
        raise ValueError(f"jccl: k={k} is not between 1 and {POINTS_MAX}")
    width = int(np.prod(shape[1:], dtype=np.int64)) * cut
    begins = [*([0] if prefill else []), *range(prefill, shape[0], rows)]
    for begin, end in zip(begins, [*begins[1:], shape[0]], strict=True):
        if (end - begin) * width < k:
            raise ValueError(
                f"jccl: rows {begin} to {end} hold {(end - begin) * width} values, "
                f"but a proof needs k={k}"
            )
        yield begin, end


def _prove(
    chunk: jax.Array, *, k: int, infinity: int, axis_name: str | None
) -> jax.Array:
    """uint8[2 + 2 k]: cpp/proof as operations of XLA."""
    index, bits = _largest(chunk, k, axis_name)
    modulus = _modulus(index)
    numbers = jnp.concatenate([modulus[None], _interpolate(index % modulus, bits)])
    numbers = jnp.where(((bits & 0x7FFF) < infinity).all(), numbers, 0)
    return jnp.stack([numbers >> 8, numbers & 0xFF], -1).reshape(-1).astype(jnp.uint8)


def _largest(
    chunk: jax.Array, k: int, axis_name: str | None
) -> tuple[jax.Array, jax.Array]:
    """uint32[k], uint32[k]: indices and bits; of equal magnitudes the lower index, as
    lax.top_k has it."""
    bits = chunk.reshape(-1)
    index = jnp.arange(bits.size, dtype=jnp.uint32)
    if axis_name is not None:
        part = chunk.shape[-1]
        whole = part * lax.axis_size(axis_name)
        first = lax.axis_index(axis_name).astype(jnp.uint32) * part
        at = _places(bits, min(k, bits.size))
        index = index[at] // part * whole + first + index[at] % part
        index = lax.all_gather(index, axis_name, tiled=True)
        order = jnp.argsort(index)
        bits = lax.all_gather(bits[at], axis_name, tiled=True)[order]
        index = index[order]
    at = _places(bits, k)
    return index[at], bits[at].astype(jnp.uint32)


def _places(bits: jax.Array, k: int) -> jax.Array:
    """Magnitudes are in order as integers; as float32 a hundred times faster on CPUs.

    The k largest lie in the k blocks whose largest values are: what is larger than the
    least of those is in one of them, and of what is as large the first are.
    """
    size = (bits & 0x7FFF).astype(jnp.float32)
    blocks = -(-size.size // _BLOCK)
    if blocks < 2 * k:
        return lax.top_k(size, k)[1]
    padding = blocks * _BLOCK - size.size
    cut = jnp.pad(size, (0, padding), constant_values=-1).reshape(blocks, _BLOCK)
    block = jnp.sort(lax.top_k(cut.max(1), k)[1])
    at = lax.top_k(cut[block].reshape(-1), k)[1]
    return block[at // _BLOCK] * _BLOCK + at % _BLOCK


def _modulus(index: jax.Array) -> jax.Array:
    """The largest number up to 65497 that keeps the indices apart."""

    def collide(modulus: jax.Array) -> jax.Array:
        rest = jnp.sort(index % modulus)
        return (rest[1:] == rest[:-1]).any()

    return lax.while_loop(collide, lambda m: m - 1, jnp.uint32(PRIME))


@functools.cache
def _inverses() -> np.ndarray:
    out = np.zeros(PRIME, np.uint16)
    out[1] = 1
    for a in range(2, PRIME):
        out[a] = (PRIME - PRIME // a) * int(out[PRIME % a]) % PRIME
    return out


def _times(a: jax.Array, b: jax.Array) -> jax.Array:
    return a * b % PRIME  # both below 65497: the product fits 32 bits


def _less(a: jax.Array, b: jax.Array) -> jax.Array:
    return (a + PRIME - b) % PRIME


def _interpolate(x: jax.Array, y: jax.Array) -> jax.Array:
    """uint32[k]: the polynomial through the points, by Newton's divided differences."""
    k = x.size
    place = jnp.arange(k)
    table = jnp.asarray(_inverses())

    def divide(step: jax.Array, d: jax.Array) -> jax.Array:
        over = table[_less(x, jnp.roll(x, step))].astype(jnp.uint32)
        return jnp.where(place >= step, _times(_less(d, jnp.roll(d, 1)), over), d)

    d = lax.fori_loop(1, k, divide, y)

    def expand(step: jax.Array, out: jax.Array) -> jax.Array:
        i = k - 1 - step  # p <- p · (t - x[i]) + d[i]; nothing is above the degree
        up = jnp.roll(out, 1).at[0].set(d[i])
        return (_times(out, _less(jnp.uint32(0), x[i])) + up) % PRIME

    return lax.fori_loop(0, k, expand, jnp.zeros(k, jnp.uint32))
