"""Peers that come while others train: a moving state of several parts."""

import numpy as np

import jccl
from jccl.testing import Cluster, wait_until

# Leaves of many sizes, 2.5 MB in all: more than one part, cut in the middle of leaves.
SIZES = [64, 64, 12288, 4096, 16384, 256] * 19
JOINERS = 5


def state_of(value):
    return [np.full(n, value, np.float32) for n in SIZES]


def test_joiners_adopt_a_moving_state_and_take_part_from_the_next_round():
    with Cluster(1 + JOINERS, start_peers=1) as cluster:

        def member(comm, index):
            # One after the other, each into a run that goes on.
            first = cluster.comms[0]
            wait_until(lambda: first.attributes().world >= index, 60, "the one before")
            state = jccl.sync_state(state_of(1000.0 * index), comm)
            while True:
                result = comm.all_reduce(
                    state, tag="state", round=jccl.Round(state=state)
                )
                new = [leaf + 1 for leaf in result.value]
                state = jccl.publish(new, comm, before=state)
                if result.world == 1 + JOINERS:
                    return state, result.n, comm.digest("state")

        results = cluster.run(member)
    first_state, rounds, digest = results[0]
    assert all(leaf[0] == rounds for leaf in first_state)
    for state, n, other in results[1:]:
        assert n == rounds and other == digest
        for mine, theirs in zip(state, first_state, strict=True):
            assert mine.tobytes() == theirs.tobytes()
