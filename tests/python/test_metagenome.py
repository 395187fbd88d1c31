"""examples/metagenome.py: its parts, and the whole with reads that it generates."""

import json
import os
import subprocess
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from tests.python.test_examples import ENV, EXAMPLES, NOT_OPTIMISED

sys.path.insert(0, str(EXAMPLES))

import metagenome_reads as dna
import metagenome_report as report
import metagenome_run

from jccl.testing import Cluster

# Half of the processor time goes by while the killed one starts again.
LONG = pytest.mark.skipif(
    "JCCL_LONG" not in os.environ, reason="more of the same: make long-python"
)

QUICK = ["--rounds=34", "--sync-every=6", "--no-kill"]


def corpus(name):
    return dna.generated(name)[0][:60]


def by_hand(reads, size):
    """Byte pair encoding without numpy, read by read."""
    tokens = [["ACGT".index(base) + dna.BASES for base in read] for read in reads]
    merges = []
    for new in range(dna.MERGED, size):
        counts = {}
        for read in tokens:
            for pair in zip(read, read[1:], strict=False):
                counts[pair] = counts.get(pair, 0) + 1
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        merges.append(best)
        for read in tokens:
            at = 0
            while at < len(read) - 1:
                if (read[at], read[at + 1]) == best:
                    read[at : at + 2] = [new]
                at += 1
    return merges, tokens


@pytest.mark.parametrize("reads", [corpus("bees"), ["AAAAAAA", "AAATAAAA"] * 3])
def test_merges_are_those_of_byte_pair_encoding(reads):
    merges, tokens = by_hand(reads, 12)
    assert dna.learn(reads, 12, lambda counts: counts) == merges
    assert [list(read[1:-1]) for read in dna.encoded(reads, merges)] == tokens


def test_the_vocabulary_of_three_laboratories_is_that_of_their_pooled_reads():
    parts = [corpus(name) for name in dna.LABORATORIES]
    sizes, lock = [], threading.Lock()

    def program(comm, index):
        def total(counts):
            with lock:
                sizes.append(counts.shape)
            result = comm.all_reduce(counts, op="sum", tag="counts")
            assert result.world == 3
            return np.asarray(result.value)

        return dna.learn(parts[index], 64, total)

    with Cluster(3) as cluster:
        found = cluster.run(program)
    pooled = dna.learn([read for part in parts for read in part], 64, lambda c: c)
    assert len(pooled) == 64 - dna.MERGED
    assert found == [pooled] * 3
    assert dna.learn(parts[0], 64, lambda c: c) != pooled
    # What left a laboratory: counts of pairs, of one size whatever the reads are.
    assert set(sizes) == {(64, 64), (6, 64)}


def test_packed_rows_hold_each_read_once_and_whole():
    reads = dna.encoded(corpus("bacteria"), [])
    rows = dna.packed(reads, 200)
    assert (rows[:, 1] > 0).mean() > 0.9
    for number, read in enumerate(reads, 1):
        row, places = np.nonzero(rows[:, 1] == number)
        assert len(set(row)) == 1 and (np.diff(places) == 1).all()
        assert (rows[row, 0, places] == read).all()


def test_a_read_in_a_row_has_the_score_that_it_has_alone():
    judged = report.nets
    shape = judged.Shape(vocabulary=64, places=200, width=32, layers=1)
    state = judged.created(judged.inner(), shape)
    reads, bases = dna.encoded(corpus("bees")[:7], []), dna.lengths([], 64)
    together = judged.scores(
        state.apply_fn, state.params, dna.packed(reads, 200), bases
    )
    for read, score in zip(reads, together, strict=True):
        rows = dna.packed([read], 200)
        alone = judged.scores(state.apply_fn, state.params, rows, bases)
        np.testing.assert_allclose(alone, [score], rtol=1e-5)


def test_the_area_is_the_chance_that_a_foreign_read_scores_higher():
    assert report.auroc(np.array([1.0, 2.0]), np.array([3.0, 4.0])) == 1
    assert report.auroc(np.array([1.0, 2.0]), np.array([1.0, 2.0])) == 0.5
    assert report.auroc(np.array([1.0, 3.0]), np.array([2.0])) == 0.5


def test_reads_are_cut_and_unknown_bases_left_out():
    assert dna.cut(["ACGTACGTAC", "ACGNACGT"], 4) == ["ACGT", "ACGT", "ACGT"]


