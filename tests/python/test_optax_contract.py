"""What every optax transform of jccl has to get along with: the containers of Flax and
optax, checkpoints, frozen and mixed parameters. Each works, or is refused in words.

Two peers begin with different parameters, so each case goes through `sync_state` too.
A new transform is one more row of ROWS.
"""

import contextlib
import functools
import itertools
import threading

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax import nnx, serialization
from flax.training.train_state import TrainState
from jax import lax

import jccl
from jccl import snapshot
from jccl.errors import Code
from jccl.optim.options import in_groups
from jccl.testing import Cluster

STEPS = 8  # after which every row has committed a round
XS = jax.random.normal(jax.random.key(0), (2, 3 * STEPS, 3))
INNER = optax.adam(1e-2)
_count = itertools.count()


def made_by(make, **options):
    """`make` with these options and others, each by its own name."""
    common = {"outer": jccl.sgd(1.0), "deadline": 60.0, **options}

    def row(comm, inner, **more):
        return make(comm, inner, **in_groups(**common, **more))

    return row


ROWS = {
    "diloco": made_by(jccl.diloco, sync_every=2, codec=None),
    "streaming": made_by(jccl.diloco, sync_every=4, fragments=2, overlap=1),
    "eager": made_by(jccl.eager_diloco, sync_every=3),
    "sparse": made_by(jccl.sparse_loco, sync_every=2),
}


@pytest.fixture(params=ROWS.values(), ids=ROWS.keys())
def row(request):
    return request.param


@pytest.fixture(scope="module")
def pair():
    with Cluster(2) as cluster:
        yield cluster


def params_of(index):
    return {"b": jnp.ones(3) + index, "w": jnp.arange(3.0) / 3 + 0.1 + index}


def loss(params, x):
    total = (params["w"] * x - params["b"]) ** 2
    return jnp.sum(total.astype(jnp.float32))


def step(state, x):
    return state.apply_gradients(grads=jax.grad(loss)(state.params, x)), None


def train_state(tx, params):
    return TrainState.create(apply_fn=None, params=params, tx=tx)


@functools.partial(jax.jit, donate_argnums=0)
def train(state, xs):
    return lax.scan(step, state, xs)[0]


def run(pair, program):
    """program(comm, index, tag) on a thread and a device per peer."""
    tag = f"tag{next(_count)}"

    def one(comm, index):
        with jax.default_device(jax.devices()[index]):
            return program(comm, index, tag)

    return pair.run(one)


def bits(tree):
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]


def agree(states, optimizers=1):
    """Both peers hold the same shared parts, after rounds that committed."""
    found = [snapshot.find(state) for state in states]
    assert [len(nodes) for nodes in found] == [optimizers] * 2
    for one, other in zip(*found, strict=True):
        assert bits(one.jccl_shared()) == bits(other.jccl_shared())
        for node in (one, other):
            (rounds,) = jax.tree.leaves(node.rounds)
            (status,) = jax.tree.leaves(node.status)
            (skipped,) = jax.tree.leaves(node.skipped)
            assert int(rounds) >= 1 and int(skipped) == 0
            assert status[:2].tolist() == [Code.OK, 2]
            assert all(np.isfinite(x).all() for x in jax.tree.leaves(node.anchor))


def trained(pair, make, start=params_of):
    """The states of both peers after STEPS steps of a TrainState with make(comm, tag)
    as its optimizer."""

    def program(comm, index, tag):
        tx = make(comm, tag)
        state = jccl.sync_state(train_state(tx, start(index)))
        return train(state, XS[index, :STEPS])

    return run(pair, program)


def test_a_train_state_in_a_donated_scan_with_wrappers_around_and_inside(pair, row):
    def make(comm, tag):
        rate = optax.linear_schedule(1.0, 0.0, STEPS)
        inner = optax.inject_hyperparams(optax.adam)(rate)
        every = optax.MultiSteps(inner, every_k_schedule=2).gradient_transformation()
        return optax.chain(optax.clip_by_global_norm(1.0), row(comm, every, tag=tag))

    states = trained(pair, make)
    agree(states)
    for state in states:
        held = snapshot.find(state)[0].inner.inner_opt_state.hyperparams
        assert 0 < float(held["learning_rate"]) < 1


class Model(nnx.Module):
    def __init__(self, index):
        self.w = nnx.Param(params_of(index)["w"])
        self.b = nnx.Param(params_of(index)["b"])
        self.calls = nnx.BatchStat(jnp.zeros((), jnp.int32))  # not the optimizer's


