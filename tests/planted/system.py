"""Which system test sees a planted bug too: virtual worlds, and whole clusters.

Each stratum has a short set of them; the first that sees the bug is written into the
registry, or `none` where the whole set has run and nothing was seen. That is also how
a run goes on where it was. Tests of real time may fail on a busy machine: one has seen
a bug if it fails twice with it, and not without it in between.
"""

import re
import sys
from pathlib import Path

from tests.planted import registry, trial

WORLDS = "jccl-sim --seeds 300"
LIARS = "jccl-sim --hostile --seeds 300"
CLUSTERS = (
    "capi_test *ContractTest.*:ClusterCodecsTest.*:CallsTest.*:OutputsTest.*"
    ":JoinTest.*:OwnStateTest.*:MasterTest.*:StripesTest.*:TlsTest.*:GuardTest.*"
)
KILLS = (
    "tests.stress --minutes 0.1 --kills 10 --rate 3 --peers 5 --elements 4099"
    " --modes f32-in,f32-out,int8-in,state"
)
LIES = "tests.stress.network --only flips_rare"
RESETS = "tests.stress.network --only resets"
POINTS = "tests.stress.failpoints --only kill@at@master"
PROGRAMS = (
    "pytest tests/python/test_ops.py tests/python/test_ops_failed.py"
    " tests/python/test_handles.py tests/python/test_encoding.py"
    " tests/python/test_mesh_verbs.py tests/python/test_snapshot.py"
)
PROOFS = "pytest tests/python/test_proofs.py"
SETS = {
    "base": (WORLDS, CLUSTERS, KILLS),
    "wire": (WORLDS, CLUSTERS),
    "protocol": (WORLDS, LIARS, CLUSTERS, KILLS),
    "codec": (CLUSTERS, KILLS),
    "collective": (WORLDS, CLUSTERS, KILLS),
    "snapshot": (WORLDS, CLUSTERS, KILLS),
    "exchange": (WORLDS, CLUSTERS, KILLS, RESETS),
    "net": (CLUSTERS, KILLS, LIES, RESETS),
    "master": (CLUSTERS, KILLS, POINTS),
    "peer": (CLUSTERS, KILLS, RESETS),
    "capi": (CLUSTERS,),
    "proof": (PROOFS,),
    "xla_ext": (PROGRAMS,),
}
SECONDS_MAX = 400
# Python's programs load the extension that has the bugs.
EXTENSION = Path(__file__).parent / "extension"
PY_FAILED = re.compile(r"^FAILED (\S+)", re.M)


def command(programs, test):
    program, *rest = test.split()
    if program == "pytest":
        core = next(programs.glob("_core*.so"))
        where = [f"PYTHONPATH={EXTENSION}", f"JCCL_PLANTED_CORE={core}"]
        return ["env", *where, sys.executable, "-m", "pytest", "-q", "-x", *rest]
    if program.startswith("tests."):
        folder = trial.find(programs, "jccl-stress-peer").parent
        words = [word.replace("@", " ") for word in rest]
        return [sys.executable, "-m", program, "--programs", str(folder), *words]
    path = str(trial.find(programs, program))
    if program == "jccl-sim":
        return [path, *rest]
    return [path, "--gtest_fail_fast", f"--gtest_filter={rest[0]}"]


def sees(programs, bug, test):
    """The test that fails with the bug, and only with it; None if none does."""
    first = trial.run(command(programs, test), bug.name, SECONDS_MAX)
    if not first.caught:
        return None
    program = test.split()[0]
    if program == "capi_test":  # the one that failed, by itself
        name = trial.noticed_by(first.output)
        test = f"{program} {name}" if name else test
    elif program == "pytest" and (failed := PY_FAILED.search(first.output)):
        test = f"{program} {failed[1]}"
    argv = command(programs, test)
    if trial.run(argv, "", SECONDS_MAX).caught:
        return None
    return test if trial.run(argv, bug.name, SECONDS_MAX).caught else None


def look(programs, bug):
    if bug.name in registry.seeds():
        return "seed"
    for test in SETS[bug.stratum]:
        if (seen := sees(programs, bug, test)) is not None:
            return seen
    return registry.NOTHING


def fail_without_a_bug(programs, bugs):
    """Of the sets of these bugs, the tests that find something when nothing is there.
    A test that a loaded machine broke is run again."""
    for test in {test for bug in bugs for test in SETS[bug.stratum]}:
        argv = command(programs, test)
        for _ in range(2):
            outcome = trial.run(argv, "", SECONDS_MAX)
            if not outcome.caught:
                print(f"without a bug: {test}: {outcome.seconds:.0f} s", flush=True)
                break
        else:
            yield f"{test} {outcome.how} without a bug:\n{outcome.output[-3000:]}"
