"""The likeliest mistakes of new users: each ends soon, in one message with its remedy,
on the peer that made it and on those that suffer from it. docs/errors.md lists them.
"""

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time

import jax
import numpy as np
import optax
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import jccl
from jccl import _native, _watch
from jccl.testing import Cluster

LIMIT_S = 120.0  # of a process: a slow machine is no fault
ENV = {
    **{name: value for name, value in os.environ.items() if name[:5] != "JCCL_"},
    "JAX_PLATFORMS": "cpu",
    "PYTHONUNBUFFERED": "1",
}


# ---- one peer alone: nothing is sent, and nobody else hears of it --------------------


@pytest.fixture(scope="module")
def comm():
    with Cluster(1) as cluster:
        yield cluster.comms[0]


X = np.ones(4, np.float32)


def spread():
    mesh = Mesh(jax.devices()[:2], ("d",))
    return jax.device_put(X, NamedSharding(mesh, PartitionSpec("d")))


def reduced(x, comm, **options):
    return jccl.all_reduce(x, comm, **options).value


ALONE = {
    "op avg": (lambda c: c.all_reduce(X, op="avg"), "write op='mean'"),
    "op avg in jit": (
        lambda c: jax.jit(lambda x: reduced(x, c, op="avg"))(X),
        "write op='mean'",
    ),
    "plan": (
        lambda c: c.all_reduce(X, round=jccl.Round(plan="tree")),
        "known: auto, fastest, direct, exchange",
    ),
    "inner not called": (
        lambda c: jccl.diloco(c, optax.adamw, sync_every=2),
        r"write inner=adamw\(\.\.\.\)",
    ),
    "inner not called, eager": (
        lambda c: jccl.eager_diloco(c, optax.sgd, sync_every=2),
        r"write inner=sgd\(\.\.\.\)",
    ),
    "outer not called": (
        lambda c: jccl.diloco(c, optax.sgd(0.1), jccl.nesterov, sync_every=2),
        r"write outer=nesterov\(\.\.\.\)",
    ),
    "inner is no optimizer": (
        lambda c: jccl.diloco(c, 1e-3, sync_every=2),
        "inner is float: expected an optax transform",
    ),
    "vmap": (
        lambda c: jax.vmap(lambda x: reduced(x, c))(np.ones((3, 4), np.float32)),
        "cannot be vmapped.*outside vmap",
    ),
    "vmap over a method": (
        lambda c: jax.vmap(lambda x: c.all_reduce(x).value)(np.ones((3, 4))),
        "cannot be vmapped.*outside vmap",
    ),
    "grad": (
        lambda c: jax.grad(lambda x: reduced(x, c).sum())(X),
        "cannot be differentiated.*jccl.gradients.all_reduce",
    ),
    "grad through a method": (
        lambda c: jax.grad(lambda x: c.all_reduce(x).value.sum())(X),
        "cannot be differentiated.*jccl.gradients.all_reduce",
    ),
    "arrays on several devices": (
        lambda c: jax.jit(lambda x: reduced(x, c))(spread()),
        "several devices.*jccl.all_reduce there.*put the arrays on one device",
    ),
}


@pytest.mark.parametrize("name", ALONE)
def test_a_call_that_cannot_be_right_is_refused_with_its_remedy(comm, name):
    call, remedy = ALONE[name]
    begun = time.monotonic()
    kinds = (ValueError, TypeError, NotImplementedError)
    with pytest.raises(kinds, match=f"(?s){remedy}"):
        call(comm)
    assert time.monotonic() - begun < LIMIT_S
    assert comm.all_reduce(X).value.tolist() == X.tolist()  # the communicator is whole


# ---- who cannot join -----------------------------------------------------------------


