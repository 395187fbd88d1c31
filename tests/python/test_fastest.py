"""`plan="fastest"`: any documented order of addition will do; the master chooses."""

import jax
import numpy as np
import pytest

import jccl
from jccl.testing import Cluster

FASTEST = jccl.Round(plan="fastest")


@pytest.fixture(scope="module")
def four():
    with Cluster(4) as cluster:
        yield cluster


def bits_of(results):
    return {np.asarray(value).tobytes() for value in results}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"codec": "int8"},
        {"codec": "topk"},
        {"round": jccl.Round(plan="fastest", aggregator="median")},
    ],
    ids=["plain", "int8", "topk", "median"],
)
def test_all_peers_get_the_same_bits_whatever_the_master_takes(four, options):
    rows = np.random.default_rng(3).standard_normal((4, 70_001)).astype(np.float32)
    options = {"round": FASTEST, **options}

    def run(comm, index):
        def rounds():
            for _ in range(3):
                yield comm.all_reduce(rows[index], tag="host", **options).value

        step = jax.jit(lambda x: jccl.all_reduce(x, comm, tag="jit", **options).value)
        return [*rounds(), step(rows[index])]

    results = four.run(run)
    for one in zip(*results, strict=True):
        assert len(bits_of(one)) == 1
    if options.get("codec") is None and options["round"].aggregator is None:
        wanted = rows.astype(np.float64).mean(0)
        for value in results[0]:
            np.testing.assert_allclose(value, wanted, rtol=0, atol=1e-6)


def test_peers_that_do_not_all_ask_for_it_are_told_who_did():
    def run(comm, index):
        terms = jccl.Round(plan="fastest" if index else None, deadline=30.0)
        with pytest.raises(jccl.MismatchError) as caught:
            comm.all_reduce(np.ones(8, np.float32), round=terms)
        return caught.value.text

    with Cluster(2) as pair:
        for text in pair.run(run):
            assert "plan fastest" in text and "plan auto" in text
            assert "peer-0" in text or "1" in text
