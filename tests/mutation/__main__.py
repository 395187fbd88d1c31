"""Changes the Python package in small ways and asks whether a test notices.

`python -m tests.mutation 300` takes a seeded sample of Cosmic Ray's mutants of what
holds a peer's state (see `TESTS`), runs the tests of each one's module until one fails,
and writes a line a mutant into `ledger.tsv`. Mutants that have a line and whose module
is as it was are not run again, but with `--again` those that were not killed.
`--survivors` shows those that no test has noticed, as diffs; who reads one adds the
test, or `equivalent: why` in the last column. `timeout`: no test had failed within
`--seconds`. Needs cosmic-ray (`.ci/mutation-py` installs it, apart from all else).
"""

import argparse
import ast
import concurrent.futures
import difflib
import hashlib
import json
import queue
import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import NamedTuple

import cosmic_ray.plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code

ROOT = Path(__file__).resolve().parents[2]
LEDGER = Path(__file__).with_name("ledger.tsv")
HEAD = "mutant\tplace\toutcome\tby\tsource\tcommit\tnote\n"
SEED = 20

REFERENCE = ["test_reference.py", "test_reference_elsewhere.py"]
FAMILY = ["test_diloco_family.py", "test_streaming.py", "test_diloco.py"]
WHOLE = ["test_own_check.py", "test_mesh_diloco.py", "test_optax_contract.py"]
# Of each module the tests that run its lines, those first that are soon through.
TESTS = {
    "jccl/optim/between.py": ["test_reference_elsewhere.py", "test_between.py"],
    "jccl/optim/defaults.py": ["test_diloco_family.py"],
    "jccl/optim/diagnostics.py": ["test_diloco_family.py"],
    "jccl/optim/merge.py": ["test_diloco_family.py"],
    "jccl/optim/pace.py": ["test_pacer.py", "test_diloco_family.py"],
    "jccl/optim/schedule.py": ["test_streaming.py", *REFERENCE],
    "jccl/optim/fragments.py": ["test_streaming.py", *REFERENCE],
    "jccl/optim/_wrappers.py": ["test_optax_contract.py"],
    "jccl/optim/joining.py": [*REFERENCE[:1], "test_inner_joining.py"],
    "jccl/snapshot.py": ["test_snapshot.py", *FAMILY, *WHOLE, *REFERENCE],
    "jccl/optim/diloco.py": [
        *FAMILY[1:2],
        "test_inner_joining.py",
        *REFERENCE,
        *FAMILY,
    ],
    "jccl/communicator.py": [
        "test_communicator.py",
        "test_handles.py",
        "test_fast_path.py",
        "test_hardening.py",
        "test_settings.py",
        "test_snapshot.py",
        "test_own_check.py",
        "test_errors.py",
        "test_native.py",
    ],
    "jccl/_trees.py": [
        "test_ops_refused.py",
        "test_ops.py",
        "test_encoding.py",
        "test_mesh_verbs.py",
        "test_transformations.py",
    ],
    "jccl/_mesh_call.py": [
        "test_mesh.py",
        "test_mesh_verbs.py",
        "test_callback.py",
        "test_mesh_diloco.py",
        "test_own_check.py",
        "test_mesh_sites.py",
    ],
}
OPTIM = [*REFERENCE, *FAMILY, *WHOLE, "test_inner_joining.py", "test_two_optimizers.py"]


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
    return [*names, *sorted(name for name in TESTS if "optim" not in name)]


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
    """Without annotations: `from __future__ import annotations` is in every file."""

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
    """ "" of what is no Python."""
    try:
        return ast.dump(Executed().visit(ast.parse(text)))
    except SyntaxError:
        return ""


def sample(number: int) -> list[Mutant]:
    everything = [mutant for module in modules() for mutant in mutants_of(module)]
    random.Random(SEED).shuffle(everything)
    before = {name: executed((ROOT / name).read_text()) for name in modules()}
    chosen: list[Mutant] = []
    while everything and len(chosen) < number:
        mutant = everything.pop()
        if executed(mutant.source()) not in ("", before[mutant.module]):
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

    def ask(self, mutant: Mutant, seconds: int) -> dict[str, str]:
        tests = TESTS.get(mutant.module, OPTIM)
        request = {
            "module": mutant.module,
            "source": mutant.source(),
            "tests": [f"tests/python/{name}" for name in tests],
            "seconds": seconds,
        }
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the worker died of {mutant.id}")
        return json.loads(line)


def killer(text: str) -> str:
    failed = [
        line for line in text.splitlines() if line.startswith(("FAILED", "ERROR"))
    ]
    return failed[0].split()[1].removeprefix("tests/python/") if failed else ""


def is_done(row: list[str] | None, mutant: Mutant, again: bool) -> bool:
    if row is None or row[4] != digest(mutant.module):
        return False
    return row[2] == "killed" or not again or row[6].startswith("equivalent")


def run(mutants: list[Mutant], seconds: int, jobs: int, again: bool) -> None:
    git = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=True)
    rows, lock, workers = ledger(), threading.Lock(), queue.SimpleQueue()
    left = [one for one in mutants if not is_done(rows.get(one.id), one, again)]
    for _ in range(jobs):
        workers.put(Worker())

    def one(mutant: Mutant) -> None:
        worker = workers.get()
        answer = worker.ask(mutant, seconds)
        workers.put(worker)
        place, outcome = f"{mutant.module}:{mutant.line}", answer["outcome"]
        by = f"{seconds} s" if outcome == "timeout" else killer(answer["text"])
        with lock:
            note = rows[mutant.id][6] if mutant.id in rows else ""
            row = [mutant.id, place, outcome, by, digest(mutant.module)]
            rows[mutant.id] = [*row, commit.stdout.strip(), note]
            write(rows)
            print(outcome, mutant.id, place, by, flush=True)

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
    parser.add_argument("--seconds", type=int, default=600, help="CPU time of a mutant")
    parser.add_argument("--again", action="store_true", help="those not killed")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    mutants = sample(options.number)
    if options.survivors:
        rows = ledger()
        for one in mutants:
            if one.id in rows and rows[one.id][2] == "survived":
                print(f"{one.id} {rows[one.id][6]}\n{one.diff()}\n")
    else:
        run(mutants, options.seconds, options.jobs, options.again)
    report(mutants)


if __name__ == "__main__":
    sys.exit(main())
