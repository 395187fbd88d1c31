"""One wheel, many JAX releases: builds it once per CPython and runs it under each.

    python -m tests.jax_versions [--python /path/to/python3.12 ...] [--keep FOLDER]

Environments and wheels come from the package index and lie in build/jax-versions; what
is there is used again. A CPython that is not on PATH is named and left out. Ends with a
table, and with 1 if a release that must serve does not, or one that must be refused
breaks anything. `--suite` also runs the tests of what lies on JAX under the newest
release that each CPython has, which takes five minutes each on an idle machine.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
SMOKE = Path(__file__).with_name("smoke.py")
UV = ROOT / ".venv" / "bin" / "uv"

# jax releases by CPython; None stands for the newest that the index has for it.
RELEASES: dict[str, tuple[str | None, ...]] = {
    "3.11": ("0.6.2", "0.7.2", "0.8.3", "0.9.2", None),
    "3.12": ("0.7.2", "0.10.2", "0.11.2", None),
    "3.13": ("0.7.2", None),
    "3.14": (None,),
}
OLDEST = (0, 7, 2)  # what pyproject.toml and jccl/_native.py promise
LARGEST_MB = 4
SUITE = ["fast_path", "ops", "transformations", "handles", "gradients", "callback"]
SUITE += ["mesh_verbs", "optax_contract", "diloco"]
NEWER_HEADERS = "0.10.2"  # a wheel built with these must be refused by the oldest


@dataclasses.dataclass
class Row:
    python: str
    jax: str
    expected: str
    built: str = ""
    served: str = ""
    seconds: float = 0.0
    wrong: dict[str, str] = dataclasses.field(default_factory=dict)

    def text(self) -> str:
        outcome = "; ".join(f"{k}: {v}" for k, v in self.wrong.items()) or "ok"
        return (
            f"{self.python:7} {self.jax:9} {self.built:6} {self.served:6} "
            f"{self.expected:8} {self.seconds:4.0f} s  {outcome}"
        )


def run(*words: object, **options: object) -> str:
    environment = {**os.environ, "UV_PYTHON_DOWNLOADS": "never"}
    done = subprocess.run(
        [str(word) for word in words],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**environment, **options.pop("env", {})},  # type: ignore[dict-item]
        **options,  # type: ignore[call-overload]
    )
    return done.stdout


def pythons(given: list[str]) -> dict[str, str]:
    """Version -> interpreter, for those that start."""
    found = {}
    for name in [*given, *(f"python{version}" for version in RELEASES)]:
        path = shutil.which(name)
        code = "import sys; print('%d.%d' % sys.version_info[:2])"
        try:
            done = subprocess.run(
                [path or name, "-c", code], capture_output=True, text=True, check=True
            )
        except (OSError, subprocess.CalledProcessError):
            continue
        found.setdefault(done.stdout.strip(), path or name)
    return found


def build_wheel(python: str, folder: Path, headers: str | None = None) -> Path:
    """The wheel as `pip install .` makes it, or with another jaxlib's headers."""
    if not list(folder.glob("*.whl")):
        folder.mkdir(parents=True, exist_ok=True)
        environment = {}
        if headers:
            lib = folder / "headers"
            run(UV, "pip", "install", "-q", "--python", python, "--target", lib,
                "--no-deps", f"jaxlib=={headers}")  # fmt: skip
            environment["XLA_FFI_INCLUDE_DIR"] = str(lib / "jaxlib" / "include")
        # As deep as the other build trees: ccache keys hold relative paths.
        tree = ROOT / "build" / folder.name
        run(UV, "build", "-q", "--wheel", "--python", python, "--out-dir", folder,
            f"-Cbuild-dir={tree}", ROOT, env=environment)  # fmt: skip
    return next(folder.glob("*.whl"))


def environment_with(python: str, folder: Path, wheel: Path, jax: str | None) -> Path:
    """A virtual environment with the wheel and that jax; its interpreter."""
    interpreter = folder / "bin" / "python"
    if not interpreter.exists():
        run(UV, "venv", "-q", "--python", python, folder)
    install = [UV, "pip", "install", "-q", "--python", interpreter]
    if jax is None or tuple(map(int, jax.split("."))) >= OLDEST:
        pinned = [f"jax=={jax}", f"jaxlib=={jax}"] if jax else ["jax", "jaxlib"]
        run(*install, wheel, *pinned)
    else:  # below what the wheel asks for, as --force and vendored stacks have it
        run(*install, f"jax=={jax}", f"jaxlib=={jax}", "click", "rich", "numpy")
        run(*install, "--no-deps", wheel)
    return interpreter


