"""`jccl top`: what changes is told, only what changes is painted, and q ends it."""

import io
import os
import pty
import re
import select
import subprocess
import sys
import time

from click.testing import CliRunner
from rich.console import Console

from jccl.cli import top
from jccl.testing import Cluster


def peer(key, site, **more):
    return {
        **{"id": 1, "incarnation": key, "site": site, "shard": 0, "shards": 1},
        **{"connected": True, "admitted": True, "silent_s": 0.1, "moving": []},
        **{"trouble": "", "faults": "", "waiting_for": "", "progress_bytes": 0},
        **more,
    }


def status(*peers, committed=0, aborts=0, **more):
    tag = {"tag": "grads", "committed": committed, "phase": "idle", "aborts": aborts}
    return {
        **{"run": "abcdef0123", "epoch": 1, "address": "here:1", "uptime_s": 10.0},
        **{"peers": list(peers), "tags": [{**tag, "waiting_for": ""}], "failure": ""},
        **more,
    }


def text_of(view):
    console = Console(file=io.StringIO(), width=120)
    console.print(view.render())
    return console.file.getvalue()


def test_the_difference_of_two_answers_is_told():
    view = top.View()
    view.take(status(peer("a", "oslo"), peer("b", "rome")), 100.0)
    lost = peer("b", "rome", connected=False)
    left = [{"attempt": "1.1", "left_bytes": 75_000_000, "all_bytes": 100_000_000}]
    moved = peer("a", "oslo", progress_bytes=50_000_000, moving=left)
    view.take(
        status(moved, lost, peer("c", "cairo"), committed=4, aborts=1, uptime_s=12.0),
        102.0,
    )
    said = text_of(view)
    assert "cairo came" in said and "rome: member, now lost" in said
    assert "grads: 1 attempts failed" in said
    assert "25.0 MB/s" in said and "120.0" in said
    assert "75.0 of 100.0 MB, 3 s" in said
    view.take(status(moved, uptime_s=1.0), 103.0)
    said = text_of(view)
    assert "rome went" in said and "the master was started again" in said
    view.take(status(run="other"), 104.0)
    assert "another run is here" in text_of(view)


def test_a_master_that_does_not_answer_is_told_once_and_the_last_state_stays():
    view = top.View()
    view.lose("refused", 1.0)
    view.take(status(peer("a", "oslo")), 2.0)
    assert "NO ANSWER" not in text_of(view)
    view.lose("refused", 3.0)
    view.lose("refused", 4.0)
    said = text_of(view)
    assert "NO ANSWER: refused" in said and "oslo" in said
    assert said.count("no answer: refused") == 2


def test_only_lines_that_differ_are_painted_again():
    out = io.StringIO()
    screen = top.Screen(out)
    screen.paint("one\ntwo\nthree", (20, 5))
    out.truncate(0)
    screen.paint("one\nnew\nthree", (20, 5))
    assert out.getvalue().strip("\0") == "\x1b[2;1H\x1b[2Knew"
    out.truncate(0)
    screen.paint("one\nnew\nthree", (20, 2))  # smaller: all of it
    assert "\x1b[2J" in out.getvalue() and "three" not in out.getvalue()


def test_once_prints_a_screen_and_without_a_terminal_it_says_so():
    with Cluster(1) as cluster:
        cluster.comms[0].barrier()
        options = ["--master", cluster.master.address]
        done = CliRunner().invoke(top.command, [*options, "--once", "--every", "0.1"])
        assert done.exit_code == 0 and "barrier" in done.output
        refused = CliRunner().invoke(top.command, options)
        assert refused.exit_code == 2 and "this is no terminal: use" in refused.output
        wrong = CliRunner().invoke(top.command, [*options, "--every", "0"])
        assert wrong.exit_code == 2 and "--every must be from" in wrong.output


PEER = """
import jccl, time
comm = jccl.connect(site='rome')
comm.start_barrier()
print('in', flush=True)
time.sleep(600)
"""


def test_a_kill_is_shown_on_a_terminal_and_q_leaves_it_as_it_was():
    with Cluster(1, start_peers=2) as cluster:
        env = {**os.environ, "JCCL_MASTER": cluster.master.address}
        other = subprocess.Popen(
            [sys.executable, "-c", PEER], env=env, stdout=subprocess.PIPE
        )
        ours, theirs = pty.openpty()
        argv = [sys.executable, "-m", "jccl.cli", "top", "--every", "0.1"]
        shown = subprocess.Popen(argv, env=env, stdin=theirs, stdout=theirs)
        os.close(theirs)
        try:
            other.stdout.readline()
            seen = until(ours, "", "rome")
            other.kill()
            seen = until(
                ours, seen, r"rome (went|: member, now lost)|rome: .* now lost"
            )
            os.write(ours, b"q")
            seen = until(ours, seen, r"\x1b\[\?1049l")
            assert shown.wait(30) == 0
        finally:
            for process in (other, shown):
                process.kill()
                process.wait()
            os.close(ours)
    assert seen.startswith("\x1b[?1049h")


def until(terminal, seen, pattern, timeout=60.0):
    """What was written so far, when the pattern is in it."""
    deadline = time.monotonic() + timeout
    while not re.search(pattern, seen):
        left = deadline - time.monotonic()
        assert left > 0, f"{pattern} is not in {seen[-2000:]!r}"
        if select.select([terminal], [], [], left)[0]:
            seen += os.read(terminal, 65536).decode(errors="replace")
    return seen
