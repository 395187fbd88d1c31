"""Which tests run the statement that a mutant changes, the quickest first.

`probe` finds it out and keeps it in `build/mutation/reach.json`, by the file of tests:
a digest of what that depends on, and each test's seconds and lines.
"""

import ast
import hashlib
import json
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOUND = ROOT / "build/mutation/reach.json"


def load() -> dict:
    return json.loads(FOUND.read_text()) if FOUND.exists() else {}


def digest(modules: list[str], file: str) -> str:
    texts = [(ROOT / name).read_bytes() for name in [*modules, file]]
    return hashlib.sha256(b"\0".join(texts)).hexdigest()[:12]


def renew(modules: list[str], files: list[str]) -> None:
    """Runs the files again that have changed, or all if a module has."""
    for file in files:
        now = digest(modules, file)
        if load().get(file, {}).get("digest") == now:
            continue
        print(f"which lines {file} reaches", flush=True)
        program = [ROOT / ".venv/bin/python", "-m", "tests.mutation.probe"]
        subprocess.run([*program, file, FOUND.with_suffix(".new"), *modules], cwd=ROOT)
        tests = json.loads(FOUND.with_suffix(".new").read_text())
        found = {**load(), file: {"digest": now, "tests": tests}}
        FOUND.write_text(json.dumps(found))
    held = load()
    FOUND.write_text(json.dumps({file: held[file] for file in files}))


def statement(module: str, line: int) -> int:
    """The first line of the innermost statement of a function there; 0 outside."""
    first = 0
    for node in ast.walk(ast.parse((ROOT / module).read_text())):
        if isinstance(node, ast.FunctionDef):
            for one in ast.walk(node):
                inside = isinstance(one, ast.stmt) and one is not node
                if inside and one.lineno <= line <= one.end_lineno:
                    first = max(first, one.lineno)
    return first


def tests_of(module: str, line: int) -> list[str]:
    """Of each file its quickest, in the files' order, then of each its second one: no
    ten that are alike. What runs at import is reached by all that reach the module."""
    first, order = statement(module, line), []
    for file in load().values():
        seconds = {
            test: took
            for test, (took, lines) in file["tests"].items()
            if first in lines.get(module, []) or (not first and module in lines)
        }
        order += enumerate(sorted(seconds, key=seconds.get))
    return [test for _, test in sorted(order, key=lambda one: one[0])]
