"""sync_state and publish: births, joiners, and states it does not understand."""

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from flax.training.train_state import TrainState

import jccl
from jccl import snapshot
from jccl.errors import Code
from jccl.testing import Cluster

PARAMS = {"w": jnp.arange(4.0)}


def test_a_plain_pytree_is_shared_whole_and_the_named_source_wins():
    with Cluster(3) as cluster:

        def program(comm, index):
            state = {"n": np.int64(index), "x": jnp.full(5, float(index))}
            return jccl.sync_state(state, comm, source=index == 2)

        for state in cluster.run(program):
            assert int(state["n"]) == 2
            assert isinstance(state["x"], jax.Array)
            assert state["x"].tolist() == [2.0] * 5


def test_sources_that_differ_are_both_told_and_nothing_begins():
    def program(comm, index, sources=()):
        state = {"x": np.full(2, float(index))}
        try:
            synced = jccl.sync_state(state, comm, source=index in sources, deadline=20)
            return synced["x"].tolist()
        except jccl.MismatchError as wrong:
            return str(wrong)

    with Cluster(3) as cluster, ThreadPoolExecutor() as pool:
        third = pool.submit(program, cluster.comms[2], 2)
        told = cluster.run(
            lambda c, i: program(c, i, sources=(0, 1)), cluster.comms[:2]
        )
        assert told[0] == told[1]
        assert "are both named as the source of state, with other values" in told[0]
        assert "--source SITE" in told[0]
        assert not third.done()
        second = pool.submit(program, cluster.comms[1], 1)  # its user has seen it
        for _ in range(100):
            first = program(cluster.comms[0], 0, sources=(0,))
            if not isinstance(first, str):
                break
            time.sleep(0.05)
        assert [first, second.result(), third.result()] == [[0.0, 0.0]] * 3


def test_the_operators_source_begins_the_run():
    def program(comm, index):
        state = {"x": np.full(2, float(index))}
        try:
            return jccl.sync_state(state, comm, source=index == 3, deadline=20)["x"]
        except jccl.MismatchError as wrong:
            return str(wrong)

    with Cluster(0, start_peers=3, source="here") as cluster:
        for site in ("a", "here", "b", "liar"):
            cluster.join(site=site)
        *others, liar = cluster.comms
        assert "the operator named here as the source" in program(liar, 3)
        assert [x.tolist() for x in cluster.run(program, others)] == [[1.0, 1.0]] * 3


def test_a_late_peer_gets_the_newest_published_revision():
    with Cluster(1) as cluster:
        comm = cluster.comms[0]
        state = jccl.sync_state({"x": np.zeros(1000)}, comm)
        for _ in range(3):
            mean = comm.all_reduce(
                np.ones(1000), tag="state", round=jccl.Round(state=state)
            ).value
            state = jccl.publish({"x": state["x"] + mean}, comm, before=state)
        late = cluster.join()
        got = jccl.sync_state({"x": np.full(1000, -1.0)}, late)
        assert got["x"].tolist() == [3.0] * 1000
        assert late.revision("state") == comm.revision("state") == 3
        assert late.digest("state") == comm.digest("state")


def test_all_first_starters_begin_from_one_state():
    with Cluster(2) as cluster:

        def program(comm, index):
            tx = jccl.diloco(comm, optax.sgd(0.1), sync_every=2)
            params = jax.tree.map(lambda x: x + index, PARAMS)
            state = TrainState.create(apply_fn=None, params=params, tx=tx)
            return jccl.sync_state(state)

        first, second = cluster.run(program)
        for state in (first, second):
            assert isinstance(state, TrainState)
            assert state.params["w"].tolist() == state.opt_state.anchor["w"].tolist()
        assert first.params["w"].tolist() == second.params["w"].tolist()