def test_an_nnx_optimizer(pair, row):
    def program(comm, index, tag):
        model = Model(index)
        # Its state has leaves beside jccl's.
        tx = optax.chain(
            optax.scale_by_schedule(lambda n: 1.0), row(comm, INNER, tag=tag)
        )
        optimizer = nnx.Optimizer(model, tx, wrt=nnx.Param)
        model, optimizer = jccl.sync_state((model, optimizer))
        begun = bits(nnx.state(model, nnx.Param))

        @nnx.jit
        def one(model, optimizer, x):
            model.calls[...] += 1
            grads = nnx.grad(lambda m: loss({"w": m.w, "b": m.b}, x))(model)
            optimizer.update(model, grads)

        for x in XS[index, :STEPS]:
            one(model, optimizer, x)
        assert int(model.calls[...]) == STEPS
        return optimizer.opt_state, begun

    (one, first), (other, second) = run(pair, program)
    agree([one, other])
    assert first == second  # sync_state set the second model's parameters


@pytest.mark.parametrize(
    "wrap",
    [
        lambda tx: optax.MultiSteps(tx, every_k_schedule=2).gradient_transformation(),
        lambda tx: optax.apply_if_finite(tx, max_consecutive_errors=3),
        lambda tx: optax.conditionally_transform(tx, lambda n, **_: n > 2),
    ],
    ids=["MultiSteps", "apply_if_finite", "conditionally_transform"],
)
def test_what_drops_calls_is_refused_around_and_works_inside(pair, row, wrap):
    comm = pair.comms[0]
    params = params_of(0)
    tx = wrap(row(comm, INNER, tag=f"tag{next(_count)}"))
    with pytest.raises(ValueError, match=r"put it inside.*inner="):
        jax.eval_shape(tx.update, params, tx.init(params), params)
    inside = row(comm, wrap(INNER), tag=f"tag{next(_count)}")
    jax.eval_shape(inside.update, params, inside.init(params), params)


def mixed(index):
    params = params_of(index)
    return {
        "w": params["w"].astype(jnp.bfloat16),
        "b": {"half": params["b"][:1].astype(jnp.float16), "full": params["b"][1:]},
    }


def mixed_step(state, x):
    def f(params):
        b = jnp.concatenate([params["b"]["half"], params["b"]["full"]])
        return loss({"w": params["w"], "b": b}, x)

    return state.apply_gradients(grads=jax.grad(f)(state.params)), None


def test_mixed_precision_with_hyperparameters_injected_around(pair, row):
    def program(comm, index, tag):
        def make(learning_rate):
            return row(comm, optax.sgd(learning_rate), tag=tag)

        tx = optax.inject_hyperparams(make)(learning_rate=0.01)
        state = jccl.sync_state(train_state(tx, mixed(index)))
        train = jax.jit(lambda s, xs: lax.scan(mixed_step, s, xs)[0])
        state = train(state, XS[index, :STEPS])
        state.opt_state.hyperparams["learning_rate"] = jnp.zeros(())
        return train(state, XS[index, STEPS : 2 * STEPS])

    states = run(pair, program)
    agree(states)
    for state in states:
        dtypes = jax.tree.map(lambda x: x.dtype.name, state.params)
        assert dtypes == {"w": "bfloat16", "b": {"half": "float16", "full": "float32"}}
        for leaf in jax.tree.leaves(snapshot.find(state)[0].anchor):
            assert leaf.dtype == jnp.float32


def frozen(index):
    return {**params_of(index), "table": jnp.arange(4, dtype=jnp.int32)}


def frozen_loss(params, x):
    return loss({"w": params["w"] + params["table"][1], "b": params["b"]}, x)


FREEZERS = {
    "masked": lambda tx: optax.chain(
        optax.masked(tx, lambda p: jax.tree.map(is_float, p)),
        optax.masked(optax.set_to_zero(), {"w": False, "b": False, "table": True}),
    ),
    "multi_transform": lambda tx: optax.multi_transform(
        {"train": tx, "frozen": optax.set_to_zero()},
        {"w": "train", "b": "train", "table": "frozen"},
    ),
}


def is_float(x):
    return jnp.issubdtype(x.dtype, jnp.floating)


