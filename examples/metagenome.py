"""Three laboratories train one model of DNA; their reads stay where they are.

make metagenome

Each laboratory is a process with one set of real reads. Together they learn a vocabulary
from counts of token pairs, and one model by DiLoCo. One laboratory is killed and comes
back. Another one leaves out half of its steps, and audits find it. The model then says
which reads are foreign.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import time
from pathlib import Path
from typing import Any

import metagenome_audits as audits
import metagenome_model as nets
import metagenome_reads as dna
import metagenome_run
import numpy as np
from flax import serialization
from train_lm import one_compiles, sha256

import jccl

NAMES = [*dna.LABORATORIES]


def laboratory(args: argparse.Namespace) -> None:
    name, folder = NAMES[args.laboratory], args.out / NAMES[args.laboratory]
    folder.mkdir(exist_ok=True)
    log = (folder / "log.jsonl").open("a", buffering=1)
    shape = nets.QUICK if args.quick else nets.SHAPE
    reads, _ = dna.load(args.reads, name, 3_000_000)

    comm = jccl.connect()
    merges = vocabulary(comm, folder / "vocabulary.json", reads, shape.vocabulary)
    rows = audits.rows_of(
        folder, lambda: dna.packed(dna.encoded(reads, merges), shape.places)
    )
    tx = jccl.diloco(
        comm,
        nets.inner(),
        jccl.nesterov(0.7, 0.5),
        sync_every=args.sync_every,
        codec="int8",
        travel=jccl.Travel(audit=args.audit),
        rounds=jccl.Rounds(late="drop"),
    )
    # Compiled before it joins: nobody waits for the compiler of one that comes back.
    with one_compiles():
        state = nets.created(tx, shape, args.seed)
        own = audits.Laboratory(args, comm, state)
        batches = audits.draw(args, args.laboratory, 0, rows)
        train = nets.train_round.lower(state, batches, own.works(0)).compile()
    state = jccl.sync_state(state)
    rounds = int(state.opt_state.rounds)
    while rounds < int((args.out / "until").read_text()):
        if args.laboratory == 0 and rounds % args.every == 0:
            save(args, state)
        own.begin(state)
        batches = audits.draw(args, args.laboratory, rounds, rows)
        state, losses = train(state, batches, own.works(rounds))
        rounds = int(state.opt_state.rounds)
        line: dict[str, Any] = {"round": rounds}
        line |= {"laboratories": int(state.opt_state.status[1])}
        line |= {"loss": float(np.nanmean(losses)), **own.end(state)}
        log.write(json.dumps(line) + "\n")
    if args.laboratory == 0:
        save(args, state)
    shared = sha256([np.array(pair) for pair in merges])
    digests = {"vocabulary": shared, "model": sha256(state.opt_state.anchor)}
    (folder / "digests.json").write_text(json.dumps(digests))
    with contextlib.suppress(jccl.Error):
        # Nobody leaves before everybody has the last round.
        comm.barrier(tag="end", round=jccl.Round(deadline=30.0))
    comm.close()


def vocabulary(comm: Any, path: Path, reads: list[str], size: int) -> dna.Merges:
    """The one all agreed on; this laboratory's own copy, once it has one."""

    def total(counts: np.ndarray) -> np.ndarray:
        result = comm.all_reduce(counts, op="sum", tag="counts")
        if result.world != len(NAMES):
            raise RuntimeError(f"counts of {result.world} laboratories: start again")
        return np.asarray(result.value)

    if not path.exists():
        merges = dna.learn(reads[: 400_000 // len(reads[0])], size, total)
        path.with_suffix(".new").write_text(json.dumps(merges))
        path.with_suffix(".new").rename(path)
    return [(left, right) for left, right in json.loads(path.read_text())]


def save(args: argparse.Namespace, state: Any) -> None:
    """The shared model of this round, for the report."""
    path = args.out / "models" / str(int(state.opt_state.rounds))
    path.write_bytes(serialization.to_bytes(state.opt_state.anchor))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--reads", type=Path, help="folder of the unpacked packages")
    parser.add_argument("--quick", action="store_true", help="generated reads, small")
    parser.add_argument("--compare", type=int, default=0, help="with so many seeds")
    parser.add_argument("--rounds", type=int, help="to train for")
    parser.add_argument("--no-kill", action="store_true", help="let everybody live")
    parser.add_argument("--lazy", choices=[*NAMES, "none"], help="leaves steps out")
    parser.add_argument("--sync-every", type=int, default=20, help="steps per round")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("build/metagenome"))
    parser.add_argument("--laboratory", type=int, help="be one: the run starts them")
    args, begun = parser.parse_args(), time.monotonic()
    if not args.reads and not args.quick:
        parser.error("--reads FOLDER of the packages (make metagenome), or --quick")
    args.rounds = args.rounds or (40 if args.quick else 60)
    args.lazy = args.lazy or ("none" if args.compare else "bacteria")
    args.lazy_from = args.rounds // 10
    args.audit = None if args.compare else jccl.Audit(every=1 if args.quick else 2)
    args.every = max(1, args.rounds // 25)
    args.kill = not args.compare and not args.no_kill
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    if args.laboratory is not None:
        return laboratory(args)
    # Laboratories draw no pictures, and start sooner without what draws.
    import metagenome_compare
    import metagenome_report

    if args.compare:
        metagenome_compare.compare(args)
    else:
        metagenome_report.write(args, metagenome_run.together(args))
    took, busy = time.monotonic() - begun, sum(os.times()[:4])  # of all processes
    print(f"{took / 60:.1f} minutes, {busy / 60:.1f} of processor time")


if __name__ == "__main__":
    main()
