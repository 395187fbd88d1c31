"""A linear probe: is a read of the bees' laboratory of a virus or of the host?

python examples/metagenome_probe.py --reads build/reads --out build/metagenome

Labels come from the viruses' genomes, in the same Debian package: a read with any 21
bases in a row of one of them, on either strand, is called viral. The probe is a ridge
regression of the model's mean hidden state, beside one of counts of four bases in a row.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import jax
import metagenome_reads as dna
import metagenome_report as report
import numpy as np

GENOMES = f"{dna.SHARE}/doc/gasic/examples/genomes"
WORD = 21
EACH = 2000  # reads of each kind to fit on
SWAP = str.maketrans("ACGT", "TGCA")


def viral(folder: Path, reads: list[str]) -> np.ndarray:
    words = set()
    for path in (folder / GENOMES).iterdir():
        for one in dna.sequences(path):
            for strand in (one, one.translate(SWAP)[::-1]):
                words |= {strand[i : i + WORD] for i in range(len(strand) - WORD + 1)}
    shared = [
        any(read[i : i + WORD] in words for i in range(len(read) - WORD + 1))
        for read in reads
    ]
    return np.array(shared)


def hidden(judge: report.Judge, params: object, reads: list[str]) -> np.ndarray:
    """Mean over a read's tokens."""
    rows = dna.packed(dna.encoded(reads, judge.merges), judge.shape.places)
    state = jax.jit(lambda p, part: judge.state.apply_fn(p, *part, hidden=True))
    parts = [
        np.asarray(state(params, (row[None, 0, :-1], row[None, 1, :-1])))[0]
        for row in rows
    ]
    flat, owner = np.concatenate(parts), rows[:, 1, :-1].ravel()
    sums = np.zeros((len(reads) + 1, flat.shape[1]))
    np.add.at(sums, owner, flat)
    return (sums / np.maximum(np.bincount(owner), 1)[:, None])[1:]


def fours(reads: list[str]) -> np.ndarray:
    """How often each four bases in a row are in a read."""
    bases = dna.as_bases(reads).reshape(len(reads), -1)[:, :-1] - dna.BASES
    words = sum(bases[:, i : bases.shape[1] - 3 + i] * 4 ** (3 - i) for i in range(4))
    return np.stack([np.bincount(row, minlength=256) for row in np.asarray(words)])


def balanced(fit: np.ndarray, known: np.ndarray, x: np.ndarray, y: np.ndarray) -> float:
    """Mean of the two kinds' accuracies, by a ridge regression of ±1."""
    mean, spread = fit.mean(axis=0), fit.std(axis=0) + 1e-6
    fit, x = ((np.c_[(part - mean) / spread, np.ones(len(part))]) for part in (fit, x))
    normal = fit.T @ fit + 10.0 * np.eye(fit.shape[1])
    found = x @ np.linalg.solve(normal, fit.T @ (2.0 * known - 1)) > 0
    return float((found[y].mean() + (~found[~y]).mean()) / 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--reads", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("build/metagenome"))
    args = parser.parse_args()
    args.quick = False
    judge = report.Judge(args)
    newest = max((args.out / "models").iterdir(), key=lambda path: int(path.name))
    params = judge.model(newest)
    seen, tests = dna.load(args.reads, "bees", 3_000_000, 10_000)
    label, truth = viral(args.reads, seen), viral(args.reads, tests)
    chosen = np.r_[np.flatnonzero(label)[:EACH], np.flatnonzero(~label)[:EACH]]
    fit, known = [seen[i] for i in chosen], label[chosen]
    print(f"fit on {known.sum()} viral reads and {(~known).sum()} others, tested on")
    print(f"{truth.sum()} viral reads and {(~truth).sum()} others")
    untrained = judge.state.params
    for name, of in (
        ("hidden state", lambda reads: hidden(judge, params, reads)),
        ("hidden state, untrained", lambda reads: hidden(judge, untrained, reads)),
        ("counts of four bases", fours),
    ):
        value = balanced(of(fit), known, of(tests), truth)
        print(f"{name}: balanced accuracy {value:.3f}")


if __name__ == "__main__":
    main()
