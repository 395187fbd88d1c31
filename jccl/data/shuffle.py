"""A bijective shuffle of an index range: no list in memory, a permutation per pass.

A Feistel network over the next power of two, walked until it is back in the range:
every index has one place and every place one index, whatever the size. Pure integer
arithmetic on numpy arrays, so all machines agree. It shuffles; it hides nothing. Any
thread.

Source: Black and Rogaway, Ciphers with Arbitrary Finite Domains, CT-RSA 2002, method
"cycle walking"; the round function is the finalizer of MurmurHash3.
"""

from __future__ import annotations

import numpy as np

SIZE_MAX = 1 << 48
_ROUNDS = 8
_WORD = (1 << 64) - 1


def shuffled(positions: np.ndarray, size: int, seed: int) -> np.ndarray:
    """The samples at these places of an endless sequence of passes.

    Args:
        positions: uint64[n]: place p is place p % size of pass p // size.
        size: of the data set, 1 to 2^48.
        seed: any integer; its low 64 bits count.

    Returns:
        int64[n], each from 0 to size - 1. Over one pass a permutation.

    Cost: O(n): walks take less than two turns on average; 0.4 µs a sample.
    """
    positions = np.asarray(positions, np.uint64)
    passes, index = np.divmod(positions, np.uint64(size))
    out = np.empty(len(positions), np.int64)
    for one in np.unique(passes):
        at = passes == one
        out[at] = _permuted(index[at], size, _keys(seed, int(one)))
    return out


def _permuted(index: np.ndarray, size: int, keys: list[np.uint64]) -> np.ndarray:
    bits = (size - 1).bit_length()
    if bits < 2:  # nothing to cut in halves
        return (index ^ (keys[0] & np.uint64(bits))).astype(np.int64)
    low = np.uint64(bits // 2)
    masks = np.uint64((1 << (bits - bits // 2)) - 1), np.uint64((1 << bits // 2) - 1)
    out = _turned(index, low, masks, keys)
    while (outside := out >= np.uint64(size)).any():
        out[outside] = _turned(out[outside], low, masks, keys)
    return out.astype(np.int64)


def _turned(
    x: np.ndarray,
    low: np.uint64,
    masks: tuple[np.uint64, np.uint64],
    keys: list[np.uint64],
) -> np.ndarray:
    """One walk through the network: halves take turns, so they may differ in length."""
    left, right = x >> low, x & masks[1]
    for i in range(0, _ROUNDS, 2):
        left = left ^ (_mixed(right ^ keys[i]) & masks[0])
        right = right ^ (_mixed(left ^ keys[i + 1]) & masks[1])
    return (left << low) | right


def _mixed(x: np.ndarray) -> np.ndarray:
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return x ^ (x >> np.uint64(33))


def _keys(seed: int, number: int) -> list[np.uint64]:
    """Of one pass: splitmix64 from the seed and the number of the pass."""
    word, keys = _splitmix(_splitmix(seed & _WORD) ^ number), []
    for _ in range(_ROUNDS):
        word = (word + 0x9E3779B97F4A7C15) & _WORD
        keys.append(np.uint64(_splitmix(word)))
    return keys


def _splitmix(word: int) -> int:
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _WORD
    return word ^ (word >> 31)
