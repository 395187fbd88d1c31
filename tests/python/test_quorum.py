"""`jccl.Quorum`: a round begins without who is late, where the calls ask for it."""

import threading

import jax
import numpy as np
import pytest

import jccl
from jccl.testing import Cluster

MOST = jccl.Round(quorum=jccl.Quorum(share=0.6, grace=0.3), deadline=60.0)


def everybody_again(comm, call):
    """Calls until all three are in a round; the rounds that came before it."""
    for before in range(50):
        result = call()
        if int(result.world) == 3:
            return before, result
    raise AssertionError("the three never met")


@pytest.mark.parametrize("where", ["host", "jit"])
def test_two_of_three_begin_after_the_grace_and_the_third_is_in_the_next(where):
    over = threading.Event()

    def run(comm, index):
        row = np.full(4, 10.0**index, np.float32)

        def call(x=row):
            return jccl.all_reduce(x, comm, op="sum", tag="x", round=MOST)

        made = jax.jit(lambda x: call(x)) if where == "jit" else call
        assert int(made(row).world) == 3  # who has never called is not late
        first = None
        if index == 2:
            assert over.wait(60)
        else:
            first = made(row)
            over.set()
        return first, *everybody_again(comm, lambda: made(row)), comm

    with Cluster(3) as cluster:
        ends = cluster.run(run)
    for first, _, _, _ in ends[:2]:
        assert int(first.world) == 2
        np.testing.assert_array_equal(first.value, np.full(4, 11.0, np.float32))
    assert ends[2][1] == 0, "the late call itself takes part in the next round"
    for _, _, last, _ in ends:
        np.testing.assert_array_equal(last.value, np.full(4, 111.0, np.float32))
    if where == "host":
        assert len(ends[0][0].contributors) == 2
        assert len(ends[0][2].contributors) == 3


def test_without_a_quorum_of_sites_everybody_is_waited_for():
    over = threading.Event()

    def run(comm, index):
        terms = jccl.Round(quorum=jccl.Quorum(share=0.9, grace=0), deadline=60.0)
        assert comm.all_reduce(np.ones(1, np.float32), round=terms).world == 3
        if index == 2:
            over.wait(1.5)
        result = comm.all_reduce(np.ones(1, np.float32), op="sum", round=terms)
        over.set()
        return result.world

    with Cluster(3) as cluster:  # two of three are less than nine tenths
        assert cluster.run(run) == [3, 3, 3]


def test_an_all_gather_leaves_the_slot_of_a_late_one_out():
    over = threading.Event()

    def run(comm, index):
        own = np.float32([index + 1])
        comm.all_gather(own, tag="g", round=MOST, slots=3)
        if index == 2:
            assert over.wait(60)
            return None
        result = comm.all_gather(own, tag="g", round=MOST, slots=3)
        over.set()
        return np.asarray(result.value).ravel().tolist()

    with Cluster(3) as cluster:
        ends = cluster.run(run)
    first, second, _ = ends
    assert first == second
    # Slots are by id, in the order in which the master admitted them.
    assert sorted(first[:2]) == [1.0, 2.0] and first[2] == 0.0


def test_peers_that_ask_for_different_quorums_are_told_so():
    def run(comm, index):
        terms = jccl.Round(quorum=jccl.Quorum(share=0.7 + index / 10), deadline=30.0)
        with pytest.raises(jccl.MismatchError) as caught:
            comm.all_reduce(np.ones(8, np.float32), round=terms)
        return caught.value.text

    with Cluster(2) as pair:
        for text in pair.run(run):
            assert "quorum 0.7:2 s" in text and "quorum 0.8:2 s" in text


@pytest.mark.parametrize("share", [0.5, 0.5004, 1, 0.9999, 0, -1, float("nan"), 7])
def test_a_share_is_more_than_half_and_not_all(share):
    with pytest.raises(ValueError, match=r"must be above 0\.5"):
        jccl.Quorum(share=share)


@pytest.mark.parametrize("grace", [-1, float("nan"), float("inf"), 86_401])
def test_a_grace_is_seconds(grace):
    with pytest.raises(ValueError, match="must be seconds"):
        jccl.Quorum(grace=grace)


def test_what_it_cannot_do_is_refused():
    with pytest.raises(TypeError, match="must be Quorum or None"):
        jccl.Round(quorum=0.9)
    for wrong in ("most", None):
        with pytest.raises(TypeError, match="share=.* of Quorum must be a number"):
            jccl.Quorum(share=wrong)

    def run(comm, index):
        x = np.ones(2, np.float32)
        more = {"broadcast": {"root": True}}
        for verb in ("broadcast", "all_to_all", "reduce_scatter"):
            with pytest.raises(TypeError, match="quorum= of jccl.Round has no effect"):
                getattr(comm, verb)(x, round=MOST, **more.get(verb, {}))
        with pytest.raises(TypeError, match="quorum= of jccl.Round has no effect"):
            comm.barrier(round=MOST)

    with Cluster(1) as one:
        one.run(run)


def test_a_broadcast_commits_where_more_than_its_root_is_needed():
    """min_peers sites are there; only one of them contributes."""

    def run(comm, index):
        own = np.full(3, float(index), np.float32)
        return comm.broadcast(own, root=index == 1, round=jccl.Round(deadline=60.0))

    with Cluster(2, min_peers=2) as pair:
        for result in pair.run(run):
            np.testing.assert_array_equal(result.value, np.ones(3, np.float32))
