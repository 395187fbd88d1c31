"""Runs every planted bug with the test that has to catch it; fails if one survives.

python -m tests.planted             all of cpp/planted.txt, programs of build/planted
python -m tests.planted --fill      looks for the test of rows that have none
python -m tests.planted --system    looks for the system test of rows not yet looked at
"""

import argparse
import concurrent.futures as futures
import functools
import json
import os
import subprocess
import time
from pathlib import Path

from tests.planted import registry, system, trial

# Where the test of a stratum's bug may be, in this order. A communicator needs a
# master, so that clusters of both are tests of the topmost folder.
PROGRAMS = {
    "base": ["base_test"],
    "wire": ["wire_test"],
    "codec": ["codec_test"],
    "collective": ["collective_test"],
    "snapshot": ["snapshot_test"],
    "proof": ["proof_test"],
    "protocol": ["protocol_test"],
    "net": ["net_test"],
    "master": ["master_test"],
    "exchange": ["exchange_test"],
    "peer": ["peer_test", "capi_test"],
    "capi": ["c_program_test", "capi_test"],
    "xla_ext": ["xla_ext_cuda_new_test"],
}

QUICK_MS = 500


def parse():
    parser = argparse.ArgumentParser(prog="python -m tests.planted")
    parser.add_argument("names", nargs="*", help="bugs; none: all")
    parser.add_argument(
        "--programs", type=Path, default=registry.ROOT / "build/planted"
    )
    parser.add_argument("--stratum", action="append", help="bugs of these strata only")
    parser.add_argument(
        "--no-seeds", action="store_true", help="not those that only the simulator sees"
    )
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--timeout", type=float, default=60, help="seconds for one test"
    )
    parser.add_argument(
        "--ledger", type=Path, help="results so far; goes on where it was"
    )
    parser.add_argument(
        "--fill", action="store_true", help="find tests, and write them down"
    )
    parser.add_argument(
        "--system", action="store_true", help="find system tests, and write them down"
    )
    return parser.parse_args()


class Ledger:
    """A line per trial. What a program did with a bug it is not asked again."""

    def __init__(self, path):
        self.path = path
        self.known = {}
        if path and path.exists():
            for line in path.read_text().splitlines():
                row = json.loads(line)
                self.known[row["name"], row["test"], row["stamp"]] = row

    @staticmethod
    def stamp(argv):
        status = os.stat(argv[0])
        return f"{status.st_mtime_ns}-{status.st_size}"

    def note(self, row):
        if self.path:
            with self.path.open("a") as file:
                file.write(json.dumps(row) + "\n")


def try_one(bug, test, args, ledger):
    argv = trial.command(args.programs, bug, test)
    stamp = ledger.stamp(argv)
    if (old := ledger.known.get((bug.name, test, stamp))) is not None:
        return old
    by_seed = test == "seed"  # it plants the bug itself, and ends well when it saw it
    outcome = trial.run(argv, "" if by_seed else bug.name, args.timeout)
    caught = outcome.how == "passed" if by_seed else outcome.caught
    row = {
        "name": bug.name,
        "test": test,
        "stamp": stamp,
        "caught": caught,
        "how": outcome.how if caught or outcome.reached else "not reached",
        "seconds": round(outcome.seconds, 2),
    }
    ledger.note(row)
    return row


def without_a_bug(bugs, args):
    """Complaints: tests that fail when nothing is planted, filters of no test."""
    filters = {}
    for test in {bug.test for bug in bugs}:
        program, _, rest = test.partition(" ")
        if program not in ("seed", "jccl-sim"):
            filters.setdefault(program, set()).add(rest)
    wrong = []
    for program, names in sorted(filters.items()):
        path = str(trial.find(args.programs, program))
        argv = (
            [path, "--gtest_filter=" + ":".join(sorted(names))]
            if names != {""}
            else [path]
        )
        outcome = trial.run(argv, "", 20 * args.timeout)
        print(
            f"without a bug: {program} {outcome.how} in {outcome.seconds:.1f} s",
            flush=True,
        )
        if outcome.caught:
            wrong.append(f"{program} fails without a bug:\n{outcome.output[-4000:]}")
        for name in names - {""}:
            listed = [path, "--gtest_list_tests", f"--gtest_filter={name}"]
            if (
                "\n  "
                not in subprocess.run(listed, capture_output=True, text=True).stdout
            ):
                wrong.append(f"{program} has no test {name}")
    return wrong


