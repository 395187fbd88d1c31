"""SIGTERM and `jccl drain`: a peer leaves in time, and the others lose nothing."""

import json
import re
import signal
import subprocess
import sys
import threading

import pytest

import jccl
from jccl import _leaving, _native
from jccl.testing import Cluster, Processes, wait_until
from tests.python.test_cli import invoke
from tests.python.test_watch import Core

SCRIPT = """
import json, jax, jax.numpy as jnp, optax, jccl
with jccl.connect() as comm:
    tx = jccl.diloco(comm, optax.sgd(0.1), sync_every=2)
    params = {"w": jnp.ones(16)}
    params, state = jccl.sync_state((params, tx.init(params)))
    @jax.jit
    def step(params, state):
        updates, state = tx.update(params, state, params)
        return optax.apply_updates(params, updates), state
    told, since = -1, 0
    while True:
        params, state = step(params, state)
        about = comm.attributes()
        if about.departures != told:
            told, since = about.departures, int(state.rounds)
        if int(state.rounds) == since + 3 and int(state.status[1]) == about.world:
            since = 10**9
            numbers = [about.rounds_retried, int(state.skipped)]
            print(json.dumps([about.departed, *numbers]), flush=True)
"""


def last(process):
    """What a peer said in the third round after the last departure."""
    rows = [line for line in process.output().splitlines() if line.startswith("[[")]
    return json.loads(rows[-1]) if rows else [None]


def test_others_go_on_without_a_deadline_when_a_peer_leaves():
    """A killed one costs a wait for its connection to come back, or an attempt."""
    with Processes(start_peers=5) as run:
        names = ["told", "drained", "killed", "stays-1", "stays-2"]
        peers = {
            name: run.peer([sys.executable, "-c", SCRIPT], JCCL_SITE=name)
            for name in names
        }
        gone, stay = [], [peers["stays-1"], peers["stays-2"]]

        def all_trained():
            heard = [last(peer)[0] for peer in stay]
            return all(
                one is not None
                and len(one) == len(gone)
                and all(
                    text.startswith(words)
                    for text, words in zip(one, gone, strict=True)
                )
                for one in heard
            )

        wait_until(all_trained, 100)
        peers["told"].popen.send_signal(signal.SIGTERM)
        gone.append("told left")
        wait_until(all_trained, 60)
        order = ["drain", "drained", "--reason", "spot", "--master", run.address]
        done = invoke(*order)
        assert done.exit_code == 0 and "drained is asked to leave" in done.output
        gone.append("drained left: drained by an operator: spot")
        wait_until(all_trained, 60)
        # A START may cross the word of who leaves: one more attempt for each.
        for peer in stay:
            assert last(peer)[1] <= 2 and last(peer)[2] == 0
        peers["killed"].kill()
        gone.append("killed ")  # was missed, or refused a connection
        wait_until(all_trained, 60)
        assert [last(peer)[2] for peer in stay] == [0, 0]
        for name in ("told", "drained"):
            assert peers[name].wait(20) == 143, peers[name].output()
            assert "this peer leaves the run" in peers[name].output()
            assert "Traceback" not in peers[name].output()
        for peer in stay:
            assert gone[0] in peer.output() and gone[1] in peer.output()
            assert re.search("[432] sites now", peer.output())


def test_a_drain_takes_a_key_too_and_refuses_strangers():
    with Cluster(2) as cluster:
        address = cluster.master.address
        rows = json.loads(cluster.master.status_json())["peers"]
        done = invoke("drain", rows[0]["key"][:16], "--master", address)
        assert done.exit_code == 0 and rows[0]["site"] in done.output, done.output
        about = [comm.attributes for comm in cluster.comms]
        wait_until(lambda: any(one().drain for one in about), 20)
        assert sum(comm.leaving != "" for comm in cluster.comms) <= 1
        nobody = invoke("drain", "mars", "--master", address)
        assert nobody.exit_code == 1 and "mars" in nobody.output


# ---- handlers ------------------------------------------------------------------------


class Quiet(Core):
    """Notes what the native communicator is asked to do."""

    def __init__(self):
        super().__init__()
        self.does = []

    def leave_on_term(self, leaves):
        self.does.append(("on term", leaves))

    def leave(self):
        self.does.append("leave")


@pytest.fixture
def term():
    """Sends SIGTERM to this thread; what was the handler before is it again."""
    before = signal.getsignal(signal.SIGTERM)
    yield lambda: signal.raise_signal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, before)


def leaver(policy, core=None):
    lines = []
    one = _leaving.Leaver(core or Quiet(), policy, lines.append).enlist()
    return one, lines


def test_a_hook_is_not_torn_apart_by_who_asks_again(term):
    """An operator drains, and the machine's manager sends SIGTERM as well."""
    core = Quiet()

    def save():
        term()
        term()
        core.does.append("saved")

    one, _ = leaver(save, core)
    with pytest.raises(jccl.Leaving):
        term()
    assert core.does[-1] == "saved" and not one.hooking


def test_a_hook_that_fails_is_said_and_the_peer_leaves_all_the_same(term):
    core = Quiet()

    def save():
        raise OSError("disk full")

    _, lines = leaver(save, core)
    with pytest.raises(jccl.Leaving):
        term()
    assert "leave" in core.does
    assert "disk full" in lines[-1] and "on_term" in lines[-1]


