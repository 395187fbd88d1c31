"""Changes the Python package in small ways and asks whether a test notices.

`python -m tests.mutation 300` takes a seeded sample of Cosmic Ray's mutants of what
holds a peer's state (see `MODULES`), runs the tests that reach the changed statement
until one fails, the quickest first, and writes a line a mutant into `ledger.tsv`. Not
sampled: what changes nothing but annotations, and arithmetic that no test could miss.
Mutants that have a line and whose module is as it was are not run again, but with
`--again` those that were not killed. `--only ID --tests NODE...` runs one mutant by
tests that are named, which have to pass without it. `--survivors` shows what no test
has noticed, as diffs; who reads one adds the test, or `equivalent: why` in the last
column. `timeout`: no test had failed within `--seconds`. Needs cosmic-ray
(`.ci/mutation-py` installs it, apart from all else).
"""

import argparse
import ast
import concurrent.futures
import difflib
import hashlib
import json
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

import cosmic_ray.plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code

from tests.mutation import reach

ROOT = Path(__file__).resolve().parents[2]
LEDGER = Path(__file__).with_name("ledger.tsv")
HEAD = "mutant\tplace\toutcome\tby\tsource\tcommit\tnote\n"
SEED = 20

MODULES = ["communicator.py", "snapshot.py", "_trees.py", "_mesh_call.py"]
# Files of tests that run these modules' lines, without those that wait for most of
# their time. Those first that compare with equations: few mutants get past them.
# Another one is worth a line when a mutant of what it tests survives.
FILES = [
    "reference",
    "reference_elsewhere",
    "pacer",
    "diloco_family",
    "snapshot",
    "inner_joining",
    "mesh_diloco",
    "own_check",
    "nan_peers",
    "older_checkpoints",
    "data_pool",
    "data",
    "between",
    "streaming",
    "diloco",
    "optax_contract",
    "two_optimizers",
    "mesh",
    "callback",
    "communicator",
    "settings",
    "ops_refused",
    "mesh_verbs",
    "handles",
    "fast_path",
    "ops",
    "encoding",
    "errors",
]
# May wait for a whole deadline by itself: a joiner that is let in while the others are
# at an exchange, and begins with a round, is waited for there.
WAITS = {
    "tests/python/test_pacer.py::test_a_joiner_gets_a_pace_and_a_lost_peer_sets_none"
}
FIRST = 10  # tests that a mutant meets before all others: most meet no more


class Mutant(NamedTuple):
    module: str
    operator: str
    occurrence: int
    line: int

    @property
    def id(self) -> str:
        name = self.operator.removeprefix("core/")
        return f"{self.module.removesuffix('.py')}:{name}:{self.occurrence}"

    def source(self) -> str:
        operator = cosmic_ray.plugins.get_operator(self.operator)()
        text = (ROOT / self.module).read_text()
        changed = mutate_code(text, operator, self.occurrence)
        assert changed is not None and changed != text, self.id
        return changed

    def diff(self) -> str:
        text = (ROOT / self.module).read_text()
        lines = [one.splitlines() for one in (text, self.source())]
        return "\n".join(list(difflib.unified_diff(*lines, n=1, lineterm=""))[2:])


def modules() -> list[str]:
    optim = sorted((ROOT / "jccl/optim").glob("*.py"))
    names = [str(path.relative_to(ROOT)) for path in optim]
    return [*names, *sorted(f"jccl/{name}" for name in MODULES)]


def mutants_of(module: str) -> list[Mutant]:
    nodes = list(ast_nodes(get_ast((ROOT / module).read_text())))
    found = []
    for name in sorted(cosmic_ray.plugins.operator_names()):
        operator = cosmic_ray.plugins.get_operator(name)
        if operator.arguments() or _is_absurd(name):
            continue
        places = (at for node in nodes for at in operator().mutation_positions(node))
        for count, (start, _) in enumerate(places):
            found.append(Mutant(module, name, count, start[0]))
    return found


