"""As test_reference, where rounds are not called by a program of one device."""

import copy

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import jccl
from tests.python.paired import (
    NESTEROV,
    PARAMS,
    SHAPES,
    Case,
    Pair,
    View,
    check,
    close,
    diloco,
    same_bits,
)
from tests.python.reference import (
    BetweenPeer,
    Inner,
)
from tests.python.scripted import Script


class BetweenPair(Pair):
    """`jccl.between_steps`, whose inner steps are the user's."""

    def __init__(self, overlap):
        self.script, self.overlap = Script(NESTEROV), overlap
        self.view, self.inner = (
            View(self.script),
            Inner(np.float32(0.1), np.float32(0.5)),
        )

    def made(self):
        return jccl.between_steps(
            self.script.comm,
            jccl.nesterov(0.5, 0.8),
            sync_every=3,
            codec="int8",
            travel=jccl.Travel(error_feedback=True),
            rounds=jccl.Rounds(overlap=self.overlap, mixing=0.25),
        )

    def begin(self, chosen, seed):
        self.script.reset(chosen, seed)
        self.rng, self.sync = np.random.default_rng(seed), self.made()
        self.params = self.sync.join(jax.tree.map(jnp.array, PARAMS))
        self.trace = [np.zeros(shape, np.float32) for shape in SHAPES.values()]
        self.peer = BetweenPeer(
            list(PARAMS.values()),
            Inner(0.1, 0.5),
            NESTEROV,
            every=3,
            overlap=self.overlap,
            alpha=0.25 if self.overlap else 0.0,
            beta=1.0,
            folds=False,
        )

    def step(self):
        grads = [self.rng.normal(size=x).astype(np.float32) for x in SHAPES.values()]
        weight = float(self.rng.choice([0.0, 0.5, 1.0, 3.0], p=[0.1, 0.3, 0.3, 0.3]))
        own = [np.asarray(x) for x in self.params.values()]
        own, self.trace = self.inner.step(own, self.trace, grads)
        own = dict(zip(SHAPES, map(jnp.asarray, own), strict=True))
        said = {} if weight == 1 else {"weight": weight}  # which 1 is unless said
        self.params = self.sync(own, **said)
        if self.sync._open is not None:
            self.sync._open._thread.join()
            return self.wait(grads, weight)
        self.peer.step(grads, weight, self.view)
        assert not self.script.calls and not self.script.published
        self.compare()

    def wait(self, grads, weight):
        """The round is open: what it published is looked at when it is taken."""
        self.peer.step(grads, weight, self.view)
        self.compare()

    def compare(self):
        state, peer, (part,) = self.sync.state(), self.peer, self.peer.parts
        close(self.params, peer.params)
        close(state.anchor, part.anchor)
        close(state.outer, part.outer)
        close(state.left, part.left)
        counted = [int(state.rounds), state.step, self.sync.skipped]
        assert counted == [part.rounds, peer.step_count, peer.skipped]
        assert self.sync.status.code == peer.code

    def edit(self, leaf):
        if self.sync._open is not None:
            return  # its thread may have read the anchor, or not yet
        name, part = list(SHAPES)[leaf], self.peer.parts[0]
        for held in (self.sync._shared["anchor"], self.sync._anchor):
            held[name] = held[name] + np.float32(0.5)
        part.anchor[leaf] += 0.5
        part.edited = True

    def save(self):
        held = jax.tree.map(np.array, (self.params, self.trace, self.sync.state()))
        return *held, self.sync.skipped, self.sync.status, copy.deepcopy(self.peer)

    def restore(self, saved):
        self.script.restart()
        params, self.trace, state, skipped, status, peer = saved
        self.peer, step = copy.deepcopy(peer), peer.step_count
        tag = self.script.tags["diloco"]
        alike = same_bits(state[:3], tag.newest)
        self.script.published.clear()
        self.sync = self.made()
        self.sync.skipped, self.sync.status = skipped, status
        self.params = self.sync.restore(state, jax.tree.map(jnp.array, params))
        self.peer.restored(None if alike else [tag.newest])
        if alike:
            self.peer.step_count = step
        self.compare()


@pytest.mark.parametrize("overlap", [0, 2])
def test_rounds_between_steps_leave_what_the_equations_say(overlap):
    check(BetweenPair(overlap), 30)


# ---- several local devices -----------------------------------------------------------

MESH = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("d",))
SPECS = {"embed": P(), "layer_0": P(None, "d"), "layer_1": P()}


class MeshPair(Pair):
    """A step mapped over two devices that cut one leaf."""

    def __init__(self):
        case = Case(
            diloco(
                sync_every=3,
                rounds=jccl.Rounds(overlap=2),
                codec="bf16",
                place=jccl.Place(specs=SPECS),
            ),
            NESTEROV,
            {"every": 3, "overlap": 2, "alpha": 0.5},
        )
        super().__init__(case, Script(NESTEROV, "buffer_callback", 2, {(2, 2): 1}))
        state = jax.eval_shape(self.tx.init, PARAMS)
        specs = (SPECS, jccl.specs_like(state, PARAMS, SPECS))
        self.jitted = jax.jit(
            jax.shard_map(
                self._step,
                mesh=MESH,
                in_specs=(*specs, SPECS, P()),
                out_specs=specs,
                check_vma=False,
            )
        )


def test_two_devices_leave_what_the_equations_say():
    check(MeshPair(), 20)
