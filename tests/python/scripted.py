"""A run in script: one peer's calls, answered with outcomes that a test chose.

Stands in for the native module's handlers and communicator, the narrowest seam below
the optimizers: everything of jccl above them is what users run. It keeps what
the transport keeps (the run's newest state, what this peer published or adopted last,
the rounds in flight) and answers as it would: a state that was edited sends nothing, a
tag with a round in flight takes no other. All that it was handed is in `calls`, since
an assertion inside a callback would only become a status.
"""

import contextlib
import dataclasses
import itertools
import threading
from types import SimpleNamespace
from unittest import mock

import ml_dtypes
import numpy as np

from jccl import _native
from jccl.communicator import Communicator
from jccl.errors import Code

RESULT = (Code.OK, Code.GUARD, Code.SKIPPED)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What the run makes of one call of this peer."""

    code: int
    counts: bool = False  # this peer's values are in the run's result
    moves: int = 0  # rounds the run commits with this call's number: 0 or 1
    missed: int = 0  # rounds it commits after that, before this peer looks
    heals: int = 0  # how the call that fetches the newest state fails, if it does
    then: int = 0  # how all calls after that one do, until the next round


OUTCOMES = {
    "ok": Outcome(Code.OK, True, 1),
    "left out": Outcome(Code.SKIPPED, moves=1),
    "guard": Outcome(Code.GUARD, moves=1),
    "deadline": Outcome(Code.DEADLINE),
    "link lost": Outcome(Code.LINK_LOST),
    "aborted": Outcome(Code.ABORTED),
    "too few": Outcome(Code.TOO_FEW),
    "mismatch": Outcome(Code.MISMATCH),
    "master lost": Outcome(Code.MASTER_LOST),
    "corrupt": Outcome(Code.CORRUPT),
    "refused": Outcome(Code.RESYNC),
    "left behind": Outcome(Code.RESYNC, moves=1),
    "far behind": Outcome(Code.RESYNC, moves=1, missed=1),
    "left behind, no state": Outcome(Code.RESYNC, moves=1, heals=Code.STATE_LOST),
    "left behind, then cut": Outcome(Code.RESYNC, moves=1, then=Code.MASTER_LOST),
    "evicted": Outcome(Code.EVICTED, moves=1),
    "disputed, then settled": Outcome(Code.DISPUTED, moves=1),
    "in doubt, not in it": Outcome(Code.IN_DOUBT),
    "in doubt, without it": Outcome(Code.IN_DOUBT, moves=1),
    "in doubt, in it": Outcome(Code.IN_DOUBT, True, 1),
    "late": Outcome(Code.OK, True, 1, missed=1),
    "left out and late": Outcome(Code.SKIPPED, moves=1, missed=1),
}
EDITED = Outcome(Code.RESYNC)
BUSY = Outcome(Code.BUSY_TAG)


@dataclasses.dataclass
class Call:
    """A round as the transport saw it."""

    tag: str
    sent: list  # as it was handed over, values of encoded leaves
    arrives: list  # what the codec makes of it
    weight: float
    fingerprint: str
    outcome: Outcome
    encoded: bool  # on the device: `sent` is what the bytes stand for
    world: int = 0
    mean: list | None = None  # the run's result, with or without this peer
    revision: int = 0


class Tag:
    """The run's state under one tag as leaves: anchor, outer state, rounds."""

    def __init__(self, leaves):
        self.newest = [np.array(x) for x in leaves]
        self.held = marks(leaves)  # of what this peer shared last
        self.own = self.revision = int(leaves[-1])  # this peer's revision, the run's
        self.open = None  # handle of the round in flight


def marks(arrays):
    return np.asarray(
        _native.core().marks([np.ascontiguousarray(x) for x in arrays])
    ).tolist()


def arrives(x, spec):
    """decode(encode(x)) of the codecs that these tests use, by their definitions."""
    name, *more = spec.split(":")
    if name == "none":
        return np.array(x)
    if name == "bf16":
        return x.astype(ml_dtypes.bfloat16).astype(np.float32)
    assert name == "topk" and x.size <= 4096, spec
    kept = min(int(dict(word.split("=") for word in more)["kept"]), x.size)
    flat = x.ravel()
    largest = np.argsort(-np.abs(flat), kind="stable")[:kept]
    out = np.zeros_like(flat)
    out[largest] = flat[largest]
    return out.reshape(x.shape)


def decoded(data, shape, spec):
    """The values of int8 blocks: an f32 scale, then up to 256 bytes."""
    assert spec == "int8"
    count, out, at = int(np.prod(shape)), [], 0
    for first in range(0, count, 256):
        size = min(256, count - first)
        scale = data[at : at + 4].view(np.float32)[0]
        out.append(data[at + 4 : at + 4 + size].view(np.int8) * scale)
        at += 4 + size
    assert at == data.size
    return np.concatenate(out).astype(np.float32).reshape(shape)