def test_who_swallows_leaving_ends_with_its_code_all_the_same():
    script = "\n".join(
        [
            "import os, signal, jccl",
            "comm = jccl.connect()",
            "try:",
            "    os.kill(os.getpid(), signal.SIGTERM)",
            "    signal.pause()",
            "except BaseException:",
            "    pass",
        ]
    )
    with Processes(start_peers=1) as run:
        peer = run.peer([sys.executable, "-c", script])
        assert peer.wait(40) == 143, peer.output()


def test_leaving_that_came_into_a_destructor_is_raised_again_in_the_program():
    script = "\n".join(
        [
            "import os, signal, time, jccl",
            "class Held:",
            "    def __del__(self):",
            "        os.kill(os.getpid(), signal.SIGTERM)",
            "        time.sleep(0.01)",
            "comm = jccl.connect()",
            "del (held := [Held()])[:]",
            "print('goes on', flush=True)",
            "for _ in range(400):",
            "    time.sleep(0.05)",
            "print('came to its end', flush=True)",
        ]
    )
    with Processes(start_peers=1) as run:
        peer = run.peer([sys.executable, "-c", script])
        assert peer.wait(40) == 143, peer.output()
        assert "goes on" in peer.output() and "came to" not in peer.output()
        assert "Exception ignored" not in peer.output()


def test_the_run_is_left_before_the_hook_is_called_and_the_process_ends(term):
    core = Quiet()
    one, lines = leaver(lambda: core.does.append("save"), core)
    with pytest.raises(jccl.Leaving) as leaving:
        term()
    assert leaving.value.code == 143 and "SIGTERM" in str(leaving.value)
    assert core.does == [("on term", True), "leave", "save"]
    with pytest.raises(jccl.Leaving):
        term()  # it was caught, and nobody went
    assert core.does.count("save") == 1 and len(lines) == 1
    one.dismiss()


def test_handlers_from_before_run_too_and_are_back_in_the_end(term):
    heard = []
    signal.signal(signal.SIGTERM, lambda *_: heard.append(1))
    mine = signal.getsignal(signal.SIGTERM)
    one, _ = leaver("leave")
    with pytest.raises(jccl.Leaving):
        term()
    assert heard == [1]
    one.dismiss()
    assert signal.getsignal(signal.SIGTERM) is mine
    term()
    assert heard == [1, 1]


def test_a_flag_is_for_a_loop_that_looks(term):
    core = Quiet()
    one, lines = leaver("flag", core)
    term()
    assert one.why == "SIGTERM" and core.does == [("on term", False)]
    assert "goes on until its program reads that" in lines[0]
    one.dismiss()


def test_who_ignores_sigterm_keeps_doing_so(term):
    before = signal.getsignal(signal.SIGTERM)
    leaver("ignore")
    assert signal.getsignal(signal.SIGTERM) is before
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    one, _ = leaver("leave")
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
    one.dismiss()


def test_no_handler_comes_from_another_thread(term):
    before = signal.getsignal(signal.SIGTERM)
    core, raised = Quiet(), []

    def program():
        one, _ = leaver("leave", core)
        one.drained("drained by an operator", raised.append)
        one.dismiss()

    thread = threading.Thread(target=program)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is before
    assert raised == [jccl.Leaving] and core.does[0] == "leave"


def test_the_watcher_hears_of_a_drain(term):
    core = Quiet()
    from jccl import _watch

    watch = _watch.Watcher(core, "a", "warn", "flag")
    core.about.drain = "drained by an operator: spot"
    watch.poll(1.0)
    watch.poll(2.0)
    assert watch.leaver.why == "drained by an operator: spot"
    watch.stop()


def test_a_policy_that_does_not_exist_is_refused(monkeypatch):
    with pytest.raises(ValueError, match="on_term='later'"):
        jccl.connect("127.0.0.1:1", reactions=jccl.Reactions(on_term="later"))
    monkeypatch.setenv("JCCL_ON_TERM", "never")
    with pytest.raises(ValueError, match="on_term='never'"):
        jccl.connect("127.0.0.1:1")


def test_a_wait_for_others_ends_at_once_and_a_later_handler_is_not_overruled():
    """Native code leaves while the main thread waits in it, unless the program has put
    a handler of its own in place of ours."""
    script = (
        "import os, signal, sys, threading, time, numpy as np, jccl\n"
        "comm = jccl.connect(sys.argv[1], deadline=60)\n"
        "if sys.argv[2] == 'own':\n"
        "    signal.signal(signal.SIGTERM, lambda *_: print('own', comm.closed))\n"
        "def term():\n"
        "    while not comm.waiting_for(): time.sleep(0.01)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "threading.Thread(target=term).start()\n"
        "deadline = 1.5 if sys.argv[2] == 'own' else 60\n"
        "on = jccl.Round(deadline=deadline)\n"
        "comm.all_reduce(np.ones(4), round=on)\n"
    )
    master = _native.core().Master.start(start_peers=3)
    try:
        ends = [
            subprocess.Popen(
                [sys.executable, "-c", script, master.address, who],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for who in ("ours", "own")
        ]
        (_, ours), (out, own) = [one.communicate(timeout=60) for one in ends]
    finally:
        master.stop()
    assert ends[0].returncode == 143 and "Traceback" not in ours, ours
    assert ends[1].returncode == 1 and "TooFewError" in own and "own False" in out