def check(bugs, args):
    ledger = Ledger(args.ledger)
    none = [f"{b.name}: no test is named" for b in bugs if b.test == registry.NONE]
    bugs = [bug for bug in bugs if bug.test != registry.NONE]
    begun = time.monotonic()
    wrong = none + without_a_bug(bugs, args)
    with futures.ThreadPoolExecutor(args.jobs) as pool:
        rows = list(pool.map(lambda bug: try_one(bug, bug.test, args, ledger), bugs))
    for bug, row in zip(bugs, rows, strict=True):
        if row["caught"]:
            continue
        wrong.append(f"{bug.name} survived {row['test']} ({row['how']}): {bug.mistake}")
    slow = sorted(rows, key=lambda row: -row["seconds"])[:5]
    print(
        "slowest: "
        + ", ".join(f"{r['name']} {r['seconds']} s ({r['how']})" for r in slow)
    )
    caught = sum(row["caught"] for row in rows)
    took = time.monotonic() - begun
    print(f"{caught} of {len(bugs) + len(none)} planted bugs caught in {took:.0f} s")
    for line in wrong:
        print(line)
    return 1 if wrong else 0


@functools.cache
def durations(path):
    """Milliseconds of each test of a program when nothing is planted."""
    outcome = trial.run([path], "", 1800)
    return {name: int(ms) for name, ms in trial.PASSED.findall(outcome.output)}


def look_in(program, bug, args):
    """The quickest test of the program that catches it; was the bug reached?"""
    path = str(trial.find(args.programs, program))
    if program == "c_program_test":
        outcome = trial.run([path], bug.name, args.timeout)
        return program if outcome.caught else None, outcome.reached
    times, reached = durations(path), False
    by_time = sorted(times, key=times.__getitem__)
    quick = [name for name in by_time if times[name] < QUICK_MS]
    for names in (quick, *([name] for name in by_time[len(quick) :])):
        argv = [path, "--gtest_fail_fast", "--gtest_filter=" + ":".join(names)]
        limit = args.timeout + 10 * sum(times[name] for name in names) / 1000
        outcome = trial.run(argv, bug.name, limit)
        reached = reached or outcome.reached
        if outcome.caught and (name := trial.noticed_by(outcome.output)):
            return f"{program} {name}", reached
    return None, reached


def look_for(bug, args):
    """A test that catches the bug, of its own stratum."""
    reached = False
    for program in PROGRAMS.get(bug.stratum, []):
        test, there = look_in(program, bug, args)
        reached = reached or there
        if test:
            return test, "caught"
    if bug.name in registry.seeds():
        return "seed", "known"
    return registry.NONE, "survived" if reached else "not reached"


def fill(bugs, args):
    missing = [bug for bug in bugs if bug.test == registry.NONE]
    for program in {p for bug in missing for p in PROGRAMS.get(bug.stratum, [])}:
        if program != "c_program_test":
            durations(str(trial.find(args.programs, program)))
    with futures.ThreadPoolExecutor(args.jobs) as pool:
        found = {pool.submit(look_for, bug, args): bug for bug in missing}
        for future in futures.as_completed(found):
            test, how = future.result()
            print(f"{found[future].name}: {test} ({how})", flush=True)
            registry.note(found[future].name, "test", test)
    return 0


def fill_system(bugs, args):
    missing = [
        b for b in bugs if b.system == registry.NONE and b.stratum in system.SETS
    ]
    print(f"{len(missing)} bugs whose system test was not looked for", flush=True)
    if wrong := list(system.fail_without_a_bug(args.programs, missing)):
        print("\n".join(wrong))
        return 1
    with futures.ThreadPoolExecutor(args.jobs) as pool:
        found = {pool.submit(system.look, args.programs, bug): bug for bug in missing}
        for future in futures.as_completed(found):
            print(f"{found[future].name}: {future.result()}", flush=True)
            registry.note(found[future].name, "system", future.result())
    return 0


def main():
    args = parse()
    bugs = registry.read()
    if unknown := set(args.names) - {bug.name for bug in bugs}:
        raise SystemExit(
            f"tests.planted: no bug is called {', '.join(sorted(unknown))}"
        )
    if args.names:
        bugs = [bug for bug in bugs if bug.name in args.names]
    elif args.stratum:
        bugs = [bug for bug in bugs if bug.stratum in args.stratum]
    if args.no_seeds:
        bugs = [bug for bug in bugs if bug.test != "seed"]
    if args.system:
        return fill_system(bugs, args)
    return fill(bugs, args) if args.fill else check(bugs, args)


if __name__ == "__main__":
    raise SystemExit(main())
