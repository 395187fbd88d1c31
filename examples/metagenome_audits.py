"""Audits of the laboratories' training: who leaves out half of its steps is found.

In an audited round one laboratory is drawn. The others repeat its steps. For that they
read the rows that it used in that round from its folder, and no others of its rows.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import metagenome_model as nets
import metagenome_reads as dna
import numpy as np
from flax.training.train_state import TrainState

import jccl

NAMES = [*dna.LABORATORIES]
SMALL_ROUND_S = 20.0  # for each small round of an audit
SAID = "did not do the work that it claimed"


def rows_of(folder: Path, make: Callable[[], np.ndarray]) -> np.ndarray:
    """A laboratory's packed reads: from its folder, once they are there."""
    path = folder / "rows.npy"
    if not path.exists():
        fresh = folder / "new.npy"
        np.save(fresh, make())
        fresh.rename(path)
    rows: np.ndarray = np.load(path, mmap_mode="r")
    return rows


def draw(
    args: argparse.Namespace, index: int, rounds: int, rows: np.ndarray
) -> np.ndarray:
    """The batches of a laboratory after so many rounds. Nothing else decides them."""
    rng = np.random.default_rng([args.seed, index, rounds])
    return nets.drawn(rows, args.sync_every, rng)


class Laboratory:
    """What it does and what it leaves out, and what it finds out about others."""

    def __init__(self, args: argparse.Namespace, comm: Any, state: TrainState) -> None:
        self.args, self.comm, self.name = args, comm, NAMES[args.laboratory]
        self.lazy = args.lazy == self.name
        if not args.audit:
            return
        self.auditor = jccl.audits.Auditor(comm, args.audit, deadline=SMALL_ROUND_S)
        self.step = functools.partial(nets.alone, state.apply_fn)
        # Compiled now: nobody waits for it in the first audit.
        rows = self.audited(self.args.laboratory, 0)[0]
        start = jax.tree.map(np.asarray, (state.params, state.opt_state.inner))
        self.step(*start, rows)

    def works(self, rounds: int) -> np.ndarray:
        """For each step of the next round whether it makes it."""
        lazy = self.lazy and rounds >= self.args.lazy_from
        return np.arange(self.args.sync_every) % (2 if lazy else 1) == 0

    def begin(self, state: TrainState) -> None:
        """Before a round."""
        if self.args.audit:
            self.auditor.keep(state.params, state.opt_state, sync=True)

    def end(self, state: TrainState) -> dict[str, Any]:
        """After a round: the line of an audit, if one is due now."""
        if not self.args.audit:
            return {}
        row = self.auditor.judge(state.params, state.opt_state, self.step, self.data_of)
        if row is None:
            return {}
        (site,) = self.comm.sites_of([row.peer]) if row.peer else ("",)
        if row.convicted and site == self.name:
            self.lazy = False  # its operator has read the log, and mends it
        found = row.own and {"kind": row.own.kind, **row.own.statistics}
        said = {"round": row.round, "laboratory": site, "convicted": row.convicted}
        return {"audit": {**said, "against": row.against, "own": found}}

    def data_of(self, claim: Any) -> list[np.ndarray]:
        """The batches of a claim, from the folder of who claims."""
        (site,) = self.comm.sites_of([claim.peer])
        rows = self.audited(NAMES.index(site), claim.round - 1)
        # Of a round that failed and was made again both have the same batches.
        return [*rows] * (claim.steps // self.args.sync_every)

    def audited(self, index: int, rounds: int) -> np.ndarray:
        rows = np.load(self.args.out / NAMES[index] / "rows.npy", mmap_mode="r")
        return draw(self.args, index, rounds, rows)


def convictions(
    logs: dict[str, list[dict[str, Any]]], outputs: list[str]
) -> list[dict[str, Any]]:
    """From the laboratories' logs: the first of each who was convicted."""
    found: dict[str, dict[str, Any]] = {}
    for line in (line for log in logs.values() for line in log):
        audit = line.get("audit", {})
        if audit.get("convicted"):
            event = {"event": "convicted", "laboratory": audit["laboratory"]}
            event |= {"round": line["round"], "audited": audit["round"]}
            found.setdefault(audit["laboratory"], event)
    lines = [line for text in outputs for line in text.splitlines() if SAID in line]
    for name, event in found.items():
        event["log"] = next((line for line in lines if f"'{name}'" in line), "")
    return [*found.values()]