class Laboratories:
    """In place of a run: who was started, and who of them is dead."""

    def __init__(self, folder):
        self.folder, self.started, self.killed = folder, [], []
        for name in dna.LABORATORIES:
            (folder / name).mkdir()

    def peer(self, command, **environ):
        site = environ["JCCL_SITE"]
        self.started.append(site)
        return SimpleNamespace(running=True, kill=lambda: self.killed.append(site))

    def train(self, name, first, last):
        with (self.folder / name / "log.jsonl").open("a") as log:
            for number in range(first, last + 1):
                log.write(json.dumps({"round": number}) + "\n")


@pytest.mark.parametrize("kill", [True, False])
def test_one_is_killed_comes_back_and_the_others_go_on_until_it_has(tmp_path, kill):
    names, first = [*dna.LABORATORIES], next(iter(dna.LABORATORIES))
    run = Laboratories(tmp_path)
    args = SimpleNamespace(out=tmp_path, rounds=40, seed=0, kill=kill)
    story = metagenome_run.Story(run, args)

    def reached(name, begun, end):
        run.train(name, begun, end)
        assert story.advance()
        return len(run.killed), len(run.started), (tmp_path / "until").read_text()

    run.train("bees", 1, 16)
    assert reached(first, 1, 15) == (0, 3, "40")
    assert reached(first, 16, 16) == ((1, 3, "40") if kill else (0, 3, "40"))
    assert reached(first, 17, 20) == ((1, 4, "40") if kill else (0, 3, "40"))
    assert reached(first, 21, 31) == ((1, 4, "50") if kill else (0, 3, "40"))
    assert reached("bees", 33, 33)[1:] == ((4, "50") if kill else (3, "40"))
    assert reached(first, 32, 49)[1:] == ((4, "50") if kill else (3, "40"))
    assert run.killed == ["bees"][:kill] and run.started == names + ["bees"][:kill]
    if kill:
        killed, back = story.events
        assert killed == {"event": "killed", "round": 16}
        assert back == {"event": "back", "round": 33}
    else:
        assert story.events == []


@pytest.mark.parametrize("options", [QUICK, pytest.param([], marks=LONG)])
def test_three_laboratories_train_one_model(tmp_path, options):
    """Through a kill, where none of the options forbids it. The lazy one of them is
    found, and nobody else. That it is not drawn in 30 audits has a chance of 5e-6."""
    out = tmp_path / "run"
    command = [sys.executable, str(EXAMPLES / "metagenome.py"), "--quick", *options]
    done = subprocess.run(
        [*command, f"--out={out}"],
        capture_output=True,
        text=True,
        timeout=150,
        env={**ENV, **NOT_OPTIMISED},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(t) for t in (out / "metagenome.jsonl").read_text().splitlines()]
    events = {line["event"]: line for line in lines if "event" in line}
    curve = [line for line in lines if "event" not in line]
    assert len(events["agreed"]["model"]) == 64  # a digest, the same of all three
    for name in dna.LABORATORIES:
        assert curve[0][name] > report.UNIFORM > 2 * curve[-1][name]
        assert min(events["end"]["auroc"][name].values()) > 0.95
    logs = {name: metagenome_run.read_log(out / name) for name in dna.LABORATORIES}
    audits = [line["audit"] for log in logs.values() for line in log if "audit" in line]
    kinds = {name: set() for name in dna.LABORATORIES}
    for audit in audits:
        if audit["own"]:
            kinds[audit["laboratory"]].add(audit["own"]["kind"])
    assert kinds["bacteria"] >= {"different"}
    assert all(kinds[name] <= {"equal", "within"} for name in ("plankton", "bees"))
    assert {one["laboratory"] for one in audits if one["convicted"]} == {"bacteria"}
    convicted = events["convicted"]
    assert convicted["laboratory"] == "bacteria"
    assert convicted["round"] > convicted["audited"] > events["lazy"]["round"]
    assert "site 'bacteria') did not do the work" in convicted["log"]
    # It has all its steps again from the next round on.
    for audit in audits:
        if audit["round"] > convicted["round"] and audit["own"]:
            assert audit["own"]["kind"] != "different"
    worlds = {line["laboratories"] for line in logs["plankton"]}
    if options:
        assert worlds == {3} and curve[-1]["round"] == 34
    else:
        killed, back = events["killed"]["round"], events["back"]["round"]
        assert worlds == {2, 3} and killed < back <= curve[-1]["round"]
    assert (out / "metagenome.png").read_bytes()[:4] == b"\x89PNG"
