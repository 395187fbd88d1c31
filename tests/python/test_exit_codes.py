"""A process whose run ended by a fault does not end with 0, however its script goes on.

Each case is the end of a script, in a fork of one process that has imported jccl and
ends as every program does. The fault is one that a stand-in for the native communicator
tells.
"""

import json
import subprocess
import sys

import pytest

BEGIN = """
import json, os, sys, threading
import jccl
from jccl import _watch
from jccl.errors import Code
from tests.python.test_watch import Core

def begin(rounds=3, policy="", code=Code.MISMATCH):
    core = Core()
    comm = jccl.Communicator(core, "", _watch.Watcher(core, "a", policy))
    comm.watcher._owner = threading.Thread()  # raised in calls on the host alone
    for _ in range(rounds):
        core.fault(code, "codecs differ")
    comm.watcher.poll(1.0)
    return comm

def go_on(comm):
    for _ in range(4):
        try:
            comm.core.fault(Code.MISMATCH, "codecs differ")
            comm.check_faults()
        except Exception as fault:
            print("swallowed", type(fault).__name__)

cases, codes = json.loads(sys.argv[1]), {}
for name, lines in cases.items():
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        break
    codes[name] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
else:
    print(json.dumps(codes))
    sys.exit()
sys.modules.pop("_pytest.main", None)  # the stand-in comes from a test
sys.stderr.write(f"== {name}\\n")
exec(compile(lines, name, "exec"))
"""

FAILS = {
    "never closed, and at its end at once": "comm = begin()",
    "dropped before its end": "def train():\n    comm = begin()\ntrain()",
    "with inside an except": (
        "try:\n    raise KeyError\nexcept KeyError:\n    with begin() as comm: pass"
    ),
    "close in an except": (
        "try:\n    raise KeyError\nexcept KeyError:\n    begin().close()"
    ),
    "a loop that swallows it": "with begin() as comm:\n    go_on(comm)",
    "one that swallows it, and no with": "comm = begin()\ngo_on(comm)",
    "left by an exception of the script's own": (
        "try:\n    with begin() as comm: raise StopIteration\n"
        "except StopIteration: pass"
    ),
    "a thread that dies of it": (
        "def train():\n"
        "    with begin() as comm:\n"
        "        comm.watcher.start()\n        comm.check_faults()\n"
        "thread = threading.Thread(target=train)\nthread.start()\nthread.join()"
    ),
    "the only round": "comm = begin(1)\ncomm.core.about.rounds_committed = 0",
    "a script that says it is fine": "comm = begin()\nsys.exit(0)",
}
ENDS = {
    "a code of the script's own": ("comm = begin()\nsys.exit(3)", 3),
    "healed": ("comm = begin()\ngo_on(comm)\ncomm.core.rows.clear()", 0),
    "said alone": ("comm = begin(policy='warn')", 0),
    "ignored": ("comm = begin(policy='ignore')", 0),
    "one of many rounds": ("comm = begin(1)", 0),
    "one that heals": ("comm = begin(code=Code.DEADLINE)", 0),
    "handled outside of the run": (
        "try:\n    with begin() as comm: comm.check_faults()\n"
        "except jccl.MismatchError: pass",
        0,
    ),
    "pytest has a code of its own": ("import _pytest.main\ncomm = begin()", 0),
    "an interactive session too": ("sys.ps1 = '>>> '\ncomm = begin()", 0),
}


@pytest.fixture(scope="module")
def ends():
    cases = FAILS | {name: lines for name, (lines, _) in ENDS.items()}
    done = subprocess.run(
        [sys.executable, "-c", BEGIN, json.dumps(cases)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    said = dict(part.split("\n", 1) for part in done.stderr.split("== ")[1:])
    return json.loads(done.stdout.splitlines()[-1]), said


@pytest.mark.parametrize("name", FAILS)
def test_a_run_that_ended_by_a_fault_fails(ends, name):
    codes, said = ends
    assert codes[name] == 1, said[name]
    assert "codecs differ" in said[name]


@pytest.mark.parametrize("name", ENDS)
def test_everything_else_ends_as_it_says(ends, name):
    codes, said = ends
    assert codes[name] == ENDS[name][1], said[name]


def test_who_could_not_be_told_by_an_exception_reads_it(ends):
    _, said = ends
    line = said["never closed, and at its end at once"]
    assert "jccl: the run ended by a fault: tag 't' (3 rounds in a row)" in line
    assert "this process ends with exit code 1" in line
    assert "exit code 1" not in said["pytest has a code of its own"]
