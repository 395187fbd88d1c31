"""A site of several processes on paper, for tests of its checkpoints: each process is a
thread, and what they say to each other goes through one exchange. No master."""

import threading

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from jccl import _native, snapshot
from jccl.checkpoint.keeper import Checkpoints
from jccl.checkpoint.team import Team
from jccl.sites import ShardedCommunicator
from tests.paper_run import TAG, About, PaperLayout, PaperState

PATIENCE_S = 60.0
CUT = {"w": P("d"), "m": P(None, "d")}  # others lie whole on every device


class Exchange:
    def __init__(self, processes):
        self.rows = [None] * processes
        self.barrier = threading.Barrier(processes)


class PaperTeam(Team):
    def __init__(self, exchange, place):
        super().__init__(len(exchange.rows), place)
        self._exchange = exchange

    def meet(self, leaves):
        pass

    def gather(self, numbers):
        between = self._exchange
        between.rows[self.place] = list(map(int, numbers))
        between.barrier.wait(PATIENCE_S)
        table = np.array(between.rows, np.uint32)
        between.barrier.wait(PATIENCE_S)
        return table


class PaperPart:
    site = "eu"

    def __init__(self, ids):
        self.ids = ids

    def attributes(self):
        return About("a" * 32, self.ids[0], sorted(self.ids))


class PaperSite(ShardedCommunicator):
    """`number` is the revision that its last state has."""

    def __init__(self, place, processes, parts, site="eu", ids=(1,)):
        own = parts // processes
        part = PaperPart(list(ids))
        part.site = site
        super().__init__([part] * own, place * own, parts, processes)
        self.number, self._digests = 0, ""
        snapshot.declare(self, PaperLayout())

    def publish_on_paper(self, state, number):
        self.number = number
        shared = PaperLayout().shared(state[1])[0]
        self._digests = " ".join(
            _native.core().state_digest(
                [cut(path, leaf, part, self.parts) for path, leaf in named(shared)]
            )
            for part in range(self.first, self.first + len(self.comms))
        )

    def revision(self, tag="state"):
        return self.number

    def digest(self, tag="state"):
        return self._digests


def named(tree):
    return [
        (path[-1].key if path else "", leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    ]


def cut(name, leaf, part, parts):
    """Part of a leaf as the transport cuts it: a second way to say it."""
    spec = CUT.get(name, P())
    dimension = list(spec).index("d") if "d" in spec else None
    leaf = np.asarray(leaf)
    if dimension is not None and leaf.shape[dimension] % parts == 0:
        return np.ascontiguousarray(np.split(leaf, parts, dimension)[part])
    slab = max(-(-leaf.size // parts), 1)
    return leaf.ravel()[slab * part : slab * (part + 1)]


def mesh(devices=4):
    return jax.make_mesh(
        (devices,), ("d",), axis_types=(AxisType.Auto,), devices=jax.devices()[:devices]
    )


def placed(tree, on):
    def put(path, leaf):
        name = path[-1].key if path and hasattr(path[-1], "key") else ""
        return jax.device_put(leaf, NamedSharding(on, CUT.get(name, P())))

    return jax.tree_util.tree_map_with_path(put, tree)


def state_of(number, on, site="eu"):
    """(params, PaperState, key): leaves cut and whole, of several kinds, one empty."""
    rng = np.random.default_rng(number)
    own = np.random.default_rng([number, *site.encode()])

    def some(rng):
        return {
            "w": rng.normal(size=(64, 3)).astype(np.float32),
            "m": rng.normal(size=(2, 8, 2)).astype(np.float32),
            "b": rng.normal(size=7).astype(np.float16),
            "none": np.zeros((0, 3), np.float32),
            "half": jax.numpy.asarray(rng.normal(size=(3, 3)), jax.numpy.bfloat16),
        }

    params, moments = some(own), some(own)
    key = jax.random.key(number)
    inner = placed(moments, on), {"count": np.array(number), "on": own.random(4) < 0.5}
    rounds = jax.device_put(np.int32(number), NamedSharding(on, P()))
    anchor, outer = placed(some(rng), on), placed({"w": some(rng)["w"]}, on)
    shared = PaperState(inner, anchor, outer, rounds)
    return placed(params, on), shared, key


class Process:
    """One process of the site: it saves what follows from numbers."""

    def __init__(self, where, exchange, place, parts=4, devices=4, **options):
        processes = len(exchange.rows)
        more = {key: options.pop(key) for key in ("site", "ids") if key in options}
        self.mesh = mesh(devices)
        self.comm = PaperSite(place, processes, parts, **more)
        self.checkpoints = Checkpoints(self.comm, where, **{"every": 1, **options})
        self.checkpoints._team = PaperTeam(exchange, place)
        self.site = more.get("site", "eu")

    def save(self, number, wait=True, data=None, now=False):
        state = state_of(number, self.mesh, self.site)
        self.comm.publish_on_paper(state, number)
        cursor = {"at": number, **(data or {})}
        begun = self.checkpoints.save(state, cursor, now=now)
        if wait:
            self.checkpoints.wait()
        return begun

    def restore(self, **options):
        """The number of what was restored; 0 if nothing was."""
        empty = state_of(0, self.mesh, self.site)
        state, data = self.checkpoints.restore(empty, None, **options)
        number = int(state[1].rounds)
        if number:
            wanted = state_of(number, self.mesh, self.site)
            same(state, wanted)
            assert data["at"] == number
        return number


def together(*acts):
    """What each returns, or the exception that ended it, of threads side by side."""
    ends = [None] * len(acts)

    def run(place, act):
        try:
            ends[place] = act()
        except BaseException as fault:
            ends[place] = fault

    threads = [
        threading.Thread(target=run, args=one, daemon=True) for one in enumerate(acts)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * PATIENCE_S)
        assert not thread.is_alive(), "a process waits for another one for ever"
    return ends


def site(where, processes=2, wheres=None, **options):
    """Its processes, made anew as after a restart."""
    exchange = Exchange(processes)
    return [
        Process((wheres or {}).get(place, where), exchange, place, **options)
        for place in range(processes)
    ]


def same(one, other):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for got, wanted in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
        if jax.dtypes.issubdtype(got.dtype, jax.dtypes.prng_key):
            got, wanted = jax.random.key_data(got), jax.random.key_data(wanted)
        assert getattr(got, "sharding", None) == getattr(wanted, "sharding", None)
        np.testing.assert_array_equal(np.asarray(got), np.asarray(wanted))


__all__ = ["TAG", "Process", "same", "site", "state_of", "together"]