def try_one(row: Row, interpreter: Path) -> None:
    began = time.monotonic()
    words = [interpreter, SMOKE, *(["refused"] if row.expected == "refused" else [])]
    log = interpreter.parents[1] / "smoke.log"
    with log.open("w") as errors:
        try:
            # From elsewhere: the checkout's jccl/ would hide the installed one.
            out = run(*words, cwd=interpreter.parent, stderr=errors, timeout=300)
            said = json.loads(out.splitlines()[-1])
        except (subprocess.SubprocessError, IndexError, ValueError) as error:
            row.wrong = {"smoke": f"{type(error).__name__}, see {log}"}
            return
    row.jax = said["jax"]
    row.built = ".".join(map(str, said["built"]))
    row.served = ".".join(map(str, said["served"]))
    row.seconds = time.monotonic() - began
    row.wrong = {k: v for k, v in said["checks"].items() if v != "ok"}


def try_suite(row: Row, interpreter: Path) -> None:
    """In a folder without jccl/: the checkout's would hide the installed one."""
    folder = interpreter.parents[1] / "suite"
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("tests", "benchmarks", "examples"):
        shutil.copytree(ROOT / name, folder / name)
    shutil.copy(ROOT / "pyproject.toml", folder)
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = needed["optional-dependencies"]["test"]
    run(UV, "pip", "install", "-q", "--python", interpreter, *extras)
    files = [f"tests/python/test_{name}.py" for name in SUITE]
    log = folder / "log"
    with log.open("w") as out:
        done = subprocess.run(
            [interpreter, "-m", "pytest", "-q", "-n2", "--dist", "loadfile", *files],
            cwd=folder, stdout=out, stderr=out, timeout=3000, check=False,
        )  # fmt: skip
    print(log.read_text().splitlines()[-1], flush=True)
    if done.returncode:
        row.wrong["suite"] = f"see {log}"


def rows_of(version: str, python: str, home: Path, suite: bool) -> list[Row]:
    wheel = build_wheel(python, home / f"wheel-{version}")
    megabytes = wheel.stat().st_size / 1e6
    print(f"{wheel.name}: {megabytes:.1f} MB", flush=True)
    if megabytes > LARGEST_MB:
        sys.exit(f"more than {LARGEST_MB} MB: are its symbols still in it?")
    tries: list[tuple[Row, Path, str | None]] = []
    for jax in RELEASES[version]:
        old = jax is not None and tuple(map(int, jax.split("."))) < OLDEST
        row = Row(version, jax or "newest", "refused" if old else "serves")
        tries.append((row, wheel, jax))
    if version == "3.11":
        newer = build_wheel(python, home / "wheel-newer-headers", NEWER_HEADERS)
        tries.append((Row(version, "0.7.2", "refused"), newer, "0.7.2"))
    for number, (row, one, jax) in enumerate(tries):
        folder = home / f"venv-{version}-{number}-{jax or 'newest'}"
        try:
            interpreter = environment_with(python, folder, one, jax)
            try_one(row, interpreter)
            if suite and jax is None:
                try_suite(row, interpreter)
        except subprocess.CalledProcessError as error:
            row.wrong = {"install": f"exit {error.returncode}"}
        print(row.text(), flush=True)
    return [row for row, _, _ in tries]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.jax_versions")
    parser.add_argument("--python", action="append", default=[])
    parser.add_argument("--suite", action="store_true")
    parser.add_argument("--keep", type=Path, default=ROOT / "build" / "jax-versions")
    arguments = parser.parse_args()
    found = pythons(arguments.python)
    rows = []
    for version in RELEASES:
        if version in found:
            rows += rows_of(version, found[version], arguments.keep, arguments.suite)
    print(f"\n{'python':7} {'jax':9} {'built':6} {'served':6} {'expected':8}")
    for row in rows:
        print(row.text())
    for version in sorted(set(RELEASES) - set(found)):
        print(f"{version:7} not tried: no python{version} on PATH (or --python PATH)")
    return 1 if not rows or any(row.wrong for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
