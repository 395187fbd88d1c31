"""What a build says when something it needs is missing: which, and how to get it."""

import importlib
import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CMAKE = shutil.which("cmake", path=str(Path(sys.executable).parent)) or "cmake"
LIBRARIES = ("Python", "OpenSSL", "SQLite3")
NINJA = shutil.which("ninja", path=str(Path(sys.executable).parent)) or "ninja"


def configured(folder, *defined, **options):
    """What CMake says of a build that lacks something, in one line."""
    done = subprocess.run(
        [
            *(CMAKE, "-S", str(ROOT / "xla_ext"), "-B", str(folder), "-G", "Ninja"),
            *(f"-DCMAKE_MAKE_PROGRAM={NINJA}", f"-DPython_EXECUTABLE={sys.executable}"),
            *(f"-D{one}" for one in defined),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **options,
    )
    assert done.returncode != 0
    return " ".join(done.stderr.split())


def test_all_that_is_missing_is_listed_at_once_by_the_names_of_packages(tmp_path):
    said = configured(
        tmp_path,
        *(f"CMAKE_DISABLE_FIND_PACKAGE_{one}=ON" for one in LIBRARIES),
        *("XXHASH_INCLUDE_DIR=/no", "XLA_FFI_INCLUDE_DIR=/no", "Boost_INCLUDE_DIR=/no"),
    )
    for what in ("Python.h", "OpenSSL 3.0", "SQLite", "xxhash.h", "XLA's FFI headers"):
        assert f"* {what}" in said or f"({what})" in said, what
    assert "pip install 'jaxlib>=" in said and "pip install 'cmeel-boost>=" in said
    needed = "python3-dev libssl-dev libsqlite3-dev libxxhash-dev"
    assert f"apt-get install {needed} " in said
    needed = "python3-devel openssl-devel sqlite-devel xxhash-devel"
    assert f"dnf install {needed} " in said
    assert "brew install python openssl@3 sqlite xxhash" in said


def test_without_a_compiler_the_list_begins_with_it(tmp_path):
    environment = {"PATH": str(tmp_path / "empty")}
    said = configured(tmp_path / "build", env=environment)
    assert "This is missing: * a compiler of C++20" in said
    assert "apt-get install g++" in said and "dnf install gcc-c++" in said


def test_without_cmake_the_backend_says_how_to_get_it(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "xla_ext"))
    backend = importlib.import_module("build_backend")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r"(?s)CMake.*apt-get install cmake ninja"):
        backend.build_wheel("unused")


def words_of(requirements):
    """Name -> its bounds, as people write them."""
    split = [re.match(r"([\w.-]+)\s*(.*)", one) for one in requirements]
    return {one[1]: one[2] for one in split if one}


def test_the_recipe_for_conda_asks_for_what_pyproject_asks_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    recipe = (ROOT / "packaging" / "conda" / "recipe.yaml").read_text()
    assert f'version: "{project["project"]["version"]}"' in recipe
    listed = recipe.partition("requirements:")[2].partition("\ntests:")[0]
    _, host, run = re.split(r"\n  (?:host|run):\n", listed)
    items = [re.findall(r"- (.+)", part) for part in (host, run)]
    host, run = map(words_of, items)
    needed = words_of(project["project"]["dependencies"])
    assert {"python": "", **needed} == run
    build = words_of(project["build-system"]["requires"])
    assert build.items() <= host.items()
    backend = (ROOT / "xla_ext" / "build_backend.py").read_text()
    assert f'"jaxlib=={host["jaxlib"]}"' in backend


def test_wheels_are_planned_for_each_python_that_is_not_too_old():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    planned = project["tool"]["cibuildwheel"]
    assert planned["build"] == [f"cp3{minor}-*" for minor in (11, 12, 13, 14)]
    assert project["project"]["requires-python"] == ">=3.11"
    assert {"x86_64", "aarch64"} == set(planned["linux"]["archs"])


def test_a_wheel_is_built_without_what_only_tests_need():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    build = project["tool"]["scikit-build"]
    assert build["build"]["targets"] == ["_core"]
    assert build["cmake"]["define"]["JCCL_TESTS"] == "OFF"


WITHOUT_FLAX = """
import importlib, pkgutil, sys
sys.modules["flax"] = None  # whatever imports it fails
import jax.numpy as jnp
import optax
import jccl
from jccl.testing import Cluster

for module in pkgutil.walk_packages(jccl.__path__, "jccl."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)

def learn(comm, i):
    tx = jccl.diloco(comm, inner=optax.sgd(0.1), sync_every=1)
    params = {"w": jnp.ones(4)}
    params, state = jccl.sync_state((params, tx.init(params)), comm=comm)
    _, state = tx.update(params, state, params)
    return int(state.rounds)

with Cluster(2) as cluster:
    assert cluster.run(learn) == [1, 1]
"""


def test_only_models_of_flax_need_flax():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_FLAX],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
