"""How the elements of a leaf travel: objects with a name, and the names themselves.

A codec here is a description; the bytes are made by `cpp/codec`. Refuses parameters the
transport does not have. Nothing here touches the native module.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar


@dataclasses.dataclass(frozen=True)
class Codec:
    """Base of all codecs; `bits` counts what one f32 element costs on the wire."""

    name: ClassVar[str] = "none"
    number: ClassVar[int] = 0

    @property
    def bits(self) -> float:
        return 32.0


@dataclasses.dataclass(frozen=True)
class Fp32(Codec):
    """Elements travel in the dtype they have."""


@dataclasses.dataclass(frozen=True)
class Bf16(Codec):
    """16 bits, rounded to nearest even; finite values stay finite."""

    name: ClassVar[str] = "bf16"
    number: ClassVar[int] = 1

    @property
    def bits(self) -> float:
        return 16.0


@dataclasses.dataclass(frozen=True)
class Fp16(Codec):
    """16 bits; magnitudes above 65504 become 65504."""

    name: ClassVar[str] = "fp16"
    number: ClassVar[int] = 2

    @property
    def bits(self) -> float:
        return 16.0


@dataclasses.dataclass(frozen=True)
class Int8(Codec):
    """Blocks of 256 elements: an f32 scale, then one byte each (3.94 times fewer
    bytes).
    """

    name: ClassVar[str] = "int8"
    number: ClassVar[int] = 3
    block: int = 256

    def __post_init__(self) -> None:
        if self.block != 256:
            raise ValueError(f"Int8(block={self.block}): the only block size is 256")

    @property
    def bits(self) -> float:
        return 8.0 + 32.0 / self.block


CODECS: dict[str, Codec] = {
    "none": Fp32(),
    "fp32": Fp32(),
    "bf16": Bf16(),
    "fp16": Fp16(),
    "int8": Int8(),
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