class Script:
    """One peer's run. `outer` moves (anchor leaves, outer leaves) by a mean; `chosen`
    has the names of the outcomes to come, after which all is well."""

    def __init__(self, outer, route="io_callback", devices=1, cuts=None):
        self.outer, self.devices, self.cuts = outer, devices, cuts or {}
        self.core = _Core(self)
        self.comm = Communicator(self.core, route)
        self._joined = {}
        self._lock = threading.Condition()
        self.reset()

    def reset(self, chosen=(), seed=0):
        self.chosen, self.rng = list(chosen), np.random.default_rng(seed)
        self.tags, self.calls, self.published, self.wrong = {}, [], [], []
        self.flying, self.handles = {}, itertools.count(1)
        self.failing = (0, 0)  # how the next call for the newest state does, and others
        self.rows, self.given = {}, []  # what others say in an all_gather, or give

    @contextlib.contextmanager
    def on(self):
        """While it lasts, calls of this peer's programs are answered here."""
        real = _native.core().run_handler

        def handler(target, operands, results, attributes, **place):
            numbers = [attributes.get("comm"), *attributes.get("held", [])[:1]]
            if self.comm.registry_id not in numbers:
                return real(target, operands, results, attributes, **place)
            try:
                self._handle(target, operands, results, attributes)
            except BaseException as fault:
                self.wrong.append(fault)
                raise

        with mock.patch.object(_native.core(), "run_handler", handler):
            yield self

    # ---- the run -----------------------------------------------------------------

    def others(self, like):
        """A mean of other peers, and its weight."""
        mean = [self.rng.normal(size=x.shape).astype(np.float32) for x in like]
        return mean, float(self.rng.uniform(0.5, 4))

    def _moved(self, tag, mean):
        state = self.tags[tag]
        n = len(mean)
        anchor, outer = self.outer.step(state.newest[:n], state.newest[n:-1], mean)
        state.newest = [*anchor, *outer, np.int32(state.newest[-1] + 1)]
        state.revision += 1

    def round(self, tag, sent, weight, spec, words, state, encoded=()):
        """Decides a round; the run's part of it happens at once."""
        known = self.tags[tag]
        got = [x if i in encoded else arrives(x, spec) for i, x in enumerate(sent)]
        call = Call(tag, sent, got, weight, words, EDITED, bool(encoded))
        self.calls.append(call)
        if known.open is not None:
            call.outcome = BUSY
        elif state == known.held:
            name = self.chosen.pop(0) if self.chosen else "ok"
            call.outcome = OUTCOMES[name]
            call.revision = known.revision + 1
            if known.own != known.revision:  # nothing of an older anchor is taken
                call.outcome = EDITED
        if call.outcome.moves:
            mean, most = self.others(sent)
            if call.outcome.counts and weight:
                parts = zip(got, mean, strict=True)
                mean = [
                    (weight * g + most * m) / np.float32(weight + most)
                    for g, m in parts
                ]
            call.mean = [m.astype(np.float32) for m in mean]
            self._moved(tag, call.mean)
            call.world = int(self.rng.integers(2, 5))
        return call

    def _missed(self, call):
        for _ in range(call.outcome.missed):
            state = self.tags[call.tag]
            mean, _ = self.others(state.newest[: len(call.sent)])
            self._moved(call.tag, mean)

    def ended(self, call):
        """(value, code, world) for the peer."""
        self._missed(call)
        code, self.failing = call.outcome.code, (call.outcome.heals, call.outcome.then)
        if code in RESULT:
            self.tags[call.tag].own = call.revision
        return (call.mean if code in RESULT else call.sent), code, call.world

    def publish(self, tag, leaves, code, before):
        """(leaves, code, replaced, revision, edited)."""
        state = self.tags[tag]
        failed, self.failing = self.failing[0], self.failing[1:] * 2
        if failed:
            self.published.append((tag, False, []))
            return leaves, int(failed), 0, 0, 0
        edited = before is not None and before != state.held
        news = code in RESULT and not edited
        assert not news or marks(leaves) != state.held, "a revision twice"
        if news and state.own == state.revision:
            for own, run in zip(leaves, state.newest, strict=True):
                np.testing.assert_allclose(own, run, rtol=2e-5, atol=2e-5)
            state.newest = [np.array(x) for x in leaves]
        behind = edited or state.own != state.revision
        if behind:
            leaves, code = state.newest, Code.RESYNCED
        if behind or news:
            state.held, state.own = marks(leaves), state.revision
        self.published.append((tag, behind, [np.array(x) for x in leaves]))
        return leaves, int(code), int(behind), state.revision, int(edited)

    def restart(self):
        """A new process of this peer: rounds in flight have ended with the old one."""
        for state in self.tags.values():
            state.open = state.held = None
        self.flying.clear()

    def sync(self, tag, leaves):
        """(leaves, replaced)."""
        state = self.tags.get(tag)
        if state is None:
            self.tags[tag] = Tag(leaves)
            return leaves, False
        state.held, state.own = marks(state.newest), state.revision
        return [np.array(x) for x in state.newest], marks(leaves) != state.held

    # ---- handlers ----------------------------------------------------------------

    def _handle(self, target, operands, results, attributes):
        kind = target.removeprefix("jccl_")
        if kind.startswith("mesh_"):
            self._mesh(kind.removeprefix("mesh_"), operands, results, attributes)
        else:
            answer = getattr(self, f"_on_{kind}")
            with self._lock:
                answer([np.array(x) for x in operands], results, attributes)

    def _mesh(self, kind, operands, results, attributes):
        """All local devices join, then one answers for them."""
        at = {
            "round": len(results) - 2,
            "start": attributes.get("count", 0) + len(results) - 2,
            "done": len(results) - 1,
            "publish": len(results) - 1,
        }[kind]
        device = int(operands[at])
        key = (kind, attributes["tag"])
        with self._lock:
            group = self._joined.setdefault(key, {})
            assert device not in group, f"two calls of {key} by device {device}"
            group[device] = (operands, results)
            if len(group) == self.devices:
                del self._joined[key]
                try:
                    self._for_all(kind, at, group, attributes)
                finally:
                    group["over"] = True
                    self._lock.notify_all()
            elif not self._lock.wait_for(lambda: "over" in group, timeout=60):
                raise TimeoutError(f"{sorted(group)} of {self.devices} came to {key}")

    def _for_all(self, kind, at, group, attributes):
        operands, results = group[0]
        counts = {
            "round": at,
            "start": attributes.get("count", 0),
            "done": at - 1,
            "publish": at - 1,
        }
        count = counts[kind]
        # Where the leaf has its cut; of the state's leaves as of the parameters.
        blocks = [[group[d][0][i] for d in range(self.devices)] for i in range(count)]
        axes = [self.cuts.get(blocks[i][0].shape) for i in range(count)]
        whole = []
        for axis, parts in zip(axes, blocks, strict=True):
            if axis is None:
                for other in parts[1:]:
                    np.testing.assert_array_equal(np.asarray(other), parts[0])
                whole.append(np.array(parts[0]))
            else:
                whole.append(np.concatenate([np.asarray(p) for p in parts], axis))
        rest = [np.array(x) for i, x in enumerate(operands) if i >= count and i != at]
        if attributes.get("marks"):  # u32[parts, k, 2]
            rest = [x[0] if x.ndim == 3 else x for x in rest]
        if kind == "publish" and attributes.get("marks"):
            rest[:2] = rest[1::-1]  # the status comes before the marks here
        outs = [np.empty_like(x) for x in whole] if kind != "start" else []
        lead = 1 if kind == "start" else 0
        outs = [np.array(r) for r in results[:lead]] + outs
        outs += [np.array(r) for r in results[len(outs) :]]
        attributes = {**attributes, "collective": np.int32(1)}
        getattr(self, f"_on_{kind}")([*whole, *rest], outs, attributes)
        for device in range(self.devices):
            for i, result in enumerate(group[device][1]):
                axis = axes[i] if kind != "start" and i < count else None
                value = outs[i]
                if axis is not None:
                    value = np.split(value, self.devices, axis)[device]
                result[...] = value

    def _asked(self, operands, n, attributes):
        """The rest of a round's operands: state, weight."""
        rest = operands[n:]
        state = rest.pop(0).tolist() if attributes.get("marks") else None
        return state, float(rest[0])

    def _decoded(self, leaves, results, attributes):
        words, found = [int(w) for w in attributes.get("encoded", ())], set()
        while words:
            leaf, _, rank, *words = words
            shape, words = tuple(words[:rank]), words[rank:]
            leaves[leaf] = decoded(leaves[leaf], shape, attributes["codec"])
            found.add(leaf)
        return leaves, found

    def _called(self, words, sent, weight, state, encoded):
        codec, fingerprint = words["codec"], words["fingerprint"]
        return self.round(
            words["tag"], sent, weight, codec, fingerprint, state, encoded
        )

    def _on_round(self, operands, results, attributes):
        if (kind := int(attributes["collective"])) != 1:
            return self._on_other(kind, operands, results, attributes)
        n = len(results) - 2
        state, weight = self._asked(operands, n, attributes)
        sent, encoded = self._decoded(operands[:n], results, attributes)
        call = self._called(attributes, sent, weight, state, encoded)
        value, code, world = self.ended(call)
        _put(results, [*value, [code, world, 1, 1], 1])

    def _on_other(self, kind, operands, results, attributes):
        """An all_gather, of norms or of what joiners say; a broadcast."""
        n = len(results) - 2
        if kind == 2:
            rows = [operands[0], *self.rows[attributes["tag"].split(".")[-1]]]
            table = np.zeros_like(results[0])
            table[: len(rows)] = rows
            _put(results, [table, [0, len(rows), 1, 1], 1])
        else:
            assert kind == 4 and not attributes["root"]
            _put(results, [*self.given, [0, 2, 1, 1], 1])
        assert n == len(results) - 2

    def _on_start(self, operands, results, attributes):
        n, k = int(attributes["count"]), len(results) - 2
        through = operands[n : n + k]
        state, weight = self._asked(operands, n + k, attributes)
        sent, encoded = self._decoded(operands[:n], results, attributes)
        tag = attributes["tag"]
        call = self._called(attributes, sent, weight, state, encoded)
        handle = next(self.handles)
        self.flying[handle] = call
        if call.outcome not in (EDITED, BUSY):
            self.tags[tag].open = handle
        _put(results, [np.array([handle, 7], np.uint32), *through, 1])

    def _on_done(self, operands, results, attributes):
        n = len(results) - 2
        # Operands of the handler; over a mesh the leaves come first.
        first = 0 if operands[0].dtype == np.uint32 and operands[0].shape == (2,) else n
        handle = int(operands[first][0])
        like = operands[:n] if first else operands[1 : n + 1]
        call = self.flying.pop(handle, None)
        if call is None:
            self.wrong.append(AssertionError(f"round {handle} was waited for twice"))
            return _put(results, [*like, [Code.UNKNOWN_TAG, 0, 0, 0], 1])
        state = self.tags[call.tag]
        if state.open == handle:
            state.open = None
        value, code, world = self.ended(call)
        _put(results, [*value, [code, world, 1, 1], 1])

    def _on_publish(self, operands, results, attributes):
        n = len(results) - 2
        rest = operands[n:]
        before = rest.pop(0).tolist() if attributes.get("marks") else None
        leaves, code, *words = self.publish(
            attributes["tag"], operands[:n], int(rest[0][0]), before
        )
        _put(results, [*leaves, [code, *words], 1])


