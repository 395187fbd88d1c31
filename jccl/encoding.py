"""Contributions encoded where the values lie: int8 and int4 blocks made by XLA.

What leaves a device is then a quarter or an eighth of the values. The bytes have the
layout of ALGORITHMS.md, but need not be those that the transport's own encoder would
choose: owners decode what they get, and every peer gets the owner's result, so any
valid code leaves all peers with the same bits. What a contribution leaves out is
`x - encoded.decode()`, of the bytes that were sent. Refuses other codecs and integers.
Pure functions of arrays, traced or not.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jccl.codecs import Codec, resolve


@dataclasses.dataclass(frozen=True)
class _Format:
    """Of ALGORITHMS.md, "Scaled blocks"."""

    block: int
    top: int  # largest magnitude of a code
    scale_bytes: int
    half_bytes: bool

    @property
    def scale_lost(self) -> int:
        """Bits of the scale, as f32, that are 0: then code * scale is exact."""
        return 0xFF if self.scale_bytes == 4 else 0xFFFF

    @property
    def scale_max(self) -> int:
        """Bits of the largest scale whose `top`-fold is finite."""
        largest = np.finfo(np.float32).max / np.float32(self.top)
        bits = int(np.float32(largest).view(np.int32)) & ~self.scale_lost
        with np.errstate(over="ignore"):
            above = np.int32(bits).view(np.float32) * np.float32(self.top)
        return bits if np.isfinite(above) else bits - self.scale_lost - 1


_FORMATS = {
    "int8": _Format(256, 127, 4, False),
    "int4": _Format(64, 7, 2, True),
}
_SCALE_MIN = 0x00800000  # 2^-126
_INFINITY = 0x7F800000


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["data"],
    meta_fields=["shape", "dtype", "codec"],
)
@dataclasses.dataclass(frozen=True)
class Encoded:
    """An array in a codec's bytes; a leaf of `all_reduce` outside jit, a pytree of one
    array inside.

    Attributes:
        data: u8[n], the bytes of ALGORITHMS.md.
        shape, dtype: of the values.
        codec: the codec of the round that takes it.
    """

    data: Any
    shape: tuple[int, ...]
    dtype: Any
    codec: Codec

    def decode(self) -> jax.Array:
        """The values these bytes stand for, exactly, in `dtype`."""
        form, count = _format_of(self.codec), math.prod(self.shape)
        parts, at = [], 0
        for blocks, size in _cuts(form, count):
            bytes_each = form.scale_bytes + _code_bytes(form, size)
            part = self.data[at : at + blocks * bytes_each].reshape(blocks, bytes_each)
            parts.append(_decode_blocks(form, part, size).ravel())
            at += blocks * bytes_each
        values = jnp.concatenate(parts) if parts else jnp.zeros((0,), jnp.float32)
        return values.reshape(self.shape).astype(self.dtype)


def encode(x: Any, codec: Codec | str = "int8") -> Encoded:
    """The contribution of `x` in the codec's bytes, made where `x` lies.

    Args:
        x: float array, traced or not.
        codec: `Int8()` or `Int4()`.

    Returns:
        Encoded. |encode(x).decode() - x| is within the codec's bound of ALGORITHMS.md
        if the backend rounds divisions correctly, else a few units in the last place
        more. NaN and Inf make their block's scale infinite, and the round's guard
        detects that.

    Example:
        >>> sent = jax.jit(jccl.encode)(delta + left)
        >>> mean = comm.all_reduce(sent, codec="int8").value
        >>> left = delta + left - sent.decode()
    """
    codec = resolve(codec)
    form = _format_of(codec)
    x = jnp.asarray(x)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise TypeError(f"codec {codec.name} is for floats, not {x.dtype}")
    flat = x.astype(jnp.float32).ravel()
    parts, at = [], 0
    for blocks, size in _cuts(form, flat.size):
        part = flat[at : at + blocks * size].reshape(blocks, size)
        parts.append(_encode_blocks(form, part).ravel())
        at += blocks * size
    data = jnp.concatenate(parts) if parts else jnp.zeros((0,), jnp.uint8)
    return Encoded(data, tuple(x.shape), jnp.dtype(x.dtype), codec)


def has_device_encoder(codec: Codec) -> bool:
    return codec.name in _FORMATS and not getattr(codec, "stochastic", False)


def _format_of(codec: Codec) -> _Format:
    if not has_device_encoder(codec):
        raise ValueError(
            f"codec {codec.spec} has no device encoder; one of {', '.join(_FORMATS)}"
        )
    return _FORMATS[codec.name]


def _cuts(form: _Format, count: int) -> list[tuple[int, int]]:
    """(blocks, elements of each): whole blocks, then what is left."""
    whole, left = divmod(count, form.block)
    return [cut for cut in ((whole, form.block), (min(left, 1), left)) if cut[0]]


def _code_bytes(form: _Format, size: int) -> int:
    return (size + 1) // 2 if form.half_bytes else size


def _encode_blocks(form: _Format, x: jax.Array) -> jax.Array:
    """f32[blocks, m] to u8[blocks, bytes of a block]."""
    magnitude = jnp.max(jnp.abs(x), axis=1, keepdims=True)
    ideal = lax.bitcast_convert_type(magnitude / form.top, jnp.int32)
    up = (ideal + form.scale_lost) & ~form.scale_lost
    bits = jnp.clip(up, _SCALE_MIN, form.scale_max)
    bits = jnp.where(jnp.isfinite(magnitude), bits, _INFINITY)
    scale = lax.bitcast_convert_type(bits, jnp.float32)
    # Half to even. Of a block that isn't finite the codes say nothing, but are valid.
    code = jnp.round(jnp.clip(x * (1 / scale), -form.top, form.top))
    code = jnp.where(jnp.isfinite(scale), code, 0).astype(jnp.int32)
    words = lax.bitcast_convert_type(bits, jnp.uint32)
    shifts = range(8 * (4 - form.scale_bytes), 32, 8)  # bf16: the upper half
    head = jnp.concatenate([words >> shift for shift in shifts], axis=1)
    if form.half_bytes:
        half = _code_bytes(form, x.shape[1])
        low, high = code[:, :half], code[:, half:]
        high = jnp.pad(high, ((0, 0), (0, 2 * half - x.shape[1])))
        code = (low & 15) | ((high & 15) << 4)
    return jnp.concatenate(
        [(head & 255).astype(jnp.uint8), (code & 255).astype(jnp.uint8)], axis=1
    )


def _decode_blocks(form: _Format, data: jax.Array, size: int) -> jax.Array:
    head = data[:, : form.scale_bytes].astype(jnp.uint32)
    first = 8 * (4 - form.scale_bytes)
    shifts = jnp.arange(first, 32, 8, dtype=jnp.uint32)
    bits = jnp.sum(head << shifts, axis=1, keepdims=True, dtype=jnp.uint32)
    scale = lax.bitcast_convert_type(bits, jnp.float32)
    code = data[:, form.scale_bytes :].astype(jnp.int32)
    if form.half_bytes:
        code = jnp.concatenate([code & 15, code >> 4], axis=1)[:, :size]
        code = code - 16 * (code >> 3)
    else:
        code = code - 256 * (code >> 7)
    return code.astype(jnp.float32) * scale
