"""A run on paper, for tests of checkpoints alone: a communicator that says what it is
told, and a state whose bits follow from its revision. No master, and no JAX backend."""

from typing import Any, NamedTuple

import numpy as np

from jccl import _native, snapshot
from jccl.checkpoint.keeper import Checkpoints
from jccl.communicator import Communicator

TAG = "diloco"


class PaperState(NamedTuple):
    inner: Any
    anchor: Any
    outer: Any
    rounds: Any
    key: Any = np.int32(0)

    def jccl_shared(self):
        return {"anchor": self.anchor, "outer": self.outer, "rounds": self.rounds}


class PaperLayout(NamedTuple):
    tag: str = TAG

    def tags(self, tag=None):
        return [tag or self.tag]

    def shared(self, state):
        return [state.jccl_shared()]

    def adopt(self, state, trees):
        return state._replace(**trees[0])


class About(NamedTuple):
    run_id: str
    id: int
    ids: list[int]


class PaperComm(Communicator):
    """`number` is the revision that its last state has."""

    def __init__(self, site="eu", run="a" * 32, ids=(1,)):
        self.site, self.run, self.ids = site, run, list(ids)
        self.number, self._digest = 0, ""
        snapshot.declare(self, PaperLayout())

    def publish_on_paper(self, state, number):
        import jax

        self.number = number
        arrays = jax.tree.leaves(PaperLayout().shared(state[1])[0])
        self._digest = _native.core().state_digest(arrays)

    def attributes(self):
        return About(self.run, self.ids[0], sorted(self.ids))

    def revision(self, tag="state"):
        return self.number

    def digest(self, tag="state"):
        return self._digest


def state_of(number, site="eu", elements=1000):
    """(params, PaperState), with leaves of several kinds, and one without elements."""
    rng = np.random.default_rng(number)
    own = np.random.default_rng([number, *site.encode()])

    def some(rng, *shape):
        return rng.normal(size=shape).astype(np.float32)

    shape = (elements // 10, 10)
    anchor = {"w": some(rng, *shape), "b": some(rng, 7), "none": some(rng, 0, 3)}
    outer = {"momentum": some(rng, *shape), "half": some(rng, 5).astype(np.float16)}
    inner = some(own, *shape), {"count": np.array(number), "on": own.random(4) < 0.5}
    params = {"w": some(own, *shape), "b": some(own, 7), "none": some(own, 0, 3)}
    rounds = np.array(number, np.int32)
    return params, PaperState(inner, anchor, outer, rounds)


class Site:
    """One that saves what follows from numbers."""

    def __init__(self, where, site="eu", **options):
        more = {key: options.pop(key) for key in ("run", "ids") if key in options}
        self.site = site
        self.comm = PaperComm(site, **more)
        self.checkpoints = Checkpoints(self.comm, where, **{"every": 1, **options})

    def save(self, number, wait=True):
        state = state_of(number, self.site)
        self.comm.publish_on_paper(state, number)
        begun = self.checkpoints.save(state, {"at": number, "key": np.arange(2)})
        if wait:
            self.checkpoints.wait()
        return begun

    def restore(self, **options):
        """The number of what was restored; 0 if nothing was."""
        empty = state_of(0, self.site)
        state, data = self.checkpoints.restore(empty, None, **options)
        number = int(state[1].rounds)
        if number:
            same(state, state_of(number, self.site))
            assert data["at"] == number and data["key"].tolist() == [0, 1]
        return number


def same(one, other):
    import jax

    assert jax.tree.structure(one) == jax.tree.structure(other)
    for got, wanted in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
        assert got.tobytes() == wanted.tobytes()
