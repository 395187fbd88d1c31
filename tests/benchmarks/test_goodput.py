"""What `benchmarks.goodput` counts, its model and its kills; never its speed."""

import numpy as np
import pytest

from benchmarks import faults, goodput
from jccl import planning
from jccl.planning import Failures

S = 10**9  # ns


def event(what, called_s, took_s, code="Ok"):
    ends = int((called_s + took_s) * S)
    return {"what": what, "code": code, "at_ns": ends, "ns": int(took_s * S)}


def counted(events, begin_s=0, end_s=100):
    steps = goodput.Steps()
    steps.count(events, 10.0, begin_s * S, end_s * S)
    return steps.kept, steps.lost


def test_steps_count_if_a_round_that_committed_came_after_them():
    rounds = [event("sync", 0, 1), event("round", 1, 2), event("round", 13, 1)]
    assert counted(rounds, end_s=14) == (10.0, 0.0)
    assert counted(rounds, end_s=20) == (10.0, 6.0)  # killed in its steps
    assert counted(rounds, end_s=90) == (10.0, 10.0)  # or in the round after them
    # They go on after a round that failed, and are lost to the others' state.
    failed = [*rounds, event("round", 24, 1, "Timeout"), event("round", 26, 1)]
    assert counted(failed, end_s=27) == (20.0, 0.0)
    again = [*rounds, event("sync", 24, 1), event("round", 25, 1)]
    assert counted(again, end_s=26) == (10.0, 10.0)
    assert counted(rounds, begin_s=5, end_s=14) == (0.0, 0.0)  # steps of before


def played(rate, peers, steps_s, rounds=200_000):
    """Share of rounds with a peer's steps, and of its steps: each round by itself."""
    rng = np.random.default_rng(1)
    dies = rng.exponential(rate.every_s * peers, rounds)
    kept = computed = i = 0
    used = 0.0
    while i < rounds:
        i += 1
        if dies[i - 1] >= steps_s:
            kept, computed, used = kept + 1, computed + steps_s, used + 1
            continue
        computed += dies[i - 1]
        used += np.ceil((dies[i - 1] + rate.down_s) / steps_s)
    return kept / used, kept * steps_s / computed


@pytest.mark.parametrize("peers", [1, 8])
@pytest.mark.parametrize("steps_s", [2.0, 7.0, 30.0])
def test_the_formulas_are_what_single_rounds_come_to(peers, steps_s):
    rate = Failures(every_s=26.3, down_s=19.0)
    share, kept = played(rate, peers, steps_s)
    assert planning.goodput(rate, peers, steps_s) == pytest.approx(share, abs=0.02)
    assert planning.steps_kept(rate, peers, steps_s) == pytest.approx(kept, abs=0.01)


def test_the_time_that_fits_the_paper_is_one_for_both_of_its_sizes():
    found = {
        (row["cell"]["chips"], row["cell"]["peers"]): row["columns"]
        for row in goodput.modelled()
    }
    for chips in (1.2e6, 2.4e6):
        columns = found[chips, 1]
        assert columns["at_10"] == pytest.approx(columns["paper"], abs=0.015)
    assert all(c["kept"] >= 0.95 for (_, peers), c in found.items() if peers > 1)


def test_failures_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="every_s=0 must be above 0"):
        Failures(0, 1.0)


def test_a_run_of_peers_that_are_killed_and_come_back_goes_on():
    pause, state = ("--pause-ms", "100"), ("--state-bytes", "65536")
    with faults.running(4, 65536, peer=(*pause, *state)) as run:
        row = goodput.play(run, Failures(0.5, 0.2), 0.1, 3.0)
    columns = row["columns"]
    assert columns["kills"] == 6 and columns["wrong"] == 0
    assert 0 < columns["kept"] <= 1 and 0 < columns["goodput"] <= 1