def _is_absurd(name: str) -> bool:
    """Arithmetic by the bits of a float, and the like: any test at all notices."""
    _, _, kinds = name.partition("ReplaceBinaryOperator_")
    one, _, other = kinds.partition("_")
    alike = [
        {"Add", "Sub", "Mul", "Div"},
        {"FloorDiv", "Mod", "Mul"},
        {"BitOr", "BitAnd"},
    ]
    return bool(kinds) and not any({one, other} <= group for group in alike)


class Executed(ast.NodeTransformer):
    """Without annotations (`from __future__ import annotations` is in every file) and
    without the `*` of a signature, in which Cosmic Ray sees a product: who calls by the
    names that are documented sees no difference."""

    def visit_arguments(self, node: ast.arguments) -> ast.arguments:
        positional = [*node.posonlyargs, *node.args]
        without = [None] * (len(positional) - len(node.defaults))
        given = [*without, *node.defaults, *node.kw_defaults]
        node.args = [*positional, *node.kwonlyargs]
        node.defaults = [one or ast.Constant(...) for one in given]
        node.posonlyargs, node.kwonlyargs, node.kw_defaults = [], [], []
        self.generic_visit(node)
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.returns = None
        self.generic_visit(node)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AnnAssign:
        node.annotation = ast.Constant(None)
        self.generic_visit(node)
        return node


def executed(text: str) -> str:
    """What is no Python gives ""."""
    try:
        return ast.dump(Executed().visit(ast.parse(text)))
    except SyntaxError:
        return ""


def sample(number: int) -> list[Mutant]:
    """By a hash of each one's name, so that a module that changes leaves the others'
    mutants in the sample; what the ledger has comes first."""
    rows = ledger()

    def order(mutant: Mutant) -> tuple[bool, bytes]:
        seeded = hashlib.sha256(f"{SEED} {mutant.id}".encode())
        return mutant.id not in rows, seeded.digest()

    everything = [mutant for module in modules() for mutant in mutants_of(module)]
    before = {name: executed((ROOT / name).read_text()) for name in modules()}
    chosen: list[Mutant] = []
    for mutant in sorted(everything, key=order):
        if len(chosen) < number and executed(mutant.source()) not in (
            "",
            before[mutant.module],
        ):
            chosen.append(mutant)
    return chosen


# ---- the ledger ----------------------------------------------------------------------


def digest(module: str) -> str:
    return hashlib.sha256((ROOT / module).read_bytes()).hexdigest()[:12]


def ledger() -> dict[str, list[str]]:
    if not LEDGER.exists():
        LEDGER.write_text(HEAD)
    rows = [line.split("\t") for line in LEDGER.read_text().splitlines()[1:]]
    return {row[0]: row for row in rows}


def write(rows: dict[str, list[str]]) -> None:
    LEDGER.write_text(HEAD + "".join("\t".join(rows[id]) + "\n" for id in sorted(rows)))


class Worker:
    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [ROOT / ".venv/bin/python", "-m", "tests.mutation.worker"],
            cwd=ROOT,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def judge_by(self, mutant: Mutant, tests: list[str], seconds: int) -> dict:
        text = (ROOT / mutant.module).read_text()
        if self.send(mutant.module, text, tests, seconds)["outcome"] != "survived":
            raise SystemExit(f"{' '.join(tests)}: no success without a mutant either")
        return self.ask(mutant, tests, seconds)

    def judge(self, mutant: Mutant, seconds: int) -> dict[str, str]:
        """By the tests that run its line: few at first, then the others."""
        found = reach.tests_of(mutant.module, mutant.line)
        tests = [test for test in found if test not in WAITS]
        answer = {"outcome": "survived", "text": ""}
        for part in (tests[:FIRST], tests[FIRST:]):
            if part and answer["outcome"] == "survived":
                answer = self.ask(mutant, part, seconds)
        return answer

    def ask(self, mutant: Mutant, tests: list[str], seconds: int) -> dict[str, str]:
        return self.send(mutant.module, mutant.source(), tests, seconds)

    def send(self, module: str, source: str, tests: list[str], seconds: int) -> dict:
        request = {
            "module": module,
            "source": source,
            "tests": tests,
            "seconds": seconds,
        }
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the worker died of a change to {module}")
        return json.loads(line)


