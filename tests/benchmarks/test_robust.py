"""`benchmarks.robust` in miniature; not what it finds."""

import numpy as np
import pytest

from benchmarks import robust
from jccl.testing import Cluster


def test_the_gradient_is_that_of_the_loss():
    rng = np.random.default_rng(0)
    x, y = robust.Task.of(0).samples(rng, 8)
    vector = robust.initial(0).astype(np.float64)
    _, gradient = robust.loss_and_gradient(vector, x, y)
    for i in rng.integers(vector.size, size=20):
        step = np.zeros_like(vector)
        step[i] = 1e-5
        up, down = (
            robust.loss_and_gradient(vector + s, x, y)[0] for s in (step, -step)
        )
        assert (up - down) / 2e-5 == pytest.approx(gradient[i], abs=1e-7)


def test_peers_end_on_one_model_and_a_run_repeats_to_the_bit():
    with Cluster(robust.PEERS) as cluster:
        runs = [
            robust.train(cluster.comms, 0, "median", "times 100", 2, 2)
            for _ in range(2)
        ]
        ruined = robust.train(cluster.comms, 0, "mean", "inner product", 2, 4)
        held = robust.train(cluster.comms, 0, "median", "inner product", 2, 4)
    assert runs[0] == runs[1] and runs[0]["equal"]
    assert ruined["loss"] > held["loss"]
    assert 0 < runs[0]["sent_mb"] < ruined["sent_mb"]


def test_attacks_are_what_their_names_say():
    rng = np.random.default_rng(0)
    honest = [rng.standard_normal(50) for _ in range(6)]
    own, mean = honest[0], np.mean(honest, axis=0)
    assert np.linalg.norm(robust.noise(honest, own, rng)) == pytest.approx(
        30 * np.linalg.norm(own)
    )
    assert np.array_equal(robust.flipped(honest, own, rng), -own)
    assert np.array_equal(robust.scaled(honest, own, rng), 100 * own)
    assert robust.inner(honest, own, rng) @ mean < 0
    within = np.abs(robust.little(honest, own, rng) - mean) / np.std(honest, axis=0)
    assert within.max() == pytest.approx(1.5)


def test_a_table_has_a_row_for_each_trial_and_hides_what_is_no_model():
    found = {("none", 0, name): [1.0, 1.2] for name in robust.AGGREGATORS}
    found |= {("noise", 2, name): [99.9, 50.0] for name in robust.AGGREGATORS}
    sent = {name: [2.0, 4.0] for name in robust.AGGREGATORS}
    lines = robust.markdown(found, sent).splitlines()
    assert len(lines) == 5
    assert lines[4].startswith("| sent by a peer | all | 3.00 MB |")
    assert lines[2].startswith("| none | 0 of 8 | 1.100 ± 0.100 |")
    assert lines[3].startswith("| noise | 2 of 8 | > 10 |")
