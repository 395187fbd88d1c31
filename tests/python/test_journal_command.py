"""`jccl journal`: verify, copy and export, and a run that goes on from a copy."""

import concurrent.futures
import contextlib
import json
import socket
import sqlite3
import subprocess
import sys

import numpy as np
import pytest

import jccl
from jccl import _native
from tests.python.test_cli import invoke


def begin(store, **options):
    return _native.core().Master.start(store=store, **options)


def train(master, rounds, state):
    """A peer that takes the run's state and commits so many rounds of it."""
    with jccl.connect(master.address, site="eu") as comm:
        held = comm.sync_state({"w": state}, tag="w")
        w = held.value["w"]
        for _ in range(rounds):
            got = comm.all_reduce(
                np.ones(3, np.float32), tag="w", round=jccl.Round(state={"w": w})
            )
            before, w = w, w + got.value
            comm.publish({"w": w}, tag="w", before={"w": before})
        return w


@pytest.fixture
def run(tmp_path):
    """A journal of three rounds, and the state that they led to."""
    store = f"sqlite:{tmp_path}/run.db"
    master = begin(store)
    try:
        w = train(master, 3, np.zeros(3, np.float32))
    finally:
        master.stop()
    return store, w


def test_verify_says_what_a_journal_holds(run, tmp_path):
    store, _ = run
    done = invoke("journal", "verify", store)
    assert done.exit_code == 0, done.output
    assert "whole: " in done.output and "w: state, revision 3" in done.output
    found = json.loads(invoke("journal", "verify", "--json", store).output)
    assert found["tags"][0]["committed"] == 3 and found["tags"][0]["is_state"]


def test_a_run_goes_on_from_a_copy(run, tmp_path):
    store, w = run
    copy = f"sqlite:{tmp_path}/copy.db"
    done = invoke("journal", "copy", store, copy)
    assert done.exit_code == 0 and "copied " in done.output, done.output
    master = begin(copy)
    try:
        again = train(
            master, 2, w
        )  # it has the newest revision, so it goes on from that
    finally:
        master.stop()
    assert again[0] == w[0] + 2
    assert "w: state, revision 5" in invoke("journal", "verify", copy).output
    assert "w: state, revision 3" in invoke("journal", "verify", store).output


def test_a_copy_of_before_takes_a_newer_state_by_a_restore_alone(run, tmp_path):
    """Rounds that a copy does not know are no revisions of it: nobody goes on from one
    in silence."""
    store, w = run
    old = f"sqlite:{tmp_path}/old.db"
    invoke("journal", "copy", store, old)
    master = begin(store)
    try:
        newer = train(master, 2, w)
    finally:
        master.stop()
    master = begin(old, restore_after=0.2)
    try:
        with jccl.connect(master.address, site="eu") as comm:
            with pytest.raises(jccl.StateLostError, match="holder of revision 3 of w"):
                comm.sync_state({"w": newer}, tag="w", deadline=20.0)
            took = comm.sync_state({"w": newer}, tag="w", restore="any")
            assert not took.replaced and took.revision == 4
    finally:
        master.stop()


def free_address():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def test_a_run_moves_to_another_address_with_those_who_know_it(tmp_path):
    old, new = free_address(), free_address()
    store, moved = f"sqlite:{tmp_path}/run.db", f"sqlite:{tmp_path}/moved.db"
    waits = jccl.Waits(master_grace=1.0)
    master = begin(store, bind=old, start_peers=2)
    try:
        with (
            jccl.connect(f"{old},{new}", site="both") as both,
            jccl.connect(old, site="one", waits=waits) as one,
            concurrent.futures.ThreadPoolExecutor(2) as pool,
        ):

            def add(comm):
                return comm.all_reduce(np.ones(3, np.float32), op="sum").value[0]

            assert list(pool.map(add, (both, one))) == [2, 2]
            master.stop()
            done = invoke("journal", "copy", store, moved)
            assert done.exit_code == 0, done.output
            master = begin(moved, bind=new)
            with pytest.raises(jccl.MasterLostError):
                add(one)
            assert add(both) == 1  # the other did not come back in time
        with jccl.connect(new, site="one") as again:
            assert add(again) == 1
    finally:
        master.stop()


@pytest.mark.parametrize("how", ["VACUUM INTO ?", "SELECT ?, count(*) FROM journal"])
def test_beside_a_master_sqlite_makes_no_backup(run, tmp_path, how):
    """In a process of its own: a lock of POSIX ends with any file that is closed."""
    store, w = run
    path = store.removeprefix("sqlite:")
    ask = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0)"
    argv = [f"{ask}.execute(*sys.argv[2:3], sys.argv[3:])", path, how]
    argv += [f"{tmp_path}/backup.db"]
    master = begin(store)
    try:
        tried = subprocess.run(
            [sys.executable, "-c", *argv], capture_output=True, text=True, timeout=60
        )
        assert tried.returncode != 0 and "database is locked" in tried.stderr
        train(master, 1, w)
    finally:
        master.stop()


def test_export_is_one_object_a_line(run):
    store, _ = run
    lines = [
        json.loads(t) for t in invoke("journal", "export", store).output.splitlines()
    ]
    assert [one["row"] for one in lines] == list(range(1, len(lines) + 1))
    commits = [one for one in lines if one["kind"] == "commit"]
    assert [one["n"] for one in commits] == [1, 2, 3]


def test_what_is_wrong_is_one_line(run, tmp_path):
    store, _ = run
    missing = invoke("journal", "verify", f"sqlite:{tmp_path}/none.db")
    assert missing.exit_code == 1 and "no journal at" in str(missing.exception)
    master = begin(store)
    try:
        held = invoke("journal", "export", store)
        assert held.exit_code == 1 and "in use by another master" in str(held.exception)
    finally:
        master.stop()
    path = store.removeprefix("sqlite:")
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE journal SET crc = crc + 1 WHERE sequence = 3")
    bad = invoke("journal", "verify", store)
    assert bad.exit_code == 1 and "row 3" in str(bad.exception)
