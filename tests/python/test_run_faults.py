"""Mistakes in a training script under `jccl run`: they are said, and end the run."""

import subprocess
import sys

import pytest

from jccl.cli.launcher import Look, code_text

SCRIPT = """
import os, time, jax, jax.numpy as jnp, optax, jccl
me = int(os.environ["JCCL_PEER_INDEX"])
with jccl.connect(deadline=120) as comm:
    codec = "int4" if {codec} and me == 0 else "int8"
    tx = jccl.diloco(comm, optax.sgd(0.1), sync_every=1, codec=codec)
    params = {{"w": jnp.ones(16)}}
    state = tx.init(params)
    if {sync}: params, state = jccl.sync_state((params, state))
    @jax.jit
    def step(params, state):
        updates, state = tx.update(params, state, params)
        return optax.apply_updates(params, updates), state
    for _ in range({steps}):
        params, state = step(params, state)
        time.sleep({pause})
print("trained to the end", me)
"""


def run(peers, **values):
    script = {"codec": False, "sync": True, "steps": 10**6, "pause": 0.01, **values}
    return subprocess.run(
        [sys.executable, "-m", "jccl.cli", "run", "-n", str(peers), "--"]
        + [sys.executable, "-c", SCRIPT.format(**script)],
        capture_output=True,
        text=True,
        timeout=180,
    )


def test_a_codec_of_its_own_ends_a_peer_and_the_run():
    done = run(3, codec=True)
    assert done.returncode == 1, done
    said = [line for line in done.stdout.splitlines() if "peer-0: diloco: MIS" in line]
    assert len(said) == 1 and said[0].startswith("[0] jccl: ")
    assert all(name in said[0] for name in ("codec int4", "peer-1", "peer-2"))
    assert "[0] jccl.errors.MismatchError: tag 'diloco' (3 rounds" in done.stdout
    assert "jccl run: peer 0 ended with exit code 1" in done.stderr
    assert "needs 3 sites to begin, and 2 are left: ending peer 1, 2" in done.stderr
    assert "trained to the end" not in done.stdout


@pytest.mark.parametrize("steps", [4, 10**6], ids=["short", "long"])
def test_a_forgotten_sync_state_ends_the_script(steps):
    """A short one too, which has ended before the watcher looked."""
    done = run(2, sync=False, steps=steps, pause=0.0 if steps == 4 else 0.01)
    assert done.returncode == 1, done
    assert done.stdout.count("InvalidError: tag 'diloco' (") == 2
    assert done.stdout.count("diloco: INVALID: call jccl.sync_state first") == 2
    assert "trained to the end" not in done.stdout


def test_two_peers_or_a_child_of_one_do_not_share_a_name():
    script = (
        "import os, subprocess, sys, jccl\n"
        "a, b = jccl.connect(), jccl.connect()\n"
        "print(a.watcher._name, b.watcher._name)\n"
        "child = 'import jccl; print(jccl.connect().watcher._name)'\n"
        "print(subprocess.check_output([sys.executable, '-c', child], text=True))\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "jccl.cli", "run", "-n", "1", "--"]
        + [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=120,
    )
    lines = done.stdout.splitlines()
    assert "[0] peer-0 peer-0-2" in lines, done
    child = [line for line in lines if line.startswith("[0] peer-")][1:]
    assert child and child[0] != "[0] peer-0", done


def looks(status, codes, *times):
    look = Look(lambda: status)
    return [look.stuck(codes, now) for now in times]


def test_a_run_is_given_up_when_fewer_are_left_than_it_needs():
    def status(text="", failure=""):
        peer, tag = {"waiting_for": ""}, {"waiting_for": text}
        return {"failure": failure, "peers": [peer], "tags": [tag]}

    three = status("waits for the first 3 sites, 2 are there")
    gone = "the run needs 3 sites to begin, and 2 are left"
    assert looks(three, [1, None, None], 10, 12, 15.1) == ["", "", gone]
    assert looks(three, [None] * 3, 10, 12, 15.1) == [""] * 3  # all live
    two = status("waits for the first 2 sites, 1 is there")
    assert looks(two, [1, None, None], 10, 12, 15.1) == [""] * 3
    assert looks(status(), [1, None, None], 10, 12, 15.1) == [""] * 3
    failed = looks(status("", "disk full"), [0, None], 10, 12, 15.1)
    assert failed == ["", "", "the master failed (disk full)"]


def test_two_moments_of_want_are_not_one_long_one():
    texts = [
        "waits for the first 3 sites, 2 are there",
        "",
        "waits for the first 3 sites",
    ]

    def status():
        tags = [{"waiting_for": texts.pop(0) if len(texts) > 1 else texts[0]}]
        return {"failure": "", "peers": [{"waiting_for": ""}], "tags": tags}

    look = Look(status)
    said = [look.stuck([1, None, None], now) for now in (10, 12, 16, 20, 21.5)]
    assert said[:4] == [""] * 4 and "needs 3 sites" in said[4]


def test_a_signal_without_a_name_is_said_by_its_number():
    assert code_text(-9) == "signal SIGKILL"
    assert code_text(-37) == "signal 37"
    assert code_text(143) == "exit code 143: it left the run"
    assert code_text(3) == "exit code 3"