@contextlib.contextmanager
def listener(answer=b""):
    """A program that is no master: it takes connections, and says `answer` on each."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    held.append(server.accept()[0])
                    held[-1].sendall(answer)

        held = []
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
    thread.join()
    for connection in held:
        connection.close()


def test_an_address_where_nobody_listens_is_said_within_ten_seconds(monkeypatch):
    monkeypatch.delenv("JCCL_CONNECT_TIMEOUT", raising=False)
    begun = time.monotonic()
    with pytest.raises(jccl.MasterLostError) as caught:
        jccl.connect("127.0.0.1:1")
    took = time.monotonic() - begun
    assert 7 < took < LIMIT_S, took
    text = str(caught.value)
    assert "127.0.0.1:1: Connection refused" in text, text
    assert "start one with `jccl master`, or correct the address" in text


def test_a_scheduler_that_starts_peers_first_sets_their_patience(monkeypatch):
    monkeypatch.setenv("JCCL_CONNECT_TIMEOUT", "0.3")
    with pytest.raises(jccl.MasterLostError, match="within 300 ms"):
        jccl.connect("127.0.0.1:1")


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("127.0.0.1", "the port is missing; write host:port"),
        ("http://127.0.0.1:29400", "a URL, where a host is meant; write host:port"),
        ("", "no master named: pass jccl.connect.*JCCL_MASTER.*jccl run"),
    ],
)
def test_an_address_that_is_none_is_refused_at_once(monkeypatch, address, words):
    monkeypatch.delenv("JCCL_MASTER", raising=False)
    with pytest.raises(jccl.InvalidError, match=words):
        jccl.connect(address)


def test_a_host_without_an_address_and_ports_of_others_are_told_apart():
    with pytest.raises(jccl.MasterLostError, match="no-such-host.invalid"):
        jccl.connect(
            "no-such-host.invalid:29400",
            security=jccl.Security(insecure=True),
            waits=jccl.Waits(connect_timeout=2),
        )
    with (
        listener(b"HTTP/1.1 400 Bad Request\r\n\r\n") as web,
        pytest.raises(jccl.MasterLostError, match="those of another program"),
    ):
        jccl.connect(web, waits=jccl.Waits(connect_timeout=1))
    with (
        listener() as mute,
        pytest.raises(jccl.MasterLostError, match="no master answered at"),
    ):
        jccl.connect(mute, waits=jccl.Waits(connect_timeout=1))


def test_without_a_token_or_with_another_one_a_peer_hears_what_to_set():
    core = _native.core()
    secret, other = core.new_token(), core.make_token(core.new_token())
    master = core.Master.start(token=secret)
    plain = core.Master.start()
    try:
        with pytest.raises(jccl.AuthError, match="requires a token.*set JCCL_TOKEN"):
            jccl.connect(master.address, token="")
        with pytest.raises(jccl.AuthError, match="another run"):
            jccl.connect(master.address, token=other)
        with pytest.raises(jccl.Error, match="token"):
            jccl.connect(plain.address, token=other)
    finally:
        master.stop()
        plain.stop()
    with pytest.raises(jccl.AuthError, match="no token is set. Pass the run's token"):
        jccl.connect("192.0.2.1:29400", token="")


def test_a_port_in_use_is_named():
    with listener() as taken:
        done = subprocess.run(
            [sys.executable, "-m", "jccl.cli", "master", f"--bind={taken}"],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            env=ENV,
        )
        assert done.returncode == 1 and "Traceback" not in done.stderr, done
        assert re.search(r"port \d+ is already in use.*choose another", done.stderr)
        with (
            Cluster(1) as cluster,
            pytest.raises(jccl.IoError, match="already in use.*choose another"),
        ):
            cluster.join(transport=jccl.Transport(bind=taken))


def test_two_peers_of_one_name_are_told_apart():
    with Cluster(1) as cluster:
        cluster.join(site="eu")
        with pytest.raises(jccl.InvalidError, match="joined the run.*as site 'eu'"):
            jccl.connect(cluster.master.address, site="eu")
        # As another process would.
        taken = "the seat of site eu, shard 0 of 1, is taken by the key [0-9a-f]{16}…"
        with pytest.raises(_native.core().CoreError, match=taken):
            _native.core().Communicator.connect(
                master=cluster.master.address, site="eu", connect_timeout=1.0
            )


# ---- who suffers ---------------------------------------------------------------------

PAIR = """
import os, sys, time, jax, jax.numpy as jnp, optax, jccl
bad = sys.argv[1] if os.environ["JCCL_SITE"] == "odd" else ""
with jccl.connect(deadline=60, waits=jccl.Waits(start_peers=2)) as comm:
    if bad == "crash": raise SystemError("no such file: data.bin")
    codec = "int4" if bad == "codec" else "int8"
    tx = jccl.diloco(comm, optax.sgd(0.1), sync_every=1, codec=codec)
    params = {"w": jnp.ones(17 if bad == "shape" else 16)}
    state = tx.init(params)
    if bad != "sync": params, state = jccl.sync_state((params, state))
    @jax.jit
    def step(params, state):
        updates, state = tx.update(params, state, params)
        return optax.apply_updates(params, updates), state
    while True:
        params, state = step(params, state)
        time.sleep(0.01)
