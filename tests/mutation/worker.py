"""Runs tests against one changed module at a time, for `tests.mutation`.

JAX is imported once; each request is a fork of that, in which the module comes from a
changed source and everything else from where it is, so no file is touched. One request
a line on standard input, as JSON: module, source, tests, seconds (of the processor).
One line answers each: killed, survived or timeout, and the last of what was printed.
"""

import contextlib
import importlib.abc
import importlib.util
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
from pathlib import Path

import tests.conftest  # noqa: F401  (the environment, before jax)

os.environ["PYTHONDONTWRITEBYTECODE"] = "1"

import hypothesis
import pytest
from flax import nnx  # noqa: F401
from flax.training import train_state  # noqa: F401

KILLED, SURVIVED, TIMEOUT = "killed", "survived", "timeout"
WALL_PER_SECOND = 20  # how long a second of the processor may take
# No test waits for so long with nothing to compute, neither itself nor what it has
# started: it waits for what will not come, and would fail at some deadline.
STILL = 12.0
WINDOW = 2.0


class Changed(importlib.abc.MetaPathFinder, importlib.abc.SourceLoader):
    """Finds one module, with a source of its own."""

    def __init__(self, name, path, source):
        self.name, self.path, self.source = name, path, source

    def find_spec(self, fullname, path=None, target=None):
        if fullname != self.name:
            return None
        package = self.path.endswith("__init__.py")
        return importlib.util.spec_from_loader(fullname, self, is_package=package)

    def get_filename(self, fullname):
        return self.path

    def get_data(self, path):
        return self.source.encode()

    def path_stats(self, path):
        raise OSError("never from a cache")


def change(path, source):
    """When `path` is imported, it will be `source`."""
    name = path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    sys.meta_path.insert(0, Changed(name, path, source))


def hasten():
    """A failure is enough: nobody asks for its smallest example."""
    phases = [hypothesis.Phase.generate]
    hypothesis.settings.register_profile(
        "mutants", phases=phases, report_multiple_bugs=False, database=None
    )
    hypothesis.settings.load_profile("mutants")


class Selected:
    """Of all that was collected these tests, in this order."""

    def __init__(self, tests):
        self.place = {test: at for at, test in enumerate(tests)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        mine = [item for item in items if item.nodeid in self.place]
        items[:] = sorted(mine, key=lambda item: self.place[item.nodeid])


def child(request, output):
    """In the fork: never returns."""
    os.setsid()
    for stream in (1, 2):
        os.dup2(output.fileno(), stream)
    resource.setrlimit(resource.RLIMIT_CPU, (request["seconds"],) * 2)
    change(request["module"], request["source"])
    hasten()
    code = 1
    try:
        options = ["-x", "-q", "-p", "no:cacheprovider", "--tb=line", "--timeout=0"]
        files = dict.fromkeys(test.partition("::")[0] for test in request["tests"])
        code = pytest.main([*options, *files], plugins=[Selected(request["tests"])])
    finally:
        sys.stdout.flush()
        os._exit(int(code))


def processor(session):
    """Seconds that its threads have had of it, and whether one has it or waits for it:
    where others need it all, a thread may stand in line for long."""
    total, runs = 0, False
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):  # it has ended
            if int(_stat(process)[3]) == session:
                for thread in process.glob("task/*"):
                    runs |= _stat(thread)[0] in "RD"
                    total += int((thread / "schedstat").read_text().split()[0])
    return total / 1e9, runs


def _stat(process):
    return (process / "stat").read_text().rpartition(")")[2].split()


def ended(pid, seconds):
    """How a child has to be ended: None if it does by itself."""
    begun, was, still = time.monotonic(), 0.0, 0.0
    descriptor = os.pidfd_open(pid)
    try:
        while not select.select([descriptor], [], [], WINDOW)[0]:
            now, runs = processor(pid)
            still = 0.0 if runs or now - was > WINDOW / 10 else still + WINDOW
            was = now
            if still >= STILL:
                return KILLED
            if time.monotonic() - begun > seconds * WALL_PER_SECOND:
                return TIMEOUT
        return None
    finally:
        os.close(descriptor)


def run(request):
    with tempfile.TemporaryFile("w+") as output:
        pid = os.fork()
        if pid == 0:
            child(request, output)
        outcome = ended(pid, request["seconds"])
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # whatever it has started
        _, status = os.waitpid(pid, 0)
        output.seek(0)
        text = output.read()[-2000:]
    if outcome is not None:
        return outcome, f"{text}\nFAILED stood still for {STILL:g} s"
    code = os.waitstatus_to_exitcode(status)
    if code in (-signal.SIGXCPU, -signal.SIGKILL):
        return TIMEOUT, text
    if code not in (0, 1, 2) and code > 0:
        raise RuntimeError(f"pytest ended with {code}:\n{text}")
    return (SURVIVED if code == 0 else KILLED), text


def main():
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    for line in sys.stdin:
        outcome, text = run(json.loads(line))
        print(json.dumps({"outcome": outcome, "text": text}), file=answers)


if __name__ == "__main__":
    main()
