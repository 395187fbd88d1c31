"""DiLoCo to the last bit: what must be equal to what, through kills and over any line.

A run with kills is replayed from the master's history: who contributed to each round is
all that a run's anchors depend on, besides what each contributor sent.
"""

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jccl
from jccl.optim.options import in_groups
from jccl.testing import Cluster, Processes, wait_until
from tests.python.exact_peer import OUTER, START, train

PARAMS = {
    "embed": jnp.arange(12.0).reshape(4, 3) / 12,
    "layer_0": jnp.arange(9.0).reshape(3, 3) / 9,
    "layer_1": jnp.eye(3),
}
XS = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)


def loss(params, x):
    y = jnp.tanh((x @ params["embed"]) @ params["layer_0"]) @ params["layer_1"]
    return jnp.sum((y - 0.5) ** 2)


def trainer(tx):
    @jax.jit
    def run(params, state, xs):
        def step(carry, x):
            params, state = carry
            updates, state = tx.update(jax.grad(loss)(params, x), state, params)
            return (optax.apply_updates(params, updates), state), None

        return jax.lax.scan(step, (params, state), xs)[0]

    return lambda *operands: jax.block_until_ready(run(*operands))


def begin(tx):
    params = jax.tree.map(lambda x: jnp.array(x, copy=True), PARAMS)
    return jccl.sync_state((params, tx.init(params)))


def bits(tree):
    return [np.asarray(x).tobytes() for x in jax.tree.leaves(tree)]


def peers(world, make, steps, xs=lambda index: XS[index::4]):
    with Cluster(world) as cluster:

        def program(comm, index):
            tx = make(comm, index)
            return trainer(tx)(*begin(tx), xs(index)[:steps])

        return cluster.run(program)


def test_one_fragment_at_once_is_plain_diloco_to_the_last_bit():
    """P = 1, τ = 0 by a function of the path, mixing 0 spelt out, against nothing
    said."""

    def plain(comm, index):
        return jccl.diloco(comm, optax.adam(1e-2), sync_every=3)

    def streaming(comm, index):
        one = (1, lambda path: 0)
        options = {"sync_every": 3, "fragments": one, "overlap": 0, "mixing": 0.0}
        return jccl.diloco(comm, optax.adam(1e-2), **in_groups(**options))

    for (a, one), (b, two) in zip(
        peers(2, plain, 9), peers(2, streaming, 9), strict=True
    ):
        assert bits(a) == bits(b)
        assert bits(one.jccl_shared()) == bits(two.jccl_shared())


def test_data_parallel_training_is_every_step_with_plain_sgd():
    """H = 1, η = 1: the anchor is the mean of one SGD step of each peer."""
    ends = peers(
        2,
        lambda comm, index: jccl.diloco(
            comm, optax.sgd(0.1), jccl.sgd(1.0), sync_every=1, codec=None
        ),
        8,
    )
    params = PARAMS
    for step in range(8):
        grads = [jax.grad(loss)(params, XS[index::4][step]) for index in range(2)]
        mean = jax.tree.map(lambda a, b: (a + b) / 2, *grads)
        params = jax.tree.map(lambda p, g: p - 0.1 * g, params, mean)
    for x, y in zip(jax.tree.leaves(ends[0][0]), jax.tree.leaves(params), strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=2e-6)


class Replay:
    """The documented formula on recorded contributions: decode, add in the order of
    the peers' ids, divide, encode once, outer step without contraction."""

    def __init__(self, codec):
        self.codec = codec
        self.result = jccl.Int4() if codec == jccl.Stat2() else codec
        self.anchor, self.buffer = START, np.zeros_like(START)

    def round(self, deltas):
        total = np.zeros_like(self.anchor)
        for delta in deltas:
            total = total + self.codec.roundtrip(delta)
        mean = self.result.roundtrip(total / np.float32(len(deltas)))
        rate, mu = np.float32(OUTER.learning_rate), np.float32(OUTER.momentum)
        self.buffer = mu * self.buffer + mean
        self.anchor = self.anchor - rate * (mean + mu * self.buffer)


def below(rounds):
    return lambda done: done < rounds


