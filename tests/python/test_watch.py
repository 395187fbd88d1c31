"""What is said of a run beside its programs, and which faults end it.

The watcher reads a stand-in for the native communicator, at times that the test names:
no test waits for its clock.
"""

import contextlib
import functools
import logging
import os
import pickle
import subprocess
import sys
import threading
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jccl
from jccl import _watch, callback
from jccl.errors import Code
from jccl.testing import Cluster, wait_until


class Core:
    """The native communicator, as far as the watcher asks it."""

    registry_id, closed = -77, False
    run = sync_state = None

    def __init__(self):
        self.faults, self.rows, self.waits_for = [], {}, []
        self.about = SimpleNamespace(
            id=1, sites=["a", "b"], ids=[1, 2], incarnation=7, rounds_committed=9
        )
        self.about.evictions, self.about.evicted, self.about.drain = 0, "", ""
        self.about.departures, self.about.departed = 0, []
        self.about.noticed, self.about.notices = 0, []
        self.about.received_bytes = 0

    def fault(self, code, text="words", tag="t"):
        last, row = self.rows.get(tag, (0, 0))
        row = row + 1 if last == code else 1
        self.rows[tag] = (code, row)
        self.faults.append((len(self.faults) + 1, tag, int(code), text, row))

    def faults_after(self, number):
        return self.faults[number:]

    def open_faults(self):
        last = {fault[1]: fault for fault in self.faults}
        return [fault for tag, fault in last.items() if tag in self.rows]

    def members(self, gone="", **ids):
        """These are the members now, by id."""
        self.about.sites, self.about.ids = [*ids], [*ids.values()]
        if gone:
            self.about.departures += 1
            self.about.departed = [*self.about.departed, gone]

    def attributes(self):
        return self.about

    def waits(self):
        return self.waits_for

    def close(self):
        self.closed = True


@pytest.fixture
def core():
    return Core()


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.DEBUG, "jccl")
    return lambda: [r.getMessage() for r in caplog.records if r.name == "jccl"]


def watcher(core, policy="warn"):
    return _watch.Watcher(core, "a", policy)


# ---- lines ---------------------------------------------------------------------------


def test_a_fault_is_said_once_again_when_it_changes_and_after_a_minute(core, lines):
    watch = watcher(core)
    for now in (1.0, 2.0, 30.0):
        core.fault(Code.GUARD, f"round {now:.0f}: w holds NaN")
        watch.poll(now)
    assert lines() == [
        "a: t: GUARD: round 1: w holds NaN "
        "[fix: correct what the message names, then call again]"
    ]
    core.fault(Code.GUARD, "b holds NaN")
    watch.poll(31.0)
    assert "b holds NaN" in lines()[1]
    core.fault(Code.GUARD, "b holds NaN")
    watch.poll(31.0 + _watch.AGAIN_S - 1)
    assert len(lines()) == 2
    core.fault(Code.GUARD, "b holds NaN")
    watch.poll(31.0 + _watch.AGAIN_S)
    assert lines()[2].endswith("(6 rounds in a row)")


def test_every_tag_and_every_kind_has_a_line_of_its_own(core, lines):
    core.fault(Code.GUARD)
    core.fault(Code.DEADLINE)
    core.fault(Code.GUARD, tag="u")
    watcher(core).poll(1.0)
    kinds = [line.split(": ")[1:3] for line in lines()]
    assert kinds == [["t", "GUARD"], ["t", "DEADLINE"], ["u", "GUARD"]]


def test_a_fingerprint_is_explained(core, lines):
    core.fault(Code.MISMATCH, "peer-0: fingerprint 58ea; peer-1: fingerprint 822f")
    watcher(core).poll(1.0)
    assert "that of outer=, merge= and join= of jccl.diloco [fix" in lines()[0]


def test_a_name_of_others_cannot_write_lines_of_its_own(core, lines):
    core.fault(Code.PEER_LOST, "b\njccl: all is well")
    watcher(core).poll(1.0)
    (line,) = lines()
    assert "\n" not in line


