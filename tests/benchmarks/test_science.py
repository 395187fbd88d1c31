"""Runs and claims of `benchmarks.science` in miniature; not what they find."""

import json

import jax
import pytest
from click.testing import CliRunner

from benchmarks import science
from benchmarks.learning import claims, model
from benchmarks.learning.claims import Found
from benchmarks.learning.runs import Run, train

# Its seed is no other test's: initial parameters are kept by size and seed.
TINY = Run(steps=4, seed=3, peers=2, windows=4, sync_every=2, codec="int8")


def test_peers_of_a_run_end_on_one_anchor_and_count_their_bytes(monkeypatch):
    monkeypatch.setattr(model, "HELD_OUT_WINDOWS", 16)
    monkeypatch.setattr(model, "LAYERS", 1)  # compiles in a third of the time
    found = train(TINY)
    assert found["equal"] and found["rounds"] == 2 and found["skipped"] == 0
    parameters, bits = 30_368, 8.125  # two peers send each contribution once
    assert 2 * parameters * bits / 8 <= found["sent_bytes"]
    assert found["sent_bytes"] < 1.05 * 2 * parameters * bits / 8
    assert found["curve"][-1][:2] == (4, found["loss"])
    assert train(TINY)["loss"] == found["loss"]  # the same run again, to the bit


def test_muon_takes_the_matrices_of_blocks_and_its_peers_agree(monkeypatch):
    monkeypatch.setattr(model, "HELD_OUT_WINDOWS", 16)
    monkeypatch.setattr(model, "LAYERS", 1)
    found = train(TINY.varied(inner="muon"))
    assert found["equal"] and found["rounds"] == 2 and found["skipped"] == 0
    params = model.initial(TINY.size, TINY.seed)
    state = model.inner(10, "muon").init(params)
    held = state.inner_states["muon"].inner_state[0].mu  # a momentum, none for others
    taken = {jax.tree_util.keystr(k) for k, _ in jax.tree.leaves_with_path(held)}
    assert len(taken) == 4 and all("Block_0" in k and "kernel" in k for k in taken)
    with pytest.raises(ValueError, match="there are adamw and muon"):
        model.inner(10, "sgd")


@pytest.mark.parametrize("big", [False, True])
def test_every_claim_can_fail(big):
    for claim in claims.all_claims(Run(steps=300), big):
        names = list(claim.variants)
        found = {}
        for worst in (names, names[::-1]):
            losses = {name: Found((2.0 + i,)) for i, name in enumerate(worst)}
            found[worst[0]] = [holds for _, holds in claim.judge(losses)]
        assert any(not all(checks) for checks in found.values()), claim.name


def test_a_codec_that_loses_too_much_is_said_not_to_hold():
    claim = next(c for c in claims.all_claims(Run(300), False) if c.name == "codecs")
    good = {name: Found((2.0, 2.01)) for name in claim.variants}
    for name in ("int2", "stat2", "int2 + feedback"):
        good[name] = Found((2.1, 2.1))  # without what makes it good
    assert all(holds for _, holds in claim.judge(good))
    checks = claim.judge({**good, "int4": Found((2.05, 2.05))})
    assert [text.split()[0] for text, holds in checks if not holds] == ["int4"]


def test_means_have_their_standard_error():
    assert Found((1.0, 3.0)).mean == 2.0
    assert Found((1.0, 3.0)).error == pytest.approx(1.0)
    assert Found((1.0,)).error == 0.0


def test_a_run_that_is_there_is_not_made_again(tmp_path, monkeypatch):
    made = []

    def fake(run):
        made.append(run)
        curve = [[run.steps, 2.0, 1000]]
        common = {"loss": 2.0 + len(made), "curve": curve, "equal": run.seed < 7}
        return {**common, "sent_bytes": 1000, "seconds": 0.0}

    monkeypatch.setattr(science, "train", fake)
    arguments = ["--claims", "H", "--seeds", "2", "--out", str(tmp_path), "--json"]
    first = CliRunner().invoke(science.main, arguments)
    assert first.exit_code == 0, first.output
    assert len(made) == 6 and (tmp_path / "science.svg").exists()
    again = CliRunner().invoke(science.main, arguments)
    assert again.exit_code == 0 and len(made) == 6
    rows = [json.loads(x) for x in again.output.splitlines() if x.startswith("{")]
    assert len(rows) == 6 and {row["cell"]["seed"] for row in rows} == {0, 1}
    more = CliRunner().invoke(science.main, [*arguments, "--seeds", "8"])
    assert more.exit_code == 1 and "anchors of peers differ" in more.output


def test_the_larger_size_gets_tokens_in_proportion():
    sizes = [
        sum(leaf.size for leaf in jax.tree.leaves(model.initial(size, 0)))
        for size in ("67k", "233k")
    ]
    assert sizes[1] / sizes[0] == pytest.approx(claims.LARGER, abs=0.05)
    peers = claims.all_claims(Run(steps=1000), True)[0].variants
    assert {run.steps for run in peers.values() if run.size == "233k"} == {3400}


def test_claims_that_are_kept_leave_the_others_there(tmp_path):
    file = tmp_path / "science.json"
    science.keep_claims(file, 100, {"H": 1, "codecs": 2})
    science.keep_claims(file, 100, {"H": 3})
    assert json.loads(file.read_text())["claims"] == {"H": 3, "codecs": 2}
    science.keep_claims(file, 200, {"H": 4})  # of other lengths they are no comparison
    assert json.loads(file.read_text())["claims"] == {"H": 4}