def _put(results, values):
    for result, value in zip(results, values, strict=True):
        result[...] = np.asarray(value)


class _Core:
    """What `jccl.Communicator` asks of the native one."""

    _ids = itertools.count(-1, -1)

    def __init__(self, script):
        self.script, self.registry_id, self.closed = script, next(self._ids), False
        self.is_open = lambda handle: handle % 2**32 in script.flying

    def close(self):
        self.closed = True

    def attributes(self):
        return SimpleNamespace(run_id=f"script {self.registry_id}", id=1)

    def new_mistake(self, tag):
        return ""

    def run(self, inputs, outs, **options):
        """A round from the host: `state` are marks, encoded inputs are bytes."""
        script, sent = self.script, [np.array(x) for x in inputs]
        encoded = {i for i, yes in enumerate(options.get("encoded", [])) if yes}
        for i in encoded:
            sent[i] = decoded(sent[i], outs[i].shape, options["codec"])
        call = script.round(
            options["tag"],
            sent,
            float(options["weight"]),
            options["codec"],
            options["fingerprint"],
            np.asarray(options["state"]).tolist(),
            encoded,
        )
        value, code, world = script.ended(call)
        _put(outs, value)
        return SimpleNamespace(
            code=int(code),
            text="",
            n=call.revision,
            world=world,
            epoch=1,
            attempts=1,
            contributors=[],
            weights=[],
            sent_bytes=0,
            received_bytes=0,
            elapsed=0.0,
        )

    def publish(self, arrays, outs, *, tag, before=None, **_):
        held = None if before is None else np.asarray(before).tolist()
        state = self.script.tags[tag]
        code = Code.OK if _is_news(arrays, state) else Code.ABORTED
        failed = self.script.failing[0]
        leaves, code, replaced, revision, edited = self.script.publish(
            tag, [np.array(x) for x in arrays], code, held
        )
        _put(outs, leaves)
        code = failed or (Code.RESYNCED if replaced else Code.OK)
        return _synced(code, revision, bool(replaced), bool(edited))

    def sync_state(self, arrays, outs, *, tag, **_):
        leaves, replaced = self.script.sync(tag, [np.array(x) for x in arrays])
        _put(outs, leaves)
        return _synced(Code.OK, self.script.tags[tag].revision, replaced, False)


def _is_news(arrays, state):
    return marks(arrays) != state.held


def _synced(code, revision, replaced, edited):
    return SimpleNamespace(
        code=int(code),
        text="",
        revision=revision,
        digest="",
        replaced=replaced,
        edited=edited,
        **{"went_back": False, "received_bytes": 0},
    )
