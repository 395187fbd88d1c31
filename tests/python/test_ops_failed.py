"""What a jitted call that fails hands back: its code, and the caller's own values."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jccl import _native, _ops
from jccl.testing import Cluster
from tests.python.aborting import kept_aborting
from tests.python.on_devices import on_peers

CODES = _native.core().codes


@pytest.fixture(scope="module")
def pair(route):
    with Cluster(2) as cluster:
        yield cluster


def own(index):
    return {"w": jnp.arange(5.0) + 10 * index, "n": jnp.full((2,), index, jnp.int32)}


def is_own(value, index):
    return all(np.array_equal(value[name], own(index)[name]) for name in ("w", "n"))


@pytest.mark.parametrize("collective", ["all_reduce", "broadcast"])
def test_a_round_without_contributors_is_empty_and_its_values_are_the_inputs(
    pair, collective
):
    def program(comm, index):
        @functools.partial(jax.jit, static_argnums=1)
        def step(tree, gives):
            if collective == "broadcast":
                return _ops.broadcast(tree, comm, tag="empty root", root=gives)
            weight = jnp.where(gives, 1.0, 0.0)
            return _ops.all_reduce(tree, comm, tag="empty mean", weight=weight)

        return step(own(index), False), step(own(index), index == 0)

    for index, (empty, good) in enumerate(on_peers(pair, program)):
        assert empty.status[0] == CODES["Empty"]
        assert is_own(empty.value, index)
        # And then of the same round: one contributor, and all have its values.
        assert good.status.tolist()[:2] == [0, 1]
        assert is_own(good.value, 0)


@pytest.mark.parametrize("collective", ["all_reduce", "broadcast"])
def test_an_aborted_call_is_a_status_and_its_values_are_the_inputs(pair, collective):
    comm = pair.comms[0]

    @jax.jit
    def step(tree):
        if collective == "broadcast":
            return _ops.broadcast(tree, comm, tag="aborted root", root=True)
        return _ops.all_reduce(tree, comm, tag="aborted mean")

    compiled = step.lower(own(3)).compile()
    pair.run(lambda comm, index: comm.barrier())  # so that the other one is waited for
    with kept_aborting(comm):
        aborted = jax.tree.map(np.asarray, compiled(own(3)))
    assert aborted.status[0] == CODES["Aborted"]
    assert is_own(aborted.value, 3)