def test_a_wait_is_said_when_it_lasts_with_who_is_waited_for(core, lines):
    watch = watcher(core)
    core.waits_for = [("t", "waits for READY of b")]
    watch.poll(10.0)
    watch.poll(10.0 + _watch.PATIENCE_S - 0.1)
    assert lines() == []
    watch.poll(22.0)
    watch.poll(23.0)
    assert lines() == ["t: waiting for b (not READY for 12 s)"]
    core.waits_for = [("t", "data")]
    watch.poll(24.0)
    watch.poll(64.0)  # a round that takes its time waits for nobody
    assert lines()[1:] == ["t: waited 14 s"]
    core.waits_for = [("t", "waits for READY of b")]  # b is slow in every round
    for now in (65.0, 75.0):
        watch.poll(now)
    assert len(lines()) == 2


def test_a_cross_wait_is_said_with_who_waits_where(core, lines):
    watch = watcher(core)
    core.waits_for = [("x", "cross wait: a waits in x, b waits in y")]
    for now in (1.0, 6.0, 6.5):
        watch.poll(now)
    (line,) = lines()
    assert line.startswith("x: cross wait: a waits in x, b waits in y, for 5 s [all")


def test_who_died_before_the_first_round_is_missed_with_what_to_do(core, lines):
    watch = watcher(core)
    core.waits_for = [("x", "waits for the first 3 sites, 2 are there")]
    for now in (1.0, 6.0):
        watch.poll(now)
    (line,) = lines()
    assert "2 are there, for 5 s [start the others" in line and "start_peers" in line


def test_what_goes_on_in_another_tag_does_not_hide_a_wait(core, lines):
    watch = watcher(core)
    for step in range(12):
        busy = "data" if step % 2 else "waits for READY of b"
        core.waits_for = [("busy", busy), ("x", "c is not admitted yet")]
        watch.poll(1.0 + step / 2)
    assert lines() == ["x: c is not admitted yet, for 5 s"]


def test_the_masters_loss_and_return_are_said_and_blips_are_not(core, lines):
    watch = watcher(core)
    core.waits_for = [("", "not connected to the master for 12 ms")]
    watch.poll(1.0)
    core.waits_for = []
    watch.poll(1.5)
    assert lines() == []
    core.waits_for = [("t", "not connected to the master for 200 ms")]
    watch.poll(2.0)
    watch.poll(3.5)
    watch.poll(4.0)
    core.waits_for = []
    watch.poll(9.0)
    lost, back = lines()
    assert lost.startswith("the master is lost") and "--store" in lost
    assert back == "the master is back after 7 s"


def test_a_peer_that_is_turned_away_hears_why(core, lines):
    watch = watcher(core)
    why = "the token of us has expired; ask for a new one"
    core.waits_for = [("t", f"turned away by the master: {why} for 200 ms")]
    watch.poll(1.0)
    watch.poll(9.0)
    assert lines() == [f"the master turns this peer away, and rounds wait: {why}"]


def test_ignore_says_nothing_and_raises_nothing(core, lines):
    watch = watcher(core, "ignore")
    for _ in range(5):
        core.fault(Code.MISMATCH)
    core.waits_for = [("t", "not connected to the master for 200 ms")]
    watch.poll(1.0)
    watch.poll(9.0)
    assert lines() == [] and watch.stop() is None


def test_nothing_is_said_after_the_end(core, lines):
    watch = watcher(core)
    watch.stop()
    core.fault(Code.GUARD)
    watch.poll(1.0)
    assert lines() == []


def test_what_came_last_is_said_before_the_end(core, lines):
    core.fault(Code.GUARD)
    watcher(core).stop()
    assert len(lines()) == 1


