"""A call is refused where the state was edited, whatever it moves; nobody is banned."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jccl
from jccl.testing import Cluster
from tests.python.test_own_check import (
    STATE,
    XS,
    a_bit,
    begin,
    edited,
    train,
    with_anchor,
)


def test_every_call_with_an_edited_state_is_refused_whatever_it_moves():
    """Nothing to keep back, no weight, an output in the state's memory, another type
    of the same bits: no state that differs passes."""
    with Cluster(2) as cluster:

        def program(comm, index):
            zeros = np.zeros(4, np.float32)
            state = jccl.sync_state({"w": zeros}, comm, tag="m")
            jccl.sync_state({"w": zeros}, comm, tag="zeros")
            comm.barrier(tag="both")
            if index == 1:
                return
            wrong = {"w": np.full(4, 2, np.float32)}
            calls = {
                "no values": (np.zeros(0, np.float32), {}),
                "no weight": (np.ones(3), {"weight": 0.0}),
                "its own memory": (wrong["w"], {"place": jccl.Place(out=wrong["w"])}),
            }
            for what, (x, options) in calls.items():
                # Nobody else calls: it is not the others that end it.
                with pytest.raises(jccl.ResyncError, match="leaf w"):
                    comm.all_reduce(
                        x,
                        tag="m",
                        round=jccl.Round(state=wrong, deadline=600.0),
                        **options,
                    )
                state = jccl.sync_state(state, comm, tag="m")
                assert state["w"].tolist() == [0.0] * 4, what
            with pytest.raises(jccl.ResyncError, match=r"w f32\[4\] has another type"):
                as_i32 = {"w": zeros.view(np.int32)}
                comm.all_reduce(
                    np.ones(3),
                    tag="zeros",
                    round=jccl.Round(state=as_i32, deadline=600.0),
                )

        cluster.run(program)


def test_norms_are_of_no_edited_state_and_nobody_waits_in_another_round():
    """An edit beside `clip=True`: the others' round is the one without that peer's norm
    or values, and all are in the next one together, or after one deadline if the
    machine held a peer up."""
    with Cluster(3) as cluster:

        def program(comm, index):
            tx = jccl.diloco(
                comm,
                optax.sgd(1.0),
                jccl.sgd(1.0),
                sync_every=1,
                codec=None,
                travel=jccl.Travel(clip=True),
                rounds=jccl.Rounds(each=jccl.Round(deadline=20.0)),
            )
            params = {"w": jnp.zeros(4)}
            params, state = jccl.sync_state((params, tx.init(params)))
            codes = []
            while state.rounds < 5:
                if (
                    len(codes) == 2 and index == 0
                ):  # so that its pseudo-gradient would be 0
                    edited = jax.tree.map(lambda x: x - 1, state.anchor)
                    state = state._replace(anchor=edited)
                grads = {"w": jnp.ones(4)}
                updates, state = jax.jit(tx.update)(grads, state, params)
                params = optax.apply_updates(params, updates)
                codes.append(int(state.status[0]))
            return codes, np.asarray(state.anchor["w"])[0], int(state.rounds)

        results = cluster.run(program)
    assert jccl.Code.RESYNCED in results[0][0]
    assert {rounds for _, _, rounds in results} == {5}
    assert len({float(anchor) for _, anchor, _ in results}) == 1
    if all(code == jccl.Code.OK for codes, _, _ in results[1:] for code in codes):
        assert results[1][1] == -5.0  # the norm of 0 is in no median


def test_a_program_that_edits_its_state_now_and_then_is_not_banned():
    with Cluster(3) as cluster:

        def program(comm, index):
            state = jccl.sync_state(STATE, comm, tag="m")
            for _ in range(12):
                if index == 0:
                    wrong = jccl.Round(state=edited(state), deadline=60.0)
                    with pytest.raises(jccl.ResyncError):
                        comm.all_reduce(np.ones(3), tag="m", op="sum", round=wrong)
                    state = jccl.sync_state(state, comm, tag="m")
                comm.all_reduce(np.ones(3), tag="pace", round=jccl.Round(deadline=60.0))

        cluster.run(program)


def test_a_program_that_edits_its_state_each_time_keeps_nobody_waiting(monkeypatch):
    """By callbacks it is compared before its call is READY: the others go on without
    it from the second time on."""
    monkeypatch.setenv("JCCL_ROUTE", "io_callback")
    others = threading.Semaphore(0)
    with Cluster(3) as cluster:

        def program(comm, index):
            tx = jccl.diloco(
                comm,
                optax.sgd(0.1),
                sync_every=1,
                codec=None,
                rounds=jccl.Rounds(each=jccl.Round(deadline=60.0)),
            )
            state = jccl.sync_state(begin(tx))
            state, statuses = train(state, XS[:1])
            assert statuses[-1].tolist() == [jccl.Code.OK, 3]
            if index > 0:
                for _ in range(4):
                    state, statuses = train(state, XS[:1])
                    assert statuses[-1].tolist() == [jccl.Code.OK, 2]
                return others.release()
            edits, left = 0, 2
            while left:
                state, statuses = train(with_anchor(state, a_bit), XS[:1])
                assert statuses[-1, 0] != jccl.Code.OK
                edits += 1
                left -= others.acquire(blocking=False)
            assert edits >= 2

        cluster.run(program)
