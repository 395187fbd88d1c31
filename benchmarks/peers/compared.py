"""A peer of `benchmarks.own_check --line`: rounds without a state, with one that is
compared beside their data, and with marks that were made before; by turns.

    python -m benchmarks.peers.compared MASTER BIND BYTES TURNS

Prints a JSON line: seconds of each form, turn by turn.
"""

import json
import sys
import time
from typing import Any

import numpy as np

import jccl

FORMS = ("none", "beside", "before")


def main(master: str, bind: str, size: int, turns: int) -> None:
    comm = jccl.connect(
        master,
        transport=jccl.Transport(bind=bind),
        security=jccl.Security(insecure=True),
        waits=jccl.Waits(start_peers=2),
    )
    values = np.ones(size // 4, np.float32)
    out = np.empty_like(values)
    state = {"w": np.ones_like(values)}
    for form in FORMS[1:]:
        jccl.sync_state(state, comm, tag=form)
    taken: dict[str, list[float]] = {form: [] for form in FORMS}
    for turn in range(turns + 1):
        first = turn % len(FORMS)  # what comes before a round may tell on it
        for form in FORMS[first:] + FORMS[:first]:
            comm.barrier(tag="turn")
            begun = time.perf_counter()
            given: Any = {"beside": state}.get(form)
            if form == "before":
                given = jccl.marks(state)
            terms, place = jccl.Round(state=given), jccl.Place(out=out)
            comm.all_reduce(values, op="mean", tag=form, round=terms, place=place)
            if turn > 0:  # the first finds its links cold
                taken[form].append(time.perf_counter() - begun)
            if given is not None:
                comm.publish(state, tag=form, before=jccl.marks(state))
    print(json.dumps(taken), flush=True)
    comm.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
