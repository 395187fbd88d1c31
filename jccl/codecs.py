"""How the elements of a leaf travel: objects with parameters, and their names.

A codec here is a description; the bytes are made by `cpp/codec`, and their layout,
error bounds and sources are in `ALGORITHMS.md`. Refuses parameters the transport does
not have. The native module and jax are touched by `residual` and `roundtrip` alone.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

_SEED_END = 2**64


@dataclasses.dataclass(frozen=True)
class Codec:
    """Base of all codecs; `bits` counts what one f32 element costs on the wire.

    A class repeats its row of `cpp/codec/spec.h`. An element that travels is wrong by
    `relative` of itself and `of_largest` of the largest of its block at most; of what a
    sparse codec leaves out nothing arrives.
    """

    name: ClassVar[str] = "none"
    number: ClassVar[int] = 0
    relative: ClassVar[float] = 0.0
    of_largest: ClassVar[float] = 0.0

    @property
    def bits(self) -> float:
        return 32.0

    @property
    def spec(self) -> str:
        """Name and parameters in one word, as the transport reads them."""
        return self.name

    def result_bits(self, contributors: Any) -> Any:
        """Cost of an f32 element of a result with so many contributions; a number,
        or an array if `contributions` is one."""
        return self.bits

    def roundtrip(self, x: Any) -> Any:
        """What the receiver gets of `x`: decode(encode(x)), like `x`.

        Args:
            x: numpy array (gives one, without jax) or jax array, traced or not; floats.
                It counts as one leaf. A part of a leaf gives the same values only if
                it begins and ends at blocks.

        Raises:
            ValueError: for a stochastic codec, whose error belongs to one round.

        Example:
            >>> jccl.Int4().roundtrip(np.array([1.0, 0.4], np.float32))
            array([1.0000001, 0.4285714], dtype=float32)
        """
        return _apply(self, x, residual=False)

    def residual(self, x: Any) -> Any:
        """What a contribution of `x` leaves out: x - decode(encode(x)).

        Add it to the next contribution. Then it arrives later, and nothing is lost
        (error feedback; arXiv:1809.07599). One fused pass. Arguments and errors as in
        `roundtrip`.

        Example:
            >>> send = grads + left
            >>> mean = jccl.all_reduce(send, comm, codec=codec).value
            >>> left = codec.residual(send)
        """
        return _apply(self, x, residual=True)


@dataclasses.dataclass(frozen=True)
class _Rounding(Codec):
    """Codecs that round, to the nearest or by chance.

    With `stochastic`, a value between two goes to either with the probability that
    makes the mean exact; every peer of a round gives the same `seed`. Chance depends on
    seed, round, peer, leaf and element alone, so results are the same bits on all
    peers, whatever the plan and the processors. Up to twice the error.
    """

    stochastic: bool = dataclasses.field(default=False, kw_only=True)
    seed: int = dataclasses.field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        what = f"{type(self).__name__}(seed={self.seed!r})"
        if not 0 <= self.seed < _SEED_END:
            raise ValueError(f"{what}: the seed must be an integer from 0 to 2**64 - 1")
        if self.seed and not self.stochastic:
            raise ValueError(f"{what}: a seed needs stochastic=True")

    @property
    def spec(self) -> str:
        if not self.stochastic:
            return self.name
        return f"{self.name}:stochastic:seed={self.seed}"


@dataclasses.dataclass(frozen=True)
class _Scaled(_Rounding):
    """Codecs that scale blocks; each has one block size."""

    _block: ClassVar[int] = 1
    _scale_bits: ClassVar[int] = 16
    _code_bits: ClassVar[int] = 8
    block: int = 0  # 0: the codec's

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.block not in (0, self._block):
            raise ValueError(
                f"{type(self).__name__}(block={self.block}): the only block size is "
                f"{self._block}"
            )
        object.__setattr__(self, "block", self._block)

    @property
    def bits(self) -> float:
        return self._code_bits + self._scale_bits / self._block


@dataclasses.dataclass(frozen=True)
class Fp32(Codec):
    """Elements travel in the dtype they have."""


@dataclasses.dataclass(frozen=True)
class Bf16(_Rounding):
    """16 bits, rounded to nearest even; finite values stay finite."""

    name: ClassVar[str] = "bf16"
    number: ClassVar[int] = 1
    relative: ClassVar[float] = 2.0**-8

    @property
    def bits(self) -> float:
        return 16.0


@dataclasses.dataclass(frozen=True)
class Fp16(_Rounding):
    """16 bits; magnitudes above 65504 become 65504."""

    name: ClassVar[str] = "fp16"
    number: ClassVar[int] = 2
    relative: ClassVar[float] = 2.0**-11

    @property
    def bits(self) -> float:
        return 16.0


@dataclasses.dataclass(frozen=True)
class Int8(_Scaled):
    """Blocks of 256 elements: an f32 scale, then one byte each (3.94 times fewer
    bytes).
    """

    name: ClassVar[str] = "int8"
    number: ClassVar[int] = 3
    of_largest: ClassVar[float] = (1 + 2.0**-14) / 254
    _block: ClassVar[int] = 256
    _scale_bits: ClassVar[int] = 32


@dataclasses.dataclass(frozen=True)
class Fp8(_Scaled):
    """Blocks of 256 elements: a bf16 scale, then one e4m3 byte each (3.97 times fewer
    bytes). Small elements of a block keep 4 significant bits, where int8 loses them.

    Source: arXiv:2209.05433.
    """

    name: ClassVar[str] = "fp8"
    number: ClassVar[int] = 4
    relative: ClassVar[float] = (1 + 2.0**-14) / 16
    _block: ClassVar[int] = 256


@dataclasses.dataclass(frozen=True)
class Int4(_Scaled):
    """Blocks of 64 elements: a bf16 scale, then half a byte each, -7 to 7 (7.53 times
    fewer bytes).
    """

    name: ClassVar[str] = "int4"
    number: ClassVar[int] = 5
    of_largest: ClassVar[float] = (1 + 2.0**-6) / 14
    _block: ClassVar[int] = 64
    _code_bits: ClassVar[int] = 4


@dataclasses.dataclass(frozen=True)
class E3m0(_Scaled):
    """Blocks of 64 elements: a bf16 scale, then sign and 3 exponent bits each: 0 and
    seven powers of two (7.53 times fewer bytes).

    Source: Streaming DiLoCo, arXiv:2501.18512.
    """

    name: ClassVar[str] = "e3m0"
    number: ClassVar[int] = 6
    relative: ClassVar[float] = (1 + 2.0**-14) / 3
    of_largest: ClassVar[float] = (1 + 2.0**-6) / 128
    _block: ClassVar[int] = 64
    _code_bits: ClassVar[int] = 4


@dataclasses.dataclass(frozen=True)
class Int2(_Scaled):
    """Blocks of 64 elements: a bf16 scale, then -1, 0 or 1 in a quarter of a byte each
    (14.2 times fewer bytes). Elements below half of the block's largest become 0. Use
    it with error feedback.

    Source: 2-bit pseudo-gradients with error feedback, MuLoCo, arXiv:2505.23725.
    """

    name: ClassVar[str] = "int2"
    number: ClassVar[int] = 8
    of_largest: ClassVar[float] = (1 + 2.0**-6) / 2
    _block: ClassVar[int] = 64
    _code_bits: ClassVar[int] = 2


@dataclasses.dataclass(frozen=True)
class Stat2(Codec):
    """Blocks of 64 elements: two bf16 magnitudes, then a quarter of a byte each: the
    sign, and whether it reaches the block's root mean square (12.8 times fewer bytes).
    The magnitudes are the means of those that do and of those that don't.

    Results have 4 bits (int4), because nobody keeps what a result leaves out. Use it
    with error feedback, which returns what a contribution leaves out.

    Source: 2 bits by statistics rather than by the largest element, MuLoCo,
    arXiv:2505.23725, and SparseLoCo, arXiv:2508.15706.
    """

    name: ClassVar[str] = "stat2"
    number: ClassVar[int] = 9
    of_largest: ClassVar[float] = 1 + 2.0**-8
    block: ClassVar[int] = 64

    @property
    def bits(self) -> float:
        return 2.5

    def result_bits(self, contributors: Any) -> Any:
        return Int4().bits


@dataclasses.dataclass(frozen=True)
class TopK(Codec):
    """Of each block of 4096 elements the `kept` largest, exactly: index and f32, 6
    bytes each (64: 42.7 times fewer bytes). Use it with error feedback (`residual`).

    Results carry the entries of all contributors, so nothing that was sent is lost.
    They are dense if that is not longer. Not in a ring.

    Args:
        kept: entries per block, 1 to 4096.
        density: the same as a fraction of the elements.

    Source: arXiv:1809.07599; 64 of 4096 as in SparseLoCo, arXiv:2508.15706.
    """

    name: ClassVar[str] = "topk"
    number: ClassVar[int] = 7
    relative: ClassVar[float] = 1.0
    block: ClassVar[int] = 4096
    kept_max: ClassVar[int] = 4096
    kept: int = 64
    density: dataclasses.InitVar[float | None] = None

    def __post_init__(self, density: float | None) -> None:
        if density is not None:
            if not 0 < density <= 1:
                raise ValueError(
                    f"TopK(density={density}): density must be above 0 and at most 1"
                )
            object.__setattr__(self, "kept", max(1, round(density * self.block)))
        if not 1 <= self.kept <= self.kept_max:
            raise ValueError(
                f"{type(self).__name__}(kept={self.kept}): kept must be from 1 to "
                f"{self.kept_max}, of each block of {self.block}"
            )

    @property
    def bits(self) -> float:
        return min(48.0 * self.kept / self.block, 32.0)

    def result_bits(self, contributors: Any) -> Any:
        share = 48.0 * self.kept / self.block * contributors
        return share.clip(None, 32.0) if hasattr(share, "clip") else min(share, 32.0)

    @property
    def spec(self) -> str:
        return f"{self.name}:kept={self.kept}"


@dataclasses.dataclass(frozen=True)
class TopK2(TopK):
    """The elements of `TopK` with two bits each: index of 12 bits, then as `Stat2` (64:
    141 times fewer bytes). Use it with error feedback, which then also returns what the
    two bits leave out.

    Results carry the entries of all contributors exactly, in f32, so they are larger
    than a contribution; with `plan="exchange"` only contributions travel.

    Args:
        kept: entries per block, 1 to 704; with more, `Stat2` is smaller.
        density: the same as a fraction of the elements.

    Source: SparseLoCo, arXiv:2508.15706.
    """

    name: ClassVar[str] = "topk2"
    number: ClassVar[int] = 10
    relative: ClassVar[float] = 0.0
    of_largest: ClassVar[float] = 1 + 2.0**-8
    kept_max: ClassVar[int] = 704

    @property
    def bits(self) -> float:
        indexes, values = (3 * self.kept + 1) // 2, (self.kept + 3) // 4
        magnitudes = 4 * ((self.kept + 63) // 64)
        return 8 * (indexes + values + magnitudes) / self.block


CODECS: dict[str, Codec] = {
    "none": Fp32(),
    "fp32": Fp32(),
    "bf16": Bf16(),
    "fp16": Fp16(),
    "int8": Int8(),
    "fp8": Fp8(),
    "int4": Int4(),
    "e3m0": E3m0(),
    "topk": TopK(),
    "int2": Int2(),
    "stat2": Stat2(),
    "topk2": TopK2(),
}


def resolve(codec: Codec | str | None) -> Codec:
    """A codec from an object, a name or None (elements travel as they are)."""
    if codec is None:
        return CODECS["none"]
    if isinstance(codec, Codec):
        return codec
    found = CODECS.get(codec) if isinstance(codec, str) else None
    if found is None:
        names = ", ".join(sorted(CODECS))
        raise ValueError(
            f"unknown codec {codec!r}; known: {names}, or a jccl codec object"
        )
    return found


def _apply(codec: Codec, x: Any, *, residual: bool) -> Any:
    import numpy as np

    from jccl import _native, callback

    if isinstance(codec, _Rounding) and codec.stochastic:
        raise ValueError(
            f"{codec.spec}: a stochastic codec has another error in each round; use "
            "the codec without stochastic=True"
        )
    if isinstance(x, np.ndarray | np.generic):
        array = np.ascontiguousarray(x).reshape(np.shape(x))
        out = np.empty_like(array)
        _native.core().codec_roundtrip(array, codec.spec, out, residual=residual)
        return out
    import jax
    import jax.numpy as jnp

    traced = jnp.asarray(x)
    if codec.number != 0 and not jnp.issubdtype(traced.dtype, jnp.floating):
        raise TypeError(f"codec {codec.name} is for floats, not {traced.dtype}")
    # Under vmap each lane is a leaf of its own.
    like = jax.ShapeDtypeStruct(traced.shape, traced.dtype)
    call = callback.pure_call(callback.route_of(), "jccl_roundtrip", [like])
    return call(traced, codec=codec.spec, residual=np.int32(residual))[0]
