"""Writes the golden proofs of TOPLOC: by the authors' implementation, not by ours.

Run by hand, once: `python make_proof_golden.py MODULE`, where MODULE has the class
`ProofPoly` of `toploc` 0.1.6 (`toploc.C.csrc.poly`, or its `from_points` compiled
alone). The points of a line follow from its first three numbers, so that the tests
make them again; see `points`.
"""

import importlib
import pathlib
import sys

MASK = 2**64 - 1


def splitmix(state):
    while True:
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        yield z ^ (z >> 31)


def points(seed, values, count):
    """`count` different indices below `values`, each with the bits of a finite bf16:
    the first numbers of splitmix64 from `seed`; of one index the first one counts."""
    found = {}
    numbers = splitmix(seed)
    while len(found) < count:
        index, bits = next(numbers) % values, next(numbers) & 0xFFFF
        if (bits & 0x7F80) == 0x7F80:
            bits ^= 0x4000
        found.setdefault(index, bits)
    return list(found), list(found.values())


def main():
    reference = importlib.import_module(sys.argv[1]).ProofPoly
    shapes = [(32 * 4096, 128)] * 120 + [(32 * 1024, 128)] * 40 + [(2**31 - 1, 128)] * 8
    shapes += [(32 * 8192, 128)] * 12 + [(65497, 512)] * 4 + [(40, 40)] * 4
    shapes += [(32 * 4096, k) for k in (1, 2, 3, 16, 17, 64, 127, 129, 256, 400, 511)]
    shapes += [(32 * 4096, 512)]
    lines = []
    for seed, (values, count) in enumerate(shapes, start=1):
        proof = reference.from_points(*points(seed, values, count))
        lines.append(f"{seed} {values} {count} {bytes(proof.to_bytes()).hex()}\n")
    path = pathlib.Path(__file__).with_name("proof_golden.txt")
    path.write_text("".join(lines))
    print(len(lines), sum(line.split()[3][:4] != "ffd9" for line in lines))


if __name__ == "__main__":
    main()
