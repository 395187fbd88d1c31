"""An optimizer and its equations side by side, through schedules of outcomes."""

import copy
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
from hypothesis import given, settings
from hypothesis import strategies as st

import jccl
from jccl import snapshot
from jccl.optim.options import in_groups
from tests.python.reference import (
    EagerPeer,
    Inner,
    JoiningPeer,
    Momentum,
    Peer,
    norm_of,
)
from tests.python.scripted import OUTCOMES, Script, Tag

SHAPES = {"embed": (4,), "layer_0": (2, 4), "layer_1": (5,)}
PARAMS = {
    name: np.random.default_rng(i).normal(size=shape).astype(np.float32)
    for i, (name, shape) in enumerate(SHAPES.items())
}
INNER = optax.sgd(0.1, momentum=0.5)
NESTEROV = Momentum(0.5, 0.8)
TOPK = {"codec": jccl.TopK(2), "error_feedback": 0.75}
CODED = {"beta": 0.75}


@dataclasses.dataclass(frozen=True)
class Case:
    made: object  # of the communicator
    outer: object
    options: dict  # of the reference
    peer: type = Peer
    norms: tuple = ()


def diloco(outer=None, **options):
    outer = jccl.nesterov(0.5, 0.8) if outer is None else outer
    return lambda comm: jccl.diloco(comm, INNER, outer, **in_groups(**options))


class View:
    """What the reference asks about the run: this step's calls, in order."""

    def __init__(self, script):
        self.script = script

    def next(self, tag, sent, weight):
        call = self.script.calls.pop(0)
        assert call.tag == tag
        return call

    def newest(self, tag):
        name, behind, leaves = self.script.published.pop(0)
        assert name == tag
        return leaves if behind else None

    def inner(self):
        return self.script.given

    def median_norm(self, delta):
        return np.median([norm_of(delta), *self.script.rows["norm"]])


