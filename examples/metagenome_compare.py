"""The joint model beside each laboratory on its own and beside pooled training.

All take the same number of steps. A laboratory on its own has as many tokens as it has in
the joint run. Pooled training has a third of each step's rows from each laboratory, and
as many tokens as the joint run.
"""

from __future__ import annotations

import argparse
import copy
import functools
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import metagenome_model as nets
import metagenome_reads as dna
import metagenome_report as report
import numpy as np
from metagenome_run import together


def trained(args: argparse.Namespace, judge: report.Judge, rows: Any) -> Any:
    """One model of the rows of one laboratory, or of several."""
    rng = np.random.default_rng(args.seed)
    state = nets.created(nets.inner(), judge.shape, args.seed)
    works = np.ones(args.sync_every, bool)
    for _ in range(args.rounds):
        drawn = [nets.drawn(one, args.sync_every, rng) for one in rows]
        state, _ = nets.train_round(state, np.concatenate(drawn, axis=1), works)
    return state.params


def compare(args: argparse.Namespace) -> None:
    """Prints and writes nats per base of each set under each model, by seed."""
    found: dict[str, list[dict[str, float]]] = {}
    args.out.mkdir(parents=True, exist_ok=True)
    for seed in range(args.seed, args.seed + args.compare):
        run = copy.copy(args)
        run.seed, run.out = seed, args.out / f"seed{seed}"
        together(run)
        judge = report.Judge(run)
        rows = {
            name: dna.packed(
                dna.encoded(dna.load(args.reads, name, 3_000_000)[0], judge.merges),
                judge.shape.places,
            )
            for name in dna.LABORATORIES
        }
        jobs = {"pooled": [*rows.values()]}
        jobs |= {f"only {name}": [one] for name, one in rows.items()}
        with ThreadPoolExecutor(2) as pool:
            train = functools.partial(trained, run, judge)
            models = list(pool.map(train, jobs.values()))
        joint = judge.model(run.out / "models" / str(args.rounds))
        for name, model in zip(["joint", *jobs], [joint, *models], strict=True):
            means = judge.means(model)
            means["mean of the three"] = sum(means[n] for n in rows) / len(rows)
            found.setdefault(name, []).append(means)
            line = json.dumps({"seed": seed, "model": name, **means})
            with (args.out / "compare.jsonl").open("a") as file:
                file.write(line + "\n")
            print(line, flush=True)
    for name, seeds in found.items():
        table = {n: np.array([one[n] for one in seeds]) for n in seeds[0]}
        told = [f"{n} {v.mean():.3f} (± {v.std():.3f})" for n, v in table.items()]
        print(f"{name}:", ", ".join(told))