@pytest.mark.parametrize("freeze", FREEZERS.values(), ids=FREEZERS.keys())
def test_frozen_leaves_stay_as_they_are_and_do_not_travel(pair, row, freeze):
    def frozen_step(state, x):
        grads = jax.grad(frozen_loss, allow_int=True)(state.params, x)
        grads["table"] = jnp.zeros(4, jnp.int32)
        return state.apply_gradients(grads=grads), None

    def program(comm, index, tag):
        tx = freeze(row(comm, INNER, tag=tag))
        state = jccl.sync_state(train_state(tx, frozen(index)))
        begun = bits(state.params)
        state = jax.jit(lambda s, xs: lax.scan(frozen_step, s, xs)[0])(
            state, XS[index, :STEPS]
        )
        return state, begun

    (one, first), (other, second) = run(pair, program)
    agree([one, other])
    assert first == second  # also the second peer's, which began with others
    assert one.params["table"].tolist() == [0, 1, 2, 3]
    assert len(jax.tree.leaves(snapshot.find(one)[0].anchor)) == 2


def test_leaves_that_cannot_be_averaged_are_refused_by_name(pair, row):
    tx = row(pair.comms[0], INNER, tag=f"tag{next(_count)}")
    with pytest.raises(TypeError, match=r"'table' is int32.*optax\.masked"):
        tx.init(frozen(0))


def test_two_optimizers_of_one_tree_on_one_communicator(pair, row):
    halves = ("encoder", "decoder")

    def two_steps(state, x):
        grads = jax.grad(lambda p: sum(loss(p[half], x) for half in halves))
        return state.apply_gradients(grads=grads(state.params)), None

    def program(comm, index, tag):
        tx = optax.multi_transform(
            {half: row(comm, INNER, tag=tag + half) for half in halves},
            {half: half for half in halves},
        )
        params = {half: params_of(index) for half in halves}
        state = jccl.sync_state(train_state(tx, params))
        return jax.jit(lambda s, xs: lax.scan(two_steps, s, xs)[0])(
            state, XS[index, :STEPS]
        )

    agree(run(pair, program), optimizers=2)


def through_flax(state, template, folder):
    path = folder / "state.msgpack"
    path.write_bytes(serialization.to_bytes(state))
    return serialization.from_bytes(template, path.read_bytes())


# One checkpointer at a time: orbax takes a process for one writer, and those of two
# threads remove each other's unfinished folders.
_KEEPING = threading.Lock()


def through_orbax(state, template, folder):
    abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, template)
    with _KEEPING, contextlib.closing(ocp.StandardCheckpointer()) as keeper:
        keeper.save(folder / "state", state)
        keeper.wait_until_finished()
        return keeper.restore(folder / "state", abstract)


def described(tx, params):
    """The state that jit makes has the form that eval_shape tells."""
    shapes = jax.eval_shape(tx.init, params)
    state = jax.jit(tx.init)(params)
    assert jax.tree.structure(shapes) == jax.tree.structure(state)
    for spec, leaf in zip(jax.tree.leaves(shapes), jax.tree.leaves(state), strict=True):
        assert (spec.shape, spec.dtype) == (leaf.shape, leaf.dtype)
    return shapes, state


def test_a_program_compiled_ahead_goes_on_from_checkpoints(pair, row, tmp_path):
    def program(comm, index, tag):
        tx = row(comm, INNER, tag=tag)
        shapes, opt_state = described(tx, params_of(index))
        held = jccl.sync_state((params_of(index), opt_state))

        @jax.jit
        def update(held, x):
            params, opt_state = held
            grads = jax.grad(loss)(params, x)
            updates, opt_state = tx.update(grads, opt_state, params)
            return optax.apply_updates(params, updates), opt_state

        compiled = update.lower((params_of(index), shapes), XS[0, 0]).compile()
        for turn, through in enumerate((None, through_flax, through_orbax)):
            if through:
                folder = tmp_path / f"{index} {turn}"
                folder.mkdir()
                template = (params_of(0), tx.init(params_of(0)))
                restored = through(held, template, folder)
                assert jax.tree.structure(restored) == jax.tree.structure(held)
                assert bits(restored) == bits(held)
                held = jax.tree.map(jnp.asarray, restored)
            rounds = int(snapshot.find(held)[0].rounds)
            for x in XS[index, turn * STEPS : (turn + 1) * STEPS]:
                held = compiled(held, x)
            assert int(snapshot.find(held)[0].rounds) > rounds
        return held

    agree(run(pair, program))


def test_missing_parameters_are_refused(pair, row):
    tx = row(pair.comms[0], INNER, tag=f"tag{next(_count)}")
    state = tx.init(params_of(0))
    with pytest.raises(ValueError, match=r"tx\.update\(grads, state, params\)"):
        tx.update(params_of(0), state)
