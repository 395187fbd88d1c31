"""The examples that people keep: here in a short form, peers in one process; as the
commands that their docstrings show by `make long-examples`.

The commands of a docstring are read from it, so that they stay true.
"""

import ast
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import jccl
from jccl.testing import Cluster

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
sys.path.insert(0, str(EXAMPLES))

KEPT = (
    *("resume", "sparse", "streaming", "tokens_nnx", "unequal_peers"),
    "vision_batchnorm",
)
long = pytest.mark.skipif(
    not os.environ.get("JCCL_LONG"), reason="takes a minute: make long-examples"
)


def together(n, program):
    """`program(comm, index)` on n peers, each with a device of its own."""

    def one(comm, index):
        with jax.default_device(jax.devices()[index]):
            return program(comm, index)

    with Cluster(n) as cluster:
        return cluster.run(one)


def test_images_with_batchnorm_end_with_one_set_of_statistics():
    import vision_batchnorm

    model = vision_batchnorm.Net((4,))
    found = together(2, lambda comm, i: vision_batchnorm.main(comm, 1, i, model))
    (_, one), (_, other) = found
    same = jax.tree.map(lambda a, b: bool((a == b).all()), one, other)
    assert jax.tree.all(same)


def test_statistics_of_all_are_those_of_the_images_in_one_place():
    import vision_batchnorm

    images = [np.random.default_rng(i).normal(i, 1 + i, (500, 3)) for i in range(2)]
    whole = np.concatenate(images)

    def program(comm, i):
        own = {"mean": images[i].mean(0), "var": images[i].var(0)}
        return vision_batchnorm.shared({"layer": own}, comm)["layer"]

    for found in together(2, program):
        np.testing.assert_allclose(found["mean"], whole.mean(0), rtol=1e-5)
        np.testing.assert_allclose(found["var"], whole.var(0), rtol=1e-5)


def test_streaming_learns():
    import streaming

    for first, last in together(2, lambda comm, i: streaming.main(comm, 2)):
        assert last < first


def test_a_sparse_round_is_a_small_part_of_a_dense_one():
    import sparse

    for first, last, sent, dense in together(2, lambda comm, i: sparse.main(comm, 3)):
        assert last < first and sent < dense / 10


def test_a_slow_peer_takes_fewer_steps():
    import unequal_peers

    fast, slow = together(
        2, lambda comm, i: unequal_peers.main(comm, 3, 0.12 if i else 0.02)
    )
    assert fast[0] == slow[0] == unequal_peers.SYNC_EVERY
    assert slow[-1] < fast[-1] <= unequal_peers.SYNC_EVERY


def test_a_run_goes_on_from_its_checkpoint(tmp_path):
    import resume

    for rounds, begins in ((2, (0,)), (4, (1, 2))):  # the last may be left out
        with Cluster(0, start_peers=1) as cluster:
            comm = cluster.join(site=jccl.Site("oslo"))
            begun, ended = resume.main(comm, tmp_path, rounds)
        assert begun in begins and ended == rounds


def test_tokens_of_a_text_are_learnt_by_nnx():
    pytest.importorskip("tokenizers", reason="no tokenizers: pip install tokenizers")
    import tokens_nnx

    text = (EXAMPLES / "corpus.py").read_text() * 8
    tokens, digest = tokens_nnx.tokens_of(text)
    assert digest == tokens_nnx.tokens_of(text)[1]
    losses = together(2, lambda comm, i: tokens_nnx.main(comm, 2, tokens, 16, 1))
    for first, last in losses:
        assert last < first


# ---- all of them ---------------------------------------------------------------------


@pytest.mark.parametrize("name", KEPT)
def test_an_example_is_short_and_runs_only_as_a_program(name):
    text = (EXAMPLES / f"{name}.py").read_text()
    assert len(text.splitlines()) <= 150
    assert 'if __name__ == "__main__":' in text
    assert commands_of(name), "its docstring shows how to run it"


def commands_of(name):
    """`jccl run …` lines of the docstring."""
    text = ast.get_docstring(ast.parse((EXAMPLES / f"{name}.py").read_text()))
    return re.findall(r"^ +(jccl run .*)$", text, re.M)


def test_the_notebook_runs(capsys):
    notebook = json.loads((EXAMPLES / "three_peers.ipynb").read_text())
    cells = [c for c in notebook["cells"] if c["cell_type"] == "code"]
    assert notebook["nbformat"] == 4 and not any(cell["outputs"] for cell in cells)
    names = {"__name__": "__main__"}
    for cell in cells:
        exec("".join(cell["source"]), names)
    said = capsys.readouterr().out
    assert "[1. 1. 1. 1.] of 3 peers" in said and "3 peers, one digest" in said
    assert "now 2 peers" in said


EXPECTED = {
    "resume": r"rounds \d to 6, digest",
    "sparse": r"loss .* kB a round",
    "streaming": r"the program waits",
    "tokens_nnx": r"vocabulary .*, loss",
    "unequal_peers": r"slow: steps of each round \[8, ",
    "vision_batchnorm": r"accuracy (0\.[89]|1\.)",
}


@long
@pytest.mark.parametrize("name", KEPT)
def test_the_commands_of_an_example_do_what_they_say(name, tmp_path):
    if name == "tokens_nnx":
        pytest.importorskip(
            "tokenizers", reason="no tokenizers: pip install tokenizers"
        )
    *before, last = commands_of(name)
    for command in before:  # it kills itself
        assert run(command, tmp_path).returncode != 0
    done = run(last, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(EXPECTED[name], done.stdout), done.stdout
    digests = re.findall(r"(?:digest|vocabulary) (\w+)", done.stdout)
    assert len(set(digests)) <= 1
    if name == "resume":
        assert "rounds 3 to 6" in done.stdout


def run(command, folder):
    words = shlex.split(command.replace("examples/", f"{EXAMPLES}/"))
    at = words.index("python")
    options = words[1:at]
    argv = [
        sys.executable,
        "-m",
        "jccl.cli",
        *options,
        sys.executable,
        *words[at + 1 :],
    ]
    env = {k: v for k, v in os.environ.items() if k[:5] != "JCCL_"}
    return subprocess.run(
        argv, cwd=folder, capture_output=True, text=True, timeout=300, env=env
    )