@pytest.mark.parametrize("configured", [False, True])
def test_lines_go_to_stderr_if_the_user_has_no_logging(configured):
    program = (
        "import logging, sys\n"
        "from jccl import _watch\n"
        f"if {configured}: logging.basicConfig(stream=sys.stdout, level='INFO')\n"
        "_watch.say(logging.INFO, 'b joined')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert done.stderr == ("" if configured else "jccl: b joined\n"), done
    assert done.stdout == ("INFO:jccl:b joined\n" if configured else "")


# ---- faults that end a run -----------------------------------------------------------


def raised_here(watch, now=1.0):
    """What the watcher has this thread raise between two steps; None if nothing."""
    thread = threading.Thread(target=watch.poll, args=(now,))
    try:
        thread.start()
        thread.join()
        for _ in range(1000):
            pass
    except jccl.Error as fault:
        return fault
    return None


def test_a_mismatch_ends_the_run_after_three_rounds_in_a_row(core):
    watch = watcher(core, "")
    for _ in range(2):
        core.fault(Code.MISMATCH)
        assert raised_here(watch) is None
    core.rows.clear()  # a round committed
    for _ in range(2):
        core.fault(Code.MISMATCH)
        assert raised_here(watch) is None
    core.fault(Code.MISMATCH, "codec int8, codec int4")
    fault = raised_here(watch)
    assert isinstance(fault, jccl.MismatchError) and fault.code == Code.MISMATCH
    assert "tag 't' (3 rounds in a row): codec int8, codec int4" in str(fault)
    assert type(pickle.loads(pickle.dumps(fault))) is jccl.MismatchError
    core.fault(Code.MISMATCH)
    assert raised_here(watch) is None  # who caught it heard of it


def test_a_second_row_ends_the_run_again(core):
    watch = watcher(core, "")
    for row in (1, 2):
        for _ in range(3):
            core.fault(Code.MISMATCH)
        assert isinstance(raised_here(watch), jccl.MismatchError), row
        core.rows.clear()  # a round committed
        core.fault(Code.MISMATCH)
        assert raised_here(watch) is None
        core.rows.clear()


def test_a_raise_is_taken_back_where_the_fault_was_raised_elsewhere(core):
    watch = watcher(core, "raise")
    core.fault(Code.GUARD)
    heard = []

    def other():
        watch.poll(1.0)  # asks the main thread, which waits here
        with pytest.raises(jccl.GuardError):
            watch.raise_fault()
        heard.append(True)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    for _ in range(1000):
        pass
    assert heard


def test_what_heals_ends_no_run_unless_asked(core):
    for _ in range(5):
        core.fault(Code.DEADLINE)
    assert raised_here(watcher(core, "")) is None
    assert isinstance(raised_here(watcher(core, "raise")), jccl.DeadlineError)
    for good in (Code.RESYNCED, Code.SKIPPED):
        core.fault(good, "state replaced by revision 3", tag=good.name)
    watch = watcher(core, "raise")
    watch._seen = 5
    assert raised_here(watch) is None


def test_warn_never_ends_a_run(core):
    for _ in range(5):
        core.fault(Code.MISMATCH)
    assert raised_here(watcher(core, "warn")) is None


def test_the_next_call_on_the_host_raises_what_is_left(core):
    watch = watcher(core, "raise")
    comm = jccl.Communicator(core, "", watch)
    core.fault(Code.GUARD)
    watch._owner = threading.Thread()  # ended: nobody raises it between steps
    watch.poll(1.0)
    for call in (
        lambda: comm.all_reduce(np.ones(2)),
        lambda: comm.sync_state(np.ones(2)),
        comm.check_faults,
        comm.close,
    ):
        core.rows.clear()
        watch._raised.clear()
        core.fault(Code.GUARD)
        watch.poll(1.0)
        with pytest.raises(jccl.GuardError):
            call()
    assert core.closed


def test_closing_raises_a_fault_but_never_instead_of_another_error(core):
    core.fault(Code.GUARD)
    with (
        pytest.raises(jccl.GuardError),
        jccl.Communicator(core, "", watcher(core, "raise")),
    ):
        pass
    other = Core()
    other.fault(Code.GUARD)
    with (
        pytest.raises(KeyError),
        jccl.Communicator(other, "", watcher(other, "raise")),
    ):
        raise KeyError
    assert core.closed and other.closed


def test_a_callback_of_ours_hands_on_what_was_meant_for_the_program(core, monkeypatch):
    """It must not end XLA's program, nor be lost there."""
    watch = watcher(core, "raise")
    core.fault(Code.GUARD)
    watch._owner = threading.Thread()
    watch.poll(1.0)
    raising = _watch._carrier(watch, watch._pending)

    def handle(self, operands, results):
        raise raising

    monkeypatch.setattr(callback.HostCall, "_handle", handle)
    spec = ((4,), np.dtype(np.int32))
    call = callback.HostCall("jccl_round", (spec,), (), True)
    call.in_arrays()
    with pytest.raises(jccl.GuardError):
        watch.raise_fault()


def test_nothing_is_raised_while_a_program_is_in_our_python(core):
    watch = watcher(core, "raise")
    core.fault(Code.GUARD)
    with callback._inside:
        assert raised_here(watch) is None
    assert isinstance(raised_here(watch), jccl.GuardError)


def test_a_thread_of_ours_takes_no_fault_from_the_users(core):
    watch = watcher(core, "raise")
    core.fault(Code.GUARD)
    watch._owner = threading.Thread()
    watch.poll(1.0)
    thread = threading.Thread(target=watch.raise_fault, name="jccl-between")
    thread.start()
    thread.join()
    with pytest.raises(jccl.GuardError):
        watch.raise_fault()


def test_faults_of_host_calls_without_an_exception_count_too(core, lines):
    watch = watcher(core, "")
    watch._owner = threading.Thread()
    good = (Code.OK, Code.DEADLINE)  # whatever else it is, the row is over
    for code in (Code.MISMATCH, good[0], Code.MISMATCH, Code.MISMATCH, good[1]):
        watch.saw("t", code, "codecs differ")
    for _ in range(2):
        watch.saw("t", Code.MISMATCH, "codecs differ")
    watch.raise_fault()
    watch.saw("t", Code.MISMATCH, "codecs differ")
    with pytest.raises(jccl.MismatchError):
        watch.raise_fault()
    assert len(lines()) == 2


def test_a_fork_says_and_raises_nothing(core):
    watch = watcher(core, "raise").start()
    with contextlib.suppress(jccl.GuardError):  # in the parent it may be raised
        with watch._lock:  # as the watcher's thread may hold it for ever in the child
            core.fault(Code.GUARD)
            child = os.fork()
            if child == 0:
                quiet = watch.stop() is None
                os._exit(0 if quiet else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        watch.stop()


def test_a_policy_that_does_not_exist_is_refused(monkeypatch):
    with pytest.raises(ValueError, match="on_fault='loud'"):
        jccl.connect("127.0.0.1:1", reactions=jccl.Reactions(on_fault="loud"))
    monkeypatch.setenv("JCCL_ON_FAULT", "quiet")
    with pytest.raises(ValueError, match="on_fault='quiet'"):
        jccl.connect("127.0.0.1:1")


# ---- what the native communicator tells ----------------------------------------------


def test_faults_of_programs_count_in_a_row_until_their_tag_commits():
    with Cluster(2) as cluster:

        def program(comm, index):
            @functools.partial(jax.jit, static_argnums=1)
            def step(x, codec):
                return jccl.all_reduce(
                    x, comm, codec=codec, round=jccl.Round(deadline=30.0)
                ).status[0]

            mine = ["int8", "int4"][index]
            codes = [int(step(jnp.ones(8), c)) for c in (mine, mine, None, mine)]
            assert codes == [Code.MISMATCH, Code.MISMATCH, Code.OK, Code.MISMATCH]
            assert int(step(jnp.full(8, jnp.nan), None)) == Code.EMPTY
            assert int(step(jnp.ones(8), mine)) == Code.MISMATCH
            faults = comm.core.faults_after(0)
            assert [(f[0], f[1], f[2], f[4]) for f in faults] == [
                (1, "default", Code.MISMATCH, 1),
                (2, "default", Code.MISMATCH, 2),
                (3, "default", Code.MISMATCH, 1),
                (4, "default", Code.EMPTY, 1),
                (5, "default", Code.MISMATCH, 1),
            ]
            assert all("codec int4" in f[3] for f in faults if f[2] == Code.MISMATCH)
            assert [f[0] for f in comm.core.faults_after(3)] == [4, 5]
            assert comm.core.open_faults() == faults[-1:]

        cluster.run(program)


def test_a_communicator_says_that_the_master_is_away_without_an_open_call():
    with Cluster(1) as cluster:
        comm = cluster.comms[0]
        assert comm.waiting_for() == ""
        cluster.master.stop()
        wait_until(lambda: _watch._NO_MASTER.search(comm.waiting_for()), 20.0)
