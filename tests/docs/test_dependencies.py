"""The lock files fit what is asked for, and the list of dependencies names them all."""

import importlib.metadata
import re
import sys

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement

from docs import dependencies as d

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
LICENCES = re.compile(
    r"\b(?:MIT|BSD|Apache|LGPL|MPL|PSF|Zlib|0BSD|CC0|AFL|Python Software|Mozilla)\b"
)


def environment(python):
    return {
        **default_environment(),
        **{"python_version": python, "python_full_version": f"{python}.4"},
        **{"sys_platform": "linux", "extra": ""},
    }


def installed(lock, python):
    """{package: version} that the lock installs there."""
    found = {}
    for name, version, marker in d.locked(lock):
        text = f"{name}=={version}" + (f"; {marker}" if marker else "")
        held = Requirement(text).marker
        if held is None or held.evaluate(environment(python)):
            assert name not in found, f"{name} twice for {python}"
            found[name] = version
    return found


KINDS = {
    "run": ("runtime", "build", "demo"),
    "test": ("runtime", "build", "demo", "test", "development"),
    "uv": ("set-up",),
    "launchers": ("launchers",),
    "moto": ("moto",),
    "mutation": ("mutation",),
}


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("lock", d.LOCKS)
def test_a_lock_holds_what_is_asked_for_in_versions_that_are(lock, python):
    have = installed(lock, python)
    for kind in KINDS[lock]:
        for text in d.wanted()[kind]:
            asked = Requirement(text)
            if asked.marker and not asked.marker.evaluate(environment(python)):
                continue
            name = d.name_of(text)
            assert name in have, f"{text} is not locked: run .ci/lock"
            assert asked.specifier.contains(have[name]), f"{text}: run .ci/lock"


@pytest.mark.parametrize("lock", d.LOCKS)
def test_every_locked_package_has_hashes_and_comes_from_no_named_index(lock):
    text = d.LOCKS[lock].read_text()
    packages = re.split(r"\n(?=[a-z0-9])", text.partition("\n")[2])
    assert len(packages) == len(d.locked(lock)) > 0
    for package in packages:
        lines = package.strip().splitlines()
        assert len(lines) > 1
        for line in lines[1:]:
            assert re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}(?: \\)?", line), line
    assert "://" not in text and "--index" not in text and "--find-links" not in text


def test_tests_run_with_what_jccl_runs_with():
    assert set(d.locked("run")) <= set(d.locked("test"))


def test_every_lock_file_says_what_it_is_for():
    assert set(KINDS) == set(d.LOCKS)
    assert {kind for kinds in KINDS.values() for kind in kinds} == set(d.wanted())
    # Whatever else a script installs is of one of them.
    for script in (d.ROOT / ".ci").iterdir():
        if script.suffix or script.name == "setup":
            continue
        for call in re.findall(r"pip install .*", script.read_text()):
            [lock] = re.findall(r"--require-hashes .*requirements-(\w+)\.txt", call)
            assert d.TOOLS[lock] == f".ci/{script.name}"


def test_set_up_installs_locked_versions_only():
    text = (d.ROOT / ".ci/setup").read_text()
    calls = re.findall(
        r"^\s*(?:pip |\S*python -m pip install )(.*(?:\\\n.*)*)", text, re.M
    )
    assert len(calls) == 3
    for call in calls:
        assert "--require-hashes" in call or call.endswith("--no-deps -e .")


def test_every_locked_package_is_in_the_list_with_its_licence():
    held = {name for lock in d.LOCKS for name, _, _ in d.locked(lock)}
    assert held == set(d.PYTHON)
    asked = {d.name_of(text) for texts in d.wanted().values() for text in texts}
    assert {name for name in asked if d.PYTHON[name][1]} == asked


def test_the_listed_licences_are_those_the_packages_say():
    # And in those of the tools that are here.
    tools = (d.ROOT / "build").glob("m*/lib/python*/site-packages")
    paths = [*sys.path, *map(str, tools)]
    for found in importlib.metadata.distributions(path=paths):
        data = found.metadata
        name = d.name_of(data["Name"])
        if name not in d.PYTHON:
            continue  # nothing that is locked
        licence = d.PYTHON[name][0]
        said = " ".join(
            [data.get("License-Expression") or "", data.get("License") or ""]
            + [c for c in data.get_all("Classifier") or [] if c.startswith("License")]
        )
        if words := set(LICENCES.findall(said)) - {"MIT"} or set(
            LICENCES.findall(said)
        ):
            same = {"Python Software": "PSF", "Mozilla": "MPL"}
            assert any(same.get(w, w) in licence for w in words), (name, said[:200])


def test_every_package_that_cmake_or_set_up_looks_for_is_in_the_list():
    listed = set(d.SYSTEM) | set(d.PYTHON)
    for file in ("cpp/CMakeLists.txt", "cpp/cmake/dependencies.cmake"):
        text = (d.ROOT / file).read_text()
        for package in re.findall(r"find_package\((\w+)", text):
            assert d.CMAKE_PACKAGES[package] in listed
        for package in re.findall(r"apt-get install ([\w-]+)", text):
            assert package in listed
    text = (d.ROOT / "xla_ext/CMakeLists.txt").read_text()
    for package in re.findall(r"find_package\((\w+)", text):
        assert d.CMAKE_PACKAGES[package] in listed
    setup = (d.ROOT / ".ci/setup").read_text()
    asked = set(re.findall(r"missing\+=\(([^)$\"]+)\)", setup))
    asked |= set(re.findall(r"need_header \S+ ([\w-]+)", setup))
    names = {name for words in asked for name in words.split()}
    assert "libssl-dev" in names and names <= set(d.SYSTEM)