def committed_rounds(history):
    """n -> sites of its contributors by id, as the master's history says."""
    lines = [json.loads(line) for line in history.read_text().splitlines()]
    who = {line["attempt"]: line for line in lines if line["kind"] == "start"}
    return {
        int(line["n"]): who[line["attempt"]]["contributors"].split()
        for line in lines
        if line["kind"] == "commit" and line["tag"] == "diloco"
    }


def replayed(history, codec, sent, anchors):
    """Every anchor that anybody saw is the one the formula gives."""
    replay, rounds = Replay(codec), committed_rounds(history)
    for n, sites in sorted(rounds.items()):
        replay.round([sent[site, n] for site in sites])
        seen = {anchor.tobytes() for anchor in anchors.get(n, [])}
        assert seen <= {replay.anchor.tobytes()}, (n, sites)
    return rounds


@pytest.mark.parametrize(
    "codec", ["fp32", "fp16", "int8", "int4", "e3m0", "int2", "stat2"]
)
def test_a_run_that_is_left_and_joined_is_replayed_from_its_history(codec, tmp_path):
    history = tmp_path / "history.jsonl"
    sent, anchors = {}, {}

    def note(comm):
        site = sites[comm]

        def one(n, array):
            if n > 0:
                sent[site, n] = array
            else:
                anchors.setdefault(-n, []).append(array)

        return one

    with Cluster(0, start_peers=2, history=str(history)) as cluster:
        sites = {cluster.join(site=name): name for name in ("a", "b")}
        ends = cluster.run(
            lambda comm, i: train(comm, sites[comm], codec, below(3), note(comm))
        )
        cluster.comms.pop(1).close()
        late = cluster.join(site="c")
        sites[late] = "c"
        carry = {0: ends[0], 1: None}
        cluster.run(
            lambda comm, i: train(
                comm, sites[comm], codec, below(6), note(comm), carry[i]
            )
        )
    rounds = replayed(history, jccl.codecs.resolve(codec), sent, anchors)
    assert sorted(anchors) == list(range(1, 7))
    assert {tuple(who) for who in rounds.values()} >= {("a", "b")}
    assert any("c" in who for who in rounds.values())


def test_a_run_with_kills_is_replayed_from_its_history_bit_for_bit(tmp_path):
    """SIGKILL in the midst of rounds; a peer that died while it contributed is in the
    result if the history says so, with what it had on disk before it sent."""
    peer = [sys.executable, "-m", "tests.python.exact_peer", str(tmp_path), "int8"]
    until = tmp_path / "until"
    # A kill comes while rounds 6 to 8 run, or 18 to 20; those after it miss the peer.
    until.write_text("8")

    def there(*files):
        return all((tmp_path / f"{name}.npy").exists() for name in files)

    with Processes(start_peers=3, path=tmp_path) as run:
        alive = {name: run.peer(peer, JCCL_SITE=name) for name in "abc"}
        wait_until(lambda: there("a.-5", "b.-5", "c.-5"), 300, "round 5")
        alive["b"].kill()
        until.write_text("12")
        wait_until(lambda: there("a.-12", "c.-12"), 300, "round 12")
        alive["d"] = run.peer(peer, JCCL_SITE="d")
        # Between two rounds, where members wait for nothing, it is let in at once.
        wait_until(lambda: any(tmp_path.glob("d.joined")), 300, "the joiner")
        until.write_text("20")
        wait_until(lambda: there("a.-17", "c.-17", "d.-17"), 300, "round 17")
        alive["c"].kill()
        until.write_text("24")
        wait_until(lambda: there("a.-24", "d.-24"), 300, "round 24")
        until.write_text("0")
        for name in "ad":
            assert alive[name].wait(300) == 0, alive[name].output()
    sent, anchors = {}, {}
    for path in tmp_path.glob("*.npy"):
        site, number, *_ = path.name.split(".")
        if int(number) > 0:
            sent[site, int(number)] = np.load(path)
        else:
            anchors.setdefault(-int(number), []).append(np.load(path))
    rounds = replayed(tmp_path / "history.jsonl", jccl.Int8(), sent, anchors)
    assert sorted(anchors) == list(range(1, 25))
    assert len({tuple(who) for who in rounds.values()}) >= 4