"""


class Peer:
    def __init__(self, argv, **env):
        self.process = subprocess.Popen(
            [sys.executable, *argv],
            env={**ENV, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.text = ""
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.text += line

    def says(self, pattern):
        deadline = time.monotonic() + LIMIT_S
        while not re.search(pattern, self.text):
            assert time.monotonic() < deadline, (pattern, self.text)
            ended = self.process.poll() is not None
            if ended:
                self.reader.join(LIMIT_S)
                assert re.search(pattern, self.text), (pattern, self.text)
            time.sleep(0.05)

    def end(self):
        self.process.kill()
        self.process.wait()
        self.reader.join(LIMIT_S)
        self.process.stdout.close()


@pytest.fixture(scope="module", autouse=True)
def pairs():
    """Of each mistake of one peer in a run of two: (who made it, who suffers). They
    run beside the tests above, which wait as well."""
    masters, peers = [], {}
    with contextlib.ExitStack() as last:
        for bad in SUFFERED:
            masters.append(_native.core().Master.start(start_peers=2))
            last.callback(masters[-1].stop)
            peers[bad] = []
            for site in ("odd", "even"):
                env = {"JCCL_MASTER": masters[-1].address, "JCCL_SITE": site}
                peers[bad].append(Peer(["-c", PAIR, bad], **env))
                last.callback(peers[bad][-1].end)
        yield peers


# Whose fault it is nobody can say where two differ; then both hear of both.
BOTH = r"MISMATCH: (?=.*odd: \w+ \w+, codec int4)(?=.*even: \w+ \w+, codec int8).*fix:"
SHAPES = r"MismatchError: .*w f32\[1[67]\].*this peer's is .*w f32\[1[67]\].*fix:"
ENDED = r"(left|was there and left), for \d+ s \[see in its output"
SUFFERED = {
    "crash": (
        r"SystemError: no such file",
        rf"waits for the first 2 sites .*1 did; odd {ENDED} why it ended and start it",
    ),
    "shape": (rf"{SHAPES}|; even {ENDED}", rf"{SHAPES}|; odd {ENDED}"),
    "codec": (BOTH, BOTH),
    "sync": (
        r"InvalidError: tag 'diloco' .*call jccl.sync_state first",
        r"waits for the first 2 sites to synchronise diloco, 1 did; odd (did not: call "
        r"jccl.sync_state there|left|was there and left)",
    ),
}


@pytest.mark.parametrize("bad", SUFFERED)
def test_both_who_made_it_and_who_suffers_hear_what_to_do(pairs, bad):
    for peer, words in zip(pairs[bad], SUFFERED[bad], strict=True):
        peer.says(words)


def test_a_line_about_missing_sites_says_whether_one_was_there():
    wait = "waits for the first 2 sites, 1 is there"
    fresh = _watch.awaited("t", wait, 5.0)
    assert fresh.endswith("[start the others, or this run anew with fewer start_peers]")
    for end in ("eu left", "eu was there and is cut off", "eu is gone: no heartbeat"):
        assert "[see in its output" in _watch.awaited("t", f"{wait}; {end}", 5.0)


# ---- processes that come of one ------------------------------------------------------

FORK = """
import os, sys, jax, numpy as np, jccl
comm = jccl.connect()
x = np.ones(4, np.float32)
if (child := os.fork()) == 0:
    try:
        comm.all_reduce(x)
    except jccl.ClosedError as fault:
        print("child:", fault, flush=True)
    with jccl.connect(site="child") as own:
        print("joined anew", flush=True)
    os._exit(0)
print("ended with", os.waitpid(child, 0)[1])
print("parent:", comm.all_reduce(x, round=jccl.Round(deadline=60)).status.code)
comm.close()
"""

CELL = """
import jccl
comm = jccl.connect()
print("joined as", comm.attributes().id, flush=True)
"""

GUARD = """
import grain.python as grain, jccl
from absl import flags
flags.FLAGS.mark_as_parsed()
class Source:
    def __len__(self): return 8
    def __getitem__(self, i): return i
comm = jccl.connect()
print("joined", flush=True)
order = grain.IndexSampler(8, grain.NoSharding(), num_epochs=1, seed=0)
loader = grain.DataLoader(data_source=Source(), sampler=order, worker_count=1)
print(next(iter(loader)))
"""


@pytest.fixture
def master():
    core = _native.core().Master.start()
    yield core
    core.stop()


def run(argv, master, **more):
    env = {**ENV, "JCCL_MASTER": master.address}
    options = {"capture_output": True, "text": True, "timeout": LIMIT_S, "env": env}
    return subprocess.run([sys.executable, *argv], **{**options, **more})


def test_a_fork_hears_that_it_is_no_peer_and_the_parent_goes_on(master):
    done = run(["-c", FORK], master)
    assert "child: the communicator belongs to the process" in done.stdout, done
    assert "after a fork, connect anew" in done.stdout
    assert "joined anew" in done.stdout and "ended with 0" in done.stdout
    assert "parent: 0" in done.stdout and done.returncode == 0, done


def test_a_cell_that_is_run_again_does_not_join_twice(master):
    done = run(["-i", "-q"], master, input=CELL + CELL + "comm.close()\n" + CELL)
    assert done.stdout.count("joined as") == 3, done  # the second time the old one
    assert done.stderr.count("has joined the run") == 1, done
    assert "jccl.errors.InvalidError" in done.stderr and "comm.close()" in done.stderr
    people = json.loads(master.status_json())["peers"]
    assert len(people) <= 1, people


def test_workers_of_a_script_without_a_main_guard_do_not_join(master, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(GUARD)
    done = run([str(script)], master)
    assert done.returncode == 1 and done.stdout.count("joined") == 1, done
    assert "does not join the run" in done.stderr, done
    assert f"{script}, whose line 8 connects" in done.stderr
    assert "`if __name__ == '__main__':`" in done.stderr
    assert "Worker process was terminated" in done.stderr  # as Grain says it