class Pair:
    """The optimizer under test and its equations, step by step."""

    def __init__(self, case, script=None):
        self.case = case
        self.script = script or Script(case.outer)
        self.tx = case.made(self.script.comm)
        self.view = View(self.script)
        self.jitted = jax.jit(self._step)

    def _step(self, params, state, grads, weight):
        updates, state = self.tx.update(grads, state, params, weight=weight)
        return optax.apply_updates(params, updates), state

    def begin(self, chosen, seed):
        self.script.reset(chosen, seed)
        self.script.rows = {"norm": [np.float32(x) for x in self.case.norms]}
        self.rng = np.random.default_rng(seed)
        self.peer = self.case.peer(
            list(PARAMS.values()), Inner(0.1, 0.5), self.case.outer, **self.case.options
        )
        if self.case.peer is JoiningPeer:
            self.late(seed)
        params = jax.tree.map(jnp.array, PARAMS)
        self.params, self.state = jccl.sync_state(
            (params, self.tx.init(params)), self.script.comm
        )

    def late(self, seed):
        """The run has had rounds without this peer."""
        part = self.peer.parts[0]
        begun = [np.float32(x + 1) for x in [*part.anchor, *part.outer]]
        tag = self.script.tags["diloco"] = Tag([*begun, np.int32(3)])
        # Who gives is known by a number, which is above or below this peer's.
        giver = np.array([0, seed % 2 * (2**31 - 1), 0], np.int32)
        self.script.rows["join"] = [giver]
        self.script.given = [
            self.rng.normal(size=x).astype("f4") for x in SHAPES.values()
        ]
        self.peer.restored([tag.newest])

    def step(self):
        grads = {
            k: self.rng.normal(size=v).astype(np.float32) for k, v in SHAPES.items()
        }
        weight = float(self.rng.choice([0.0, 0.5, 1.0, 3.0], p=[0.1, 0.3, 0.3, 0.3]))
        self.params, self.state = jax.block_until_ready(
            self.jitted(self.params, self.state, grads, np.float32(weight))
        )
        if self.script.wrong:
            raise self.script.wrong[0]
        self.peer.step(list(grads.values()), weight, self.view)
        assert not self.script.calls and not self.script.published
        self.compare()

    def compare(self):
        state, peer = self.state, self.peer
        close(self.params, peer.params)
        close(state.inner, peer.trace)
        assert int(state.step) == peer.step_count
        assert int(state.skipped) == peer.skipped
        assert int(state.status[0]) == peer.code
        for part, own in zip(state.parts, peer.parts, strict=True):
            close(part.outer, own.outer)
            close(
                [x for i, x in enumerate(state.anchor.values()) if i in own.leaves],
                own.anchor,
            )
            counted = [int(part.rounds), int(part.since), bool(part.doubt)]
            assert counted == [own.rounds, own.since, own.doubt]
            if peer.beta is not None:
                close(part.left, own.left)
        if isinstance(peer, EagerPeer):
            ahead = state.parts[0].extra
            close(ahead.sent, peer.sent)
            close(ahead.offset, peer.a)
            close(ahead.momentum, peer.c)

    def edit(self, leaf):
        """As an honest mistake would: the anchor of one fragment is another one."""
        name = list(SHAPES)[leaf]
        anchor = {**self.state.anchor, name: self.state.anchor[name] + 0.5}
        self.state = self.state._replace(anchor=anchor)
        (part,) = [part for part in self.peer.parts if leaf in part.leaves]
        part.anchor[part.leaves.index(leaf)] += 0.5
        part.edited = True

    def save(self):
        held = jax.tree.map(np.array, (self.params, self.state))
        return *held, copy.deepcopy(self.peer)

    def restore(self, saved):
        """In a new process, whose optimizers have other keys."""
        self.script.restart()
        params, state, self.peer = saved[0], saved[1], copy.deepcopy(saved[2])
        state = state._replace(key=jnp.int32(1))
        layout = snapshot.declared_for(state, self.script.comm, None).layout
        own = [jax.tree.leaves(tree) for tree in layout.shared(state)]
        newest = [self.script.tags[tag].newest for tag in layout.tags()]
        self.params, self.state = jccl.sync_state(
            jax.tree.map(jnp.array, (params, state)), self.script.comm
        )
        self.peer.restored(None if same_bits(own, newest) else newest)
        self.compare()


def same_bits(one, other):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.asarray(x).tobytes() == np.asarray(y).tobytes() for x, y in pairs)


def close(got, wanted):
    one, other = flat(jax.tree.leaves(got)), flat(wanted)
    assert one.shape == other.shape
    if not (np.abs(one - other) <= 1e-4 * (1 + np.abs(other))).all():
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def flat(leaves):
    return np.concatenate([np.zeros(0), *(np.ravel(x) for x in leaves)])


EVENTS = st.lists(
    st.tuples(
        # Most go well, or there would be no momentum and no residual to lose.
        st.sampled_from(["ok"] * 12 + list(OUTCOMES)),
        st.sampled_from(["", "", "", "edit", "save", "restore", "restart"]),
        st.integers(0, 2),  # which leaf is edited
        st.integers(1, 4),  # steps after it
    ),
    min_size=5,
    max_size=12,
)


def play(pair, events, seed):
    pair.begin([outcome for outcome, *_ in events], seed)
    with pair.script.on():
        saved = pair.save()
        for _, action, leaf, steps in events:
            if action == "edit":
                pair.edit(leaf)
            elif action == "save":
                saved = pair.save()
            elif action == "restore":
                pair.restore(saved)
            elif action == "restart":
                pair.restore(pair.save())
            for _ in range(steps):
                pair.step()


def check(pair, schedules):
    @settings(max_examples=schedules, deadline=None, derandomize=True, database=None)
    @given(EVENTS, st.integers(0, 2**32 - 1))
    def all_is_well(events, seed):
        play(pair, events, seed)

    all_is_well()
