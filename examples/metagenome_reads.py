"""Reads of DNA: where they lie, a vocabulary from counts alone, and rows of packed reads.

Only `learn` needs the others, and hands them counts of token pairs, never a read.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

PAD, BOS, EOS, BASES, MERGED = 0, 1, 2, 3, 7  # A, C, G, T are 3 to 6
GAP = -1  # between two reads
SHARE = "usr/share"
# Each laboratory's file, in the Debian package of that name, and the length of a read.
LABORATORIES = {
    "plankton": (f"{SHARE}/doc/vsearch-examples/BioMarKs50k.fsa.gz", 150),
    "bees": (f"{SHARE}/doc/gasic/examples/reads/SRR059298_subset.fastq.gz", 72),
    "bacteria": (f"{SHARE}/microbiomeutil-data/RESOURCES/rRNA16S.gold.fasta", 150),
}
UNSEEN = f"{SHARE}/doc/bowtie2/examples/reference/lambda_virus.fa.gz"
LETTERS = np.frombuffer(b"ACGT", np.uint8)

Total = Callable[[np.ndarray], np.ndarray]
Merges = list[tuple[int, int]]


def sequences(path: Path) -> list[str]:
    """Distinct sequences of a FASTA or FASTQ file, in the file's order."""
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode().upper()
    if text.startswith("@"):
        found: Iterable[str] = text.split("\n")[1::4]
    else:
        found = (part.partition("\n")[2] for part in text.split(">")[1:])
    return list(dict.fromkeys(one.replace("\n", "") for one in found))


def cut(whole: Iterable[str], length: int) -> list[str]:
    """Consecutive reads of this length; none with an unknown base."""
    reads = (
        one[at : at + length]
        for one in whole
        for at in range(0, len(one) - length + 1, length)
    )
    return [read for read in reads if not read.strip("ACGT")]


def load(
    folder: Path | None, name: str, bases: int, tests: int = 1000
) -> tuple[list[str], list[str]]:
    """A laboratory's reads to train on and to test with, from different sequences."""
    if folder is None:
        return generated(name)
    path, length = LABORATORIES[name]
    whole = sequences(folder / path)
    order = np.random.default_rng(0).permutation(len(whole))
    held = cut((whole[i] for i in order[: len(whole) // 20]), length)
    train = cut((whole[i] for i in order[len(whole) // 20 :]), length)
    return train[: bases // length], held[:tests]


def unseen(folder: Path | None, name: str) -> list[str]:
    """Phage lambda in reads as long as this laboratory's."""
    if folder is None:
        return generated("lambda")[1]
    return cut(sequences(folder / UNSEEN), LABORATORIES[name][1])


def generated(name: str) -> tuple[list[str], list[str]]:
    """Reads of one short random genome: for tests, which have no network."""
    rng = np.random.default_rng([*name.encode()])
    genome = "".join("ACGT"[i] for i in rng.integers(4, size=300))
    starts = rng.integers(300 - 60, size=600)
    reads = [genome[at : at + 60] for at in starts]
    return reads[:500], reads[500:]


def shuffled(reads: list[str]) -> list[str]:
    """The same bases of each read in random order."""
    rng = np.random.default_rng(1)
    return ["".join(rng.permutation(list(read))) for read in reads]


def as_bases(reads: list[str]) -> np.ndarray:
    """Tokens of single bases, a gap after each read."""
    text = np.frombuffer("|".join([*reads, ""]).encode(), np.uint8)
    table = np.full(256, GAP, np.int32)
    table[LETTERS] = np.arange(BASES, MERGED)
    return table[text]


def pairs(tokens: np.ndarray, size: int) -> np.ndarray:
    """How often each token stands before each other one."""
    left, right = tokens[:-1], tokens[1:]
    inside = (left != GAP) & (right != GAP)
    both = left[inside].astype(np.int64) * size + right[inside]
    return np.bincount(both, minlength=size * size).reshape(size, size)


def joined(tokens: np.ndarray, left: int, right: int, new: int) -> np.ndarray:
    """Each such pair as one token, from the left."""
    at = np.flatnonzero((tokens[:-1] == left) & (tokens[1:] == right))
    if left == right:  # of three in a row the first two
        number = np.arange(len(at))
        begins = np.r_[True, np.diff(at) != 1][: len(at)]
        at = at[(number - np.maximum.accumulate(number * begins)) % 2 == 0]
    out = tokens.copy()
    out[at] = new
    return np.delete(out, at + 1)


def learn(reads: list[str], size: int, total: Total) -> Merges:
    """Byte pair encoding of everybody's reads.

    `total` sums an array of integers over the laboratories. So all choose the same
    pair, the one that the pooled reads would choose.
    """
    tokens = as_bases(reads)
    counts = total(pairs(tokens, size))
    merges = []
    for new in range(MERGED, size):
        left, right = (int(i) for i in divmod(int(counts.argmax()), size))
        if counts[left, right] == 0:
            break
        merges.append((left, right))
        tokens = joined(tokens, left, right, new)
        own, changed = pairs(tokens, size), [left, right, new]
        both = total(np.concatenate([own[changed], own[:, changed].T]))
        counts[changed], counts[:, changed] = both[:3], both[3:].T
    return merges


def encoded(reads: list[str], merges: Merges) -> list[np.ndarray]:
    """The tokens of each read, between the marks of its begin and its end."""
    tokens = as_bases(reads)
    for new, (left, right) in enumerate(merges, MERGED):
        tokens = joined(tokens, left, right, new)
    ends = np.flatnonzero(tokens == GAP)
    parts = np.split(tokens, ends)[:-1]
    return [np.r_[BOS, part[part != GAP], EOS].astype(np.int32) for part in parts]


def lengths(merges: Merges, size: int) -> np.ndarray:
    """Bases in each token."""
    known = np.zeros(size, np.int64)
    known[BASES:MERGED] = 1
    for new, (left, right) in enumerate(merges, MERGED):
        known[new] = known[left] + known[right]
    return known


def packed(reads: list[np.ndarray], length: int) -> np.ndarray:
    """Rows of whole reads [row, 2, place]: tokens, and each one's read (from 1 on).

    As METAGENE-1 packs: reads in their order, and where the next one does not fit,
    reads from the far end. What is left is padding, of read 0.
    """
    rows, first, last = [], 0, len(reads) - 1
    while first <= last:
        row, used = np.zeros((2, length), np.int32), 0
        while first <= last:
            fits = [i for i in (first, last) if used + len(reads[i]) <= length]
            if not fits:
                break
            taken = fits[0]
            end = used + len(reads[taken])
            row[:, used:end] = reads[taken], np.full(end - used, taken + 1)
            used = end
            first, last = first + (taken == first), last - (taken != first)
        if not used:
            raise ValueError(f"a read of {len(reads[first])} tokens, rows of {length}")
        rows.append(row)
    return np.stack(rows)