def killer(text: str) -> str:
    summary = ("FAILED", "ERROR tests/")  # and not what a log says
    failed = [line for line in text.splitlines() if line.startswith(summary)]
    name = failed[0].partition(" ")[2].partition(" - ")[0] if failed else ""
    return name.removeprefix("tests/python/")


def is_done(row: list[str] | None, mutant: Mutant, again: bool) -> bool:
    if row is None or row[4] != digest(mutant.module):
        return False
    return row[2] == "killed" or not again or row[6].startswith("equivalent")


def note_down(
    rows: dict[str, list[str]], mutant: Mutant, answer: dict[str, str], seconds: int
) -> str:
    """Its row, and what to print of it."""
    git = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=True)
    place, outcome = f"{mutant.module}:{mutant.line}", answer["outcome"]
    by = f"{seconds} s" if outcome == "timeout" else killer(answer["text"])
    note = rows[mutant.id][6] if mutant.id in rows else ""
    row = [mutant.id, place, outcome, by, digest(mutant.module)]
    rows[mutant.id] = [*row, commit.stdout.strip(), note]
    write(rows)
    return f"{outcome} {mutant.id} {place} {by}"


def run(mutants: list[Mutant], seconds: int, jobs: int, again: bool) -> None:
    rows, lock, workers = ledger(), threading.Lock(), queue.SimpleQueue()
    left = [one for one in mutants if not is_done(rows.get(one.id), one, again)]
    left.sort(key=lambda one: one.id in rows)  # first those that never ran
    reach.renew(modules(), [f"tests/python/test_{name}.py" for name in FILES])
    for _ in range(jobs):
        workers.put(Worker())

    def one(mutant: Mutant) -> None:
        worker, begun = workers.get(), time.monotonic()
        answer = worker.judge(mutant, seconds)
        workers.put(worker)
        with lock:
            said = note_down(rows, mutant, answer, seconds)
            print(said, f"{time.monotonic() - begun:.0f} s", flush=True)

    with concurrent.futures.ThreadPoolExecutor(jobs) as threads:
        list(threads.map(one, left))


def report(mutants: list[Mutant]) -> None:
    rows = ledger()
    seen = [rows[one.id] for one in mutants if one.id in rows]
    counts = {
        name: sum(row[2] == name for row in seen)
        for name in ("killed", "survived", "timeout")
    }
    equivalent = sum(row[6].startswith("equivalent") for row in seen)
    print(f"{len(seen)} of {len(mutants)} run: {counts}, {equivalent} equivalent")


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.mutation")
    parser.add_argument("number", type=int, nargs="?", default=300)
    parser.add_argument("--survivors", action="store_true")
    parser.add_argument("--seconds", type=int, default=60, help="CPU time of a mutant")
    parser.add_argument("--again", action="store_true", help="those not killed")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", metavar="ID", help="one mutant, by --tests")
    parser.add_argument("--tests", nargs="+", metavar="NODE", help="of pytest")
    options = parser.parse_args()
    if bool(options.only) != bool(options.tests):
        parser.error("--only and --tests go together")
    mutants = sample(options.number)
    if options.only:
        named = [one for one in mutants if one.id == options.only]
        if not named:
            parser.error(f"{options.only} is not among the {options.number}")
        answer = Worker().judge_by(named[0], options.tests, options.seconds)
        print(note_down(ledger(), named[0], answer, options.seconds))
    elif options.survivors:
        rows = ledger()
        for one in mutants:
            if one.id in rows and rows[one.id][2] != "killed":
                print(f"{one.id} {rows[one.id][6]}\n{one.diff()}\n")
    else:
        run(mutants, options.seconds, options.jobs, options.again)
    report(mutants)


if __name__ == "__main__":
    sys.exit(main())