@pytest.mark.parametrize("form", ["tuple", "dict"])
def test_parameters_are_found_beside_the_optimizer_state(form):
    with Cluster(2) as cluster:

        def program(comm, index):
            tx = jccl.diloco(comm, optax.sgd(0.1), sync_every=2)
            params = jax.tree.map(lambda x: x + index, PARAMS)
            state = (params, tx.init(params))
            if form == "dict":
                state = {"params": state[0], "opt": state[1], "note": 1}
            state = jccl.sync_state(state, source=index == 1)
            return state[0] if form == "tuple" else state["params"]

        for params in cluster.run(program):
            assert params["w"].tolist() == [1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize("beside", [{"v": jnp.zeros(4)}, {"w": jnp.zeros(3)}])
def test_a_replaced_state_without_parameters_where_they_belong_is_refused(beside):
    with Cluster(2) as cluster:

        def program(comm, index):
            tx = jccl.diloco(comm, optax.sgd(0.1), sync_every=2)
            params = jax.tree.map(lambda x: x + index, PARAMS)
            try:
                jccl.sync_state((beside, tx.init(params)), source=index == 1)
            except jccl.ResyncError as fault:
                return str(fault)
            return ""

        replaced, source = cluster.run(program)
    assert "no parameters were found beside it" in replaced and source == ""


def test_a_state_without_a_jccl_optimizer_needs_a_communicator():
    with pytest.raises(ValueError, match="comm="):
        jccl.sync_state({"x": jnp.zeros(3)})


def test_states_of_different_structure_are_refused_with_both_summaries():
    with Cluster(2) as cluster:

        def program(comm, index):
            state = {"x": np.zeros(3 + index)}
            try:
                jccl.sync_state(state, comm, deadline=30)
            except jccl.MismatchError as fault:
                return fault.text
            return ""

        texts = [text for text in cluster.run(program) if text]
        assert texts
        assert all("3" in text and "4" in text for text in texts)


def test_a_state_of_an_earlier_process_is_taken_by_the_communicator_named():
    with Cluster(1) as cluster:
        comm = cluster.comms[0]
        tx = jccl.diloco(comm, optax.sgd(0.1), sync_every=2)
        state = TrainState.create(apply_fn=None, params=PARAMS, tx=tx)
        old = state.opt_state._replace(key=jnp.int32(-1))
        restored = jccl.sync_state(state.replace(opt_state=old), comm)
        assert restored.params["w"].tolist() == PARAMS["w"].tolist()
        assert comm.revision("diloco") == 0 and comm.digest("diloco")


def test_an_optimizer_that_is_made_again_keeps_its_key():
    with Cluster(1) as cluster:
        comm = cluster.comms[0]

        def key_of(tag):
            tx = jccl.diloco(
                comm, optax.sgd(0.1), sync_every=2, rounds=jccl.Rounds(tag=tag)
            )
            return int(tx.init(PARAMS).key)

        assert key_of("a") == key_of("a") != key_of("b")


def test_processes_of_a_site_synchronise_tags_one_after_another():
    """Each call is a program of all of them, so its place is the same in each."""
    calls = []

    class Site:
        def sync_state(self, tree, *, tag):
            calls.append((tag, tree, threading.get_ident()))
            return tag

    tags, here = ["a", "b", "c"], threading.get_ident()
    assert snapshot._sync_all(Site(), tags, [1, 2, 3]) == tags
    assert calls == [("a", 1, here), ("b", 2, here), ("c", 3, here)]


def test_a_state_is_known_by_its_key_also_where_its_communicator_is_named():
    with Cluster(1) as cluster:
        comm = cluster.comms[0]
        one, two = (
            jccl.diloco(comm, optax.sgd(0.1), sync_every=2, rounds=jccl.Rounds(tag=tag))
            for tag in "ab"
        )
        jccl.sync_state((PARAMS, two.init(PARAMS)), comm)
        assert comm.digest("b") != comm.digest("a")
        jccl.sync_state((PARAMS, one.init(PARAMS)), comm)
        assert comm.digest("a") == comm.digest("b")


def test_tuples_of_any_length_are_plain_pytrees():
    assert nnx.Optimizer  # a pair might be a model and its optimizer
    with Cluster(1) as cluster:
        for state in [(np.ones(2),), (np.ones(2), np.ones(3), np.ones(4))]:
            got = jccl.sync_state(state, cluster.comms[0], tag=f"t{len(state)}")
            assert [x.tolist() for x in got] == [x.tolist() for x in state]


def test_a_compiled_nnx_step_heals_by_the_names_that_the_host_gave():
    """Its optimizer state is arrays inside the step and boxes of them outside."""
    with Cluster(2) as cluster:

        def program(comm, index):
            model = nnx.Linear(3, 1, rngs=nnx.Rngs(0))
            tx = jccl.diloco(comm, optax.sgd(0.1), sync_every=1, codec=None)
            optimizer = nnx.Optimizer(model, tx, wrt=nnx.Param)
            jccl.sync_state((model, optimizer))

            @nnx.jit
            def step(model, optimizer):
                x = jnp.ones((2, 3))
                grads = nnx.grad(lambda m: (m(x) ** 2).mean())(model)
                optimizer.update(model, grads)

            codes = []
            while int(optimizer.opt_state.rounds[...]) < 4:
                if index == 0 and len(codes) == 2:
                    kernel = optimizer.opt_state.anchor["kernel"]
                    kernel[...] = kernel[...] + 1
                step(model, optimizer)
                codes.append(int(np.asarray(optimizer.opt_state.status[...])[0]))
            return codes, comm.digest("diloco")

        (edited, digest), (other, same) = cluster.run(program)
    assert edited == [Code.OK, Code.OK, Code.RESYNCED, Code.OK, Code.OK]
    assert other == [Code.OK] * 4
    assert digest == same


STARTED_AGAIN = """
import jax, jax.numpy as jnp, optax, jccl
with jccl.connect() as comm:
    tx = jccl.diloco(comm, optax.sgd(0.1), sync_every=1)
    params = {"w": jnp.ones(4)}
    @jax.jit
    def step(params, state):
        return tx.update(params, state, params)
    step.lower(params, tx.init(params)).compile()
"""


def test_a_script_that_is_started_again_finds_its_step_compiled(tmp_path):
    env = {
        **os.environ,
        "JCCL_ROUTE": "ffi",  # programs that call Python are not cached
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    with Cluster(1) as cluster:
        env["JCCL_MASTER"] = cluster.master.address
        for _ in range(2):
            argv = [sys.executable, "-c", STARTED_AGAIN]
            subprocess.run(argv, env=env, check=True, timeout=120)
            assert len([*tmp_path.glob("jit_step-*-cache")]) == 1


def test_what_a_state_was_made_from_is_named_when_it_is_published():
    """Unsaid, an edit beside a round would be a vote on what the revision is."""
    with Cluster(1) as cluster:
        comm = cluster.comms[0]
        state, fine = {"w": np.zeros(3)}, jnp.zeros(4, jnp.int32)
        for unsaid in (
            lambda: comm.publish(state),
            lambda: jccl.publish(state, comm),
            lambda: jccl.publish(state, comm, status=fine),
        ):
            with pytest.raises(TypeError, match="'before'"):
                unsaid()


def test_a_state_of_other_types_is_not_published():
    """The same bits under another type are another state, whose sums are another's."""
    with Cluster(2) as cluster:

        def program(comm, index):
            state = jccl.sync_state({"w": np.ones(4)}, comm)
            moved = comm.all_reduce(
                {"w": np.ones(4)}, tag="state", round=jccl.Round(state=state)
            ).value
            new = {"w": state["w"] + moved["w"]}
            if index == 0:
                other = {"w": new["w"].view(np.int64)}
                with pytest.raises(jccl.MismatchError, match="f64.4. has another type"):
                    jccl.publish(other, comm, before=state)
            state = jccl.publish(new, comm, before=state)
            comm.all_reduce(
                {"w": np.ones(4)}, tag="state", round=jccl.Round(state=state)
            )
            return state["w"].tolist()

        assert cluster.run(program) == [[2.0] * 4] * 2


def test_threads_that_declare_one_tag_at_once_get_a_key_each():
    """As the peers of a Cluster do: else both states would be one communicator's."""

    class Owner:
        pass

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for n in range(300):
            layout = SimpleNamespace(tag=f"declared at once {n}")
            owners = Owner(), Owner()
            together = threading.Barrier(2)

            def declare(owner, layout=layout, together=together):
                together.wait()
                return snapshot.declare(owner, layout)

            with ThreadPoolExecutor(2) as threads:
                keys = set(threads.map(declare, owners))
            assert len(keys) == 2
    finally:
        sys.setswitchinterval(interval)
