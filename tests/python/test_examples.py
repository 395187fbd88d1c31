"""Every example is run, as its docstring says, and the demo's checks can fail.

train_lm.py is run by the demo, which takes minutes: `make demo`, or
`examples/demo.py --quick`, which CI runs; hybrid_cluster.py by test_device_check.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

# Each starts JAX a few times, of which a busy machine makes minutes.
pytestmark = pytest.mark.timeout(600)

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
sys.path.insert(0, str(EXAMPLES))

import demo  # noqa: E402
import demo_checks  # noqa: E402
import demo_plot  # noqa: E402

from tests.xla_flags import not_optimised  # noqa: E402

ENV = {
    **{name: value for name, value in os.environ.items() if name[:5] != "JCCL_"},
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "JAX_PLATFORMS": "cpu",
}
# Those that compile for most of their time take half as long with this. The others, and
# the documents' commands, run with what users have.
NOT_OPTIMISED = {"XLA_FLAGS": " ".join([ENV["XLA_FLAGS"], *not_optimised()])}


def launch(n, *argv, options=(), **env):
    run = [sys.executable, "-m", "jccl.cli", "run", "-n", str(n), *options]
    return subprocess.run(
        [*run, "--", *argv],
        capture_output=True,
        text=True,
        timeout=240,
        env={**ENV, **env},
    )


def test_hello_gives_every_peer_the_mean_of_their_numbers():
    done = launch(3, sys.executable, str(EXAMPLES / "hello.py"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("mean [1. 1. 1. 1.] over 3 peers") == 3


def test_sharded_sites_go_on_from_their_checkpoints_on_fewer_devices(tmp_path):
    for devices, rounds in ((4, 4), (2, 8)):
        done = launch(
            2,
            sys.executable,
            str(EXAMPLES / "sharded_sites.py"),
            *("--devices", str(devices), "--rounds", str(rounds)),
            *("--checkpoints", str(tmp_path / "saved")),
            options=("--store", f"sqlite:{tmp_path / 'run.db'}"),
            **NOT_OPTIMISED,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        lines = [line for line in done.stdout.splitlines() if "digest" in line]
        assert len({re.sub(".*digest", "", one) for one in lines}) == 1
        assert len(lines) == 2
        pattern = r"rounds (\d) to .* (\d+) of (\d+) bytes"
        told = [map(int, re.search(pattern, one).groups()) for one in lines]
        begun, parts, wholes = zip(*told, strict=True)
        assert min(begun) == rounds - 4  # a slow one finds the run a round further
        for part, whole in zip(parts, wholes, strict=True):
            assert part < 1.02 * whole / devices


def test_sites_of_two_processes_go_on_from_their_checkpoints_as_one_each(tmp_path):
    held = []
    for processes, rounds in ((2, 4), (1, 8)):
        done = launch(
            2,
            sys.executable,
            str(EXAMPLES / "hybrid_sharded.py"),
            *("--rounds", str(rounds), "--checkpoints", str(tmp_path / "saved")),
            options=(
                *("--processes", str(processes)),
                *("--store", f"sqlite:{tmp_path / 'run.db'}"),
            ),
            **NOT_OPTIMISED,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        lines = [line for line in done.stdout.splitlines() if "digests" in line]
        assert len(lines) == 2 * processes
        digests = {re.sub(".*digests ", "", one) for one in lines}
        assert len(digests) == processes, "of each process's parts, on both sites"
        pattern = r"rounds (\d) to (\d) in (\d) processes.* ([\d.]+) MB"
        told = [re.search(pattern, one).groups() for one in lines]
        assert min(int(begun) for begun, *_ in told) == rounds - 4
        held += [{float(size) for *_, size in told}]
    (of_two,), (of_one,) = held
    assert of_two < 0.52 * of_one


def line(kind, **fields):
    return {"t": 0.0, "kind": kind, "step": 0, **fields}


def good_peer(name="peer 0", digest="d"):
    rounds = [
        line("round", round=n, revision=n, digest=f"{digest}{n}", status="OK", loss=1.0)
        for n in (1, 2)
    ]
    end = line("end", val_loss=1.0, anchor_sha256="a", outer_sha256="o")
    lines = [line("start", val_loss=2.0), *rounds, end]
    return demo_checks.Peer(name, lines, exit_code=0)


def commits(*numbers):
    return [demo_checks.Commit(f"1.{n}", demo_checks.TAG, n) for n in numbers]


def test_the_demo_finds_digests_that_differ():
    assert demo_checks.check_digests([good_peer(), good_peer("peer 1")]) == []
    other = good_peer("peer 1", digest="e")
    assert "revision 1 has 2 digests" in demo_checks.check_digests([good_peer(), other])
    other.lines[-1]["anchor_sha256"] = "b"
    assert any("anchor" in f for f in demo_checks.check_digests([good_peer(), other]))


def test_the_demo_finds_a_loss_that_did_not_fall_and_a_peer_that_failed():
    assert demo_checks.check_peers([good_peer()]) == []
    flat = good_peer()
    flat.lines[-1]["val_loss"] = 2.0
    assert demo_checks.check_peers([flat])
    failed = good_peer()
    failed.exit_code = 1
    assert demo_checks.check_peers([failed])
    unfinished = good_peer()
    unfinished.lines.pop()
    assert demo_checks.check_peers([unfinished])


def test_the_demo_finds_gaps_in_the_revisions():
    peers = [good_peer()]
    assert demo_checks.check_revisions(peers, commits(1, 2), 2) == []
    assert demo_checks.check_revisions(peers, commits(1, 3), 2)
    assert demo_checks.check_revisions(peers, commits(1, 2, 2), 2)
    assert demo_checks.check_revisions(peers, commits(1), 2)
    del peers[0].lines[1]
    peers[0].lines[1]["round"] = 4
    peers[0].lines.insert(1, line("round", round=1, status="OK"))
    assert demo_checks.check_revisions(peers, commits(1, 2), 2)


def test_the_demo_finds_a_start_without_an_outcome():
    history = [
        {"kind": "start", "attempt": "1.1", "tag": demo_checks.TAG, "n": "1"},
        {"kind": "start", "attempt": "1.9", "tag": demo_checks.TAG, "n": "2"},
    ]
    assert demo_checks.check_starts(history, commits(1, 2)) == []  # 1.9 superseded
    assert demo_checks.check_starts(history, commits(1))
    ended = [*history, {"kind": "abort", "attempt": "1.9", "tag": "x", "n": "2"}]
    assert demo_checks.check_starts(ended, commits(1)) == []


def test_half_a_line_of_a_killed_writer_is_left_out(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"a": 1}\n{"b"')
    assert demo_checks.read_lines(path) == [{"a": 1}]


def test_the_picture_is_drawn(tmp_path):
    path = tmp_path / "loss.png"
    losses = {"peer 0": [(0.0, 2.0), (1.0, 1.0)], "late": []}
    demo_plot.plot(path, losses, [(0.5, "kill", "peer 1 killed")], "title")
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize(
    "times", [(4, 5, 5.1, 5.2), (1, 9.7, 9.8, 9.9), (0, 0, 10, 10)]
)
def test_the_labels_of_the_picture_do_not_overlap(times):
    kinds = ("kill", "join", "master", "master")
    words = ("peer 1 killed at round 120", "peer 3 has joined at round 530")
    words += ("master killed at round 720", "master restarted on its journal")
    losses = {"peer 0": [(0.0, 6.0), (10.0, 1.0)]}
    events = list(zip(times, kinds, words, strict=True))
    figure = demo_plot.drawn(losses, events, "Three peers")
    (axes,) = figure.axes
    figure.canvas.draw()
    labels = [text for text in axes.texts if text.get_text()] + [axes.title]
    boxes = [text.get_window_extent() for text in labels]
    assert len(boxes) == 5
    for i, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[i + 1 :])
        assert figure.bbox.contains(box.x0, box.y0)
        assert figure.bbox.contains(box.x1, box.y1)


def test_the_last_words_of_the_demo_are_three_sentences():
    words = ("peer 1 killed at round 12", "peer 3 has joined at round 53")
    words += ("master killed at round 72", "master restarted on its journal")
    events = [(0.0, "kill", one) for one in words]
    told = demo.shown(SimpleNamespace(events=events, rounds=120), [good_peer()])
    assert [line[-1] for line in told.splitlines()] == [".", ".", "."]
    for part in (
        *words[:1],
        "took its place at round 53",
        "120 rounds",
        "2.00 to 1.00",
    ):
        assert part.lower() in told.lower()
