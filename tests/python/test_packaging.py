"""What a build says when something it needs is missing: which, and how to get it."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CMAKE = shutil.which("cmake", path=str(Path(sys.executable).parent)) or "cmake"
NINJA = shutil.which("ninja", path=str(Path(sys.executable).parent)) or "ninja"


@pytest.mark.parametrize(
    "missing, words",
    [
        ("CMAKE_DISABLE_FIND_PACKAGE_Python=ON", "apt-get install python3-dev"),
        ("CMAKE_DISABLE_FIND_PACKAGE_OpenSSL=ON", "apt-get install libssl-dev"),
        ("CMAKE_DISABLE_FIND_PACKAGE_SQLite3=ON", "apt-get install libsqlite3-dev"),
        ("XXHASH_INCLUDE_DIR=/no/such/folder", "apt-get install libxxhash-dev"),
        ("XLA_FFI_INCLUDE_DIR=/no/such/folder", "pip install 'jaxlib>="),
    ],
)
def test_a_missing_header_is_named_with_its_package(tmp_path, missing, words):
    jaxlib = importlib.util.find_spec("jaxlib")
    assert jaxlib is not None and jaxlib.origin is not None
    done = subprocess.run(
        [
            *(CMAKE, "-S", str(ROOT / "xla_ext"), "-B", str(tmp_path), "-G", "Ninja"),
            f"-DCMAKE_MAKE_PROGRAM={NINJA}",
            f"-DPython_EXECUTABLE={sys.executable}",
            f"-DXLA_FFI_INCLUDE_DIR={Path(jaxlib.origin).parent / 'include'}",
            f"-D{missing}",
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode != 0
    assert words in " ".join(done.stderr.split())


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
