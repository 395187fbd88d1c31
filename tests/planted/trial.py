"""One test program with one planted bug: did a test notice?"""

import dataclasses
import os
import re
import signal
import subprocess
import time
from pathlib import Path

from tests.planted import registry

RAN = re.compile(r"^\[ RUN      \] (\S+)", re.M)
OK = re.compile(r"^\[       OK \] (\S+)", re.M)
PASSED = re.compile(r"^\[       OK \] (\S+) \((\d+) ms\)", re.M)
FAILED = re.compile(r"^\[  FAILED  \] ([^\s,]+).*\((\d+) ms\)", re.M)
REACHED = "planted bug reached"


@dataclasses.dataclass
class Outcome:
    caught: bool
    reached: bool
    how: str  # "failed", "hung", "passed"
    seconds: float
    output: str


def find(programs: Path, name: str) -> Path:
    for path in (programs / name, programs / "cpp" / name):
        if path.is_file():
            return path
    raise SystemExit(
        f"tests.planted: {programs} has no program {name}: .ci/build-planted builds it"
    )


def command(programs: Path, bug: registry.Bug, test: str) -> list[str]:
    program, _, rest = test.partition(" ")
    if program == "seed":
        # Begins with the seed that caught it last; ends with 0 when one did.
        search = ["--mutants", "--mutant", bug.name, "--from", str(registry.SEEDS)]
        return [str(find(programs, "jccl-sim")), *search, "--seeds", "20000"]
    path = str(find(programs, program))
    if not rest:
        return [path]
    if program == "jccl-sim":
        return [path, *rest.split()]
    return [path, f"--gtest_filter={rest}"]


def run(argv: list[str], bug: str, timeout: float) -> Outcome:
    """A test that does not end counts as one that noticed."""
    env = {k: v for k, v in os.environ.items() if k != "JCCL_PLANTED"}
    if bug:
        env["JCCL_PLANTED"] = bug
    begun = time.monotonic()
    with subprocess.Popen(
        argv,
        env=env,
        cwd=registry.ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=timeout)
            how = "passed" if process.returncode == 0 else "failed"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            how = "hung"
    seconds = time.monotonic() - begun
    return Outcome(how != "passed", REACHED in output, how, seconds, output)


def noticed_by(output: str) -> str | None:
    """The quickest test that failed; else the one that was running at the end."""
    failed = [(int(ms), name) for name, ms in FAILED.findall(output)]
    if failed:
        return min(failed)[1]
    begun = RAN.findall(output)
    return begun[-1] if begun and begun[-1] not in OK.findall(output) else None
