"""Text for the examples, from what every machine has: Python's own sources.

Files are told apart by a hash of their name, so every machine with the same Python
gives a peer the same share, and nobody trains on the held-out files.
"""

from __future__ import annotations

import sysconfig
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

HELD_OUT = 16  # one file of so many is for validation


def sources() -> Iterator[tuple[int, Path]]:
    """(hash of the name, path) of the standard library's sources, tests left out."""
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root)
        if not {"test", "tests", "site-packages", "dist-packages"} & set(name.parts):
            yield zlib.crc32(name.as_posix().encode()), path


def load(peer: int, peers: int) -> np.ndarray:
    """The bytes peer `peer` trains on."""
    mine = [
        path
        for number, path in sources()
        if number % HELD_OUT and number // HELD_OUT % peers == peer % peers
    ]
    return _joined(mine)


def load_held_out() -> np.ndarray:
    return _joined([path for number, path in sources() if number % HELD_OUT == 0])


def windows(
    text: np.ndarray, shape: tuple[int, ...], length: int, rng: np.random.Generator
) -> np.ndarray:
    """Random windows of `length + 1` bytes: inputs and, shifted by one, targets."""
    begin = rng.integers(0, text.size - length - 1, shape)
    return text[begin[..., None] + np.arange(length + 1)].astype(np.int32)


def _joined(paths: list[Path]) -> np.ndarray:
    return np.frombuffer(b"".join(path.read_bytes() for path in paths), np.uint8)
